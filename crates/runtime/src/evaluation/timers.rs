//! The timers of an event loop.
//!
//! They are a balanced tree by time and order of creation. The two together are the key, so the order in
//! which timers fire is the order of the tree, and a cancelled timer is removed at once. A timer wheel was
//! rejected: its insertion is cheaper for large numbers, but within one tick of the wheel it has no order.
//!
//! See docs/decisions/005-evaluations-in-recycled-storage.md.

use std::collections::BTreeMap;
use std::task::Waker;

/// A timer's key: when it is due, and its number in the order of creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Timer {
    due: u64,
    number: u64,
}

#[derive(Default)]
pub(super) struct Timers {
    wakers: BTreeMap<Timer, Waker>,
    made: u64,
}

impl Timers {
    pub(super) fn add(&mut self, due: u64, waker: Waker) -> Timer {
        self.made += 1;
        let timer = Timer { due, number: self.made };
        self.wakers.insert(timer, waker);
        timer
    }

    /// Sets another waker. Returns the former one, or `None` if the timer has fired already.
    pub(super) fn rewake(&mut self, timer: Timer, waker: &Waker) -> Option<Waker> {
        let known = self.wakers.get_mut(&timer)?;
        Some(std::mem::replace(known, waker.clone()))
    }

    /// Cancels the timer. Returns its waker, to be dropped where foreign code may run.
    pub(super) fn remove(&mut self, timer: Timer) -> Option<Waker> {
        self.wakers.remove(&timer)
    }

    /// Removes the first timer if it is due, and returns its waker.
    pub(super) fn fire(&mut self, now: u64) -> Option<Waker> {
        let first = self.wakers.first_entry()?;
        (first.key().due <= now).then(|| first.remove())
    }

    /// Returns when the first timer is due.
    pub(super) fn next_due(&self) -> Option<u64> {
        self.wakers.first_key_value().map(|(timer, _)| timer.due)
    }
}
