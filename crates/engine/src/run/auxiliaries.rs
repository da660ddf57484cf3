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
/// included.
const LONGEST_FAREWELL: Duration = Duration::from_secs(10);

/// Ends when the last [`LiveGuard`] is dropped.
type Watch = mpsc::Receiver<Never>;

/// The auxiliary sources of a plan, and how they learn that the others have ended.
pub(super) struct Auxiliaries {
    /// Requested when the other sources have ended, for whatever reason.
    stop: Stop,
    /// Of the other sources: the run's own.
    others: Stop,
    watches: Option<Watches>,
}

struct Watches {
    /// Held by each other source until it ends.
    running: (LiveGuard, Watch),
    /// Held by each of their batches until it is settled.
    unsettled: (LiveGuard, Watch),
}

impl Auxiliaries {
    pub(super) fn of(plan: &Plan, stop: &Stop) -> Self {
        let auxiliary = plan.sources.iter().filter(|stage| stage.node.config.is_auxiliary()).count();
        // With no other source, auxiliary sources are sources like any other.
        let has_both = auxiliary > 0 && auxiliary < plan.sources.len();
        let own = if has_both { Stop::default() } else { stop.clone() };
        let watches = || Watches { running: mpsc::channel(1), unsettled: mpsc::channel(1) };
        Self { stop: own, others: stop.clone(), watches: has_both.then(watches) }
    }

    pub(super) fn stop(&self, is_auxiliary: bool) -> &Stop {
        if is_auxiliary { &self.stop } else { &self.others }
    }

    /// Returns what a source holds until it ends. Its positions get what its batches hold until they are
    /// settled.
    pub(super) fn guard(&self, is_auxiliary: bool, positions: &Positions) -> Option<LiveGuard> {
        let watches = self.watches.as_ref().filter(|_| !is_auxiliary)?;
        positions.set_guard(watches.unsettled.0.clone());
        Some(watches.running.0.clone())
    }

    /// The task that stops the auxiliary sources in time.
    pub(super) fn dismissal(self) -> Option<Task> {
        let Watches { running: (running, ended), unsettled: (unsettled, settled) } = self.watches?;
        drop((running, unsettled));
        let stop = self.stop;
        Some(Task::new("auxiliary sources".into(), Placement::Runtime, async move {
            dismiss(ended, settled, stop).await;
            Ok(())
        }))
    }
}

/// Stops the auxiliary sources when the others have ended and what they sent is settled.
async fn dismiss(mut ended: Watch, mut settled: Watch, stop: Stop) {
    // Both end with the last of the senders; nothing is ever sent.
    let _ = ended.recv().await;
    let _ = tokio::time::timeout(LONGEST_FAREWELL, settled.recv()).await;
    stop.request();
}
