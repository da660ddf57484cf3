//! Watches over a run from its start to its end.
//!
//! The supervisor saves checkpoints, and requests the sources to stop when something fails. Then the run
//! drains: it delivers the messages in flight as far as possible. Draining has a deadline, counted from the
//! request to stop. Without it, a sink that never returns would keep the run from ending.
//!
//! See docs/decisions/062-draining-has-a-deadline.md.

use std::sync::Arc;
use std::time::Duration;

use thalweg_runtime::Alarm;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::checkpoints::Checkpoints;
use super::summary::{Ended, Undrained};
use super::threads::{PATIENCE, Tasks, not_ended};
use super::{Handle, RunFailure};
use crate::Error;

/// Watches over a run.
pub(super) struct Supervisor {
    handle: Handle,
    checkpoints: Vec<Arc<Checkpoints>>,
    /// Receives the failures of batches.
    failed: mpsc::UnboundedReceiver<RunFailure>,
    /// Receives the failures of checkpoints.
    unsaved: mpsc::UnboundedReceiver<RunFailure>,
    /// Take checkpoints.
    keepers: JoinSet<()>,
    drain_timeout: Duration,
    /// The end of draining, once the run is asked to stop.
    deadline: Option<Alarm>,
    /// The first failure of a component, or of the engine.
    broken: Option<RunFailure>,
    /// The first failure of a batch: a consequence, if there is another.
    unsettled: Option<RunFailure>,
    undrained: Option<Undrained>,
    /// True if messages in flight were given up.
    gave_up: bool,
}

/// An event that a supervisor waits for.
enum Event {
    Ended(Result<(), RunFailure>),
    AllEnded,
    BatchFailed(RunFailure),
    Stopping,
    DrainExpired,
    Aborted,
    NotSaved(RunFailure),
}

impl Supervisor {
    pub(super) fn new(
        handle: Handle,
        checkpoints: Vec<Arc<Checkpoints>>,
        failed: mpsc::UnboundedReceiver<RunFailure>,
        drain_timeout: Duration,
    ) -> Self {
        let (not_saved, unsaved) = mpsc::unbounded_channel();
        let mut keepers = JoinSet::new();
        for group in checkpoints.iter().filter(|group| group.is_due()) {
            keepers.spawn(group.clone().keep(not_saved.clone()));
        }
        Self {
            handle,
            checkpoints,
            failed,
            unsaved,
            keepers,
            drain_timeout,
            deadline: None,
            broken: None,
            unsettled: None,
            undrained: None,
            gave_up: false,
        }
    }

    /// Watches over tasks until they have ended.
    pub(super) async fn run(mut self, mut tasks: Tasks) -> Ended {
        loop {
            match self.next(&mut tasks).await {
                Event::Ended(Ok(())) => {}
                Event::Ended(Err(failure)) => self.broke(failure),
                Event::AllEnded => break,
                Event::BatchFailed(failure) => {
                    self.interrupt();
                    self.unsettled.get_or_insert(failure);
                }
                Event::Stopping => {
                    self.deadline = Some(Alarm::after(self.drain_timeout));
                }
                Event::DrainExpired => {
                    self.expire(&tasks);
                    self.gave_up = true;
                    let blocked = tasks.end().await;
                    if let Some(undrained) = &mut self.undrained {
                        undrained.blocked = blocked;
                    }
                    break;
                }
                Event::Aborted => {
                    let text = "stopped at once; what was in flight is not acknowledged";
                    self.broken.get_or_insert_with(|| Error::permanent(text).into());
                    self.gave_up = true;
                    tasks.end().await;
                    break;
                }
                Event::NotSaved(failure) => self.broke(failure),
            }
        }
        self.end_keepers().await;
        self.save();
        self.commit().await;
        self.end()
    }

    async fn next(&mut self, tasks: &mut Tasks) -> Event {
        let Self { handle, failed, unsaved, keepers, deadline, .. } = self;
        tokio::select! {
            // A run whose tasks have all ended has drained, even if the deadline has passed meanwhile.
            biased;
            ended = tasks.next() => ended.map_or(Event::AllEnded, Event::Ended),
            Some(failure) = failed.recv() => Event::BatchFailed(failure),
            () = handle.abort.requested() => Event::Aborted,
            () = handle.stop.requested(), if deadline.is_none() => Event::Stopping,
            () = reached(deadline.as_ref()) => Event::DrainExpired,
            Some(failure) = unsaved.recv() => Event::NotSaved(failure),
            // Without its keeper, a group has no checkpoints, and its clients no answers.
            Some(Err(error)) = keepers.join_next() => Event::Ended(not_ended(error)),
        }
    }

    /// Requests the sources to stop. Failed messages are missing from the output, even if the sources had
    /// ended.
    fn interrupt(&self) {
        self.handle.stop.request();
        self.handle.stop.heed_all();
    }

    /// Notes a failure and requests the sources to stop.
    fn broke(&mut self, failure: RunFailure) {
        self.interrupt();
        self.broken.get_or_insert(failure);
    }

    /// Records the unsettled batches and the running components. An earlier failure of the run stays the
    /// first.
    fn expire(&mut self, tasks: &Tasks) {
        let undrained = Undrained {
            timeout: self.drain_timeout,
            unsettled: self.checkpoints.iter().flat_map(|group| group.unsettled()).collect(),
            running: tasks.components(),
            blocked: 0,
            item: self.handle.item(),
        };
        if self.broken.is_some() {
            tracing::error!("{undrained}");
        }
        self.broken.get_or_insert_with(|| Error::permanent(undrained.to_string()).into());
        self.undrained = Some(undrained);
    }

    /// Ends the tasks that take checkpoints. After messages were given up, the workers that they need may
    /// compute without end.
    async fn end_keepers(&mut self) {
        let ended = self.keepers.shutdown();
        if self.gave_up {
            let _ = Alarm::within(PATIENCE, ended).await;
        } else {
            ended.await;
        }
    }

    /// Saves what is settled.
    fn save(&mut self) {
        let saved: Vec<_> = self.checkpoints.iter().map(|group| group.save_last(self.gave_up)).collect();
        for error in saved.into_iter().filter_map(Result::err) {
            self.broke(error.into());
        }
    }

    /// Lets sinks make visible what the last checkpoint covers, last of all. The next run does what is left.
    async fn commit(&mut self) {
        let groups: Vec<_> =
            self.checkpoints.iter().filter(|group| group.has_uncommitted()).cloned().collect();
        if groups.is_empty() {
            return;
        }
        let all = async {
            for group in groups {
                group.commit().await?;
            }
            Ok(())
        };
        let left =
            || Error::permanent("stopped before all output was visible: the next run finishes it").into();
        let committed = tokio::select! {
            biased;
            committed = all => committed,
            () = self.handle.abort.requested() => Err(left()),
            () = self.drained() => Err(left()),
        };
        if let Err(failure) = committed {
            self.broke(failure);
        }
    }

    /// Waits until the time to drain is over.
    async fn drained(&self) {
        match &self.deadline {
            Some(deadline) => deadline.rung().await,
            None => {
                self.handle.stop.requested().await;
                Alarm::after(self.drain_timeout).rung().await;
            }
        }
    }

    fn end(mut self) -> Ended {
        while let Ok(failure) = self.failed.try_recv() {
            self.unsettled.get_or_insert(failure);
        }
        Ended { failure: self.broken.or(self.unsettled), undrained: self.undrained }
    }
}

/// Waits until a deadline, if there is one.
async fn reached(deadline: Option<&Alarm>) {
    match deadline {
        Some(deadline) => deadline.rung().await,
        None => std::future::pending().await,
    }
}
