//! What is said of a copy at its end.

use serde_json::{Value, json};
use thalweg_engine::{ComponentCounts, Summary};

use crate::drive::Outcome;
use crate::format::{bytes, bytes_of, count, counted, duration, rate};
use crate::paint::Paint;
use crate::summary;

/// What a copy came to.
#[derive(Debug, Default)]
pub struct Figures {
    /// Rows were copied, and not files.
    pub is_rows: bool,
    /// Objects that were read.
    pub read_objects: u64,
    /// Files or rows that were written.
    pub copied: u64,
    /// Bytes that were read, whatever became of them.
    pub read_bytes: u64,
    /// Bytes that were written.
    pub written_bytes: u64,
    /// Requests to stores.
    pub requests: u64,
    /// Requests that were tried again.
    pub retries: u64,
    /// Bytes whose checksum the store confirmed.
    pub verified_bytes: u64,
    /// The CRC-32C of what was written, if that is one object.
    pub crc32c: Option<u64>,
    /// Bytes that were there from a former copy.
    pub kept_bytes: u64,
    /// Files that were left alone.
    pub skipped: u64,
    /// What could not be copied.
    pub failed: u64,
}

impl Figures {
    /// From what a run counted.
    pub(crate) fn of(summary: &Summary, is_rows: bool) -> Self {
        let of_role =
            |role: &'static str| summary.components.iter().filter(move |counts| counts.role == role);
        let sum = |role, of: fn(&ComponentCounts) -> u64| of_role(role).map(of).sum::<u64>();
        let detail = |role: &'static str, name: &str| {
            of_role(role).filter_map(|counts| counts.details.get(name).copied()).sum::<u64>()
        };
        let both = |name: &str| detail("source", name) + detail("sink", name);
        let skipped = detail("sink", "skipped_files");
        let fetched = detail("source", "fetched_bytes");
        Self {
            is_rows,
            read_objects: sum("source", |counts| counts.rows_in),
            copied: sum("sink", |counts| counts.rows_out).saturating_sub(skipped),
            read_bytes: if fetched > 0 { fetched } else { sum("source", |counts| counts.bytes_in) },
            written_bytes: detail("sink", "sent_bytes"),
            requests: both("requests"),
            retries: both("retries"),
            verified_bytes: detail("sink", "verified_bytes"),
            crc32c: Some(detail("sink", "crc32c")).filter(|crc32c| *crc32c > 0),
            kept_bytes: detail("sink", "kept_bytes"),
            skipped,
            failed: summary::errors(summary),
        }
    }

    /// Whether everything was copied.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.failed == 0
    }

    fn item(&self) -> &'static str {
        if self.is_rows { "row" } else { "file" }
    }

    /// What could not be copied, for people.
    pub(crate) fn not_copied(&self) -> String {
        format!("{} could not be copied", counted(self.failed, self.item()))
    }

    /// As a person reads it. `errors_command` shows what could not be copied.
    pub(crate) fn text(&self, outcome: &Outcome, errors_command: &str, paint: Paint) -> String {
        let summary = &outcome.summary;
        let time = duration(summary.elapsed);
        let what = counted(self.copied, self.item());
        let head = match (&summary.failure, summary.stopped) {
            (Some(_), _) => paint.red(&format!("failed after {time}")),
            (None, true) => paint.bold(&format!("stopped after {time}")),
            (None, false) => paint.bold(&format!("done in {time}")),
        };
        let each_second = |number| format!("{}/s", bytes(rate(number, summary.elapsed) as u64));
        let mut text = String::new();
        let mut line = |parts: &[String]| text.push_str(&format!("  {}\n", parts.join(" · ")));
        line(&[head, format!("{what} copied"), each_second(self.read_bytes.max(self.written_bytes))]);
        let mut read = vec![format!("{} read", bytes(self.read_bytes))];
        if self.is_rows {
            read.push(format!("of {}", counted(self.read_objects, "object")));
        }
        read.push(format!("{} written", bytes(self.written_bytes)));
        if self.verified_bytes > 0 {
            read.push(format!("{} verified by the store", bytes(self.verified_bytes)));
        }
        read.extend(self.crc32c.map(|crc32c| format!("crc32c {crc32c:08x}")));
        line(&read);
        let mut asked = vec![counted(self.requests, "request")];
        if self.retries > 0 {
            asked.push(paint.yellow(&format!("{} retried", count(self.retries))));
        }
        let budget = bytes_of(summary.budget_peak as u64, summary.budget_limit as u64);
        asked.push(format!("at most {budget} in flight"));
        line(&asked);
        let mut there = Vec::new();
        if self.kept_bytes > 0 {
            there.push(format!("{} kept from a former copy", bytes(self.kept_bytes)));
        }
        if self.skipped > 0 {
            there.push(format!("{} left alone, being there already", counted(self.skipped, "file")));
        }
        if !there.is_empty() {
            line(&there);
        }
        if outcome.retried.count > 0 {
            let times = counted(outcome.retried.count, "time");
            line(&[format!(
                "tried again {times}, the last: {}",
                outcome.retried.last.as_deref().unwrap_or_default()
            )]);
        }
        if self.failed > 0 {
            line(&[format!("{}: `{errors_command}` shows them", paint.yellow(&self.not_copied()))]);
        }
        text
    }

    /// As programs read it: the summary of the run, and in `copy` what it came to.
    pub(crate) fn json(&self, outcome: &Outcome) -> Value {
        let mut line = summary::json(outcome);
        line["copy"] = json!({
            "objects_read": self.read_objects,
            format!("{}s_copied", self.item()): self.copied,
            "read_bytes": self.read_bytes,
            "written_bytes": self.written_bytes,
            "requests": self.requests,
            "retries": self.retries,
            "verified_bytes": self.verified_bytes,
            "crc32c": self.crc32c.map(|crc32c| format!("{crc32c:08x}")),
            "kept_bytes": self.kept_bytes,
            "skipped_files": self.skipped,
            "not_copied": self.failed,
        });
        line
    }
}
