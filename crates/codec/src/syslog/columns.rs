//! The fields of syslog messages.
//!
//! Values without escapes are slices of the received bytes.

use std::fmt::Write;
use std::sync::Arc;

use arrow_array::builder::{Int64Builder, TimestampMicrosecondBuilder};
use arrow_array::{ArrayRef, Int64Array, RecordBatch, RecordBatchOptions, StringViewArray};
use arrow_buffer::Buffer;
use arrow_schema::{ArrowError, Field, Schema};
use hashbrown::HashMap;
use serde_json::Value;
use syslog_loose::{Message, Protocol};
use thalweg_record::TextBuilder;

use super::{Parsed, StructuredData, SyslogOptions};
use crate::columns::FieldType;

/// The names of fields that are no structured data. A key of the same name would replace the field, also of
/// messages from other senders.
const TAKEN: [&str; 12] = [
    "timestamp",
    "hostname",
    "appname",
    "procid",
    "msgid",
    "version",
    "facility",
    "severity",
    "priority",
    "structured_data",
    "sd",
    "message",
];

/// Builds the fields of the messages of a batch.
pub struct SyslogColumns {
    base: Vec<Buffer>,
    rows: usize,
    hostname: TextBuilder,
    appname: TextBuilder,
    procid: TextBuilder,
    msgid: TextBuilder,
    version: Int64Builder,
    priority: Int64Builder,
    timestamp: TimestampMicrosecondBuilder,
    /// Structured data, by `ID.KEY` or `KEY`. Each column has rows up to the last message that contains the
    /// key.
    data: Vec<(String, TextBuilder)>,
    /// The index in `data` of each name.
    numbers: HashMap<String, usize>,
    max_fields: usize,
    names: StructuredData,
    /// The structured data of each message as text, if names are keys alone.
    texts: TextBuilder,
    /// The structured data of each message for which `data` has no columns, as JSON.
    rest: TextBuilder,
    /// That of the current message.
    rest_of_message: serde_json::Map<String, Value>,
    /// The name of the current value, in memory that is reused.
    name: String,
    /// The last number of each name that the current message has several times.
    repeated: HashMap<String, usize>,
}

impl SyslogColumns {
    /// Begins the fields of about `rows` messages. `base` holds the buffers with their bytes.
    pub fn over(base: &[Buffer], rows: usize, options: &SyslogOptions) -> Self {
        let text = || TextBuilder::over(base, rows);
        Self {
            base: base.to_vec(),
            rows: 0,
            hostname: text(),
            appname: text(),
            procid: text(),
            msgid: text(),
            version: Int64Builder::with_capacity(rows),
            priority: Int64Builder::with_capacity(rows),
            timestamp: TimestampMicrosecondBuilder::with_capacity(rows),
            data: Vec::new(),
            numbers: HashMap::new(),
            max_fields: options.max_fields,
            names: options.structured_data,
            texts: text(),
            rest: TextBuilder::over(base, 0),
            rest_of_message: serde_json::Map::new(),
            name: String::new(),
            repeated: HashMap::new(),
        }
    }

    /// Adds a message.
    pub fn push(&mut self, parsed: &Parsed<'_>) {
        let Parsed { priority, message, .. } = parsed;
        push(&mut self.hostname, message.hostname);
        push(&mut self.appname, message.appname);
        push(&mut self.procid, parsed.procid);
        push(&mut self.msgid, message.msgid);
        self.version.append_option(match message.protocol {
            Protocol::RFC5424(version) => Some(i64::from(version)),
            Protocol::RFC3164 => None,
        });
        self.priority.append_option(*priority);
        self.timestamp.append_option(message.timestamp.map(|time| time.timestamp_micros()));
        self.repeated.clear();
        for element in &message.structured_data {
            for (key, value) in &element.params {
                match value.contains('\\') {
                    true => self.push_data(element.id, key, &unescaped(value)),
                    false => self.push_data(element.id, key, value),
                }
            }
        }
        if self.names == StructuredData::Key {
            self.texts.push(&text_of(message));
        }
        if !self.rest_of_message.is_empty() {
            let rest = Value::Object(std::mem::take(&mut self.rest_of_message));
            pad(&mut self.rest, self.rows);
            self.rest.push(&rest.to_string());
        }
        self.rows += 1;
    }

    /// Adds a value of structured data. A name that the message has already is numbered: `ip_2`.
    fn push_data(&mut self, id: &str, key: &str, value: &str) {
        self.name.clear();
        match self.names {
            StructuredData::IdKey => self.name.extend([id, ".", key]),
            StructuredData::Key if TAKEN.contains(&key) => self.name.extend(["sd.", id, ".", key]),
            StructuredData::Key => self.name.push_str(key),
        }
        if self.put(value) {
            return;
        }
        let name = self.name.clone();
        let mut number = self.repeated.get(&name).copied().unwrap_or(1);
        loop {
            number += 1;
            self.name.truncate(name.len());
            // Writing to a text does not fail.
            let _ = write!(self.name, "_{number}");
            if self.put(value) {
                break;
            }
        }
        self.repeated.insert(name, number);
    }

    /// Sets the value of `self.name` in the current message. Returns false if it has one already.
    fn put(&mut self, value: &str) -> bool {
        let at = match self.numbers.get(&self.name) {
            Some(&at) => at,
            None if self.data.len() >= self.max_fields => {
                // A column for each name that a sender makes up would take memory for every row.
                let is_free = !self.rest_of_message.contains_key(&self.name);
                if is_free {
                    self.rest_of_message.insert(self.name.clone(), value.into());
                }
                return is_free;
            }
            None => {
                let builder = TextBuilder::over(&self.base, self.rows + 1);
                self.numbers.insert(self.name.clone(), self.data.len());
                self.data.push((self.name.clone(), builder));
                self.data.len() - 1
            }
        };
        let Some((_, column)) = self.data.get_mut(at) else { return true };
        pad(column, self.rows);
        let is_free = column.len() == self.rows;
        if is_free {
            column.push(value);
        }
        is_free
    }

    /// Adds a row of NULLs, for a message that is rejected.
    pub fn push_null(&mut self) {
        for texts in [&mut self.hostname, &mut self.appname, &mut self.procid, &mut self.msgid] {
            texts.push_null();
        }
        self.version.append_null();
        self.priority.append_null();
        self.timestamp.append_null();
        if self.names == StructuredData::Key {
            self.texts.push_null();
        }
        self.rows += 1;
    }

    /// Returns the fields.
    ///
    /// # Errors
    /// If Arrow cannot build them.
    pub fn finish(mut self, options: &SyslogOptions) -> Result<RecordBatch, ArrowError> {
        let (rows, prefix) = (self.rows, options.prefix.as_str());
        let mut fields: Vec<Field> = Vec::new();
        let mut columns: Vec<ArrayRef> = Vec::new();
        let mut add = |name: &str, of: FieldType, column: ArrayRef| {
            fields.push(of.field(&format!("{prefix}{name}")));
            columns.push(column);
        };
        let priority = self.priority.finish();
        add("timestamp", FieldType::Timestamp, Arc::new(self.timestamp.finish().with_timezone("UTC")));
        add("hostname", FieldType::Text, Arc::new(self.hostname.finish()));
        add("appname", FieldType::Text, Arc::new(self.appname.finish()));
        add("procid", FieldType::Text, Arc::new(self.procid.finish()));
        add("msgid", FieldType::Text, Arc::new(self.msgid.finish()));
        add("version", FieldType::Int, Arc::new(self.version.finish()));
        let (kind, facility, severity) = codes(&priority, options.codes);
        add("facility", kind, facility);
        add("severity", kind, severity);
        add("priority", FieldType::Int, Arc::new(priority));
        for (name, mut column) in self.data {
            pad(&mut column, rows);
            let name = if self.names == StructuredData::Key { name } else { format!("sd.{name}") };
            add(&name, FieldType::Text, Arc::new(column.finish()));
        }
        if self.names == StructuredData::Key {
            add("structured_data", FieldType::Text, Arc::new(self.texts.finish()));
        }
        if !self.rest.is_empty() {
            pad(&mut self.rest, rows);
            add("sd", FieldType::Text, Arc::new(self.rest.finish()));
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)
    }
}

/// Returns the facilities and severities of these priorities, as numbers or as names, and their type.
fn codes(priority: &Int64Array, are_numbers: bool) -> (FieldType, ArrayRef, ArrayRef) {
    let part = |of: fn(i64) -> i64| priority.iter().map(move |priority| priority.map(of));
    let (facilities, severities) = (part(|priority| priority / 8), part(|priority| priority % 8));
    if are_numbers {
        let numbers = (Int64Array::from_iter(facilities), Int64Array::from_iter(severities));
        return (FieldType::Int, Arc::new(numbers.0), Arc::new(numbers.1));
    }
    let facilities = StringViewArray::from_iter(facilities.map(|code| name(&FACILITIES, code)));
    let severities = StringViewArray::from_iter(severities.map(|code| name(&SEVERITIES, code)));
    (FieldType::Text, Arc::new(facilities), Arc::new(severities))
}

/// Returns the structured data of a message as text, as it was received.
fn text_of(message: &Message<&str>) -> String {
    if message.structured_data.is_empty() {
        return "-".to_owned();
    }
    let mut text = String::new();
    for element in &message.structured_data {
        text.extend(["[", element.id]);
        for (key, value) in &element.params {
            text.extend([" ", key, "=\"", value, "\""]);
        }
        text.push(']');
    }
    text
}

/// Returns a value without the backslashes before `"`, `\` and `]`. Before other characters, a backslash
/// stands for itself, as RFC 5424 says; the library would decode `\n`.
fn unescaped(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    let mut characters = value.chars();
    while let Some(character) = characters.next() {
        match (character, characters.clone().next()) {
            ('\\', Some(escaped @ ('"' | '\\' | ']'))) => {
                text.push(escaped);
                characters.next();
            }
            _ => text.push(character),
        }
    }
    text
}

/// Adds NULLs to a column until it has `rows` rows.
fn pad(column: &mut TextBuilder, rows: usize) {
    while column.len() < rows {
        column.push_null();
    }
}

fn push(column: &mut TextBuilder, value: Option<&str>) {
    match value {
        Some(value) => column.push(value),
        None => column.push_null(),
    }
}

/// The names of severities by their codes, the most severe first.
pub const SEVERITIES: [&str; 8] = ["emerg", "alert", "crit", "err", "warning", "notice", "info", "debug"];

const FACILITIES: [&str; 24] = [
    "kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv", "ftp",
    "ntp", "audit", "alert", "clockd", "local0", "local1", "local2", "local3", "local4", "local5", "local6",
    "local7",
];

fn name(names: &[&'static str], code: Option<i64>) -> Option<&'static str> {
    names.get(usize::try_from(code?).ok()?).copied()
}
