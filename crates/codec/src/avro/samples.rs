//! Containers and data that other implementations wrote: see `samples/make.py`.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_buffer::Buffer;
use arrow_schema::Schema as ArrowSchema;
use serde_json::Value;

use super::container::{Codec, Header, check_count};
use super::{DatumColumns, Schema, WireFormat};
use crate::values::Values;

const LIMIT: usize = 1 << 20;

/// Returns rows as JSON, without NULLs.
fn lines(columns: &mut DatumColumns, rows: usize) -> Vec<Value> {
    let arrays: Vec<ArrayRef> = columns.finish().unwrap();
    let schema = Arc::new(ArrowSchema::new(columns.fields().to_vec()));
    let batch = RecordBatch::try_new(schema.clone(), arrays).unwrap();
    let fields = schema.fields().iter().zip(batch.columns());
    let values: Vec<(&str, Values)> =
        fields.map(|(field, column)| (field.name().as_str(), Values::of(field, column))).collect();
    let line = |row| {
        let present = values.iter().filter(|(_, values)| !values.is_null(row));
        let member = |(name, values): &(&str, Values)| {
            let mut written = Vec::new();
            values.write_json(row, &mut written);
            (name.to_string(), serde_json::from_slice::<Value>(&written).unwrap())
        };
        present.map(member).collect()
    };
    (0..rows).map(line).collect()
}

/// Returns the compression, the number of blocks and the data of a container.
fn read(mut bytes: &[u8]) -> (Codec, usize, Vec<Value>) {
    let header = Header::parse(bytes).unwrap().unwrap();
    bytes = &bytes[header.size..];
    let codec = header.codec;
    let (mut blocks, mut all) = (0, Vec::new());
    let mut columns = DatumColumns::new(header.schema.clone());
    while let Some(block) = header.block(bytes, LIMIT).unwrap() {
        let data = &bytes[block.data.clone()];
        let data = Buffer::from(codec.decompress(data, LIMIT).unwrap().unwrap_or(data.to_vec()));
        check_count(block.count, data.len()).unwrap();
        columns.begin(std::slice::from_ref(&data), block.count as usize);
        let mut at = 0;
        for _ in 0..block.count {
            at += columns.read(&data[at..]).unwrap();
        }
        assert_eq!(at, data.len());
        all.extend(lines(&mut columns, block.count as usize));
        bytes = &bytes[block.size..];
        blocks += 1;
    }
    assert!(bytes.is_empty());
    (codec, blocks, all)
}

fn json_lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn containers_of_fastavro_have_all_types_in_all_compressions() {
    let expected = json_lines(include_str!("samples/types.jsonl"));
    for (codec, bytes) in [
        (Codec::Null, &include_bytes!("samples/types-null.avro")[..]),
        (Codec::Deflate, include_bytes!("samples/types-deflate.avro")),
        (Codec::Snappy, include_bytes!("samples/types-snappy.avro")),
        (Codec::Zstandard, include_bytes!("samples/types-zstandard.avro")),
    ] {
        let (found, blocks, rows) = read(bytes);
        assert_eq!(found, codec);
        assert!(blocks > 1, "{blocks} blocks");
        for (row, expected) in rows.iter().zip(&expected) {
            assert_eq!(row, expected);
        }
        assert_eq!(rows.len(), expected.len());
    }
}

#[test]
fn a_container_of_apaches_library_is_read() {
    let sample: Value = serde_json::from_str(include_str!("samples/messages.json")).unwrap();
    let expected: Vec<&Value> = sample["messages"].as_array().unwrap().iter().map(|m| &m["fields"]).collect();
    let (codec, _, rows) = read(include_bytes!("samples/apache.avro"));
    assert_eq!(codec, Codec::Deflate);
    assert_eq!(rows.iter().collect::<Vec<_>>(), expected);
}

fn bytes_of_hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

#[test]
fn data_of_fastavro_have_its_fingerprint() {
    let sample: Value = serde_json::from_str(include_str!("samples/messages.json")).unwrap();
    let schema = Arc::new(Schema::parse(&sample["schema"].to_string()).unwrap());
    for message in sample["messages"].as_array().unwrap() {
        let plain = bytes_of_hex(message["plain"].as_str().unwrap());
        let single = bytes_of_hex(message["single_object"].as_str().unwrap());
        assert_eq!(WireFormat::SingleObject.split(&single, &schema), Ok((None, plain.as_slice())));
        let mut columns = DatumColumns::new(schema.clone());
        columns.begin(&[], 1);
        assert_eq!(columns.read(&plain), Ok(plain.len()));
        assert_eq!(lines(&mut columns, 1), [message["fields"].clone()]);
    }
}
