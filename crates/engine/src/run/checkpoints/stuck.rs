//! Messages that are stuck: a sink fails for long, or the dead letters are full.
//!
//! Other sinks have their parts of these messages. The states of that moment would be ahead of the positions,
//! and the next run would write and count these messages again, although the one before it was stopped and
//! not killed. So the last checkpoint stays while messages are stuck. Not for ever: input that goes another
//! way would never be acknowledged, and its output might never become visible.
//!
//! (Rejected: to save, for each sink, the state that it had at the positions. A sink need not be able to go
//! back, and two sinks get the messages of several partitions in different orders.)
//!
//! See docs/decisions/111-the-last-checkpoint-stays-while-messages-are-stuck.md.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::ComponentPositions;
use crate::store::DeadLetterId;

/// How long the last checkpoint stays for messages that are stuck, while others are settled.
pub(super) const LONGEST_STUCK: Duration = Duration::from_mins(5);

/// The messages of a group that are stuck.
#[derive(Default)]
pub(in crate::run) struct Stuck {
    found: Mutex<Option<Found>>,
    /// Since when settled messages wait for a checkpoint, although no position has moved.
    unmoved: Mutex<Option<Instant>>,
    /// The number of messages and files that were settled at the last checkpoint.
    settled: AtomicU64,
    /// The last dead letter that a checkpoint covers.
    covered: AtomicU64,
    /// True if something grows until the next checkpoint.
    is_urgent: AtomicBool,
}

/// The messages that were stuck when that was found out.
struct Found {
    at: Instant,
    /// For each partition: the number of its source among the positions, its name, and its first message that
    /// is not settled.
    oldest: Vec<(usize, Arc<str>, u64)>,
}

impl Found {
    fn new(positions: &ComponentPositions) -> Self {
        let oldest = positions.iter().enumerate().flat_map(|(source, (_, positions))| {
            let oldest = positions.oldest_unsettled().into_iter();
            oldest.map(move |(partition, number)| (source, partition, number))
        });
        Self { at: Instant::now(), oldest: oldest.collect() }
    }

    /// True if some of it is still not settled.
    fn lasts(&self, positions: &ComponentPositions) -> bool {
        self.oldest.iter().any(|(source, partition, number)| {
            positions.get(*source).is_some_and(|(_, of)| of.is_oldest_unsettled(partition, *number))
        })
    }
}

impl Stuck {
    /// True if the last checkpoint is to stay, where one is due while messages move. `is_stuck`: none of them
    /// was settled although there was time.
    pub(super) fn keeps_last(&self, positions: &ComponentPositions, is_stuck: bool) -> bool {
        let mut found = self.found.lock();
        match &*found {
            Some(before) if before.lasts(positions) => before.at.elapsed() < LONGEST_STUCK,
            Some(_) => {
                *found = None;
                false
            }
            None if is_stuck => {
                *found = Some(Found::new(positions));
                true
            }
            None => false,
        }
    }

    /// As [`keeps_last`](Self::keeps_last), where no position has moved. `settled`: the number of messages
    /// and files that are settled. Their broker may wait for the checkpoint, although older ones of their
    /// partition are stuck.
    pub(super) fn keeps_unmoved(&self, settled: u64) -> bool {
        settled == self.settled.load(Relaxed)
            || self.unmoved.lock().get_or_insert_with(Instant::now).elapsed() < LONGEST_STUCK
    }

    /// A position has moved.
    pub(super) fn note_moved(&self) {
        *self.unmoved.lock() = None;
    }

    /// True if no checkpoint covers this dead letter.
    pub(super) fn is_later(&self, letter: DeadLetterId) -> bool {
        letter > self.covered.load(Relaxed)
    }

    /// A checkpoint is saved that has this number of settled messages and files.
    pub(super) fn note_settled(&self, settled: u64) {
        self.settled.store(settled, Relaxed);
    }

    /// A checkpoint covers the dead letters up to this one.
    pub(super) fn note_covered(&self, letter: DeadLetterId) {
        self.covered.store(letter, Relaxed);
    }

    /// Something grows until the next checkpoint: it is to be taken in any case.
    pub(super) fn hurry(&self) {
        self.is_urgent.store(true, Relaxed);
    }

    /// True if a checkpoint is to be taken in any case. A later one is not.
    pub(super) fn take_urgency(&self) -> bool {
        self.is_urgent.swap(false, Relaxed)
    }

    /// Nothing moves.
    pub(super) fn clear(&self) {
        *self.found.lock() = None;
        self.note_moved();
        self.is_urgent.store(false, Relaxed);
    }
}
