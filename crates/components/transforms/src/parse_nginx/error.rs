//! Lines of the log of errors: `TIME [LEVEL] PID#TID: *CONNECTION MESSAGE, client: ADDRESS, …`.
//!
//! nginx does not escape quotes in the values at the end of a line. So a value ends where the next name, in
//! nginx's order of names, begins.

use memchr::memmem::Finder;
use thalweg_codec::columns::{Columns, FieldType};

use crate::text_parser::TextReader;

/// The fields and their types.
pub(super) const FIELDS: [(&str, FieldType); 13] = [
    ("time", FieldType::Timestamp),
    ("level", FieldType::Text),
    ("pid", FieldType::Int),
    ("tid", FieldType::Int),
    ("connection", FieldType::Int),
    ("message", FieldType::Text),
    ("client", FieldType::Text),
    ("server", FieldType::Text),
    ("request", FieldType::Text),
    ("subrequest", FieldType::Text),
    ("upstream", FieldType::Text),
    ("host", FieldType::Text),
    ("referrer", FieldType::Text),
];

const MESSAGE: usize = 5;
/// The first of the fields that are named at the end of a line.
const CLIENT: usize = 6;
/// The length of a time, `2026/11/25 08:14:02`, in bytes.
const TIME: usize = 19;

/// Reads lines of the log of errors.
pub(super) struct ErrorLog {
    /// The beginning of each named field: `, client: `.
    labels: Vec<Finder<'static>>,
}

impl ErrorLog {
    pub(super) fn new() -> Self {
        let label = |(name, _): &(&str, FieldType)| Finder::new(&format!(", {name}: ")).into_owned();
        Self { labels: FIELDS.get(CLIENT..).unwrap_or_default().iter().map(label).collect() }
    }
}

impl TextReader for ErrorLog {
    fn read(&mut self, text: &str, columns: &mut Columns) -> Result<(), String> {
        let text = text.trim_end_matches(['\r', '\n']);
        let head = head(text).ok_or("does not begin with a time, `[level]` and `pid#tid: `")?;
        for (column, piece) in head.values.into_iter().enumerate() {
            columns.push_if_any(column, piece)?;
        }
        let (mut column, mut start) = (MESSAGE, head.message);
        let bytes = text.as_bytes();
        for (label, next) in self.labels.iter().zip(CLIENT..) {
            let Some(found) = label.find(bytes.get(start..).unwrap_or_default()) else { continue };
            columns.push(column, unquoted(text.get(start..start + found).unwrap_or_default()))?;
            (column, start) = (next, start + found + label.needle().len());
        }
        columns.push(column, unquoted(text.get(start..).unwrap_or_default()))
    }
}

/// The part of a line before its message.
struct Head<'a> {
    /// Time, level, process, thread and connection.
    values: [Option<&'a str>; 5],
    /// The offset of the message, in bytes.
    message: usize,
}

fn head(text: &str) -> Option<Head<'_>> {
    let (time, rest) = text.split_at_checked(TIME)?;
    let (level, rest) = rest.strip_prefix(" [")?.split_once("] ")?;
    let (process, rest) = rest.split_once('#')?;
    let (thread, mut message) = rest.split_once(": ")?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let connection = message.strip_prefix('*').and_then(|rest| rest.split_once(' '));
    let connection = connection.filter(|(number, _)| is_number(number)).map(|(number, rest)| {
        message = rest;
        number
    });
    (is_number(process) && is_number(thread)).then(|| Head {
        values: [Some(time), Some(level), Some(process), Some(thread), connection],
        message: text.len() - message.len(),
    })
}

/// Returns a value without the quotes around it.
fn unquoted(value: &str) -> &str {
    value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value)
}
