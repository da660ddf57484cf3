//! The request to stop a run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;

/// A request to stop, shared by all tasks that may make it and all tasks that obey it. It is made once and is
/// never withdrawn.
#[derive(Clone, Debug)]
pub struct Stop(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    requested: watch::Sender<bool>,
    /// True if a task ended early because of the request.
    was_heeded: AtomicBool,
}

impl Default for Stop {
    fn default() -> Self {
        Self(Arc::new(Shared { requested: watch::Sender::new(false), was_heeded: AtomicBool::new(false) }))
    }
}

impl Stop {
    /// Makes the request.
    pub fn request(&self) {
        self.0.requested.send_replace(true);
    }

    /// True if the request was made.
    pub fn is_requested(&self) -> bool {
        *self.0.requested.borrow()
    }

    /// Notes that a task ends early because of the request. A request that comes when all input has been read
    /// changes nothing: what the run writes is whole.
    pub fn heed(&self) {
        self.0.was_heeded.store(true, Ordering::Release);
    }

    /// True if a task ended early because of the request.
    pub fn was_heeded(&self) -> bool {
        self.0.was_heeded.load(Ordering::Acquire)
    }

    /// Waits until the request is made.
    pub async fn requested(&self) {
        // The sender lives as long as `self`, so this cannot end with an error.
        let _ = self.0.requested.subscribe().wait_for(|requested| *requested).await;
    }

    /// Waits for `duration`, or until the request is made. Returns true if it was made.
    pub async fn sleep(&self, duration: Duration) -> bool {
        tokio::time::timeout(duration, self.requested()).await.is_ok()
    }
}
