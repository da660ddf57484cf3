//! Lines of the log of errors: `[TIME] [MODULE:LEVEL] [pid PID:tid TID] SOURCE(LINE): (CODE)ERROR: [client
//! ADDRESS:PORT] MESSAGE`.
//!
//! Groups in brackets that are none of these begin the message, since messages of modules have brackets too.
//! See <https://httpd.apache.org/docs/2.4/logs.html#errorlog>.

use std::net::Ipv6Addr;

use thalweg_codec::columns::{Columns, FieldType};

use crate::text_parser::TextReader;

/// The fields and their types.
pub(super) const FIELDS: [(&str, FieldType); 10] = [
    ("time", FieldType::Timestamp),
    ("module", FieldType::Text),
    ("level", FieldType::Text),
    ("pid", FieldType::Int),
    ("tid", FieldType::Text),
    ("source", FieldType::Text),
    ("error", FieldType::Text),
    ("client", FieldType::Text),
    ("port", FieldType::Int),
    ("message", FieldType::Text),
];

/// The beginning of the group of the client.
const CLIENT: &str = "client ";

const LEVELS: [&str; 8] = ["emerg", "alert", "crit", "error", "warn", "notice", "info", "debug"];

/// Reads lines of the log of errors.
pub(super) struct ErrorLog;

impl TextReader for ErrorLog {
    fn read(&mut self, text: &str, columns: &mut Columns) -> Result<(), String> {
        let text = text.trim_end_matches(['\r', '\n']);
        let (time, mut rest) = group(text).ok_or("does not begin with a time in brackets")?;
        let (mut module, mut level, mut process, mut thread) = (None, None, None, None);
        let mut client = None;
        while let Some((inside, after)) = group(rest) {
            if let Some(ids) = inside.strip_prefix("pid ") {
                (process, thread) = divided(ids, ":tid ");
            } else if let Some(address) = inside.strip_prefix(CLIENT) {
                client = Some(address);
            } else if level.is_none()
                && let Some(found) = level_of(inside)
            {
                (module, level) = found;
            } else {
                break;
            }
            rest = after;
        }
        let (mut source, mut error) = (None, None);
        if client.is_none() {
            (source, rest) = leading(rest, is_source);
            (error, rest) = leading(rest, is_error);
            if let Some((inside, after)) = group(rest)
                && let Some(address) = inside.strip_prefix(CLIENT)
            {
                (client, rest) = (Some(address), after);
            }
        }
        let (client, port) = client.map_or((None, None), |client| address(client, process.is_some()));
        let pieces = [Some(time), module, level, process, thread, source, error, client, port, Some(rest)];
        pieces.into_iter().enumerate().try_for_each(|(column, piece)| columns.push_if_any(column, piece))
    }
}

/// Returns the text up to the first `: ` if it is of a form, and the rest.
fn leading(text: &str, is_form: fn(&str) -> bool) -> (Option<&str>, &str) {
    match text.split_once(": ") {
        Some((form, rest)) if is_form(form) => (Some(form.trim_ascii()), rest.trim_ascii_start()),
        _ => (None, text),
    }
}

/// True if a text is the place in Apache's sources that writes a message, `core.c(4739)`.
fn is_source(text: &str) -> bool {
    let place = text.trim_ascii().strip_suffix(')').and_then(|text| text.split_once(".c("));
    place.is_some_and(|(file, line)| is_name(file) && is_name(line))
}

/// True if a text is an error of the system, `(13)Permission denied` or `(EAI 2)Name or service not known`.
fn is_error(text: &str) -> bool {
    let code = text.strip_prefix('(').and_then(|text| text.split_once(')'));
    let number = code.map(|(code, _)| code.rsplit_once(' ').map_or(code, |(_, number)| number));
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}

/// Returns the address and the port of a client. Apache 2.4, which also writes the number of its process,
/// always writes the port: `::1:80` is then port 80 of `::1`, while Apache 2.2 has the address `::1:80`.
fn address(client: &str, has_port: bool) -> (Option<&str>, Option<&str>) {
    let is_v6 = |text: &str| text.parse::<Ipv6Addr>().is_ok();
    match client.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') || is_v6(host) && (has_port || !is_v6(client)) => {
            (Some(host), Some(port))
        }
        _ => (Some(client), None),
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
