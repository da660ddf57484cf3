//! Writes messages as events of the collector, or as lines.

use std::io::Write;

use serde::de::IgnoredAny;
use thalweg_codec::json::write_text;
use thalweg_codec::template::{Template, column};
use thalweg_record::Batch;

use crate::requests::{Encode, Encoded, Members};

/// Writes messages as events.
pub(super) struct Events {
    pub(super) metadata: Vec<(String, Template)>,
    pub(super) indexed: Vec<(String, Template)>,
    pub(super) time: Option<String>,
}

impl Encode for Events {
    fn encode(&mut self, batch: &Batch, rows: &[usize], into: &mut Encoded) {
        let mut metadata = Members::of(&mut self.metadata, batch);
        let mut indexed = Members::of(&mut self.indexed, batch);
        let times = self.time.as_deref().map(|name| column(batch, name));
        for &row in rows {
            let payload = batch.payload().value(row);
            if payload.trim_ascii().is_empty() {
                into.reject(row, "the message is empty, and no event");
                continue;
            }
            let time = times.as_ref().and_then(|times| Some(times.time(row)?.timestamp_micros()));
            let time = time.filter(|time| *time >= 0).unwrap_or(batch.meta().time_us);
            let out = into.buffer();
            let has_metadata = metadata.write(row, out);
            // The object continues.
            out.pop();
            if has_metadata {
                out.push(b',');
            }
            write_time(time, out);
            let start = out.len();
            out.extend_from_slice(b",\"fields\":");
            if !indexed.write(row, out) {
                out.truncate(start);
            }
            out.extend_from_slice(b",\"event\":");
            match is_object(payload) {
                true => out.extend_from_slice(payload),
                false => write_text(&String::from_utf8_lossy(payload), out),
            }
            out.extend_from_slice(b"}\n");
            into.end(row);
        }
    }
}

/// Appends the member `time`, in seconds since 1970.
fn write_time(micros: i64, out: &mut Vec<u8>) {
    let (seconds, rest) = (micros.div_euclid(1_000_000), micros.rem_euclid(1_000_000));
    // A vector takes all bytes.
    let _ = write!(out, "\"time\":{seconds}.{rest:06}");
}

/// True if a payload is a JSON object. Any other text must not be a part of an event as it is: it could end
/// the event, and begin another.
fn is_object(payload: &[u8]) -> bool {
    payload.trim_ascii_start().starts_with(b"{") && serde_json::from_slice::<IgnoredAny>(payload).is_ok()
}

/// Writes messages as lines.
pub(super) struct Lines;

impl Encode for Lines {
    fn encode(&mut self, batch: &Batch, rows: &[usize], into: &mut Encoded) {
        for &row in rows {
            let payload = batch.payload().value(row).trim_ascii_end();
            if payload.is_empty() {
                into.reject(row, "the message is empty, and no event");
                continue;
            }
            into.buffer().extend_from_slice(payload);
            into.buffer().push(b'\n');
            into.end(row);
        }
    }
}
