//! The request to stop a run.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

/// A request to stop, shared by all tasks that may make it and all tasks that obey it. It is made once and is
/// never withdrawn. It may be a [part](Self::join) of a larger one.
#[derive(Clone, Debug)]
pub struct Stop(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    requested: watch::Sender<bool>,
    /// True if a task ended early because of the request.
    was_heeded: AtomicBool,
    /// The requests that are made together with this one.
    parts: Mutex<Vec<Weak<Shared>>>,
    /// The request that this one is a part of.
    whole: OnceLock<Stop>,
}

impl Default for Stop {
    fn default() -> Self {
        Self(Arc::new(Shared {
            requested: watch::Sender::new(false),
            was_heeded: AtomicBool::new(false),
            parts: Mutex::default(),
            whole: OnceLock::new(),
        }))
    }
}

impl Stop {
    /// Makes the request, and those that are parts of it.
    pub fn request(&self) {
        self.0.requested.send_replace(true);
        let parts: Vec<_> = self.0.parts.lock().iter().filter_map(Weak::upgrade).collect();
        parts.into_iter().for_each(|part| Self(part).request());
    }

    /// Makes this request a part of a larger one, once: it is made when `whole` is, and may be made without
    /// it. Heeding it heeds `whole`.
    pub fn join(&self, whole: &Stop) {
        if self.0.whole.set(whole.clone()).is_err() {
            return;
        }
        let mut parts = whole.0.parts.lock();
        // Parts come and go while the whole lasts.
        if parts.len() == parts.capacity() {
            parts.retain(|part| part.strong_count() > 0);
        }
        parts.push(Arc::downgrade(&self.0));
        drop(parts);
        // Added first: a request that comes meanwhile finds the part, or is seen here.
        if whole.is_requested() {
            self.request();
        }
    }

    /// True if the request was made.
    pub fn is_requested(&self) -> bool {
        *self.0.requested.borrow()
    }

    /// Notes that a task ends early because of the request. A request that comes when all input has been read
    /// changes nothing: what the run writes is whole.
    pub fn heed(&self) {
        self.0.was_heeded.store(true, Ordering::Release);
        if let Some(whole) = self.0.whole.get() {
            whole.heed();
        }
    }

    /// Notes that everything ends early because of the request: also all its parts.
    pub fn heed_all(&self) {
        self.heed();
        let parts: Vec<_> = self.0.parts.lock().iter().filter_map(Weak::upgrade).collect();
        parts.into_iter().for_each(|part| Self(part).heed_all());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_part_is_requested_with_the_whole_and_also_alone() {
        let (whole, alone, other) = (Stop::default(), Stop::default(), Stop::default());
        alone.join(&whole);
        other.join(&whole);
        alone.request();
        assert_eq!([&whole, &alone, &other].map(Stop::is_requested), [false, true, false]);
        alone.heed();
        assert_eq!([&whole, &alone, &other].map(Stop::was_heeded), [true, true, false]);
        whole.heed_all();
        assert!(other.was_heeded());
        whole.request();
        other.requested().await;
        let late = Stop::default();
        late.join(&whole);
        assert!(late.is_requested());
    }
}
