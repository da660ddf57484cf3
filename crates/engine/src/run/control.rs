//! One source of a run as it is seen from outside, and the requests that can be made to it alone.
//!
//! A paused source gets no memory to read into: see [`Gate`]. It waits where every source waits when memory
//! is short, so it holds no batch, no place in the traffic of its group and no lock, and checkpoints
//! continue. A client of a source of the network finds it busy, and its system holds back what it sends. The
//! gate is open as soon as the source is asked to stop: then it ends as if it had never been paused.
//!
//! A drained source is asked to stop by itself. Its request is a part of the run's, so whatever heeds the one
//! heeds the other: a sink behind it is suspended at the end, and a later run continues its output. Sinks of
//! other groups are not concerned.
//!
//! See docs/decisions/098-a-run-is-watched-without-cost-per-message.md.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};

use serde::Serialize;
use thalweg_record::{Gate, Opening};
use thalweg_runtime::Stop;
use tokio::sync::Notify;

use super::latency::Latency;
use crate::plan::SourceStage;
use crate::source_output::Limit;

/// The state of a source.
#[derive(Debug, Clone, Copy, Serialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum SourceState {
    /// The components of the run are being built.
    Starting,
    /// It reads, or waits for input.
    Running,
    /// It was paused. The messages that it has read go on.
    Paused,
    /// It was asked to stop, and has not ended yet.
    Draining,
    /// It has ended, and is not read again in this run.
    Ended,
}

/// A source and its state.
#[derive(Debug, Clone, Serialize, PartialEq, Eq)]
pub struct SourceStatus {
    /// Its name.
    pub name: String,
    /// Its key in configurations.
    pub kind: &'static str,
    /// Its state.
    pub state: SourceState,
}

/// No source has a name. The name is not a part of this, as in [`TapError`](super::TapError).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no source has this name; there are: {}", .known.join(", "))]
pub struct UnknownSource {
    /// The names of the sources.
    pub known: Vec<String>,
}

/// The control of one source.
#[derive(Debug)]
pub(super) struct SourceControl {
    pub(super) name: Arc<str>,
    kind: &'static str,
    /// The request to stop that the source obeys. The run makes it a part of its own.
    pub(super) stop: Stop,
    /// The number of messages that it may send, if there is one: a source that has reached it has ended,
    /// paused or not.
    pub(super) limit: OnceLock<Limit>,
    pub(super) latency: Arc<Latency>,
    is_paused: AtomicBool,
    resumed: Notify,
    has_ended: AtomicBool,
}

impl SourceControl {
    pub(super) fn of(stage: &SourceStage) -> Arc<Self> {
        Arc::new(Self {
            name: stage.node.name.clone(),
            kind: stage.node.kind,
            stop: Stop::default(),
            limit: OnceLock::new(),
            latency: Arc::default(),
            is_paused: AtomicBool::new(false),
            resumed: Notify::new(),
            has_ended: AtomicBool::new(false),
        })
    }

    pub(super) fn pause(&self) {
        self.is_paused.store(true, SeqCst);
    }

    pub(super) fn resume(&self) {
        self.is_paused.store(false, SeqCst);
        self.resumed.notify_waiters();
    }

    pub(super) fn status(&self, is_started: bool) -> SourceStatus {
        let state = if self.has_ended.load(SeqCst) {
            SourceState::Ended
        } else if self.stop.is_requested() {
            SourceState::Draining
        } else if self.is_paused.load(SeqCst) {
            SourceState::Paused
        } else if is_started {
            SourceState::Running
        } else {
            SourceState::Starting
        };
        SourceStatus { name: self.name.to_string(), kind: self.kind, state }
    }

    /// Returns what the task of the source holds until it ends.
    pub(super) fn task(self: &Arc<Self>) -> SourceTask {
        SourceTask(self.clone())
    }

    /// True while the source is held back.
    fn is_held_back(&self) -> bool {
        self.is_paused.load(SeqCst)
            && !self.stop.is_requested()
            && !self.limit.get().is_some_and(Limit::is_reached)
    }

    async fn let_go(&self) {
        let resumed = self.resumed.notified();
        let mut resumed = std::pin::pin!(resumed);
        resumed.as_mut().enable();
        // Looked at after the notification is enabled, so that none is missed.
        if !self.is_held_back() {
            return;
        }
        tokio::select! {
            () = resumed => {}
            () = self.stop.requested() => {}
            () = reached(self.limit.get()) => {}
        }
    }
}

impl Gate for SourceControl {
    fn opening(&self) -> Option<Opening<'_>> {
        self.is_held_back().then(|| -> Opening<'_> { Box::pin(self.let_go()) })
    }
}

/// Notes, when it is dropped, that the source has ended.
#[derive(Debug)]
pub(super) struct SourceTask(Arc<SourceControl>);

impl Drop for SourceTask {
    fn drop(&mut self) {
        self.0.has_ended.store(true, SeqCst);
    }
}

/// Waits until a limit is reached, if there is one.
async fn reached(limit: Option<&Limit>) {
    match limit {
        Some(limit) => limit.reached().await,
        None => std::future::pending().await,
    }
}
