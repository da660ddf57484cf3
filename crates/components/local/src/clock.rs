//! A task that works at regular intervals, also while a sink receives nothing.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;

/// The task of a sink. It ends when this value is dropped.
pub(crate) struct Clock(JoinHandle<()>);

impl Clock {
    /// Starts a task that calls `work` after each `beat`, until the state has been dropped.
    pub(crate) fn every<T: Send + Sync + 'static>(
        beat: Duration,
        state: &Arc<T>,
        mut work: impl FnMut(&T) + Send + 'static,
    ) -> Self {
        let state = Arc::downgrade(state);
        Self(tokio::spawn(async move {
            loop {
                tokio::time::sleep(beat).await;
                let Some(state) = state.upgrade() else { return };
                work(&state);
            }
        }))
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        self.0.abort();
    }
}
