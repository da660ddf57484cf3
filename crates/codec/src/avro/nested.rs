//! Writes nested values as JSON text.
//!
//! The value of a union is written without the name of its branch. Bytes are in base64, and numbers that JSON
//! does not have are `null`, as encoders write them.

use arrow_schema::TimeUnit;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::DEEPEST;
use super::cursor::{Cursor, Fault};
use super::logical::{date, duration, time, uuid};
use super::schema::{Node, RecordField, Schema};
use crate::json::write_text;
use crate::values::{write_float, write_float32, write_int, write_time};

/// The size that the text of a datum may have in any case, and for each byte of the datum. Items of arrays
/// may take no bytes, and names of fields may be long, so a few bytes could become terabytes.
const BASE: usize = 64 << 10;
const FACTOR: usize = 1 << 10;

/// Bounds the text that one datum becomes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Growth {
    /// The bytes that the columns before have written.
    pub(super) written: usize,
    /// The maximum, in bytes, however long the datum is.
    pub(super) most: usize,
}

impl Growth {
    /// True if the datum may have `more` bytes of text, after `read` of its bytes.
    pub(super) fn allows(self, more: usize, read: usize) -> bool {
        let written = self.written.saturating_add(more);
        written <= self.most && written <= read.saturating_mul(FACTOR).saturating_add(BASE)
    }
}

/// Reads a value and appends it to `out`. After an error, `out` ends with a part of the value.
pub(super) fn write(
    schema: &Schema,
    node: usize,
    cursor: &mut Cursor<'_>,
    growth: Growth,
    out: &mut Vec<u8>,
) -> Result<(), Fault> {
    let start = out.len();
    let mut writer = Writer { schema, growth, start, out };
    // The row is an object around the value.
    writer.value(node, cursor, 1)?;
    writer.check_size(cursor)
}

struct Writer<'a> {
    schema: &'a Schema,
    growth: Growth,
    /// The length of `out` before the value.
    start: usize,
    out: &'a mut Vec<u8>,
}

impl Writer<'_> {
    fn value(&mut self, node: usize, cursor: &mut Cursor<'_>, depth: usize) -> Result<(), Fault> {
        self.check_size(cursor)?;
        let schema = self.schema;
        match schema.node(node) {
            Node::Array(items) => self.array(*items, cursor, depth + 1),
            Node::Map(values) => self.map(*values, cursor, depth + 1),
            Node::Record(fields) => self.record(fields, cursor, depth + 1),
            Node::Union(branches) => self.value(cursor.branch(branches)?, cursor, depth),
            scalar => scalar_json(scalar, cursor, self.out),
        }
    }

    fn check_size(&self, cursor: &Cursor<'_>) -> Result<(), Fault> {
        let is_allowed = self.growth.allows(self.out.len() - self.start, cursor.at());
        if is_allowed { Ok(()) } else { Err(Fault::Large) }
    }

    fn array(&mut self, items: usize, cursor: &mut Cursor<'_>, depth: usize) -> Result<(), Fault> {
        let before = open(b'[', depth)?;
        let before = self.blocks(before, cursor, |writer, cursor| writer.value(items, cursor, depth))?;
        self.close(before, b"[]");
        Ok(())
    }

    fn map(&mut self, values: usize, cursor: &mut Cursor<'_>, depth: usize) -> Result<(), Fault> {
        let before = open(b'{', depth)?;
        let before = self.blocks(before, cursor, |writer, cursor| {
            write_text(cursor.text()?, writer.out);
            writer.out.push(b':');
            writer.value(values, cursor, depth)
        })?;
        self.close(before, b"{}");
        Ok(())
    }

    /// Writes the items of all blocks, each after the byte `before` or a comma. Returns the byte that comes
    /// before a further one.
    fn blocks(
        &mut self,
        mut before: u8,
        cursor: &mut Cursor<'_>,
        mut item: impl FnMut(&mut Self, &mut Cursor<'_>) -> Result<(), Fault>,
    ) -> Result<u8, Fault> {
        loop {
            let count = cursor.block()?;
            if count == 0 {
                return Ok(before);
            }
            for _ in 0..count {
                self.out.push(before);
                before = b',';
                item(self, cursor)?;
            }
        }
    }

    fn record(&mut self, fields: &[RecordField], cursor: &mut Cursor<'_>, depth: usize) -> Result<(), Fault> {
        let mut before = open(b'{', depth)?;
        for field in fields {
            self.out.push(before);
            before = b',';
            self.out.extend_from_slice(&field.key);
            self.value(field.node, cursor, depth)?;
        }
        self.close(before, b"{}");
        Ok(())
    }

    /// Ends an array or object, whose first bracket was written if there was an item.
    fn close(&mut self, before: u8, brackets: &[u8; 2]) {
        let written = usize::from(before == b',');
        self.out.extend_from_slice(brackets.get(written..).unwrap_or_default());
    }
}

/// Returns the opening bracket of an array or object at this depth.
fn open(bracket: u8, depth: usize) -> Result<u8, Fault> {
    if depth > DEEPEST { Err(Fault::Deep) } else { Ok(bracket) }
}

/// Reads a value without parts, and appends it.
fn scalar_json(node: &Node, cursor: &mut Cursor<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
    match node {
        Node::Boolean => out.extend_from_slice(if cursor.boolean()? { b"true" } else { b"false" }),
        Node::Int => write_int(cursor.int()?.into(), out),
        Node::Long => write_int(cursor.long()?, out),
        Node::Float => write_float32(cursor.float()?, out),
        Node::Double => write_float(cursor.double()?, out),
        Node::String => write_text(cursor.text()?, out),
        Node::Bytes => write_text(&STANDARD.encode(cursor.bytes()?), out),
        Node::Fixed(size) => write_text(&STANDARD.encode(cursor.take(*size)?), out),
        Node::Enum(symbols) => write_text(cursor.symbol(symbols)?, out),
        Node::Decimal(decimal) => out.extend_from_slice(decimal.text(cursor)?.as_bytes()),
        Node::Date => write_text(&date(cursor)?.1.to_string(), out),
        Node::TimeMillis => write_text(&time(cursor.int()?.into(), 1_000)?.to_string(), out),
        Node::TimeMicros => write_text(&time(cursor.long()?, 1_000_000)?.to_string(), out),
        Node::Timestamp { unit, .. } => {
            out.push(b'"');
            write_time(cursor.long()?, per_second(*unit), out);
            out.push(b'"');
        }
        Node::Uuid => write_text(&uuid(cursor)?, out),
        Node::Duration => write_text(&duration(cursor)?, out),
        Node::Null | Node::Array(_) | Node::Map(_) | Node::Record(_) | Node::Union(_) => {
            out.extend_from_slice(b"null");
        }
    }
    Ok(())
}

fn per_second(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000,
    }
}
