//! Who waits for a slot, and in which order.
//!
//! A slot that becomes free is handed to the one who waits longest, under the lock, before anyone is woken: the
//! slot is taken from then on, so nobody can slip in between. Whoever finds itself gone from the queue has been
//! handed a slot. A semaphore of tokio was rejected: it cannot take back slots that are in use when the limit
//! falls, and forgetting them as they come back is a second count beside its own.

use std::collections::BTreeMap;
use std::task::{Context, Poll, Waker};

/// A place in the queue.
pub(super) type QueuePosition = u64;

/// Whether something could have begun earlier if the limit had been higher.
pub(super) type HeldBack = bool;

#[derive(Debug, Default)]
pub(super) struct Slots {
    in_flight: usize,
    next: QueuePosition,
    /// In the order of arrival.
    waiting: BTreeMap<QueuePosition, Waker>,
    /// Somebody asked for a slot in vain, and has not come back.
    refused: bool,
}

impl Slots {
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Takes a slot, unless none is free or others wait for one. Says whether it, or one before it that
    /// does not wait, was held back.
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

    /// Ready when the place has been handed a slot.
    pub(super) fn poll(&mut self, place: QueuePosition, context: &mut Context<'_>) -> Poll<()> {
        match self.waiting.get_mut(&place) {
            Some(waker) => {
                waker.clone_from(context.waker());
                Poll::Pending
            }
            None => Poll::Ready(()),
        }
    }

    /// Leaves the queue. Gives the slot back if one had been handed over meanwhile, and says whether.
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

    /// Hands a free slot to the one who waits longest, and gives its waker.
    pub(super) fn hand_over(&mut self, limit: usize) -> Option<Waker> {
        if self.in_flight >= limit {
            return None;
        }
        let (_, waker) = self.waiting.pop_first()?;
        self.in_flight += 1;
        Some(waker)
    }
}
