//! Writes records as Avro's object container files, which the program reads but does not write.

use std::ops::Range;

use crate::records::Records;

/// The number of records in a block.
const BLOCK: usize = 7;

const SCHEMA: &[u8] = br#"{"type":"record","name":"numbered","fields":[{"name":"n","type":"long"},{"name":"group","type":"string"},{"name":"text","type":"string"}]}"#;

/// The bytes after the header and after each block.
const MARKER: &[u8] = b"records in avro.";

/// Returns a file with the records of a range of numbers.
pub fn container(records: Records, numbers: Range<u64>) -> Vec<u8> {
    let mut file = b"Obj\x01".to_vec();
    number(1, &mut file);
    text(b"avro.schema", &mut file);
    text(SCHEMA, &mut file);
    number(0, &mut file);
    file.extend_from_slice(MARKER);
    for block in numbers.collect::<Vec<u64>>().chunks(BLOCK) {
        let mut data = Vec::new();
        for record in block {
            let (group, padding) = records.values(*record);
            number(*record, &mut data);
            text(group.as_bytes(), &mut data);
            text(padding.as_bytes(), &mut data);
        }
        number(block.len() as u64, &mut file);
        text(&data, &mut file);
        file.extend_from_slice(MARKER);
    }
    file
}

/// Writes a number that is not negative: twice the number, in groups of seven bits, the lowest first.
fn number(value: u64, out: &mut Vec<u8>) {
    let mut rest = value * 2;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// Writes a length and as many bytes.
fn text(bytes: &[u8], out: &mut Vec<u8>) {
    number(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}
