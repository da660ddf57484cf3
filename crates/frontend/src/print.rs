//! Writes to the two standard outputs. It does not panic if their reader is gone.

use std::io::{self, Write};

use chrono::{SecondsFormat, Utc};
use serde_json::json;
use thalweg_redact::{for_terminal, redacted, visible_json};

use crate::paint::Paint;

/// Writes a text for programs, such as JSON or a configuration, to the standard output as it is.
///
/// # Errors
/// Those of writing; see [`CommandError::ReaderGone`](crate::CommandError::ReaderGone).
pub fn out(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// Writes lines of JSON with texts from outside to the standard output: a terminal obeys none of them.
///
/// # Errors
/// Those of [`out`].
pub fn json(lines: &str) -> io::Result<()> {
    out(&visible_json(lines))
}

/// Writes lines for people to the standard output, without what a terminal would obey.
///
/// # Errors
/// Those of [`out`].
pub fn show(text: &str) -> io::Result<()> {
    out(&for_terminal(text, Paint::stdout().is_on()))
}

/// Writes lines for people to the standard error output, without secrets and what a terminal would obey. An
/// error is ignored, because no other output could report it.
pub fn err(text: &str) {
    let colours = Paint::stderr().is_on();
    let redacted = redacted(text);
    // A line may begin with a carriage return: see `event`.
    let (start, rest) = match redacted.strip_prefix('\r') {
        Some(rest) if colours => ("\r", rest),
        _ => ("", &*redacted),
    };
    let _ = io::stderr().lock().write_all(format!("{start}{}", for_terminal(rest, colours)).as_bytes());
}

/// Writes lines of JSON to the standard error output, without secrets. Escapes would not be JSON.
pub fn err_json(text: &str) {
    let _ = io::stderr().lock().write_all(redacted(text).as_bytes());
}

/// Returns the line of an event: an object for programs, or a text whose part before a colon is coloured. The
/// line is empty if `quiet` is true, except in JSON.
#[must_use]
pub fn event(json: bool, quiet: bool, name: &str, text: &str) -> String {
    if json {
        return format!(
            "{}\n",
            json!({ "event": name, "time": now(), "message": for_terminal(text, false) })
        );
    }
    if quiet {
        return String::new();
    }
    let paint = Paint::stderr();
    // The terminal may have echoed `^C` on this line.
    let start = if paint.is_on() { "\r" } else { "" };
    match text.split_once(':') {
        Some((word, rest)) => format!("{start}{}{rest}\n", paint.yellow(&format!("{word}:"))),
        None => format!("{start}{}\n", paint.dim(text)),
    }
}

/// The present time in lines of JSON: `2026-11-25T13:42:47.123Z`.
#[must_use]
pub(crate) fn now() -> String {
    Utc::now().to_rfc3339_opts(SecondsFormat::Millis, true)
}

/// The width of the terminal in columns: `COLUMNS`, or what the terminal reports, or 80.
#[must_use]
pub fn width() -> usize {
    let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let terminal = || terminal_size::terminal_size().map(|(width, _)| usize::from(width.0));
    columns.or_else(terminal).filter(|width| *width > 0).unwrap_or(80)
}
