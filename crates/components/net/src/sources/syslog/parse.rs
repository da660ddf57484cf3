//! Parses syslog messages into columns.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::builder::{Int64Builder, TimestampMicrosecondBuilder};
use arrow_array::{ArrayRef, Int64Array, RecordBatch, RecordBatchOptions, StringViewArray};
use arrow_buffer::Buffer;
use arrow_schema::{Field, Schema};
use chrono::{DateTime, Datelike, TimeDelta, Utc};
use hashbrown::HashMap;
use serde_json::Value;
use syslog_loose::{IncompleteDate, Message, ProcId, Protocol, Variant, parse_message_with_year_exact_tz};
use thalweg_engine::{Reading, Received};
use thalweg_record::{TextBuilder, ViewBuilder};

use super::{Format as Form, Others, Payload, StructuredData, SyslogSource};
use crate::net::{Cut, Format, Rejected};
use thalweg_codec::columns::FieldType;
use thalweg_codec::framing::MAX_ROWS;

/// Parses messages and builds their fields.
#[derive(Debug, Clone)]
pub(super) struct Parser {
    variant: Variant,
    payload: Payload,
    fields: bool,
    codes: bool,
    max_fields: usize,
    structured_data: StructuredData,
    others: Others,
    prefix: Arc<str>,
}

/// The priority of lines without one: a notice of a user.
const NOTICE: i64 = 13;

/// Returns a line as a message of a host.
fn line<'a>(raw: &'a [u8], host: &'a str, now: DateTime<Utc>) -> Parsed<'a> {
    let priority = raw.strip_prefix(b"<").and_then(|rest| {
        let end = rest.iter().take(4).position(|byte| *byte == b'>')?;
        let number = str::from_utf8(rest.get(..end)?).ok()?.parse::<u8>().ok()?;
        Some((i64::from(number), rest.get(end + 1..)?))
    });
    let (priority, text) = priority.unwrap_or((NOTICE, raw));
    let message = Message {
        facility: None,
        severity: None,
        timestamp: Some(now.fixed_offset()),
        hostname: Some(host),
        appname: None,
        procid: None,
        msgid: None,
        protocol: Protocol::RFC3164,
        structured_data: Vec::new(),
        msg: "",
    };
    Parsed { priority: Some(priority), message, text }
}

/// Returns the host of a sender's address, which may have a scheme and a port.
fn host(peer: &str) -> &str {
    let address = peer.rsplit_once("://").map_or(peer, |(_, address)| address);
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.trim_matches(['[', ']'])
}

/// The parts of a message.
struct Parsed<'a> {
    priority: Option<i64>,
    message: Message<&'a str>,
    /// The text of the message, as received.
    text: &'a [u8],
}

impl Parser {
    pub(super) fn new(config: &SyslogSource) -> Self {
        let variant = match config.format {
            Form::Auto => Variant::Either,
            Form::Rfc3164 => Variant::RFC3164,
            Form::Rfc5424 => Variant::RFC5424,
        };
        let prefix = config.prefix.as_str().into();
        Self {
            variant,
            payload: config.payload,
            fields: config.add_fields,
            codes: config.codes,
            max_fields: config.max_fields,
            structured_data: config.structured_data,
            others: config.others,
            prefix,
        }
    }

    /// Parses a message that arrived at `now`.
    fn parse<'a>(&self, raw: &'a [u8], now: DateTime<Utc>) -> Result<Parsed<'a>, &'static str> {
        // The text may be any bytes; the header before it is ASCII.
        let chunk = raw.utf8_chunks().next();
        let (valid, is_all) = chunk.map_or(("", true), |chunk| (chunk.valid(), chunk.invalid().is_empty()));
        let valid = valid.trim_start();
        let Some((priority, _)) = valid.strip_prefix('<').and_then(|rest| rest.split_once('>')) else {
            return Err("is not a syslog message: it does not begin with a priority, as in `<34>`");
        };
        let priority = priority.parse::<u8>().ok().map(i64::from);
        let year = move |date| year_of(date, now);
        let parsed = parse_message_with_year_exact_tz(valid, year, Some(Utc), self.variant);
        let message = parsed.map_err(|_| match self.variant {
            Variant::RFC3164 => "is not a syslog message of RFC 3164",
            Variant::RFC5424 => "is not a syslog message of RFC 5424",
            Variant::Either => "is not a syslog message",
        })?;
        let start = (message.msg.as_ptr() as usize).saturating_sub(raw.as_ptr() as usize);
        let text = match is_all {
            true => message.msg.as_bytes(),
            false => raw.get(start..).unwrap_or_default(),
        };
        let text = text.strip_prefix("\u{feff}".as_bytes()).unwrap_or(text);
        Ok(Parsed { priority, message, text })
    }
}

/// Returns the year of a date without one: the date is within the twelve months before `now`.
pub(super) fn year_of((month, day, ..): IncompleteDate, now: DateTime<Utc>) -> i32 {
    // A sender's clock may be a day ahead.
    let latest = now + TimeDelta::days(1);
    latest.year() - i32::from((month, day) > (latest.month(), latest.day()))
}

/// The maximum number of values in a batch: rows times columns. A sender can give each message a field of its
/// own, with a place in all others.
const VALUES: usize = 1 << 19;
/// The number of fields that every message has.
const ALWAYS: usize = 8;

impl Format for Parser {
    fn most_rows(&self) -> usize {
        (VALUES / (ALWAYS + self.max_fields)).clamp(1, MAX_ROWS)
    }

    fn received(
        &mut self,
        cut: &Cut,
        rows: Range<usize>,
        peer: &Arc<str>,
        rejected: &mut Vec<Rejected>,
    ) -> Option<Received> {
        let messages = cut.messages.get(rows)?;
        let mut payload = ViewBuilder::over(std::slice::from_ref(&cut.buffer), messages.len());
        let mut columns = Columns::over(&cut.buffer, messages.len(), self.max_fields, self.structured_data);
        let now = Utc::now();
        for range in messages {
            let raw = cut.buffer.get(range.clone()).unwrap_or_default();
            let parsed = self.parse(raw, now);
            let parsed = match (parsed, self.others) {
                (Err(_), Others::Accept) => Ok(line(raw, host(peer), now)),
                (parsed, _) => parsed,
            };
            match parsed {
                Ok(Parsed { priority, message, text }) => {
                    match self.payload {
                        Payload::Raw => payload.push(raw),
                        Payload::Message => payload.push(text),
                    }
                    if self.fields {
                        columns.push(priority, &message);
                    }
                }
                Err(reason) => rejected.push((range.clone(), reason.into())),
            }
        }
        if payload.is_empty() {
            return None;
        }
        let reading = Reading {
            payload: payload.finish(),
            path: Some(peer.clone()),
            positions: None,
            checkpoint: None,
        };
        let fields = if self.fields { columns.finish(&self.prefix, self.codes) } else { None };
        Some(Received { reading, fields })
    }
}

/// Builds the fields of a batch.
struct Columns {
    buffer: Buffer,
    rows: usize,
    hostname: TextBuilder,
    appname: TextBuilder,
    procid: TextBuilder,
    msgid: TextBuilder,
    version: Int64Builder,
    priority: Int64Builder,
    timestamp: TimestampMicrosecondBuilder,
    /// Structured data, by `ID.KEY`. Each column has rows up to the last message that contains the key.
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
}

impl Columns {
    fn over(buffer: &Buffer, rows: usize, max_fields: usize, names: StructuredData) -> Self {
        let text = || TextBuilder::over(std::slice::from_ref(buffer), rows);
        Self {
            buffer: buffer.clone(),
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
            max_fields,
            names,
            texts: text(),
            rest: TextBuilder::over(std::slice::from_ref(buffer), 0),
            rest_of_message: serde_json::Map::new(),
            name: String::new(),
        }
    }

    fn push(&mut self, priority: Option<i64>, message: &Message<&str>) {
        push(&mut self.hostname, message.hostname);
        push(&mut self.appname, message.appname);
        match message.procid {
            Some(ProcId::Name(name)) => self.procid.push(name),
            Some(ProcId::PID(number)) => self.procid.push(itoa::Buffer::new().format(number)),
            None => self.procid.push_null(),
        }
        push(&mut self.msgid, message.msgid);
        self.version.append_option(match message.protocol {
            Protocol::RFC5424(version) => Some(i64::from(version)),
            Protocol::RFC3164 => None,
        });
        self.priority.append_option(priority);
        self.timestamp.append_option(message.timestamp.map(|time| time.timestamp_micros()));
        for element in &message.structured_data {
            if element.params.iter().any(|(_, value)| value.contains('\\')) {
                element.params().for_each(|(key, value)| self.push_data(element.id, key, &value));
            } else {
                element.params.iter().for_each(|(key, value)| self.push_data(element.id, key, value));
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

    /// Adds a value of structured data. If a message has the same name twice, the first value is used.
    fn push_data(&mut self, id: &str, key: &str, value: &str) {
        self.name.clear();
        match self.names {
            StructuredData::IdKey => self.name.extend([id, ".", key]),
            StructuredData::Key => self.name.push_str(key),
        }
        let at = match self.numbers.get(&self.name) {
            Some(&at) => at,
            None if self.data.len() >= self.max_fields => {
                // A column for each name that a sender makes up would take memory for every row.
                if !self.rest_of_message.contains_key(&self.name) {
                    self.rest_of_message.insert(self.name.clone(), value.into());
                }
                return;
            }
            None => {
                let builder = TextBuilder::over(std::slice::from_ref(&self.buffer), self.rows + 1);
                self.numbers.insert(self.name.clone(), self.data.len());
                self.data.push((self.name.clone(), builder));
                self.data.len() - 1
            }
        };
        let Some((_, column)) = self.data.get_mut(at) else { return };
        pad(column, self.rows);
        if column.len() == self.rows {
            column.push(value);
        }
    }

    fn finish(mut self, prefix: &str, codes: bool) -> Option<RecordBatch> {
        let rows = self.rows;
        let mut fields: Vec<Field> = Vec::new();
        let mut columns: Vec<ArrayRef> = Vec::new();
        let mut add = |name: &str, of: FieldType, column: ArrayRef| {
            fields.push(of.field(&format!("{prefix}{name}")));
            columns.push(column);
        };
        let priority = self.priority.finish();
        let part = |of: fn(i64) -> i64| priority.iter().map(move |priority| priority.map(of));
        add("timestamp", FieldType::Timestamp, Arc::new(self.timestamp.finish().with_timezone("UTC")));
        add("hostname", FieldType::Text, Arc::new(self.hostname.finish()));
        add("appname", FieldType::Text, Arc::new(self.appname.finish()));
        add("procid", FieldType::Text, Arc::new(self.procid.finish()));
        add("msgid", FieldType::Text, Arc::new(self.msgid.finish()));
        add("version", FieldType::Int, Arc::new(self.version.finish()));
        if codes {
            add("facility", FieldType::Int, Arc::new(Int64Array::from_iter(part(|priority| priority / 8))));
            add("severity", FieldType::Int, Arc::new(Int64Array::from_iter(part(|priority| priority % 8))));
        } else {
            let facilities = part(|priority| priority / 8).map(|code| name(&FACILITIES, code));
            add("facility", FieldType::Text, Arc::new(StringViewArray::from_iter(facilities)));
            let severities = part(|priority| priority % 8).map(|code| name(&SEVERITIES, code));
            add("severity", FieldType::Text, Arc::new(StringViewArray::from_iter(severities)));
        }
        add("priority", FieldType::Int, Arc::new(priority.clone()));
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
        RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options).ok()
    }
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

const SEVERITIES: [&str; 8] = ["emerg", "alert", "crit", "err", "warning", "notice", "info", "debug"];

const FACILITIES: [&str; 24] = [
    "kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv", "ftp",
    "ntp", "audit", "alert", "clockd", "local0", "local1", "local2", "local3", "local4", "local5", "local6",
    "local7",
];

fn name(names: &[&'static str], code: Option<i64>) -> Option<&'static str> {
    names.get(usize::try_from(code?).ok()?).copied()
}
