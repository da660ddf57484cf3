//! Writes columns one after the other.

use arrow_array::BinaryViewArray;
use thalweg_record::{Batch, PayloadWriter};

use super::Writer;
use crate::block::Block;
use crate::json;
use crate::template::column;
use crate::values::Values;

/// A column's name, and the bytes before each of its values: the separator and the key.
pub(super) struct Key {
    name: String,
    /// The index of the field, if there is a field of that name.
    place: Option<usize>,
    start: Block,
}

impl Key {
    pub(super) fn new(place: Option<usize>, name: String, writer: &Writer) -> Self {
        let mut key = Vec::new();
        match writer {
            Writer::Json { .. } => json_key(&name, &mut key),
            Writer::Csv { delimiter, .. } => key.push(*delimiter),
            Writer::Logfmt => {
                key.push(b' ');
                let plain = |c: char| if c <= ' ' || matches!(c, '=' | '"' | '\u{7f}') { '_' } else { c };
                key.extend_from_slice(name.chars().map(plain).collect::<String>().as_bytes());
                key.push(b'=');
            }
            Writer::Text(_) | Writer::Raw => {}
        }
        Self { name, place, start: Block::new(key) }
    }
}

/// Writes a comma, the name of a member of an object, and a colon.
pub(super) fn json_key(name: &str, out: &mut Vec<u8>) {
    out.push(b',');
    json::write_text(name, out);
    out.push(b':');
}

pub(super) fn columns<'a>(keys: &'a [Key], batch: &Batch) -> Vec<(&'a Key, Values)> {
    let fields = batch.fields();
    let schema = fields.schema_ref();
    let values = |key: &Key| match key.place {
        Some(place) => Values::of(schema.field(place), fields.column(place)),
        None => column(batch, &key.name),
    };
    keys.iter().map(|key| (key, values(key))).collect()
}

pub(super) fn write_json(
    columns: &[(&Key, Values)],
    rows: usize,
    keep_nulls: bool,
    mut written: PayloadWriter,
) -> BinaryViewArray {
    for row in 0..rows {
        let out = written.buffer();
        let start = out.len();
        for (key, values) in columns {
            if !values.is_null(row) {
                key.start.write(out);
                values.write_json(row, out);
            } else if keep_nulls {
                key.start.write(out);
                out.extend_from_slice(b"null");
            }
        }
        // Each key starts with a comma. The comma of the first is where the brace belongs.
        match out.get_mut(start) {
            Some(first) => *first = b'{',
            None => out.push(b'{'),
        }
        out.push(b'}');
        written.end();
    }
    written.finish()
}

pub(super) fn write_csv(
    columns: &[(&Key, Values)],
    rows: usize,
    delimiter: u8,
    trailing: bool,
    mut written: PayloadWriter,
) -> BinaryViewArray {
    for row in 0..rows {
        let out = written.buffer();
        for (number, (_, values)) in columns.iter().enumerate() {
            if number > 0 {
                out.push(delimiter);
            }
            // NULL is written as nothing and an empty text as two quotes, so readers can distinguish them.
            if values.has_text(row) {
                let start = out.len();
                values.write_text(row, out);
                quote_csv(out, start, delimiter);
            }
        }
        if trailing {
            out.push(delimiter);
        }
        written.end();
    }
    written.finish()
}

/// Puts quotes around the bytes written since `start`, if they need them (RFC 4180).
pub(super) fn quote_csv(out: &mut Vec<u8>, start: usize, delimiter: u8) {
    let value = out.get(start..).unwrap_or_default();
    // The loop has no early exit: that lets the compiler test many bytes at once.
    let special = |byte: u8| (byte == delimiter) | (byte == b'"') | (byte == b'\r') | (byte == b'\n');
    if !value.is_empty() && !value.iter().fold(false, |found, &byte| found | special(byte)) {
        return;
    }
    let value = out.split_off(start);
    out.push(b'"');
    for byte in value {
        if byte == b'"' {
            out.push(b'"');
        }
        out.push(byte);
    }
    out.push(b'"');
}

pub(super) fn write_logfmt(
    columns: &[(&Key, Values)],
    rows: usize,
    mut written: PayloadWriter,
) -> BinaryViewArray {
    for row in 0..rows {
        let out = written.buffer();
        let mut first = true;
        for (key, values) in columns {
            if !values.has_text(row) {
                continue;
            }
            // Each key starts with a space, which the first key does not need.
            if std::mem::take(&mut first) {
                out.extend_from_slice(key.start.text().get(1..).unwrap_or_default());
            } else {
                key.start.write(out);
            }
            let start = out.len();
            values.write_text(row, out);
            quote_logfmt(out, start);
        }
        written.end();
    }
    written.finish()
}

/// Puts quotes around the bytes written since `start`, if they need them.
fn quote_logfmt(out: &mut Vec<u8>, start: usize) {
    let value = out.get(start..).unwrap_or_default();
    let special =
        |byte: u8| (byte <= b' ') | (byte == b'=') | (byte == b'"') | (byte == b'\\') | (byte == 0x7f);
    if !value.is_empty() && !value.iter().fold(false, |found, &byte| found | special(byte)) {
        return;
    }
    let value = out.split_off(start);
    json::write_text(&String::from_utf8_lossy(&value), out);
}
