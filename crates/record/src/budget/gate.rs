//! Holding back what one source reserves.
//!
//! A paused source must stop reading, whatever it reads and however it is written. All sources wait for
//! memory before they read, so their share of the budget is the one place where all of them can be held back.
//! A source that waits there holds nothing that others need: a wait for memory may be long anyway.
//!
//! (Rejected: to hold back what a source sends. It would keep the memory of what it has read for as long as
//! it is paused, and of thousands of connections that may be all memory.)

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use super::Share;

/// A future that is ready when a gate has opened.
pub type Opening<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// Decides whether a share may reserve memory now.
pub trait Gate: fmt::Debug + Send + Sync {
    /// Returns what to wait for, if the gate is closed. It may be closed again afterwards.
    fn opening(&self) -> Option<Opening<'_>>;
}

impl Share {
    /// Returns this account behind a gate: while it is closed, nothing is granted to the share. Memory that
    /// is [claimed](Self::claim) is not held back.
    #[must_use]
    pub fn behind(self, gate: Arc<dyn Gate>) -> Self {
        Self { gate: Some(gate), ..self }
    }

    /// Waits until the gate is open, as every reservation does: for a wait for memory that has a limit of its
    /// own, which must not be over because of the gate.
    pub async fn opened(&self) {
        let Some(gate) = &self.gate else { return };
        while let Some(opening) = gate.opening() {
            opening.await;
        }
    }

    /// True if the gate is closed. Memory that was reserved before and is read into again and again must then
    /// be returned.
    pub fn is_held_back(&self) -> bool {
        self.gate.as_ref().is_some_and(|gate| gate.opening().is_some())
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use tokio::sync::Notify;
    use tokio::time::timeout;

    use super::*;
    use crate::Budget;

    /// Longer than every wait that ends.
    const LONG: Duration = Duration::from_secs(30);

    #[derive(Debug, Default)]
    struct Door {
        is_closed: AtomicBool,
        opened: Notify,
    }

    impl Gate for Door {
        fn opening(&self) -> Option<Opening<'_>> {
            self.is_closed.load(Ordering::SeqCst).then(|| -> Opening<'_> { Box::pin(self.opened.notified()) })
        }
    }

    impl Door {
        fn close(&self, is_closed: bool) {
            self.is_closed.store(is_closed, Ordering::SeqCst);
            if !is_closed {
                self.opened.notify_one();
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_share_reserves_nothing_while_its_gate_is_closed_and_others_do() {
        let (budget, door) = (Budget::new(400), Arc::new(Door::default()));
        let share = budget.share().behind(door.clone());
        drop(share.reserve(1).await);
        door.close(true);
        assert!(timeout(LONG, share.reserve(1)).await.is_err());
        assert!(timeout(LONG, share.clone().reserve_for(1, None)).await.is_err());
        assert_eq!((budget.share().reserve(1).await.bytes(), share.claim(2).bytes()), (1, 2));
        let (lease, ()) = tokio::join!(share.reserve(3), async { door.close(false) });
        assert_eq!((lease.bytes(), share.held()), (3, 3));
    }

    #[tokio::test(start_paused = true)]
    async fn a_gate_that_closes_during_the_wait_for_memory_leaves_the_memory_to_others() {
        let (budget, door) = (Budget::new(400), Arc::new(Door::default()));
        let share = budget.share().behind(door.clone());
        let (own, full) = (share.reserve(1).await, budget.claim(400));
        let waiting = tokio::spawn({
            let share = share.clone();
            async move { share.reserve(100).await }
        });
        while !budget.is_short() {
            tokio::task::yield_now().await;
        }
        door.close(true);
        drop(full);
        tokio::time::sleep(LONG).await;
        assert_eq!((waiting.is_finished(), budget.used()), (false, 1));
        door.close(false);
        assert_eq!(timeout(LONG, waiting).await.unwrap().unwrap().bytes(), 100);
        drop(own);
    }
}
