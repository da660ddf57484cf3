//! The outcome of a run, as a value and in JSON.

use serde_json::{Value, json};
use thalweg_engine::{ComponentCounts, ErrorKind, Handle, Summary};

use crate::memory::peak_memory;

/// The outcome of one phase.
#[derive(Debug)]
pub struct Outcome {
    /// Counters, positions, and the failure if there was one.
    pub summary: Summary,
    /// Its retries.
    pub retries: Retries,
}

/// The outcome of a job: that of each phase that ran.
#[derive(Debug)]
pub struct JobOutcome {
    /// The phases that ran, in order; at least one.
    pub phases: Vec<Outcome>,
}

/// The retries of a run.
#[derive(Debug, Default, Clone)]
pub struct Retries {
    /// Their number.
    pub count: u64,
    /// The last of them, for people.
    pub last: Option<String>,
}

impl Retries {
    /// Collects the retries since the last call.
    pub(crate) fn note(&mut self, handle: &Handle) {
        let retries = handle.take_retries();
        self.count += retries.len() as u64;
        self.last = retries.into_iter().next_back().or(self.last.take());
    }
}

impl Outcome {
    /// True if the run ended because the reader of the standard output is gone, and nothing else was to be
    /// written. Another sink would lack messages, so the run has then failed.
    #[must_use]
    pub fn reader_is_gone(&self) -> bool {
        let Summary { failure, components, .. } = &self.summary;
        let is_gone = failure.as_ref().is_some_and(|failure| failure.error.kind() == ErrorKind::ReaderGone);
        let mut sinks = components.iter().filter(|component| component.role == "sink");
        is_gone && sinks.all(|sink| ["stdout", "discard"].contains(&sink.kind))
    }

    /// The number of messages that no component could process.
    #[must_use]
    pub fn rejected(&self) -> u64 {
        rejected(&self.summary)
    }

    /// The summary for programs.
    #[must_use]
    pub fn json(&self) -> Value {
        let Summary { failure, stopped, elapsed, .. } = &self.summary;
        let summary = &self.summary;
        let (messages, size) = summary_input(summary);
        json!({
            "event": "summary",
            "failure": failure.as_ref().map(ToString::to_string),
            "stopped": stopped,
            "elapsed_seconds": elapsed.as_secs_f64(),
            format!("{}s", summary.item): messages,
            "bytes": size,
            "components": summary.components,
            "dead_letters": summary.dead_letters,
            "dead_letters_dropped": summary.dead_letters_dropped,
            "state_folder": summary.state_folder,
            "budget_peak_bytes": summary.budget_peak,
            "budget_limit_bytes": summary.budget_limit,
            "peak_memory_bytes": peak_memory(),
            "retries": self.retries.count,
            "last_retry": self.retries.last,
            "positions": summary.positions,
        })
    }
}

impl JobOutcome {
    /// The reason why the job failed, if it did.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        self.phases.iter().find_map(|phase| phase.summary.failure.as_ref()).map(ToString::to_string)
    }

    /// True if the job was stopped before its sources had ended.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.phases.iter().any(|phase| phase.summary.stopped)
    }

    /// The number of messages that no component could process.
    #[must_use]
    pub fn rejected(&self) -> u64 {
        self.phases.iter().map(Outcome::rejected).sum()
    }

    /// The summary for programs. With several phases, components are concatenated, counts and times are
    /// added, the largest peak is kept, and the rest comes from the last phase.
    #[must_use]
    pub fn json(&self) -> Value {
        const ADDED: [&str; 7] = [
            "elapsed_seconds",
            "dead_letters",
            "dead_letters_dropped",
            "retries",
            "messages",
            "files",
            "bytes",
        ];
        let mut phases = self.phases.iter().map(Outcome::json);
        let mut all = phases.next().unwrap_or_default();
        for phase in phases {
            let before = std::mem::replace(&mut all, phase);
            for name in ADDED.into_iter().filter(|name| !before[name].is_null()) {
                all[name] = sum(&before[name], &all[name]);
            }
            let peak = before["budget_peak_bytes"].as_u64().max(all["budget_peak_bytes"].as_u64());
            all["budget_peak_bytes"] = peak.into();
            if let (Some(components), Some(later)) =
                (before["components"].as_array(), all["components"].as_array())
            {
                all["components"] = components.iter().chain(later).cloned().collect();
            }
        }
        all["errors"] = self.rejected().into();
        all
    }
}

/// The sum of two numbers, where the second may be missing.
fn sum(one: &Value, other: &Value) -> Value {
    match (one.as_u64(), other.as_u64()) {
        (Some(one), Some(other)) => (one + other).into(),
        (Some(one), None) if other.is_null() => one.into(),
        _ => (one.as_f64().unwrap_or_default() + other.as_f64().unwrap_or_default()).into(),
    }
}

/// The number of messages that no component could process.
#[must_use]
pub fn rejected(summary: &Summary) -> u64 {
    summary.components.iter().map(|counts| counts.errors).sum::<u64>().max(summary.dead_letters)
}

/// Messages and bytes that the sources read.
#[must_use]
pub fn summary_input(summary: &Summary) -> (u64, u64) {
    let sources = || summary.components.iter().filter(|counts: &&ComponentCounts| counts.role == "source");
    (sources().map(|counts| counts.rows_in).sum(), sources().map(|counts| counts.bytes_in).sum())
}

/// The counters of a run in progress, for programs.
#[must_use]
pub fn statistics(handle: &Handle) -> Value {
    json!({
        "components": handle.counts(),
        "item": handle.item(),
        "budget_used_bytes": handle.budget().used(),
        "budget_limit_bytes": handle.budget().limit(),
        "dead_letters": handle.dead_letters(),
        "stopping": handle.is_stopping(),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use thalweg_engine::{Error, RunFailure};

    use super::*;

    fn outcome(error: Error) -> Outcome {
        let summary = Summary {
            components: Vec::new(),
            item: "message",
            reads_out_of_files: false,
            elapsed: Duration::ZERO,
            budget_limit: 0,
            budget_peak: 0,
            dead_letters: 0,
            dead_letters_dropped: 0,
            state_folder: "state".into(),
            stopped: false,
            positions: BTreeMap::new(),
            failure: Some(RunFailure::from(error)),
            undrained: None,
        };
        Outcome { summary, retries: Retries::default() }
    }

    #[test]
    fn an_error_that_only_quotes_the_words_of_a_closed_output_is_a_failure() {
        let words = "the reader of the output has gone away";
        assert!(outcome(Error::reader_gone(words).context("the sink `out` failed")).reader_is_gone());
        let quoted = format!("the command `sync` ended with 1: {words}");
        assert!(!outcome(Error::permanent(quoted)).reader_is_gone());
    }
}
