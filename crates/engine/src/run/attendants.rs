//! Sources that only accompany the others.

use thalweg_runtime::Stop;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::Error;
use crate::plan::Plan;
use crate::positions::{Positions, Presence};

use super::source;

/// The sources that only accompany the others, and how they learn that those have ended.
pub(super) struct Attendants {
    /// Theirs: asked for when the others have ended, however that came about.
    stop: Stop,
    /// Of the others.
    others: Stop,
    watches: Option<[(Presence, source::Watch); 2]>,
}

impl Attendants {
    pub(super) fn of(plan: &Plan, stop: &Stop) -> Self {
        let attending = plan.sources.iter().filter(|stage| stage.node.config.attends()).count();
        // With nobody to accompany they are sources like any other.
        let has_both = attending > 0 && attending < plan.sources.len();
        let own = if has_both { Stop::default() } else { stop.clone() };
        let watches = has_both.then(|| [(); 2].map(|()| mpsc::channel(1)));
        Self { stop: own, others: stop.clone(), watches }
    }

    pub(super) fn stop(&self, attends: bool) -> &Stop {
        if attends { &self.stop } else { &self.others }
    }

    /// What a source holds until it has ended; what its batches hold until they are settled is given to its positions.
    pub(super) fn presence(&self, attends: bool, positions: &Positions) -> Option<Presence> {
        let [(running, _), (unsettled, _)] = self.watches.as_ref().filter(|_| !attends)?;
        positions.attend(unsettled.clone());
        Some(running.clone())
    }

    pub(super) fn dismiss_in_time(self, tasks: &mut JoinSet<Result<(), Error>>) {
        let Some([(running, ended), (unsettled, settled)]) = self.watches else { return };
        drop((running, unsettled));
        tasks.spawn(async move {
            source::dismiss(ended, settled, self.stop).await;
            Ok(())
        });
    }
}
