//! The number of items that a source may send in one run.
//!
//! The limit is enforced where items leave a source, so that it holds for every source. Sources that read in
//! large steps also ask how many items are [left](Limit::left), and end a step there: their checkpoint is
//! then exact. Items beyond the limit are dropped before they have an ack, so no position moves past them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use thalweg_runtime::Stop;

/// The number of messages or files that a source may still send. Clones count together.
#[derive(Debug, Clone)]
pub(crate) struct Limit {
    left: Arc<AtomicU64>,
    /// Requested when nothing is left. It is not the run's: other sources continue.
    reached: Stop,
}

impl Limit {
    pub(crate) fn new(items: u64) -> Self {
        let limit = Self { left: Arc::new(AtomicU64::new(items)), reached: Stop::default() };
        if items == 0 {
            limit.reached.request();
        }
        limit
    }

    /// Counts items that are about to be sent. Returns how many of them may be.
    pub(super) fn take(&self, items: usize) -> usize {
        let wanted = items as u64;
        let before = self.left.fetch_update(Relaxed, Relaxed, |left| Some(left.saturating_sub(wanted)));
        let left = before.unwrap_or_else(|left| left);
        if left <= wanted {
            self.reached.request();
        }
        usize::try_from(left.min(wanted)).unwrap_or(items)
    }

    pub(super) fn left(&self) -> usize {
        usize::try_from(self.left.load(Relaxed)).unwrap_or(usize::MAX)
    }

    pub(super) fn is_reached(&self) -> bool {
        self.reached.is_requested()
    }

    pub(super) fn reached(&self) -> &Stop {
        &self.reached
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_share_what_is_left() {
        let limit = Limit::new(5);
        let other = limit.clone();
        assert_eq!((limit.take(3), limit.is_reached(), other.left()), (3, false, 2));
        assert_eq!((other.take(4), limit.is_reached(), limit.left()), (2, true, 0));
        assert_eq!(limit.take(1), 0);
    }

    #[test]
    fn the_last_item_reaches_the_limit() {
        let limit = Limit::new(2);
        assert_eq!((limit.take(2), limit.is_reached()), (2, true));
        assert!(Limit::new(0).is_reached());
    }
}
