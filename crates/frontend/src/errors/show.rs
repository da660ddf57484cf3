//! `thalweg errors show`.

use crate::exit::{CommandError, Exit};
use crate::format::{count, counted, moment};
use crate::paint::Paint;
use crate::print;
use thalweg_engine::{DeadLetter, DeadLetterId, KeptField};
use thalweg_redact::{for_terminal, foreign, is_unseen};

use super::lines::Lines;
use super::{Shown, StateLocation, json_of};

/// The dead letter to show.
#[derive(Debug, Clone, Default)]
pub struct ShowOptions {
    /// Where it is.
    pub location: StateLocation,
    /// Its number.
    pub id: DeadLetterId,
    /// True if it is printed as JSON.
    pub json: bool,
    /// True if only the payload is printed, byte for byte.
    pub payload: bool,
}

/// Shows one dead letter as a whole.
///
/// # Errors
/// If the state directory or the configuration cannot be read, or the output cannot be written.
pub fn show(options: &ShowOptions) -> Result<Exit, CommandError> {
    let state_dir = options.location.state_dir()?;
    let folder = &state_dir.folder;
    let letter = match Shown::find(&state_dir)? {
        Some(shown) => shown.letter(options.id)?,
        None => None,
    };
    let Some(letter) = letter else {
        return Err(CommandError::Usage(format!(
            "there is no dead letter {} in `{}`; `thalweg errors list` shows those that there are",
            options.id,
            folder.display()
        )));
    };
    if options.payload {
        use std::io::Write;
        let mut stdout = std::io::stdout().lock();
        stdout.write_all(&letter.payload_bytes())?;
        stdout.flush()?;
        return Ok(Exit::Done);
    }
    if options.json {
        print::json(&json_of(options.id, &letter)?)?;
        return Ok(Exit::Done);
    }
    print::show(&described(options.id, &letter, Paint::stdout()))?;
    Ok(Exit::Done)
}

/// Everything about a dead letter, as text.
fn described(id: DeadLetterId, letter: &DeadLetter, paint: Paint) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        let name = if name.is_empty() { String::new() } else { format!("{name}:") };
        text += &format!("{} {value}\n", paint.cyan(&format!("{name:10}")));
    };
    line("id", &id.to_string());
    line("time", &moment(letter.time_us));
    line("component", &letter.component);
    if !letter.passed.is_empty() {
        line("after", &letter.passed.join(", "));
    }
    line("reason", &for_terminal(&letter.reason, false));
    line("source", &letter.source);
    if let Some(path) = &letter.path {
        line("path", &foreign(path));
    }
    if let Some(file) = &letter.file {
        let mime = file.mime.as_ref().map(|mime| format!(", {mime}")).unwrap_or_default();
        let mime = foreign(&mime);
        line("file", &format!("{}, {}{mime}", foreign(&file.name), counted(file.size, "byte")));
    }
    match (Lines::default().line_of(letter), letter.position) {
        (Some(number), Some(position)) => {
            line("line", &format!("{} (from byte {} on)", count(number), count(position)));
        }
        (_, Some(position)) => line("byte", &count(position)),
        (_, None) => {}
    }
    for (at, field) in letter.fields.iter().enumerate() {
        let value = foreign(field.value.as_deref().unwrap_or("NULL"));
        let kind = paint.dim(&format!("({})", foreign(type_of(field))));
        let shown = format!("{} = {value} {kind}", foreign(&field.name));
        line(if at == 0 { "fields" } else { "" }, &shown);
    }
    let payload = letter.payload_bytes();
    if letter.file.is_none() || !payload.is_empty() {
        let kind = if letter.payload.is_some() { "" } else { ", not UTF-8" };
        line("payload", &format!("{}{kind}", counted(payload.len() as u64, "byte")));
        text += &indented(&payload);
    }
    text
}

/// The lines of a payload, indented, with a dot for each character that is not seen.
fn indented(payload: &[u8]) -> String {
    let tame = |c: char| if is_unseen(c) && c != '\t' { '·' } else { c };
    let payload = String::from_utf8_lossy(payload);
    let lines = payload.lines().map(|line| format!("  {}\n", line.chars().map(tame).collect::<String>()));
    lines.collect()
}

/// The name of a type in configurations.
fn type_of(field: &KeptField) -> &str {
    match field.data_type.as_str() {
        _ if field.metadata.values().any(|extension| extension == "arrow.json") => "json",
        "Utf8View" | "Utf8" | "LargeUtf8" => "text",
        "Int64" => "int",
        "Float64" => "float",
        "Boolean" => "bool",
        other if other.starts_with("Timestamp") => "timestamp",
        other => other,
    }
}
