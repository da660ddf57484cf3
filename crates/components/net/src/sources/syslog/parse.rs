//! Parses syslog messages into columns.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::builder::{Int64Builder, TimestampMicrosecondBuilder};
use arrow_array::{ArrayRef, Int64Array, RecordBatch, RecordBatchOptions, StringViewArray};
use arrow_buffer::Buffer;
use arrow_schema::{Field, Schema};
use chrono::{DateTime, Datelike, TimeDelta, Utc};
use syslog_loose::{IncompleteDate, Message, ProcId, Protocol, Variant, parse_message_with_year_exact_tz};
use thalweg_engine::{Reading, Received};
use thalweg_record::{TextBuilder, ViewBuilder};

use super::{Format as Form, Payload, SyslogSource};
use crate::net::{Cut, Format};
use thalweg_codec::columns::FieldType;

/// Parses messages and builds their fields.
#[derive(Debug, Clone)]
pub(super) struct Parser {
    variant: Variant,
    payload: Payload,
    fields: bool,
    codes: bool,
    prefix: Arc<str>,
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
        Self { variant, payload: config.payload, fields: config.fields, codes: config.codes, prefix }
    }

    /// Parses a message that arrived at `now`.
    fn parse<'a>(&self, raw: &'a [u8], now: DateTime<Utc>) -> Result<Parsed<'a>, String> {
        // The text may be any bytes; the header before it is ASCII.
        let chunk = raw.utf8_chunks().next();
        let (valid, is_all) = chunk.map_or(("", true), |chunk| (chunk.valid(), chunk.invalid().is_empty()));
        let valid = valid.trim_start();
        let Some((priority, _)) = valid.strip_prefix('<').and_then(|rest| rest.split_once('>')) else {
            return Err("is not a syslog message: it does not begin with a priority, as in `<34>`".to_owned());
        };
        let priority = priority.parse::<u8>().ok().map(i64::from);
        let year = move |date| year_of(date, now);
        let parsed = parse_message_with_year_exact_tz(valid, year, Some(Utc), self.variant);
        let message = parsed.map_err(|_| {
            let form = match self.variant {
                Variant::RFC3164 => " of RFC 3164",
                Variant::RFC5424 => " of RFC 5424",
                Variant::Either => "",
            };
            format!("is not a syslog message{form}")
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

impl Format for Parser {
    fn received(
        &mut self,
        cut: &Cut,
        rows: Range<usize>,
        peer: &Arc<str>,
        rejected: &mut Vec<(Range<usize>, String)>,
    ) -> Option<Received> {
        let messages = cut.messages.get(rows)?;
        let mut payload = ViewBuilder::over(std::slice::from_ref(&cut.buffer), messages.len());
        let mut columns = Columns::over(&cut.buffer, messages.len());
        let now = Utc::now();
        for range in messages {
            let raw = cut.buffer.get(range.clone()).unwrap_or_default();
            match self.parse(raw, now) {
                Ok(Parsed { priority, message, text }) => {
                    match self.payload {
                        Payload::Raw => payload.push(raw),
                        Payload::Message => payload.push(text),
                    }
                    if self.fields {
                        columns.push(priority, &message);
                    }
                }
                Err(reason) => rejected.push((range.clone(), reason)),
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
}

impl Columns {
    fn over(buffer: &Buffer, rows: usize) -> Self {
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
        self.rows += 1;
    }

    /// Adds a value of structured data. If a message has the same name twice, the first value is used.
    fn push_data(&mut self, id: &str, key: &str, value: &str) {
        let known = self.data.iter().position(|(name, _)| {
            name.strip_prefix(id).and_then(|rest| rest.strip_prefix('.')).is_some_and(|rest| rest == key)
        });
        let at = known.unwrap_or_else(|| {
            let builder = TextBuilder::over(std::slice::from_ref(&self.buffer), self.rows + 1);
            self.data.push((format!("{id}.{key}"), builder));
            self.data.len() - 1
        });
        let Some((_, column)) = self.data.get_mut(at) else { return };
        while column.len() < self.rows {
            column.push_null();
        }
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
            while column.len() < rows {
                column.push_null();
            }
            add(&format!("sd.{name}"), FieldType::Text, Arc::new(column.finish()));
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options).ok()
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
