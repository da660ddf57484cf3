//! Writes messages as lines of the line protocol.

use arrow_schema::{DataType, Field};
use thalweg_codec::columns::{is_json_field, is_number_field};
use thalweg_codec::template::{BoundTemplate, Template, column};
use thalweg_codec::values::Values;
use thalweg_record::Batch;
use thalweg_redact::beginning;

use crate::requests::{Encode, Encoded, Moments};

/// The columns of points.
pub(super) struct Columns {
    pub(super) measurement: Template,
    pub(super) tags: Vec<String>,
    /// All that are neither tags nor the time, if there are no names.
    pub(super) fields: Option<Vec<String>>,
    pub(super) time: Option<String>,
}

/// Writes messages as points.
pub(super) struct Points {
    /// Without columns, a payload is a line.
    columns: Option<Columns>,
    moments: Moments,
    /// The time of the first message of the batch, in nanoseconds since 1970. Each further one is a
    /// nanosecond later.
    first: i64,
}

impl Points {
    pub(super) fn new(columns: Option<Columns>, moments: Moments) -> Self {
        Self { columns, moments, first: 0 }
    }
}

/// How the values of a field are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Integer,
    Number,
    Truth,
    Text,
}

fn kind(field: &Field) -> Kind {
    match field.data_type() {
        _ if is_number_field(field) => Kind::Number,
        _ if is_json_field(field) => Kind::Text,
        kind if kind.is_integer() => Kind::Integer,
        kind if kind.is_floating() => Kind::Number,
        DataType::Boolean => Kind::Truth,
        _ => Kind::Text,
    }
}

impl Encode for Points {
    fn begin(&mut self, batch: &Batch) {
        if self.columns.is_some() {
            self.first = self.moments.take(batch);
        }
    }

    fn encode(&mut self, batch: &Batch, rows: &[usize], into: &mut Encoded) {
        let mut bound = self.columns.as_mut().map(|columns| Bound::of(columns, batch, self.first));
        for &row in rows {
            let written = match &mut bound {
                Some(bound) => bound.write(row, into.buffer()),
                None => whole(batch.payload().value(row), into.buffer()),
            };
            match written {
                Ok(()) => into.end(row),
                Err(reason) => into.reject(row, reason),
            }
        }
    }
}

/// Appends a payload that is a line already.
fn whole(payload: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
    let line = payload.trim_ascii();
    if line.is_empty() || line.starts_with(b"#") {
        return Err("the message is empty, and no line of the line protocol".to_owned());
    }
    out.extend_from_slice(line);
    out.push(b'\n');
    Ok(())
}

/// The columns of a batch.
struct Bound<'a> {
    measurement: BoundTemplate<'a>,
    tags: Vec<(Vec<u8>, Values)>,
    fields: Vec<(Vec<u8>, Kind, Values)>,
    times: Option<Values>,
    /// The time of the first message without one.
    first: i64,
    text: Vec<u8>,
}

impl<'a> Bound<'a> {
    fn of(columns: &'a mut Columns, batch: &Batch, first: i64) -> Self {
        let schema = batch.fields().schema();
        let is_other = |name: &&str| {
            !columns.tags.iter().any(|tag| tag == name) && columns.time.as_deref() != Some(*name)
        };
        let names: Vec<&str> = match &columns.fields {
            Some(fields) => fields.iter().map(String::as_str).collect(),
            None => schema.fields().iter().map(|field| field.name().as_str()).filter(is_other).collect(),
        };
        let field = |name: &str| {
            let kind = batch.field(name).map_or(Kind::Text, |(_, field)| kind(field));
            (key(name), kind, column(batch, name))
        };
        let fields = names.into_iter().map(field).collect();
        Self {
            tags: columns.tags.iter().map(|tag| (key(tag), column(batch, tag))).collect(),
            fields,
            times: columns.time.as_deref().map(|name| column(batch, name)),
            measurement: columns.measurement.bind(batch),
            first,
            text: Vec::new(),
        }
    }

    fn write(&mut self, row: usize, out: &mut Vec<u8>) -> Result<(), String> {
        self.text.clear();
        self.measurement.render(row, &mut self.text);
        if self.text.is_empty() || self.text.starts_with(b"#") {
            return Err("the message has no measurement".to_owned());
        }
        escaped(&self.text, b", ", out)?;
        for (key, values) in &self.tags {
            self.text.clear();
            values.write_text(row, &mut self.text);
            if !self.text.is_empty() {
                out.push(b',');
                out.extend_from_slice(key);
                escaped(&self.text, b",= ", out)?;
            }
        }
        let mut separator = b' ';
        for (key, kind, values) in &self.fields {
            self.text.clear();
            if !values.is_null(row) && value(*kind, values, row, &mut self.text) {
                out.push(separator);
                out.extend_from_slice(key);
                out.extend_from_slice(&self.text);
                separator = b',';
            }
        }
        if separator == b' ' {
            return Err("the message has no field for the point".to_owned());
        }
        let time = self.times.as_ref().and_then(|times| times.time(row)?.timestamp_nanos_opt());
        out.push(b' ');
        let time = time.unwrap_or_else(|| self.first.saturating_add(row as i64));
        out.extend_from_slice(itoa::Buffer::new().format(time).as_bytes());
        out.push(b'\n');
        Ok(())
    }
}

/// Returns the name of a tag or field with its equals sign. A line feed or a backslash at the end, which the
/// protocol cannot write, is left out.
fn key(name: &str) -> Vec<u8> {
    let name = name.replace(['\n', '\r'], " ");
    let mut key = Vec::new();
    // This name can be written.
    let _ = escaped(name.trim_end_matches('\\').as_bytes(), b",= ", &mut key);
    key.push(b'=');
    key
}

/// Appends a name with a backslash before each of the special characters.
fn escaped(name: &[u8], special: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
    if name.ends_with(b"\\") || name.iter().any(|byte| matches!(byte, b'\n' | b'\r')) {
        let name = String::from_utf8_lossy(name);
        let shown = beginning(&name, 100);
        return Err(format!(
            "{shown:?} cannot be a measurement or tag: it has a line feed, or ends in a backslash"
        ));
    }
    for &byte in name {
        if special.contains(&byte) {
            out.push(b'\\');
        }
        out.push(byte);
    }
    Ok(())
}

/// Writes a value of a field. Returns false if the protocol has no such value.
fn value(kind: Kind, values: &Values, row: usize, out: &mut Vec<u8>) -> bool {
    match kind {
        Kind::Text => {
            let mut text = Vec::new();
            values.write_text(row, &mut text);
            out.push(b'"');
            for byte in text {
                if matches!(byte, b'"' | b'\\') {
                    out.push(b'\\');
                }
                out.push(byte);
            }
            out.push(b'"');
        }
        Kind::Integer => {
            values.write_text(row, out);
            out.push(b'i');
        }
        Kind::Truth => values.write_text(row, out),
        Kind::Number => {
            values.write_text(row, out);
            // Neither infinity nor NaN.
            return out.last().is_some_and(u8::is_ascii_digit);
        }
    }
    true
}
