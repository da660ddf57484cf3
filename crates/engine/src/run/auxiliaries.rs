//! Sources that only accompany the others.

use thalweg_runtime::Stop;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::plan::Plan;
use crate::positions::{LiveGuard, Positions};

use super::{RunFailure, source};

/// The sources that only accompany the others, and how they learn that those have ended.
pub(super) struct Auxiliaries {
    /// Theirs: asked for when the others have ended, however that came about.
    stop: Stop,
    /// Of the others.
    others: Stop,
    watches: Option<[(LiveGuard, source::Watch); 2]>,
}

impl Auxiliaries {
    pub(super) fn of(plan: &Plan, stop: &Stop) -> Self {
        let attending = plan.sources.iter().filter(|stage| stage.node.config.is_auxiliary()).count();
        // With nobody to accompany they are sources like any other.
        let has_both = attending > 0 && attending < plan.sources.len();
        let own = if has_both { Stop::default() } else { stop.clone() };
        let watches = has_both.then(|| [(); 2].map(|()| mpsc::channel(1)));
        Self { stop: own, others: stop.clone(), watches }
    }

    pub(super) fn stop(&self, is_auxiliary: bool) -> &Stop {
        if is_auxiliary { &self.stop } else { &self.others }
    }

    /// What a source holds until it has ended; what its batches hold until they are settled is given to its positions.
    pub(super) fn guard(&self, is_auxiliary: bool, positions: &Positions) -> Option<LiveGuard> {
        let [(running, _), (unsettled, _)] = self.watches.as_ref().filter(|_| !is_auxiliary)?;
        positions.attend(unsettled.clone());
        Some(running.clone())
    }

    pub(super) fn dismiss_in_time(self, tasks: &mut JoinSet<Result<(), RunFailure>>) {
        let Some([(running, ended), (unsettled, settled)]) = self.watches else { return };
        drop((running, unsettled));
        tasks.spawn(async move {
            source::dismiss(ended, settled, self.stop).await;
            Ok(())
        });
    }
}
