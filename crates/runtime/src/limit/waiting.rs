//! The queue of tasks that wait for a slot.
//!
//! A slot that becomes free is handed to the task that has waited longest, under the lock, before that task
//! is woken. The slot is taken from then on, so no other task can slip in between. A task that no longer
//! finds itself in the queue has received a slot. A tokio semaphore was rejected: it cannot withdraw slots
//! that are in use when the limit falls. Forgetting them as they come back would be a second count beside its
//! own.

use std::collections::BTreeMap;
use std::task::{Context, Poll, Waker};

/// A position in the queue.
pub(super) type QueuePosition = u64;

/// True if work could have begun earlier with a higher limit.
pub(super) type HeldBack = bool;

#[derive(Debug, Default)]
pub(super) struct Slots {
    in_flight: usize,
    next: QueuePosition,
    /// In the order of arrival.
    waiting: BTreeMap<QueuePosition, Waker>,
    /// True if a caller of `try_take` got no slot and has not come back.
    refused: bool,
}

impl Slots {
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Takes a slot, unless none is free or other tasks wait for one. Returns true if this caller, or an
    /// earlier one that does not wait, was held back.
    pub(super) fn try_take(&mut self, limit: usize) -> Option<HeldBack> {
        if self.in_flight < limit && self.waiting.is_empty() {
            self.in_flight += 1;
            return Some(std::mem::take(&mut self.refused));
        }
        self.refused = true;
        None
    }

    pub(super) fn enqueue(&mut self, waker: Waker) -> QueuePosition {
        self.refused = false;
        let place = self.next;
        self.next += 1;
        self.waiting.insert(place, waker);
        place
    }

    /// Ready when the task at this position has received a slot.
    pub(super) fn poll(&mut self, place: QueuePosition, context: &mut Context<'_>) -> Poll<()> {
        match self.waiting.get_mut(&place) {
            Some(waker) => {
                waker.clone_from(context.waker());
                Poll::Pending
            }
            None => Poll::Ready(()),
        }
    }

    /// Leaves the queue. If a slot had been handed over meanwhile, frees it and returns true.
    pub(super) fn leave(&mut self, place: QueuePosition) -> bool {
        let handed = self.waiting.remove(&place).is_none();
        if handed {
            self.give_back();
        }
        handed
    }

    pub(super) fn give_back(&mut self) {
        self.in_flight -= 1;
    }

    /// Hands a free slot to the task that has waited longest, and returns its waker.
    pub(super) fn hand_over(&mut self, limit: usize) -> Option<Waker> {
        if self.in_flight >= limit {
            return None;
        }
        let (_, waker) = self.waiting.pop_first()?;
        self.in_flight += 1;
        Some(waker)
    }
}
