//! Messages that are stuck: a sink fails for long, or the dead letters are full.
//!
//! Other sinks have their parts of these messages. The states of that moment would be ahead of the positions,
//! and the next run would write and count these messages again, although the one before it was stopped and
//! not killed. So while messages move, a checkpoint is not taken if some of them are stuck, or if no position
//! has moved: the last one stays. Not longer than five minutes if something waits for the next one, since
//! input that goes another way would never be acknowledged, and its output might never become visible.
//!
//! (Rejected: to save, for each sink, the state that it had at the positions. A sink need not be able to go
//! back, and two sinks get the messages of several partitions in different orders.)
//!
//! See docs/decisions/111-the-last-checkpoint-stays-while-messages-are-stuck.md.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::ComponentPositions;
use crate::store::DeadLetterId;

/// How long the last checkpoint stays at most if something waits for the next one.
pub(super) const LONGEST_STUCK: Duration = Duration::from_mins(5);

/// Whether the last checkpoint of a group stays.
#[derive(Default)]
pub(in crate::run) struct Stuck(Mutex<State>);

#[derive(Default)]
struct State {
    /// The messages that are stuck: those that hold back the positions of their partitions.
    oldest: Vec<Oldest>,
    /// Since when the last checkpoint stays although something waits for the next one.
    since: Option<Instant>,
    /// The extent of the last checkpoint.
    last: Extent,
    /// True if something grows until the next checkpoint.
    is_urgent: bool,
}

/// How far a checkpoint goes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Extent {
    /// The number of messages and files that were settled.
    pub(super) settled: u64,
    /// The last dead letter of the group.
    pub(super) letter: DeadLetterId,
}

/// The first batch of a partition that is not settled.
struct Oldest {
    /// The number of its source among the positions.
    source: usize,
    partition: Arc<str>,
    number: u64,
}

impl Oldest {
    fn all(positions: &ComponentPositions) -> Vec<Self> {
        let all = positions.iter().enumerate().flat_map(|(source, (_, positions))| {
            let oldest = positions.oldest_unsettled().into_iter();
            oldest.map(move |(partition, number)| Self { source, partition, number })
        });
        all.collect()
    }

    /// True if it is still not settled.
    fn lasts(&self, positions: &ComponentPositions) -> bool {
        let positions = positions.get(self.source);
        positions.is_some_and(|(_, of)| of.is_oldest_unsettled(&self.partition, self.number))
    }
}

impl Stuck {
    /// Finds out which messages are stuck. `is_stuck`: none was settled although there was time. Otherwise
    /// only those can be that were before.
    pub(super) fn look(&self, positions: &ComponentPositions, is_stuck: bool) {
        let mut state = self.0.lock();
        match is_stuck {
            true => state.oldest = Oldest::all(positions),
            false => state.oldest.retain(|one| one.lasts(positions)),
        }
    }

    /// True if the last checkpoint is to stay where one is due while messages move. `has_moved`: a position
    /// moved since the last one. `is_awaited`: something waits for the next one.
    pub(super) fn stays(&self, has_moved: bool, is_awaited: bool) -> bool {
        let mut state = self.0.lock();
        if has_moved && state.oldest.is_empty() {
            state.since = None;
            return false;
        }
        if !has_moved && !is_awaited {
            return !state.is_urgent;
        }
        let since = *state.since.get_or_insert_with(Instant::now);
        !state.is_urgent && since.elapsed() < LONGEST_STUCK
    }

    /// The extent of the last checkpoint.
    pub(super) fn last(&self) -> Extent {
        self.0.lock().last
    }

    /// Something grows until the next checkpoint: it is to be taken in any case.
    pub(super) fn hurry(&self) {
        self.0.lock().is_urgent = true;
    }

    /// A checkpoint is saved.
    pub(super) fn note_saved(&self, extent: Extent) {
        let mut state = self.0.lock();
        (state.last, state.is_urgent) = (extent, false);
    }

    /// Nothing moves.
    pub(super) fn clear(&self) {
        let mut state = self.0.lock();
        *state = State { last: state.last, ..State::default() };
    }
}
