//! Avro: files with their schemas, schemas, and data as messages.

use std::sync::{Arc, LazyLock};

use thalweg_codec::avro::{DatumColumns, Schema};
use thalweg_engine::testing::{Arrived, OutputReceiver, context, file_of, file_output, options};
use thalweg_engine::{Context, FileError, FileReaderConfig};
use thalweg_files::transforms::avro::Avro;
use thalweg_record::{Budget, Outcome};
use thalweg_transforms::parse_avro::ParseAvro;
use tokio::runtime::{Builder, Runtime};

use crate::Target;
use crate::input::Input;
use crate::memory::bounded;
use crate::messages::{Chain, Leaves, as_json, check, transform};

pub(super) const TARGET: Target = Target {
    name: "avro",
    components: &["avro", "parse_avro"],
    longest: 8 << 10,
    words: &[
        "Obj\u{1}",
        "\u{16}avro.schema",
        "\u{14}avro.codec",
        "\u{e}deflate",
        "\u{c}snappy",
        "\u{12}zstandard",
        "0123456789abcdef",
        "{\"type\":\"record\",\"name\":\"r\",\"fields\":[",
        "{\"name\":\"a\",\"type\":",
        "{\"type\":\"array\",\"items\":",
        "[\"null\",\"string\"]",
        "\"logicalType\":\"decimal\",\"precision\":40",
    ],
    run,
};

static CHAINS: LazyLock<Vec<Chain>> = LazyLock::new(|| {
    let record = r#"schema: '{"type": "record", "name": "r", "fields": [
        {"name": "a", "type": "int"}, {"name": "b", "type": ["null", "string"]},
        {"name": "c", "type": {"type": "map", "values": ["string", "boolean", "r"]}},
        {"name": "d", "type": {"type": "enum", "name": "e", "symbols": ["A", "B"]}}]}'"#;
    let logical = r#"schema: '{"type": "record", "name": "r", "fields": [
        {"name": "a", "type": {"type": "int", "logicalType": "date"}},
        {"name": "b", "type": {"type": "bytes", "logicalType": "decimal", "precision": 50, "scale": 3}},
        {"name": "c", "type": {"type": "array", "items": {"type": "long", "logicalType": "timestamp-nanos"}}},
        {"name": "d", "type": {"type": "long", "logicalType": "time-micros"}}]}'"#;
    vec![
        transform::<ParseAvro>(record),
        transform::<ParseAvro>(logical),
        transform::<ParseAvro>(&format!("{record}\nwire_format: confluent\nschema_id_field: id")),
        transform::<ParseAvro>("{ schema: '\"float\"', wire_format: single_object }"),
    ]
});

thread_local! {
    static RUNTIME: Runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
}

/// The size of a batch, in bytes, and the number of its rows that are written as JSON.
const BATCH: usize = 16 << 10;
const SHOWN: usize = 64;

/// The maximum size of nested values, in bytes.
const LONGEST: usize = 1 << 20;

fn run(bytes: &[u8]) {
    let mut input = Input(bytes);
    match input.choice(CHAINS.len() + 2) {
        0 => bounded((32 << 20) + 400 * bytes.len(), || {
            RUNTIME.with(|runtime| runtime.block_on(container(input.0)));
        }),
        1 => {
            let schema = input.text_line();
            bounded((16 << 20) + 1000 * bytes.len(), || datum(&schema, input.0));
        }
        chosen => {
            let lines = input.lines();
            bounded((16 << 20) + 800 * bytes.len(), || check(&CHAINS[chosen - 2], &lines, Leaves::OneAlone));
        }
    }
}

/// Reads a file, of which as much may be decompressed as its blocks allow.
async fn container(bytes: &[u8]) {
    let mut file = file_of("a.avro", bytes);
    let budget = Budget::new(1 << 20);
    let context = Context { batch_bytes: BATCH, memory: budget.share(), ..context() };
    let mut reader = options::<Avro>("{ max_block_bytes: 64KiB }").build(&context).expect("a reader");
    let (mut out, main, errors) = file_output(&budget, BATCH, &file);
    let reading = async move {
        if let Err(FileError::Failed(error)) = reader.unpack(&mut file, &mut out).await {
            panic!("a file does not fail the run: {error}");
        }
    };
    tokio::join!(reading, drained(main), drained(errors));
}

/// Takes all messages, and writes some as JSON.
async fn drained(from: OutputReceiver) {
    while let Some((_, Arrived::Messages(batch))) = from.take().await {
        assert!(batch.rows() > 0 && batch.fields().num_rows() == batch.rows());
        let shown = batch.rows().min(SHOWN);
        as_json(batch.share().slice(0, shown));
        batch.settle(Outcome::Delivered);
    }
}

/// Reads one datum of any schema. A datum that was read cannot be read without its last byte.
fn datum(schema: &str, bytes: &[u8]) {
    let Ok(schema) = Schema::parse(schema) else { return };
    let schema = Arc::new(schema);
    let read = |bytes: &[u8]| {
        let mut columns = DatumColumns::new(schema.clone()).within(LONGEST);
        columns.begin(&[], 1);
        let size = columns.read(bytes);
        let arrays = columns.finish().expect("columns");
        assert!(arrays.iter().all(|array| array.len() == 1));
        size
    };
    if let Ok(size) = read(bytes) {
        assert!(size <= bytes.len(), "{size} of {} bytes were read", bytes.len());
        if let Some(cut) = size.checked_sub(1).and_then(|end| bytes.get(..end)) {
            assert!(read(cut).is_err(), "a datum without its last byte was read");
        }
    }
}
