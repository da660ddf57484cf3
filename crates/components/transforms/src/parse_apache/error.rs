//! Lines of the log of errors: `[TIME] [MODULE:LEVEL] [pid PID:tid TID] [client ADDRESS:PORT] MESSAGE`.
//!
//! Groups in brackets that are none of these begin the message, since messages of modules have brackets too.
//! See <https://httpd.apache.org/docs/2.4/logs.html#errorlog>.

use thalweg_codec::columns::{Columns, FieldType};

use crate::text_parser::TextReader;

/// The fields and their types.
pub(super) const FIELDS: [(&str, FieldType); 8] = [
    ("time", FieldType::Timestamp),
    ("module", FieldType::Text),
    ("level", FieldType::Text),
    ("pid", FieldType::Int),
    ("tid", FieldType::Text),
    ("client", FieldType::Text),
    ("port", FieldType::Int),
    ("message", FieldType::Text),
];

const LEVELS: [&str; 8] = ["emerg", "alert", "crit", "error", "warn", "notice", "info", "debug"];

/// Reads lines of the log of errors.
pub(super) struct ErrorLog;

impl TextReader for ErrorLog {
    fn read(&mut self, text: &str, columns: &mut Columns) -> Result<(), String> {
        let text = text.trim_end_matches(['\r', '\n']);
        let (time, mut rest) = group(text).ok_or("does not begin with a time in brackets")?;
        let (mut module, mut level, mut process, mut thread) = (None, None, None, None);
        let (mut client, mut port) = (None, None);
        while let Some((inside, after)) = group(rest) {
            if let Some(ids) = inside.strip_prefix("pid ") {
                (process, thread) = divided(ids, ":tid ");
            } else if let Some(address) = inside.strip_prefix("client ") {
                // An IPv6 address without a port looks like one with it.
                (client, port) = match address.matches(':').count() {
                    1 => divided(address, ":"),
                    _ => (Some(address), None),
                };
            } else if level.is_none()
                && let Some(found) = level_of(inside)
            {
                (module, level) = found;
            } else {
                break;
            }
            rest = after;
        }
        let pieces = [Some(time), module, level, process, thread, client, port, Some(rest)];
        pieces.into_iter().enumerate().try_for_each(|(column, piece)| columns.push_if_any(column, piece))
    }
}

/// Returns the text in the brackets at the start, and what follows them.
fn group(text: &str) -> Option<(&str, &str)> {
    let (inside, rest) = text.strip_prefix('[')?.split_once(']')?;
    Some((inside, rest.strip_prefix(' ').unwrap_or(rest)))
}

/// Returns the parts before and after a separator, if there is one.
fn divided<'a>(text: &'a str, separator: &str) -> (Option<&'a str>, Option<&'a str>) {
    match text.split_once(separator) {
        Some((one, other)) => (Some(one), Some(other)),
        None => (Some(text), None),
    }
}

/// Returns module and level, if the text is `module:level` or `level`.
fn level_of(text: &str) -> Option<(Option<&str>, Option<&str>)> {
    let (module, level) = match text.rsplit_once(':') {
        Some((module, level)) => (Some(module).filter(|module| *module != "-" && !module.is_empty()), level),
        None => (None, text),
    };
    let is_trace = level.strip_prefix("trace").is_some_and(|number| number.len() == 1);
    (LEVELS.contains(&level) || is_trace).then_some((module, Some(level)))
}
