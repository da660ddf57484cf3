//! How a run went.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::{Handle, RunFailure};
use crate::metrics::ComponentCounts;
use crate::positions::Positions;

/// How a run went.
#[derive(Debug)]
pub struct Summary {
    /// The counters of all components.
    pub components: Vec<ComponentCounts>,
    /// The unit of the counters: `message` or `file`.
    pub item: &'static str,
    /// How long the run took.
    pub elapsed: Duration,
    /// The budget, in bytes.
    pub budget_limit: usize,
    /// The largest part of the budget that was in use at once, in bytes.
    pub budget_peak: usize,
    /// The number of messages kept as dead letters.
    pub dead_letters: u64,
    /// The number of dead letters that were dropped, the oldest first, because their limit was reached.
    pub dead_letters_dropped: u64,
    /// The folder of the dead letters.
    pub state_folder: PathBuf,
    /// True if the run, or a source of it, was asked to stop before the sources ended, and drained.
    pub stopped: bool,
    /// How far each source got, by partition.
    pub positions: BTreeMap<String, BTreeMap<String, Value>>,
    /// Why the run failed, if it did: the first failure.
    pub failure: Option<RunFailure>,
    /// The rest when the drain timeout expired, if it did.
    pub undrained: Option<Undrained>,
}

/// The end of a run's tasks.
pub(super) struct Ended {
    pub(super) failure: Option<RunFailure>,
    pub(super) undrained: Option<Undrained>,
}

impl Summary {
    pub(super) fn new(
        handle: &Handle,
        ended: Ended,
        positions: &[(Arc<str>, Arc<Positions>)],
        elapsed: Duration,
        state_folder: PathBuf,
    ) -> Self {
        let reached = |positions: &Positions| -> BTreeMap<String, Value> {
            let partitions = positions.partitions().into_iter();
            partitions
                .filter_map(|partition| Some((partition.to_string(), positions.saved(&partition)?)))
                .collect()
        };
        let positions = positions.iter().map(|(source, of)| (source.to_string(), reached(of))).collect();
        let stopped = handle.stop.was_heeded();
        Self::of_parts(handle, ended, positions, stopped, elapsed, state_folder)
    }

    /// The summary of parts that ran beside each other.
    pub(super) fn of_parts(
        handle: &Handle,
        ended: Ended,
        positions: BTreeMap<String, BTreeMap<String, Value>>,
        stopped: bool,
        elapsed: Duration,
        state_folder: PathBuf,
    ) -> Self {
        Self {
            components: handle.counts(),
            item: handle.item(),
            elapsed,
            budget_limit: handle.budget.limit(),
            budget_peak: handle.budget.peak(),
            dead_letters: handle.dead_letters(),
            dead_letters_dropped: handle.dead_letters_dropped(),
            state_folder,
            stopped: stopped && ended.failure.is_none(),
            positions,
            failure: ended.failure,
            undrained: ended.undrained,
        }
    }
}

/// The rest of a run that could not drain in time. None of it is acknowledged: a later run with the same
/// state sends it again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undrained {
    /// The drain timeout.
    pub timeout: Duration,
    /// For each source: how many of its messages, or files, are in batches that are not settled.
    pub unsettled: Vec<(Arc<str>, u64)>,
    /// The components that had not ended.
    pub running: Vec<Arc<str>>,
    /// How many of their threads stayed blocked, and were left behind.
    pub blocked: usize,
    /// The unit: `message` or `file`.
    pub item: &'static str,
}

/// At most this many of the components that had not ended are named.
const NAMED: usize = 5;

/// A sentence: `the drain timeout of 60 s expired; unsettled: `in` 120 messages; still running: `out``.
impl fmt::Display for Undrained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the drain timeout of {} s expired", self.timeout.as_secs_f64())?;
        for (number, (source, count)) in self.unsettled.iter().enumerate() {
            let start = if number == 0 { "; unsettled: " } else { ", " };
            let plural = if *count == 1 { "" } else { "s" };
            write!(f, "{start}`{source}` {count} {}{plural}", self.item)?;
        }
        for (number, component) in self.running.iter().take(NAMED).enumerate() {
            let start = if number == 0 { "; still running: " } else { ", " };
            write!(f, "{start}`{component}`")?;
        }
        match self.running.len().saturating_sub(NAMED) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_reads_as_a_sentence() {
        let mut left = Undrained {
            timeout: Duration::from_secs(60),
            unsettled: vec![("in".into(), 120), ("other".into(), 1)],
            running: vec!["out".into()],
            blocked: 0,
            item: "message",
        };
        assert_eq!(
            left.to_string(),
            "the drain timeout of 60 s expired; unsettled: `in` 120 messages, `other` 1 message; \
             still running: `out`"
        );
        left.unsettled.clear();
        left.running = (1..=7).map(|number| format!("s{number}").into()).collect();
        left.timeout = Duration::from_millis(200);
        assert_eq!(
            left.to_string(),
            "the drain timeout of 0.2 s expired; still running: `s1`, `s2`, `s3`, `s4`, `s5` and 2 more"
        );
    }
}
