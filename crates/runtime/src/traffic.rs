//! Counts the items on their way between stages, and holds sources back until none is.
//!
//! A checkpoint of several stages is consistent only at a moment at which nothing moves between them: an item
//! that one sink has written and another has not would be written twice, or never. So before a checkpoint,
//! the sources are held back at their next item, and the stages finish what is on its way. That takes about
//! as long as one item needs through all stages.
//!
//! Marking items with a number of the checkpoint, and letting each stage wait for the marks of all its inputs
//! (as Flink does), was rejected: items do not pass through stages of parallel workers one behind the other,
//! and a mark would have to be given to every stage, even one that had no item for an hour.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use tokio::sync::Notify;

/// The items on their way between stages.
#[derive(Debug, Default)]
pub struct Traffic {
    /// True while the sources are held back.
    is_held: AtomicBool,
    /// The number of items in channels, and in the hands of workers.
    moving: AtomicUsize,
    released: Notify,
    still: Notify,
}

/// Counts one item, until it is dropped.
#[derive(Debug)]
pub struct Pass(Arc<Traffic>);

/// Holds the sources back, until it is dropped.
#[derive(Debug)]
pub struct Hold<'a>(&'a Traffic);

impl Traffic {
    /// Counts an item that a stage produced.
    pub fn pass(self: &Arc<Self>) -> Pass {
        self.moving.fetch_add(1, SeqCst);
        Pass(self.clone())
    }

    /// Waits while sources are held back, then counts an item of a source.
    pub async fn enter(self: &Arc<Self>) -> Pass {
        loop {
            let released = self.released.notified();
            let mut released = std::pin::pin!(released);
            released.as_mut().enable();
            let pass = self.pass();
            // Counted first: a task that holds the sources back either is seen here, or sees the count.
            if !self.is_held.load(SeqCst) {
                return pass;
            }
            drop(pass);
            released.await;
        }
    }

    /// Counts an item that a stage produced of nothing, unless sources are held back.
    pub fn try_enter(self: &Arc<Self>) -> Option<Pass> {
        let pass = self.pass();
        (!self.is_held()).then_some(pass)
    }

    /// True while sources are held back.
    pub fn is_held(&self) -> bool {
        self.is_held.load(SeqCst)
    }

    /// Holds the sources back and waits until nothing moves.
    pub async fn hold(&self) -> Hold<'_> {
        self.is_held.store(true, SeqCst);
        let hold = Hold(self);
        hold.still().await;
        hold
    }

    /// True if nothing moves.
    pub fn is_still(&self) -> bool {
        self.moving.load(SeqCst) == 0
    }
}

impl Hold<'_> {
    /// Waits until nothing moves.
    pub async fn still(&self) {
        loop {
            let still = self.0.still.notified();
            let mut still = std::pin::pin!(still);
            still.as_mut().enable();
            if self.0.is_still() {
                return;
            }
            still.await;
        }
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        if self.0.moving.fetch_sub(1, SeqCst) == 1 && self.0.is_held.load(SeqCst) {
            self.0.still.notify_waiters();
        }
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        self.0.is_held.store(false, SeqCst);
        self.0.released.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn sources_wait_while_they_are_held_back_and_a_hold_waits_for_what_moves() {
        let traffic = Arc::new(Traffic::default());
        let moving = traffic.enter().await;
        let held = tokio::spawn({
            let traffic = traffic.clone();
            async move {
                let hold = traffic.hold().await;
                assert!(traffic.is_still());
                tokio::time::sleep(Duration::from_millis(5)).await;
                drop(hold);
            }
        });
        tokio::task::yield_now().await;
        assert!(traffic.is_held() && traffic.try_enter().is_none());
        let entered = tokio::spawn({
            let traffic = traffic.clone();
            async move { drop(traffic.enter().await) }
        });
        tokio::task::yield_now().await;
        assert!(!held.is_finished() && !entered.is_finished());
        // An item that a stage makes of another may still move on.
        let made = traffic.pass();
        drop(moving);
        tokio::task::yield_now().await;
        assert!(!held.is_finished());
        drop(made);
        held.await.unwrap();
        entered.await.unwrap();
        assert!(traffic.try_enter().is_some());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn nothing_moves_during_a_hold() {
        let traffic = Arc::new(Traffic::default());
        let sources: Vec<_> = (0..3)
            .map(|_| {
                let traffic = traffic.clone();
                tokio::spawn(async move {
                    for _ in 0..2_000 {
                        let pass = traffic.enter().await;
                        tokio::task::yield_now().await;
                        drop(pass);
                    }
                })
            })
            .collect();
        while !sources.iter().all(tokio::task::JoinHandle::is_finished) {
            let hold = traffic.hold().await;
            tokio::task::yield_now().await;
            // A source that only looks is counted for a moment.
            while !traffic.is_still() {
                tokio::task::yield_now().await;
            }
            drop(hold);
            tokio::task::yield_now().await;
        }
        assert!(traffic.is_still());
    }
}
