//! The transform `encode`, which is also the option `encode` of sinks.
//!
//! [`Encoding`] in the codec does the work. The transform lives here, below all families of components,
//! because the sinks of each family build it: the plan runs it at the end of every pipeline that leads to
//! such a sink.

use std::time::Duration;

use arrow_schema::Schema;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use thalweg_codec::encode::{Columns, Encoder, Encoding, TableOptions};
use thalweg_engine::{
    Component, Context, Error, FieldUse, Journal, Mistake, Outputs, Transform, TransformConfig,
};
use thalweg_record::Batch;

use crate::pieces::Pieces;

/// Writes the fields of each message as its payload.
///
/// `json` writes an object, `csv` a line of comma-separated values, `logfmt` pairs as in `level=info`, and
/// `text` a template. The fields stay. With `into`, the text becomes a field. A message that was never parsed
/// and has no fields is written as if its payload were its only field. Sinks have the same options as
/// `encode`; there, `raw` leaves the payload as it is. The sinks `objects` and `file` also write Parquet
/// tables: `parquet`.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct EncodeConfig(Encoding);

impl EncodeConfig {
    /// Returns the format `json` without options: the default of sinks whose targets take only JSON.
    pub fn json() -> Self {
        Self(Encoding::json())
    }

    /// True if payloads stay as they are.
    pub fn is_raw(&self) -> bool {
        self.0.is_raw()
    }

    /// Returns the transform for [`SinkConfig::encoder`](thalweg_engine::SinkConfig::encoder); none for `raw`
    /// and for tables.
    pub fn encoder(&self) -> Option<Box<dyn TransformConfig>> {
        let is_of_messages = !self.is_raw() && self.table().is_none();
        is_of_messages.then(|| Box::new(self.clone()) as Box<dyn TransformConfig>)
    }

    /// Returns how tables are written, if the format is Parquet. The sink writes them itself.
    pub fn table(&self) -> Option<&TableOptions> {
        self.0.table()
    }

    /// Returns the mistakes in the option `encode` of a sink that writes no tables.
    pub fn mistakes(&self) -> Vec<Mistake> {
        of_sink(self.check())
    }

    /// Returns the mistakes in the option `encode` of a sink that also writes tables.
    pub fn mistakes_with_tables(&self) -> Vec<Mistake> {
        of_sink(self.0.check())
    }

    /// Returns the first line of a file whose messages have these fields, without its line feed, if the
    /// format has one.
    pub fn header(&self, fields: &Schema) -> Option<Vec<u8>> {
        self.0.header(fields)
    }
}

impl Component for EncodeConfig {
    const NAME: &'static str = "encode";
    const EXAMPLE: &'static str = r#"
sources:
  messages: { generate: { lines: ['{"level": "info", "text": "all is well"}'] } }
pipelines:
  main:
    from: messages
    transforms:
      - parse_json: {}
      - encode: logfmt
    to: nowhere
sinks:
  nowhere: { discard: {} }
"#;

    fn check(&self) -> Vec<Mistake> {
        let mut mistakes = self.0.check();
        if self.table().is_some() {
            let mistake = Mistake::new("format", "`parquet` writes whole files, not single messages.");
            mistakes.push(mistake.help(
                "Use `encode: parquet` in a sink `objects` or `file`, which write files, or another format here.",
            ));
        }
        mistakes
    }
}

/// Returns mistakes of the transform as those of an option of a sink.
fn of_sink(mistakes: Vec<Mistake>) -> Vec<Mistake> {
    mistakes.into_iter().map(|mistake| Mistake { option: "encode", ..mistake }).collect()
}

impl TransformConfig for EncodeConfig {
    fn names_intrinsic(&self) -> bool {
        self.0.names_intrinsic()
    }

    fn fields(&self) -> Vec<String> {
        self.0.fields()
    }

    /// A column is a whole field, also of JSON.
    fn field_use(&self) -> FieldUse {
        FieldUse::Whole
    }

    fn build(&self, context: &Context) -> Result<Box<dyn Transform>, Error> {
        let encoder = self.0.build().map_err(|mistake| Error::permanent(mistake.message))?;
        let journal = context.journal.clone().filter(|_| context.resumes);
        if let Some(journal) = &journal
            && let Some((_, columns)) = journal.entries(COLUMNS)?.into_iter().next()
            && let Ok(columns) = serde_json::from_value::<Columns>(columns)
        {
            self.0.decide(columns);
        }
        let pieces = Pieces::new(LARGEST * context.batch_bytes);
        Ok(Box::new(Encode { encoder, encoding: self.0.clone(), journal, pieces }))
    }
}

/// The name of the journal's entry for the columns that the first batch decided. A run that continues has the
/// same ones, because it writes into files whose headers name them.
const COLUMNS: &str = "columns";

/// The maximum size of the text of a piece, as a multiple of the size of a batch.
const LARGEST: usize = 4;

struct Encode {
    encoder: Encoder,
    encoding: Encoding,
    /// Until the columns are noted.
    journal: Option<Journal>,
    /// Messages that share a large value, such as the parts of one message, can have a text that is thousands
    /// of times as large as the batch.
    pieces: Pieces,
}

impl Transform for Encode {
    fn apply(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
        self.pieces.push(batch);
        self.resume(out)
    }

    fn resume(&mut self, out: &mut Outputs) -> Result<(), Error> {
        if let Some(piece) = self.pieces.next_of_records() {
            self.encode(piece, out)?;
        }
        if !self.pieces.is_empty() {
            out.hold(Duration::ZERO);
        }
        Ok(())
    }
}

impl Encode {
    fn encode(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
        self.encoder.encode(batch, out)?;
        if let Some(journal) = &self.journal
            && let Some(columns) = self.encoding.decided()
        {
            // Before the sink writes a header.
            journal.note(COLUMNS, &json!(columns))?;
            self.journal = None;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
