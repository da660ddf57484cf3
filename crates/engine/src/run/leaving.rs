//! Leaving a sink whose input waits in buffers on disk.
//!
//! A run that is asked to stop delivers what is in flight. A sink that does not work would hold it up until
//! the drain timeout expires, and the run would fail. Its input from a buffer is still in the buffer, so the
//! sink is left after a moment: its batches stay unsettled, and the next run sends them again.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use thalweg_runtime::Stop;
use tokio::time::Instant;

use crate::positions::Positions;

/// How long a sink may deliver after the request to stop, and then finish. A shorter drain timeout leaves
/// half of its time for the two.
const PATIENCE: Duration = Duration::from_secs(5);

/// When a sink is left. Its workers share it.
#[derive(Clone)]
pub(super) struct Leaving(Arc<Shared>);

struct Shared {
    sink: Arc<str>,
    stop: Stop,
    patience: Duration,
    due: OnceLock<Instant>,
    /// Those of the buffers that the input comes from.
    positions: Vec<Arc<Positions>>,
    is_left: AtomicBool,
}

impl Leaving {
    pub(super) fn new(
        sink: Arc<str>,
        stop: Stop,
        drain_timeout: Duration,
        positions: Vec<Arc<Positions>>,
    ) -> Self {
        let patience = PATIENCE.min(drain_timeout / 4);
        let (due, is_left) = (OnceLock::new(), AtomicBool::new(false));
        Self(Arc::new(Shared { sink, stop, patience, due, positions, is_left }))
    }

    /// True if the sink is left: it does nothing any more.
    pub(super) fn is_left(&self) -> bool {
        self.0.is_left.load(Relaxed)
    }

    /// Waits until the sink is to be left, and leaves it. The batches that it has may then be dropped.
    pub(super) async fn leave(&self) {
        self.leave_at(Instant::now()).await;
    }

    /// As [`leave`](Self::leave), for a sink whose input has ended: it may then finish.
    pub(super) async fn leave_unfinished(&self) {
        self.leave_at(Instant::now() + self.0.patience).await;
    }

    /// Leaves the sink when its time is over, but not before `earliest`.
    async fn leave_at(&self, earliest: Instant) {
        let shared = &*self.0;
        if self.is_left() {
            return;
        }
        shared.stop.requested().await;
        let due = *shared.due.get_or_init(|| Instant::now() + shared.patience);
        tokio::time::sleep_until(due.max(earliest)).await;
        shared.positions.iter().for_each(|positions| positions.leave());
        if !shared.is_left.swap(true, Relaxed) {
            let sink = &shared.sink;
            tracing::warn!(
                "`{sink}` did not deliver in time: its messages stay in the buffer for the next run"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use thalweg_record::Outcome;
    use tokio::sync::mpsc;

    use super::*;
    use crate::{Checkpoint, Role};

    #[tokio::test(start_paused = true)]
    async fn what_a_sink_has_when_it_is_left_is_no_failure_and_comes_again() {
        let (failures, mut failed) = mpsc::unbounded_channel();
        let positions = Positions::new("out.buffered".into(), Role::Source, BTreeMap::new(), failures);
        let checkpoint = |offset: u64| Some(Checkpoint { partition: "l".into(), offset: offset.into() });
        positions.expect(checkpoint(1), 1).settle(Outcome::Delivered);
        let dropped = positions.expect(checkpoint(2), 1);
        let stop = Stop::default();
        let leaving =
            Leaving::new("out".into(), stop.clone(), Duration::from_mins(1), vec![positions.clone()]);
        assert!(tokio::time::timeout(PATIENCE * 2, leaving.leave()).await.is_err());
        assert!(!leaving.is_left());
        stop.request();
        let start = Instant::now();
        leaving.leave().await;
        assert_eq!((start.elapsed().as_secs(), leaving.is_left()), (PATIENCE.as_secs(), true));
        drop(dropped);
        assert_eq!(positions.saved("l"), Some(1.into()));
        // State that a sink has of it must not be saved.
        assert!(positions.has_failed() && failed.try_recv().is_err());
    }
}
