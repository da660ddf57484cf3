//! Writes values and messages as JSON.
//!
//! Names are those of the `.proto` file. As in Protocol Buffers' own JSON, missing fields are left out, bytes
//! are base64, enumerations are names, and maps are objects. Integers of 64 bits are numbers, as everywhere
//! else in the output, and not texts.

use std::ops::Range;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use thalweg_config::ByteSize;
use thalweg_record::LONGEST_TEXT;

use super::DEEPEST;
use super::events::Events;
use super::fault::Fault;
use super::kind::{Kind, Scalar};
use super::schema::{Enum, Field, Form, Label, Schema};
use super::times::{microseconds, seconds};
use super::wire::{Raw, Reader, Wire};
use crate::columns::is_whole;
use crate::json::write_text;
use crate::values::{write_float, write_float32, write_int, write_time};

/// Writes messages of a schema, with memory that is reused.
#[derive(Debug)]
pub(super) struct JsonWriter {
    pub(super) events: Events,
    /// The keys of maps, in quotes.
    keys: Vec<u8>,
    /// The entries of maps that are being written.
    entries: Vec<Entry>,
    /// The size that the JSON of any message may have, in bytes.
    pub(super) most: usize,
    /// The maximum size of the JSON of the current message, in bytes. Names of fields and of values are not
    /// in the message, so a byte may become any number of bytes.
    limit: usize,
    /// The size of the finished JSON of the batch, in bytes, and its size before the current message.
    pub(super) written: usize,
    before: usize,
}

/// The maximum size of a value of a column, in bytes.
const LARGEST: usize = 1 << 30;

/// An entry of a map: the range of its key among the keys, and its bytes in the message.
#[derive(Debug, Clone)]
struct Entry {
    key: Range<usize>,
    raw: Raw,
}

impl JsonWriter {
    pub(super) fn new(schema: &Schema) -> Self {
        let (keys, entries) = (Vec::new(), Vec::new());
        let (most, limit) = (LONGEST_TEXT, LONGEST_TEXT);
        Self { events: Events::new(schema), keys, entries, most, limit, written: 0, before: 0 }
    }

    /// Starts with a message of this many bytes that is in no other.
    pub(super) fn restart(&mut self, bytes: usize) {
        self.events.restart(bytes);
        self.keys.clear();
        self.entries.clear();
        self.limit = self.most.max(bytes.saturating_mul(2)).min(LARGEST);
        self.before = self.written;
    }

    /// Releases the memory of unusual messages.
    pub(super) fn shrink(&mut self) {
        self.events.shrink();
        (self.keys, self.entries) = (Vec::new(), Vec::new());
    }

    /// Checks the size of the JSON of the current message, of which `out` is not finished.
    #[inline]
    pub(super) fn check_size(&self, out: &[u8]) -> Result<(), Fault> {
        if self.written - self.before + out.len() <= self.limit {
            return Ok(());
        }
        let limit = ByteSize(self.limit as u64);
        Err(Fault::new(format!(
            "is too large: the nested values of a message have more than {limit} as JSON"
        )))
    }

    /// Writes the value of a field, which has these events. `depth` is the number of objects and lists that
    /// it is in.
    pub(super) fn field(
        &mut self,
        schema: &Schema,
        field: &Field,
        (bytes, events): (&[u8], Range<usize>),
        depth: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), Fault> {
        let written = match field.label {
            Label::Single => self.single(schema, field, (bytes, events), depth, out),
            Label::List => self.list(schema, field.kind, (bytes, events), depth, out),
            Label::Map => self.map(schema, field.kind, (bytes, events), depth, out),
        };
        written.map_err(|fault| fault.within(&field.name))
    }

    fn single(
        &mut self,
        schema: &Schema,
        field: &Field,
        (bytes, events): (&[u8], Range<usize>),
        depth: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), Fault> {
        if let Kind::Message(message) = field.kind {
            let merged = self.events.merged(bytes, events)?;
            return self.message(schema, message, &merged, depth, out);
        }
        let last = events.end.checked_sub(1).and_then(|last| self.events.raw(last));
        last.map_or(Ok(()), |raw| self.one(schema, field.kind, (bytes, raw), depth, out))
    }

    /// Writes one value of a field.
    fn one(
        &mut self,
        schema: &Schema,
        kind: Kind,
        (bytes, raw): (&[u8], Raw),
        depth: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), Fault> {
        self.check_size(out)?;
        match kind {
            Kind::Message(message) => self.message(schema, message, raw.bytes(bytes), depth, out),
            kind => {
                scalar(schema, kind.scalar(raw, bytes).map_err(Fault::new)?, out);
                Ok(())
            }
        }
    }

    fn list(
        &mut self,
        schema: &Schema,
        kind: Kind,
        (bytes, events): (&[u8], Range<usize>),
        depth: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), Fault> {
        let depth = deeper(depth)?;
        let mut before = b'[';
        for event in events {
            let Some(raw) = self.events.raw(event) else { continue };
            if !is_packed(kind, raw) {
                out.push(before);
                before = b',';
                self.one(schema, kind, (bytes, raw), depth, out)?;
                continue;
            }
            let packed = raw.bytes(bytes);
            let mut reader = Reader::new(packed);
            while let Some(raw) = reader.packed(kind.wire())? {
                out.push(before);
                before = b',';
                self.one(schema, kind, (packed, raw), depth, out)?;
            }
        }
        if before == b'[' {
            out.push(b'[');
        }
        out.push(b']');
        Ok(())
    }

    /// Writes a map as an object whose keys are sorted. Of several entries with one key, the last counts.
    fn map(
        &mut self,
        schema: &Schema,
        kind: Kind,
        (bytes, events): (&[u8], Range<usize>),
        depth: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), Fault> {
        let Kind::Message(entry) = kind else { return Err(Fault::new("is no map")) };
        let depth = deeper(depth)?;
        let (first_key, first) = (self.keys.len(), self.entries.len());
        self.collect(schema, entry, (bytes, events))?;
        let end = self.entries.len();
        let mut before = b'{';
        for at in first..end {
            let Some(current) = self.entries.get(at).cloned() else { break };
            let key = self.keys.get(current.key.clone());
            let next = self.entries.get(at + 1).filter(|_| at + 1 < end);
            if next.is_some_and(|next| self.keys.get(next.key.clone()) == key) {
                continue;
            }
            out.push(before);
            before = b',';
            out.extend_from_slice(key.unwrap_or_default());
            out.push(b':');
            self.check_size(out)?;
            self.map_value(schema, entry, current.raw.bytes(bytes), depth, out)?;
        }
        if before == b'{' {
            out.push(b'{');
        }
        out.push(b'}');
        self.keys.truncate(first_key);
        self.entries.truncate(first);
        Ok(())
    }

    /// Collects the entries of a map with their keys, in the order of the keys. Entries of one key keep their
    /// order.
    fn collect(
        &mut self,
        schema: &Schema,
        entry: usize,
        (bytes, events): (&[u8], Range<usize>),
    ) -> Result<(), Fault> {
        let first = self.entries.len();
        for event in events {
            let Some(raw) = self.events.raw(event) else { continue };
            let start = self.keys.len();
            key_of(schema, entry, raw.bytes(bytes), &mut self.keys)?;
            self.entries.push(Entry { key: start..self.keys.len(), raw });
        }
        let (keys, entries) = (&self.keys, self.entries.get_mut(first..).unwrap_or_default());
        entries.sort_by(|one, other| keys.get(one.key.clone()).cmp(&keys.get(other.key.clone())));
        Ok(())
    }

    /// Writes the value of an entry of a map.
    fn map_value(
        &mut self,
        schema: &Schema,
        entry: usize,
        bytes: &[u8],
        depth: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), Fault> {
        let events = self.events.read(schema, entry, bytes)?;
        let Some(at) = schema.message(entry).index_of(VALUE, 1) else {
            return Err(Fault::new("has a map without values"));
        };
        let field = schema.field(entry, at as u32);
        let found = self.events.of_field(at as u32, events.clone());
        match (field.kind, found.is_empty()) {
            (Kind::Message(_), _) | (_, false) => self.field(schema, field, (bytes, found), depth, out)?,
            (kind, true) => zero(schema, kind, out),
        }
        self.events.forget(events);
        Ok(())
    }

    /// Writes a message.
    pub(super) fn message(
        &mut self,
        schema: &Schema,
        message: usize,
        bytes: &[u8],
        depth: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), Fault> {
        self.check_size(out)?;
        match schema.message(message).form {
            Form::Object => self.object(schema, message, bytes, depth, out),
            Form::Time => {
                let time = self.events.seconds(schema, message, bytes)?;
                out.push(b'"');
                write_time(microseconds(time)?, 1_000_000, out);
                out.push(b'"');
                Ok(())
            }
            Form::Duration => {
                let time = self.events.seconds(schema, message, bytes)?;
                write_float(seconds(time)?, out);
                Ok(())
            }
            Form::Wrapper => self.inner(schema, message, bytes, depth, None, out),
            Form::Json(empty) => self.inner(schema, message, bytes, depth, Some(empty), out),
        }
    }

    fn object(
        &mut self,
        schema: &Schema,
        message: usize,
        bytes: &[u8],
        depth: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), Fault> {
        let depth = deeper(depth)?;
        let events = self.events.read(schema, message, bytes)?;
        let mut rest = events.clone();
        let mut before = b'{';
        while let Some((index, of_field)) = self.events.first(rest.clone()) {
            rest.start = of_field.end;
            let field = schema.field(message, index);
            out.push(before);
            before = b',';
            out.extend_from_slice(&field.key);
            self.field(schema, field, (bytes, of_field), depth, out)?;
        }
        if before == b'{' {
            out.push(b'{');
        }
        out.push(b'}');
        self.events.forget(events);
        Ok(())
    }

    /// Writes the field that is set. If none is: `empty`, or the default value of the only field.
    fn inner(
        &mut self,
        schema: &Schema,
        message: usize,
        bytes: &[u8],
        depth: usize,
        empty: Option<&str>,
        out: &mut Vec<u8>,
    ) -> Result<(), Fault> {
        let events = self.events.read(schema, message, bytes)?;
        match (self.events.first(events.clone()), empty) {
            (Some((index, of_field)), _) => {
                let field = schema.field(message, index);
                // Lists and maps count by themselves.
                let depth = if field.label == Label::Single { deeper(depth)? } else { depth };
                self.field(schema, field, (bytes, of_field), depth, out)?;
            }
            (None, Some(empty)) => out.extend_from_slice(empty.as_bytes()),
            (None, None) => zero(schema, schema.field(message, 0).kind, out),
        }
        self.events.forget(events);
        Ok(())
    }
}

/// The number of the key of an entry of a map, and that of the value.
const KEY: u32 = 1;
const VALUE: u32 = 2;

/// Returns the depth within an object or a list.
pub(crate) fn deeper(depth: usize) -> Result<usize, Fault> {
    if depth >= DEEPEST { Err(Fault::too_deep()) } else { Ok(depth + 1) }
}

/// True if a value holds several numbers.
fn is_packed(kind: Kind, raw: Raw) -> bool {
    matches!(raw, Raw::Bytes { .. }) && kind.wire() != Wire::Bytes
}

/// Writes the key of an entry of a map in quotes.
fn key_of(schema: &Schema, entry: usize, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), Fault> {
    let kind = schema.message(entry).index_of(KEY, 0).map(|at| schema.field(entry, at as u32).kind);
    let kind = kind.ok_or_else(|| Fault::new("has a map without keys"))?;
    let mut last = None;
    let mut reader = Reader::new(bytes);
    while let Some((number, raw)) = reader.field()? {
        if number == KEY {
            last = Some(raw);
        }
    }
    let start = out.len();
    match last {
        // The wire type is checked when the value is read.
        Some(raw) => scalar(schema, kind.scalar(raw, bytes).map_err(Fault::new)?, out),
        None => zero(schema, kind, out),
    }
    if out.get(start) != Some(&b'"') {
        out.insert(start, b'"');
        out.push(b'"');
    }
    Ok(())
}

/// Writes the default value of a type that is no message.
fn zero(schema: &Schema, kind: Kind, out: &mut Vec<u8>) {
    out.extend_from_slice(match kind {
        Kind::Double | Kind::Float => b"0.0",
        Kind::Bool => b"false",
        Kind::Text | Kind::Bytes => b"\"\"",
        Kind::JsonNull | Kind::Message(_) => b"null",
        Kind::Enum(index) => {
            let first = schema.enums.get(index).map(Enum::first);
            return write_text(first.unwrap_or_default(), out);
        }
        _ => b"0",
    });
}

/// Writes a value that is no message.
fn scalar(schema: &Schema, value: Scalar<'_>, out: &mut Vec<u8>) {
    match value {
        Scalar::Int(value) => write_int(value, out),
        Scalar::UInt(value) => out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes()),
        Scalar::Float(value) if value.is_finite() => write_float32(value, out),
        Scalar::Float(value) => write_text(not_finite(f64::from(value)), out),
        Scalar::Double(value) if value.is_finite() => write_float(value, out),
        Scalar::JsonNumber(value) if is_whole(value) => write_int(value as i64, out),
        Scalar::JsonNumber(value) if value.is_finite() => write_float(value, out),
        Scalar::Double(value) | Scalar::JsonNumber(value) => write_text(not_finite(value), out),
        Scalar::Bool(value) => out.extend_from_slice(if value { b"true" } else { b"false" }),
        Scalar::Text(text) => write_text(text, out),
        Scalar::Bytes(bytes) => write_text(&STANDARD.encode(bytes), out),
        Scalar::Enum(index, value) => match schema.name_of(index, value) {
            Some(name) => write_text(name, out),
            None => write_int(value.into(), out),
        },
        Scalar::JsonNull => out.extend_from_slice(b"null"),
    }
}

/// Returns the text for a number that JSON does not have.
pub(crate) fn not_finite(value: f64) -> &'static str {
    match value {
        value if value.is_nan() => "NaN",
        value if value > 0.0 => "Infinity",
        _ => "-Infinity",
    }
}
