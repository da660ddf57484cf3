//! Lines of the log of errors: `TIME [LEVEL] PID#TID: *CONNECTION MESSAGE, client: ADDRESS, …`.
//!
//! Names and values stand at the end of a line, in nginx's order. nginx escapes nothing in them, and nothing
//! in the message, which may contain the path of a request. So a client can write names of its own: `/x,
//! client: 192.0.2.1, server: evil`. Names count only if nothing but names and values follows them up to the
//! end of the line. Both the first `client` of a line and the last one can be forged, by a path and by a
//! referrer. A line that can be read in two ways is therefore rejected.
//!
//! A value in quotes ends before the next name or at the end of the line, which nginx cuts after 2048 bytes.

use std::ops::Range;

use memchr::memchr_iter;
use memchr::memmem::Finder;
use thalweg_codec::columns::{Columns, FieldType};

use crate::text_parser::TextReader;

/// The fields and their types.
pub(super) const FIELDS: [(&str, FieldType); 18] = [
    ("time", FieldType::Timestamp),
    ("level", FieldType::Text),
    ("pid", FieldType::Int),
    ("tid", FieldType::Int),
    ("connection", FieldType::Int),
    ("message", FieldType::Text),
    ("client", FieldType::Text),
    ("server", FieldType::Text),
    ("login", FieldType::Text),
    ("request", FieldType::Text),
    ("subrequest", FieldType::Text),
    ("upstream", FieldType::Text),
    ("host", FieldType::Text),
    ("referrer", FieldType::Text),
    ("bytes_from_client", FieldType::Int),
    ("bytes_to_client", FieldType::Int),
    ("bytes_from_upstream", FieldType::Int),
    ("bytes_to_upstream", FieldType::Int),
];

const MESSAGE: usize = 5;
const CLIENT: usize = 6;
const SERVER: usize = 7;
const LOGIN: usize = 8;
const UPSTREAM: usize = 11;
const BYTES: usize = 14;
/// The fields whose values are in quotes.
const QUOTED: Range<usize> = LOGIN..BYTES;
/// The length of a time, `2026/11/25 08:14:02`, in bytes.
const TIME: usize = 19;

const CLIENT_LABEL: &str = "client: ";
const SERVER_LABEL: &str = ", server: ";
/// The server for a login to a mail server, whose address is not in quotes.
const MAIL_LABEL: &str = ", upstream: ";

/// Reads lines of the log of errors.
pub(super) struct ErrorLog {
    client: Finder<'static>,
    /// The fields whose values are in quotes, and the beginning of each: `, host: "`.
    quoted: Vec<(usize, String)>,
}

impl ErrorLog {
    pub(super) fn new() -> Self {
        let quoted = FIELDS.iter().enumerate().skip(QUOTED.start).take(QUOTED.len());
        Self {
            client: Finder::new(CLIENT_LABEL),
            quoted: quoted.map(|(column, (name, _))| (column, format!(", {name}: \""))).collect(),
        }
    }

    /// Finds the names at the end of a text.
    ///
    /// # Errors
    /// If they may begin at two places.
    fn names(&self, text: &str) -> Result<Option<Names>, String> {
        let places = self.client.find_iter(text.as_bytes());
        let mut found = places.filter_map(|at| self.names_at(text, at));
        match (found.next(), found.next()) {
            (_, Some(_)) => {
                Err("`client` is named twice, and the line does not tell which is a part of the \
                                 message or of another value"
                    .to_owned())
            }
            (names, None) => Ok(names),
        }
    }

    /// Returns the names of which the label of the client, at byte `at`, is the first.
    fn names_at(&self, text: &str, at: usize) -> Option<Names> {
        let before = text.get(..at)?;
        let message = before.strip_suffix(", udp ").or_else(|| before.strip_suffix(", "))?;
        let client = word(text, at + CLIENT_LABEL.len())?;
        let mut rest = text.get(client.end..)?;
        // A mail server says this after the address.
        rest = rest.strip_prefix(" using starttls").unwrap_or(rest);
        let mut server = None;
        if let Some(after) = rest.strip_prefix(SERVER_LABEL) {
            let found = word(text, text.len() - after.len())?;
            rest = text.get(found.end..)?;
            server = Some(found);
        }
        let is_end = rest.is_empty() || self.quoted.iter().any(|(_, label)| rest.starts_with(label.as_str()));
        let names = Names { message: message.len(), client, server, quoted: text.len() - rest.len() };
        (is_end && !names.client.is_empty()).then_some(names)
    }

    /// Appends the values in quotes.
    fn push_quoted(&self, mut rest: &str, columns: &mut Columns) -> Result<(), String> {
        for (column, label) in &self.quoted {
            let Some(value) = rest.strip_prefix(label.as_str()) else { continue };
            let end = self.closing_quote(value, *column);
            columns.push(*column, value.get(..end).unwrap_or_default())?;
            rest = value.get(end + 1..).unwrap_or_default();
        }
        columns.push_if_any(UPSTREAM, rest.strip_prefix(MAIL_LABEL))
    }

    /// Returns the offset of the quote that ends the value of a column, or that of the end.
    fn closing_quote(&self, value: &str, column: usize) -> usize {
        let ends = |at: &usize| {
            let rest = value.get(at + 1..).unwrap_or_default();
            let mut later = self.quoted.iter().filter(|(other, _)| *other > column);
            rest.is_empty()
                || later.any(|(_, label)| rest.starts_with(label.as_str()))
                || column == LOGIN && is_mail_server(rest)
        };
        memchr_iter(b'"', value.as_bytes()).find(ends).unwrap_or(value.len())
    }
}

/// The names at the end of a line: the end of the message before them, and their values.
struct Names {
    message: usize,
    client: Range<usize>,
    server: Option<Range<usize>>,
    /// The offset of the names whose values are in quotes.
    quoted: usize,
}

impl TextReader for ErrorLog {
    fn read(&mut self, text: &str, columns: &mut Columns) -> Result<(), String> {
        let text = text.trim_end_matches(['\r', '\n']);
        let head = head(text).ok_or("does not begin with a time, `[level]` and `pid#tid: `")?;
        for (column, piece) in head.values.into_iter().enumerate() {
            columns.push_if_any(column, piece)?;
        }
        let (text, counts) = counts(head.message);
        for (column, piece) in (BYTES..).zip(counts) {
            columns.push_if_any(column, piece)?;
        }
        let Some(names) = self.names(text)? else { return columns.push(MESSAGE, text) };
        columns.push(MESSAGE, text.get(..names.message).unwrap_or_default())?;
        columns.push(CLIENT, text.get(names.client).unwrap_or_default())?;
        columns.push_if_any(SERVER, names.server.and_then(|server| text.get(server)))?;
        self.push_quoted(text.get(names.quoted..).unwrap_or_default(), columns)
    }
}

/// A line, divided before its message.
struct Head<'a> {
    /// Time, level, process, thread and connection.
    values: [Option<&'a str>; 5],
    /// The message, and what follows it.
    message: &'a str,
}

fn head(text: &str) -> Option<Head<'_>> {
    let (time, rest) = text.split_at_checked(TIME)?;
    let (level, rest) = rest.strip_prefix(" [")?.split_once("] ")?;
    let (process, rest) = rest.split_once('#')?;
    let (thread, mut message) = rest.split_once(": ")?;
    let connection = message.strip_prefix('*').and_then(|rest| rest.split_once(' '));
    let connection = connection.filter(|(number, _)| is_number(number)).map(|(number, rest)| {
        message = rest;
        number
    });
    (is_number(process) && is_number(thread)).then_some(Head {
        values: [Some(time), Some(level), Some(process), Some(thread), connection],
        message,
    })
}

/// Divides a text from the counts of bytes at its end, which the log of a stream has.
fn counts(text: &str) -> (&str, [Option<&str>; 4]) {
    let divided = |text, label| -> Option<(&str, &str, &str)> {
        let (before, counts): (&str, &str) = str::rsplit_once(text, label)?;
        let (from, to) = counts.split_once('/')?;
        (is_number(from) && is_number(to)).then_some((before, from, to))
    };
    let found =
        divided(text, ", bytes from/to upstream:").and_then(|(before, from_upstream, to_upstream)| {
            let (before, from_client, to_client) = divided(before, ", bytes from/to client:")?;
            Some((before, [from_client, to_client, from_upstream, to_upstream].map(Some)))
        });
    found.unwrap_or((text, [None; 4]))
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns the range of the value without quotes that begins at byte `start`: up to a space, a quote, or the
/// comma before the next name.
fn word(text: &str, start: usize) -> Option<Range<usize>> {
    let rest = text.get(start..)?;
    let length = rest.find([' ', '"']).unwrap_or(rest.len());
    let word = rest.get(..length)?;
    let is_comma = word.ends_with(',') && length < rest.len();
    Some(start..start + length - usize::from(is_comma))
}

/// True if a text is the name and the address of a mail server, and nothing more.
fn is_mail_server(text: &str) -> bool {
    text.strip_prefix(MAIL_LABEL).is_some_and(|address| word(address, 0) == Some(0..address.len()))
}
