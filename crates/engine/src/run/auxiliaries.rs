//! Auxiliary sources: those that only accompany the others, and stop when these have ended.
//!
//! See docs/decisions/015-auxiliary-sources.md.

use std::time::Duration;

use thalweg_runtime::Stop;
use tokio::sync::mpsc;

use super::threads::{Placement, Task};
use crate::plan::Plan;
use crate::positions::{LiveGuard, Never, Positions};

/// How long auxiliary sources run after the others have ended, so that what these sent can be settled. It is
/// settled sooner unless something holds it back until all input has come, that of the auxiliary sources
/// included. A shorter drain timeout leaves half of its time for this, so that the run can still drain.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(10);

/// Ends when the last [`LiveGuard`] is dropped.
type Watch = mpsc::Receiver<Never>;

/// The auxiliary sources of a plan, and how they learn that the others have ended.
pub(super) struct Auxiliaries {
    /// Requested when the other sources have ended, for whatever reason.
    stop: Stop,
    watches: Option<Watches>,
    settle_timeout: Duration,
}

struct Watches {
    /// Held by each other source until it ends.
    running: (LiveGuard, Watch),
    /// Held by each of their batches until it is settled.
    unsettled: (LiveGuard, Watch),
}

impl Auxiliaries {
    pub(super) fn of(plan: &Plan, stop: &Stop, drain_timeout: Duration) -> Self {
        let inputs = plan.sources.iter().filter(|stage| !plan.is_of_buffer(&stage.node.name));
        let (auxiliary, others): (Vec<_>, Vec<_>) =
            inputs.partition(|stage| stage.node.config.is_auxiliary());
        // With no other source, auxiliary sources are sources like any other.
        let has_both = !auxiliary.is_empty() && !others.is_empty();
        let own = if has_both { Stop::default() } else { stop.clone() };
        let watches = || Watches { running: mpsc::channel(1), unsettled: mpsc::channel(1) };
        let settle_timeout = SETTLE_TIMEOUT.min(drain_timeout / 2);
        Self { stop: own, watches: has_both.then(watches), settle_timeout }
    }

    /// The request to stop of the auxiliary sources.
    pub(super) fn stop(&self) -> &Stop {
        &self.stop
    }

    /// Returns the guard that a source holds until it ends. Its positions get the guard that each batch holds
    /// until it is settled.
    pub(super) fn guard(&self, is_auxiliary: bool, positions: &Positions) -> Option<LiveGuard> {
        let watches = self.watches.as_ref().filter(|_| !is_auxiliary)?;
        positions.set_guard(watches.unsettled.0.clone());
        Some(watches.running.0.clone())
    }

    /// The task that stops the auxiliary sources in time.
    pub(super) fn stop_task(self) -> Option<Task> {
        let Watches { running: (running, ended), unsettled: (unsettled, settled) } = self.watches?;
        drop((running, unsettled));
        let (stop, settle_timeout) = (self.stop, self.settle_timeout);
        Some(Task::new("auxiliary sources".into(), Placement::Runtime, async move {
            stop_when_settled(ended, settled, stop, settle_timeout).await;
            Ok(())
        }))
    }
}

/// Stops the auxiliary sources when the others have ended and what they sent is settled.
async fn stop_when_settled(mut ended: Watch, mut settled: Watch, stop: Stop, settle_timeout: Duration) {
    // Both end with the last of the senders; nothing is ever sent.
    let _ = ended.recv().await;
    let _ = tokio::time::timeout(settle_timeout, settled.recv()).await;
    stop.request();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the guards of a source that runs and of its batches, and the stop of the auxiliary sources.
    fn watched(settle_timeout: Duration) -> (LiveGuard, LiveGuard, Stop) {
        let ((running, ended), (unsettled, settled)) = (mpsc::channel(1), mpsc::channel(1));
        let stop = Stop::default();
        tokio::spawn(stop_when_settled(ended, settled, stop.clone(), settle_timeout));
        (running, unsettled, stop)
    }

    #[tokio::test(start_paused = true)]
    async fn auxiliary_sources_stop_when_the_others_have_ended_and_are_settled() {
        let (running, unsettled, stop) = watched(SETTLE_TIMEOUT);
        drop(running);
        tokio::time::sleep(SETTLE_TIMEOUT / 2).await;
        assert!(!stop.is_requested());
        drop(unsettled);
        stop.requested().await;
    }

    #[tokio::test(start_paused = true)]
    async fn auxiliary_sources_stop_although_a_batch_stays_unsettled() {
        let (running, _unsettled, stop) = watched(SETTLE_TIMEOUT);
        tokio::time::sleep(2 * SETTLE_TIMEOUT).await;
        assert!(!stop.is_requested());
        drop(running);
        stop.requested().await;
    }
}
