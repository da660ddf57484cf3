//! Telling everyone to stop.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

/// A request to stop, shared by all who may make it and all who heed it. It is made once and stays made.
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

    /// Whether it was made.
    pub fn is_requested(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until it is made.
    pub async fn requested(&self) {
        // The sender is alive as long as `self`, so this cannot end by an error.
        let _ = self.0.subscribe().wait_for(|requested| *requested).await;
    }

    /// Waits for `duration`, or until the request is made. Says whether it was.
    pub async fn sleep(&self, duration: Duration) -> bool {
        tokio::time::timeout(duration, self.requested()).await.is_ok()
    }
}
