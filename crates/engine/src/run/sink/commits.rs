//! The steps of a sink that wait for a checkpoint: it makes output visible that the checkpoint covers.
//!
//! A sink may have such steps when its input has ended. They are taken after the last checkpoint of the run,
//! when no task is left.
//!
//! See docs/decisions/077-objects-appear-when-a-checkpoint-covers-them.md.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use thalweg_runtime::Failpoint;

use super::super::saves::{Haste, Saves};
use super::super::{Retries, RunFailure};
use super::interrupted;
use crate::component::Sink;
use crate::metrics::ComponentMetrics;

/// Sinks that have ended, with steps that are left.
pub(in crate::run) type Uncommitted = Arc<Mutex<Vec<EndedSink>>>;

/// The number of steps with which a sink asks for a checkpoint. Each takes memory, and a file or an entry of
/// the journal.
const MANY: usize = 4096;

/// For each step of a sink, the number of the save that it waits for.
pub(in crate::run) struct Commits {
    saves: Saves,
    due: VecDeque<u64>,
    /// The number of the save that the sink has asked for.
    asked: u64,
}

impl Commits {
    pub(in crate::run) fn new(saves: Saves) -> Self {
        Self { saves, due: VecDeque::new(), asked: 0 }
    }

    /// The state of a sink that has this number of uncommitted steps is in the next save.
    pub(super) fn note(&mut self, uncommitted: usize) {
        let next = self.saves.next_number();
        self.due.resize(uncommitted.max(self.due.len()), next);
        if self.due.len() - self.saved() >= MANY && self.asked < next {
            self.asked = next;
            self.saves.ask(Haste::AtOnce);
        }
    }

    /// Returns the number of steps whose save is complete.
    pub(super) fn saved(&self) -> usize {
        let last = self.saves.last();
        self.due.partition_point(|number| *number <= last)
    }

    /// Takes the steps whose save is complete.
    async fn commit(&mut self, sink: &mut dyn Sink) -> Result<(), crate::Error> {
        Failpoint::CommitBefore.check().map_err(interrupted)?;
        let committed = sink.commit(self.saved()).await;
        Failpoint::CommitAfter.pass();
        let taken = self.due.len().saturating_sub(sink.uncommitted());
        self.due.drain(..taken);
        committed
    }

    /// Takes the steps whose save is complete, with retries after temporary errors.
    ///
    /// # Errors
    /// The first permanent error.
    pub(super) async fn commit_all(
        &mut self,
        sink: &mut dyn Sink,
        retries: &Retries,
        metrics: &Arc<ComponentMetrics>,
    ) -> Result<(), RunFailure> {
        let mut attempt = 0;
        while self.saved() > 0 {
            let Err(error) = self.commit(sink).await else { continue };
            if !error.kind().is_temporary() {
                let error = error.context(format!("the sink `{}` failed", metrics.name));
                return Err(RunFailure::of(metrics, error));
            }
            retries.pause(metrics, &error, attempt).await;
            attempt += 1;
        }
        if attempt > 0 {
            metrics.set_retrying(None);
        }
        Ok(())
    }
}

/// A sink that has ended, with steps that are left.
pub(in crate::run) struct EndedSink {
    pub(super) sink: Box<dyn Sink>,
    pub(super) commits: Commits,
    pub(super) metrics: Arc<ComponentMetrics>,
    pub(super) retries: Retries,
}

impl EndedSink {
    /// Takes the steps that the last checkpoint covers.
    ///
    /// # Errors
    /// The first permanent error.
    pub(in crate::run) async fn commit(mut self) -> Result<(), RunFailure> {
        self.commits.commit_all(&mut *self.sink, &self.retries, &self.metrics).await
    }
}
