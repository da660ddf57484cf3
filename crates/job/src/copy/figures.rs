//! The counters of a copy.

use serde_json::{Value, json};
use thalweg_config::counted;
use thalweg_engine::{ComponentCounts, Summary};

use crate::outcome::{Outcome, rejected};

/// The counters of a copy.
#[derive(Debug, Default)]
pub struct Figures {
    /// True if rows were copied, not files.
    pub is_rows: bool,
    /// Objects that were read.
    pub read_objects: u64,
    /// Files or rows that were written.
    pub copied: u64,
    /// Bytes that were read, including repeated reads.
    pub read_bytes: u64,
    /// Bytes that were written.
    pub written_bytes: u64,
    /// Requests to stores.
    pub requests: u64,
    /// Requests that were retried.
    pub retries: u64,
    /// Bytes whose checksum the store confirmed.
    pub verified_bytes: u64,
    /// The CRC-32C of the target, if it is one object.
    pub crc32c: Option<u64>,
    /// Bytes that an earlier copy had written.
    pub kept_bytes: u64,
    /// Files that were skipped, since the target existed.
    pub skipped: u64,
    /// Files or rows that could not be copied.
    pub failed: u64,
}

impl Figures {
    /// Reads them from the counters of a run.
    pub(super) fn of(summary: &Summary, is_rows: bool) -> Self {
        let of_role =
            |role: &'static str| summary.components.iter().filter(move |counts| counts.role == role);
        let sum = |role, of: fn(&ComponentCounts) -> u64| of_role(role).map(of).sum::<u64>();
        let detail = |role: &'static str, name: &str| {
            of_role(role).filter_map(|counts| counts.details.get(name).copied()).sum::<u64>()
        };
        // The standard output does not count what it sent by itself.
        let to_stdout = of_role("sink")
            .filter(|counts| counts.kind == "stdout")
            .map(|counts| counts.bytes_out)
            .sum::<u64>();
        let both = |name: &str| detail("source", name) + detail("sink", name);
        let skipped = detail("sink", "skipped_files");
        let fetched = detail("source", "fetched_bytes");
        Self {
            is_rows,
            read_objects: sum("source", |counts| counts.rows_in),
            copied: sum("sink", |counts| counts.rows_out).saturating_sub(skipped),
            // Bytes of local files are read when they are written. The source counts whole files.
            read_bytes: match (fetched, is_rows) {
                (0, true) => sum("source", |counts| counts.bytes_in),
                (0, false) => detail("sink", "sent_bytes"),
                (fetched, _) => fetched,
            },
            written_bytes: detail("sink", "sent_bytes") + to_stdout,
            requests: both("requests"),
            retries: both("retries"),
            verified_bytes: detail("sink", "verified_bytes"),
            crc32c: Some(detail("sink", "crc32c")).filter(|crc32c| *crc32c > 0),
            kept_bytes: detail("sink", "kept_bytes"),
            skipped,
            failed: rejected(summary),
        }
    }

    /// True if everything was copied.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.failed == 0
    }

    /// The name of one item: `row` or `file`.
    #[must_use]
    pub fn item(&self) -> &'static str {
        if self.is_rows { "row" } else { "file" }
    }

    /// Says how much could not be copied.
    #[must_use]
    pub fn not_copied(&self) -> String {
        format!("{} could not be copied", counted(self.failed, self.item()))
    }

    /// The summary of the run for programs, with the counters as the member `copy`.
    #[must_use]
    pub fn json(&self, outcome: &Outcome) -> Value {
        let mut line = outcome.json();
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
