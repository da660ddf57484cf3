//! The way of single batches through a run, from reading to settling.
//!
//! Few batches are traced: a source asks when it makes the ack of a batch, which without telemetry is one
//! load. The ack of a traced batch has an observer, which all its parts share. It learns which component
//! holds a part, and when it is settled there. So a component has a span from the arrival of the first part
//! until the last one has left it or is settled: also the time in which a part waits in a channel behind it,
//! or for a flush of a sink.
//!
//! Spans around the calls of components were rejected: batches are divided and joined, and the time that
//! matters is mostly that between calls.
//!
//! The messages that a file reader reads carry parts of the ack of their file, so they belong to its trace. A
//! trace ends at a buffer, whose source begins new ones.
//!
//! All memory is bounded: the traces that are open, those that are not taken yet, and the spans of each. A
//! trace beyond a bound is left out and counted.
//!
//! See docs/decisions/118-telemetry-is-sent-by-a-thread-of-its-own.md.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use thalweg_record::{AckObserver, Outcome, Settlement};

/// The most traces that begin within a second.
const MOST_IN_A_SECOND: u32 = 100;
/// The most traces of batches that are not settled, and the most that wait to be taken.
const MOST: usize = 1024;
/// The most spans of a trace, beside that of the batch.
const MOST_STAGES: usize = 64;

/// The way of a batch.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchTrace {
    /// A random number, which is not 0.
    pub id: u128,
    /// The identifier of the span of the batch, which is not 0.
    pub span: u64,
    /// The source that read it.
    pub source: Arc<str>,
    /// The number of its messages or files.
    pub messages: u64,
    /// When it was read.
    pub begun: SystemTime,
    /// The time until all of it was settled.
    pub took: Duration,
    /// How it ended: `filtered`, `delivered`, `rejected`, `unfinished` or `failed`.
    pub outcome: &'static str,
    /// True if no component is known to have all of its messages.
    pub has_failed: bool,
    /// The number of rejected messages.
    pub rejected: u64,
    /// The components that it came to, in the order of its arrival.
    pub stages: Vec<StageSpan>,
}

/// A batch, or parts of it, in a component.
#[derive(Debug, Clone, PartialEq)]
pub struct StageSpan {
    /// The identifier of the span, which is not 0.
    pub span: u64,
    /// The component.
    pub component: Arc<str>,
    /// When the first part came, after the batch was read.
    pub begun: Duration,
    /// When the last part left, or was settled here, after the batch was read.
    pub ended: Duration,
    /// The messages of the parts. A part that was joined with those of other batches counts with them.
    pub messages: u64,
    /// The bytes of their payloads.
    pub bytes: u64,
    /// The number of parts.
    pub parts: u64,
}

/// The traces of a run.
#[derive(Debug, Default)]
pub(crate) struct Traces {
    /// A batch is traced if a random number is not larger. 0: none is.
    threshold: AtomicU64,
    open: AtomicUsize,
    left_out: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// When the current second began, and how many traces began in it.
    second: Option<(Instant, u32)>,
    /// The traces that are not taken yet.
    ended: Vec<BatchTrace>,
}

impl State {
    /// Counts a trace that begins now. False if it is one too many.
    fn admits(&mut self, now: Instant) -> bool {
        match &mut self.second {
            Some((begun, count)) if now.saturating_duration_since(*begun) < Duration::from_secs(1) => {
                *count += 1;
                *count <= MOST_IN_A_SECOND
            }
            second => {
                *second = Some((now, 1));
                true
            }
        }
    }
}

impl Traces {
    /// Traces this part of the batches from here on.
    pub(super) fn sample(&self, ratio: f64) {
        let threshold = if ratio >= 1.0 { u64::MAX } else { (ratio * u64::MAX as f64) as u64 };
        self.threshold.store(threshold, Relaxed);
    }

    /// Begins the trace of a batch that was read now, if it is chosen.
    #[inline]
    pub(crate) fn begin(self: &Arc<Self>, source: &Arc<str>, messages: u64) -> Option<Arc<Trace>> {
        let threshold = self.threshold.load(Relaxed);
        if threshold == 0 || fastrand::u64(..) > threshold {
            return None;
        }
        self.chosen(source, messages)
    }

    #[cold]
    fn chosen(self: &Arc<Self>, source: &Arc<str>, messages: u64) -> Option<Arc<Trace>> {
        let begun = Instant::now();
        // A race of threads may pass the bound by their number.
        if self.open.load(Relaxed) >= MOST || !self.state.lock().admits(begun) {
            self.left_out.fetch_add(1, Relaxed);
            return None;
        }
        self.open.fetch_add(1, Relaxed);
        Some(Arc::new(Trace {
            traces: self.clone(),
            source: source.clone(),
            messages,
            at: SystemTime::now(),
            begun,
            stages: Mutex::default(),
        }))
    }

    fn add(&self, trace: BatchTrace) {
        let mut state = self.state.lock();
        if state.ended.len() < MOST {
            state.ended.push(trace);
        } else {
            self.left_out.fetch_add(1, Relaxed);
        }
    }

    pub(super) fn take(&self) -> Vec<BatchTrace> {
        std::mem::take(&mut self.state.lock().ended)
    }

    pub(super) fn left_out(&self) -> u64 {
        self.left_out.load(Relaxed)
    }
}

/// The trace of a batch that is not settled.
pub(crate) struct Trace {
    traces: Arc<Traces>,
    source: Arc<str>,
    messages: u64,
    at: SystemTime,
    begun: Instant,
    stages: Mutex<Vec<StageSpan>>,
}

impl Trace {
    /// Notes that all of the batch is settled.
    pub(crate) fn end(&self, settlement: &Settlement) {
        self.traces.add(BatchTrace {
            id: fastrand::u128(1..),
            span: fastrand::u64(1..),
            source: self.source.clone(),
            messages: self.messages,
            begun: self.at,
            took: self.begun.elapsed(),
            outcome: name_of(settlement.outcome),
            has_failed: !settlement.outcome.is_safe(),
            rejected: settlement.rejected as u64,
            stages: std::mem::take(&mut self.stages.lock()),
        });
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        self.traces.open.fetch_sub(1, Relaxed);
    }
}

fn name_of(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Filtered => "filtered",
        Outcome::Delivered => "delivered",
        Outcome::Rejected => "rejected",
        Outcome::Unfinished => "unfinished",
        Outcome::Failed => "failed",
    }
}

/// Notes that a part leaves a component now.
fn leave(stages: &mut [StageSpan], component: Option<&Arc<str>>, now: Duration) {
    let component = component.and_then(|component| stages.iter_mut().find(|at| at.component == *component));
    if let Some(stage) = component {
        stage.ended = now;
    }
}

impl AckObserver for Trace {
    fn entered(&self, from: Option<&Arc<str>>, to: &Arc<str>, messages: usize, bytes: usize) {
        let mut stages = self.stages.lock();
        let now = self.begun.elapsed();
        leave(&mut stages, from, now);
        if let Some(stage) = stages.iter_mut().find(|stage| stage.component == *to) {
            stage.messages += messages as u64;
            stage.bytes += bytes as u64;
            stage.parts += 1;
            stage.ended = now;
        } else if stages.len() < MOST_STAGES {
            stages.push(StageSpan {
                span: fastrand::u64(1..),
                component: to.clone(),
                begun: now,
                ended: now,
                messages: messages as u64,
                bytes: bytes as u64,
                parts: 1,
            });
        }
    }

    fn settled(&self, at: Option<&Arc<str>>) {
        let mut stages = self.stages.lock();
        let now = self.begun.elapsed();
        leave(&mut stages, at, now);
    }
}
