//! Asks the sinks of a group to flush, for a checkpoint.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

/// The requests to flush that the sinks of a group get.
pub(super) struct Flushes {
    /// The number of the last request.
    request: AtomicU64,
    state: Mutex<State>,
    answered: Notify,
    /// Wakes the sinks.
    nudge: Arc<Notify>,
}

#[derive(Default)]
struct State {
    members: usize,
    /// The members that have not answered the last request.
    missing: usize,
}

/// One worker of a sink. It has left when it is dropped.
pub(super) struct Member {
    flushes: Arc<Flushes>,
    answered: u64,
}

impl Flushes {
    pub(super) fn new(nudge: Arc<Notify>) -> Self {
        Self { request: AtomicU64::new(0), state: Mutex::default(), answered: Notify::new(), nudge }
    }

    pub(super) fn join(self: &Arc<Self>) -> Member {
        let mut state = self.state.lock();
        state.members += 1;
        Member { answered: self.request.load(Ordering::Acquire), flushes: self.clone() }
    }

    /// Asks all members to flush, and waits until they have. To be called while nothing moves.
    pub(super) async fn flush(&self) {
        {
            let mut state = self.state.lock();
            state.missing = state.members;
            self.request.fetch_add(1, Ordering::AcqRel);
        }
        self.nudge.notify_waiters();
        loop {
            let answered = self.answered.notified();
            let mut answered = std::pin::pin!(answered);
            answered.as_mut().enable();
            if self.state.lock().missing == 0 {
                return;
            }
            answered.await;
        }
    }

    /// A member has answered the last request, or will never do so.
    fn note(&self, state: &mut State) {
        state.missing = state.missing.saturating_sub(1);
        self.answered.notify_waiters();
    }
}

impl Member {
    /// True if there is a request that the member has not answered.
    pub(super) fn is_asked(&self) -> bool {
        self.flushes.request.load(Ordering::Acquire) != self.answered
    }

    /// The member has flushed what it wrote.
    pub(super) fn answer(&mut self) {
        let mut state = self.flushes.state.lock();
        let request = self.flushes.request.load(Ordering::Acquire);
        if self.answered != request {
            self.answered = request;
            self.flushes.note(&mut state);
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let mut state = self.flushes.state.lock();
        state.members -= 1;
        if self.flushes.request.load(Ordering::Acquire) != self.answered {
            self.flushes.note(&mut state);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_flush_waits_for_all_members_that_are_left() {
        let flushes = Arc::new(Flushes::new(Arc::default()));
        flushes.flush().await;
        let (mut one, two) = (flushes.join(), flushes.join());
        assert!(!one.is_asked());
        let asking = tokio::spawn({
            let flushes = flushes.clone();
            async move { flushes.flush().await }
        });
        tokio::task::yield_now().await;
        // A task that joins later has nothing that the checkpoint needs.
        let late = flushes.join();
        assert!(one.is_asked() && two.is_asked() && !late.is_asked());
        one.answer();
        one.answer();
        tokio::task::yield_now().await;
        assert!(!asking.is_finished() && !one.is_asked());
        drop(two);
        asking.await.unwrap();
    }
}
