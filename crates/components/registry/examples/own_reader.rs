//! A custom reader and a custom writer. The reader reads measurements of eight bytes each from a file in
//! slices; the writer adds them up.
//!
//! ```text
//! cargo run --release -p thalweg-components --example own_reader
//! ```

use std::error::Error;
use std::io::Write;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{ArrayRef, Float64Array, RecordBatch};
use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_components::custom::{Custom, Reader, Rows, WriteError, Writer};
use thalweg_config::Document;
use thalweg_engine::{Plan, Run, StateDir};

/// Reads measurements, each a number of 64 bits.
struct Measurements {
    big_endian: bool,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct MeasurementsOptions {
    /// Whether the numbers are big-endian. The default is `false`.
    #[serde(default)]
    big_endian: bool,
}

impl Reader for Measurements {
    const NAME: &'static str = "measurements";
    type Options = MeasurementsOptions;

    fn new(options: &MeasurementsOptions) -> Result<Self, String> {
        Ok(Self { big_endian: options.big_endian })
    }

    fn read(&mut self, bytes: &[u8], _at_end: bool) -> Result<Rows, String> {
        // The rest is a part of a number. The next call receives it again, with more bytes.
        let (numbers, _) = bytes.as_chunks::<8>();
        let number = |bytes: &[u8; 8]| match self.big_endian {
            true => f64::from_be_bytes(*bytes),
            false => f64::from_le_bytes(*bytes),
        };
        let column: ArrayRef = Arc::new(Float64Array::from_iter_values(numbers.iter().map(number)));
        let rows = RecordBatch::try_from_iter([("value", column)]).map_err(|error| error.to_string())?;
        Ok(Rows { rows: Some(rows), used: numbers.len() * 8 })
    }
}

/// Adds up the column `value`, and prints the sum.
#[derive(Default)]
struct Sum {
    rows: usize,
    sum: f64,
}

#[async_trait]
impl Writer for Sum {
    const NAME: &'static str = "sum";
    type Options = serde_json::Map<String, serde_json::Value>;

    fn new(_: &Self::Options) -> Result<Self, String> {
        Ok(Self::default())
    }

    async fn write(&mut self, rows: &RecordBatch) -> Result<(), WriteError> {
        let missing = || WriteError::Never("there is no column `value`".to_owned());
        let column = rows.column_by_name("value").ok_or_else(missing)?;
        let values = column.as_primitive_opt::<Float64Type>().ok_or_else(missing)?;
        self.rows += values.len();
        self.sum += values.values().iter().sum::<f64>();
        Ok(())
    }

    async fn finish(&mut self) -> Result<(), WriteError> {
        println!("{} measurements, {} in all", self.rows, self.sum);
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::temp_dir().join(format!("own-reader-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let mut file = std::io::BufWriter::new(std::fs::File::create(folder.join("measured.bin"))?);
    for number in 0..10_000_000 {
        file.write_all(&f64::from(number % 1000).to_le_bytes())?;
    }
    file.flush()?;
    let text = format!(
        "sources: {{ measured: {{ objects: {{ url: '{}/*.bin', slice_size: 1MB }} }} }}\n\
         pipelines: {{ main: {{ from: measured, transforms: [measurements: {{}}, filter: 'value < 500'], to: sum }} }}\n\
         sinks: {{ sum: {{ sum: {{}} }} }}\n",
        folder.display()
    );

    let registry = thalweg_components::registry().reader::<Measurements>().writer::<Sum>();
    let document = Document::parse("own.yaml", &text).map_err(|mistakes| mistakes.render(false))?;
    let graph = thalweg_engine::read(&document, &registry).map_err(|mistakes| mistakes.render(false))?;
    let plan = Plan::new(&graph, 2);
    let state_dir = StateDir { folder: folder.join("state"), positions: false, owner: None };
    let runtime = tokio::runtime::Runtime::new()?;
    let summary =
        runtime.block_on(async { Ok::<_, Box<dyn Error>>(Run::new(plan, state_dir)?.wait().await) })?;
    std::fs::remove_dir_all(&folder)?;
    match summary.failure {
        None => Ok(()),
        Some(failure) => Err(failure.into()),
    }
}
