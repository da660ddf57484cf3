//! The recent files of a pass, which the next pass must know one by one.
//!
//! They are saved in parts, each a partition of its own, while the pass runs. A run that resumes an
//! interrupted pass thus knows which of its files were sent. A save writes only the last part. (Rejected: one
//! list at the end of the pass, which an interrupted pass never wrote.)

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use thalweg_engine::{Checkpoint, SourceOutput};

/// The beginning of the names of all parts.
const PARTITION: &str = "files.recent.";

/// The number of files in a part.
const PART: usize = 512;

/// Fingerprints of files.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Part {
    /// Files that were sent, with their state.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    sent: Vec<u64>,
    /// The paths of files that were too young.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    deferred: Vec<u64>,
}

/// The recent files of one pass.
#[derive(Debug, Default)]
pub struct Recent {
    /// The fingerprints of files that were sent.
    pub sent: HashSet<u64>,
    /// The fingerprints of the paths of files that were younger than `min_age`.
    pub deferred: HashSet<u64>,
    /// The number of the last part, and its content.
    last: (usize, Part),
    /// True if the last part was not saved as it is.
    is_changed: bool,
}

impl Recent {
    /// Returns the files that were saved for the pass that began at this time.
    pub fn load(out: &SourceOutput, began: i64) -> Self {
        let mut recent = Self::default();
        while let Some(saved) = out.saved(&name(began, recent.last.0)) {
            let part: Part = serde_json::from_value(saved).unwrap_or_default();
            recent.sent.extend(part.sent);
            recent.deferred.extend(part.deferred);
            recent.last.0 += 1;
        }
        recent
    }

    /// Adds a file that was sent.
    pub fn add_sent(&mut self, print: u64) {
        if self.sent.insert(print) {
            self.last.1.sent.push(print);
            self.is_changed = true;
        }
    }

    /// Adds a file that is too young.
    pub fn add_deferred(&mut self, print: u64) {
        if self.deferred.insert(print) {
            self.last.1.deferred.push(print);
            self.is_changed = true;
        }
    }

    /// Returns the part that must be saved now, for the pass that began at this time.
    pub fn take_change(&mut self, began: i64) -> Option<Checkpoint> {
        if !std::mem::take(&mut self.is_changed) {
            return None;
        }
        let (number, part) = &mut self.last;
        let offset = serde_json::to_value(&*part).unwrap_or_default();
        let checkpoint = Checkpoint { partition: name(began, *number).into(), offset };
        if part.sent.len() + part.deferred.len() >= PART {
            self.last = (*number + 1, Part::default());
        }
        Some(checkpoint)
    }
}

/// Deletes the files that were saved for other passes than those that began at these times.
pub fn forget_others(out: &SourceOutput, passes: &[i64]) {
    for partition in out.partitions() {
        let numbers = partition.strip_prefix(PARTITION).and_then(|rest| rest.split_once('.'));
        let began = numbers.and_then(|(began, _)| began.parse().ok());
        if began.is_some_and(|began| !passes.contains(&began)) {
            out.forget(&partition);
        }
    }
}

fn name(began: i64, number: usize) -> String {
    format!("{PARTITION}{began}.{number}")
}
