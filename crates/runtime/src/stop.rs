//! The request to stop a run.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

/// A request to stop, shared by all tasks that may make it and all tasks that obey it. It is made once and is
/// never withdrawn.
#[derive(Clone, Debug)]
pub struct Stop(Arc<watch::Sender<bool>>);

impl Default for Stop {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(false)))
    }
}

impl Stop {
    /// Makes the request.
    pub fn request(&self) {
        self.0.send_replace(true);
    }

    /// True if the request was made.
    pub fn is_requested(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until the request is made.
    pub async fn requested(&self) {
        // The sender lives as long as `self`, so this cannot end with an error.
        let _ = self.0.subscribe().wait_for(|requested| *requested).await;
    }

    /// Waits for `duration`, or until the request is made. Returns true if it was made.
    pub async fn sleep(&self, duration: Duration) -> bool {
        tokio::time::timeout(duration, self.requested()).await.is_ok()
    }
}
