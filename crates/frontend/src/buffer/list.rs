//! `thalweg buffer list`.

use std::time::UNIX_EPOCH;

use serde_json::json;
use thalweg_engine::FoundBuffer;

use super::{BufferOptions, nothing_in};
use crate::exit::{CommandError, Exit};
use crate::format::{bytes, counted, moment};
use crate::paint::Paint;
use crate::print;

/// Lists buffers: how much waits in each, and since when.
///
/// # Errors
/// If the state directory or the configuration cannot be read, or the output cannot be written.
pub fn list(options: &BufferOptions) -> Result<Exit, CommandError> {
    let (folder, found) = options.find()?;
    for buffer in &found {
        match options.json {
            true => print::out(&json_of(buffer))?,
            false => print::show(&line_of(buffer, Paint::stdout()))?,
        }
    }
    if found.is_empty() && !options.json {
        print::show(&nothing_in(&folder))?;
    }
    Ok(Exit::Done)
}

fn messages(buffer: &FoundBuffer) -> u64 {
    buffer.segments.iter().map(|segment| segment.messages).sum()
}

fn size(buffer: &FoundBuffer) -> u64 {
    buffer.segments.iter().map(|segment| segment.bytes).sum()
}

fn kept(buffer: &FoundBuffer) -> usize {
    buffer.segments.iter().filter(|segment| segment.is_kept).count()
}

/// When the oldest segment was begun, in microseconds since 1970.
fn since(buffer: &FoundBuffer) -> Option<i64> {
    let oldest = buffer.segments.iter().map(|segment| segment.since).min()?;
    i64::try_from(oldest.duration_since(UNIX_EPOCH).ok()?.as_micros()).ok()
}

fn json_of(buffer: &FoundBuffer) -> String {
    let line = json!({
        "buffer": buffer.name,
        "messages": messages(buffer),
        "bytes": size(buffer),
        "segments": buffer.segments.len(),
        "damaged_segments": kept(buffer),
        "since_us": since(buffer),
    });
    format!("{line}\n")
}

fn line_of(buffer: &FoundBuffer, paint: Paint) -> String {
    let name = paint.cyan(&buffer.name);
    let Some(since) = since(buffer) else { return format!("{name}: empty\n") };
    let segments = counted(buffer.segments.len() as u64, "segment");
    let mut line = format!(
        "{name}: {} in {segments}, {}, since {}",
        counted(messages(buffer), "message"),
        bytes(size(buffer)),
        moment(since)
    );
    if let damaged @ 1.. = kept(buffer) {
        let damaged = format!("{} damaged, and kept", counted(damaged as u64, "segment"));
        line += &format!("; {}", paint.yellow(&damaged));
    }
    line + "\n"
}
