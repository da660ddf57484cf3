//! The number of items that a source may send in one run.
//!
//! The limit is enforced where items leave a source, so that it holds for every source. Sources that read in
//! large steps also ask how many items are [left](Limit::left), and end a step there: their checkpoint is
//! then exact. Items beyond the limit are dropped before they have an ack, so no position moves past them.

use std::sync::Arc;

use tokio::sync::watch;

/// The number of messages or files that a source may still send. Clones count together. Items that were sent
/// in vain can be [given back](Self::give_back), also when nothing was left.
#[derive(Debug, Clone)]
pub(crate) struct Limit {
    left: Arc<watch::Sender<u64>>,
}

impl Limit {
    pub(crate) fn new(items: u64) -> Self {
        Self { left: Arc::new(watch::Sender::new(items)) }
    }

    /// Counts items that are about to be sent. Returns how many of them may be.
    pub(crate) fn take(&self, items: usize) -> usize {
        let mut taken = 0;
        self.left.send_if_modified(|left| {
            taken = (*left).min(items as u64);
            *left -= taken;
            // No task waits for another number.
            *left == 0
        });
        usize::try_from(taken).unwrap_or(items)
    }

    /// Counts items no longer.
    pub(super) fn give_back(&self, items: usize) {
        self.left.send_modify(|left| *left = left.saturating_add(items as u64));
    }

    pub(super) fn left(&self) -> usize {
        usize::try_from(*self.left.borrow()).unwrap_or(usize::MAX)
    }

    pub(crate) fn is_reached(&self) -> bool {
        *self.left.borrow() == 0
    }

    /// Waits until nothing is left.
    pub(crate) async fn reached(&self) {
        // The sender lives as long as `self`, so this cannot end with an error.
        let _ = self.left.subscribe().wait_for(|left| *left == 0).await;
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

    #[tokio::test]
    async fn a_limit_that_was_reached_is_not_after_items_were_given_back() {
        let limit = Limit::new(2);
        limit.take(2);
        limit.reached().await;
        limit.give_back(1);
        assert_eq!((limit.is_reached(), limit.take(5)), (false, 1));
        limit.reached().await;
    }
}
