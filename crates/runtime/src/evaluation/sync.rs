//! The locks and atomics of data shared by threads, in one module so that loom can replace them.

#[cfg(feature = "loom")]
pub(super) use loom::sync::{
    MutexGuard,
    atomic::{AtomicBool, Ordering},
};
#[cfg(not(feature = "loom"))]
pub(super) use {
    parking_lot::MutexGuard,
    std::sync::atomic::{AtomicBool, Ordering},
};

#[cfg(not(feature = "loom"))]
pub(super) use parking_lot::Mutex;

/// Loom's lock with the interface of parking_lot's, which has no poisoning.
#[cfg(feature = "loom")]
#[derive(Default)]
pub(super) struct Mutex<T>(loom::sync::Mutex<T>);

#[cfg(feature = "loom")]
impl<T> Mutex<T> {
    pub(super) fn new(value: T) -> Self {
        Self(loom::sync::Mutex::new(value))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// A condition that one thread sleeps on.
#[derive(Default)]
pub(super) struct Bell {
    #[cfg(not(feature = "loom"))]
    condition: parking_lot::Condvar,
    #[cfg(feature = "loom")]
    condition: loom::sync::Condvar,
}

impl Bell {
    pub(super) fn ring(&self) {
        self.condition.notify_one();
    }

    /// Sleeps until rung or until the time is over. May wake spuriously.
    #[cfg(not(feature = "loom"))]
    pub(super) fn sleep<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        at_most: Option<std::time::Duration>,
    ) -> MutexGuard<'a, T> {
        match at_most {
            Some(time) => drop(self.condition.wait_for(&mut guard, time)),
            None => self.condition.wait(&mut guard),
        }
        guard
    }

    /// Loom has no time: a sleep that no thread ends is a deadlock, and reported.
    #[cfg(feature = "loom")]
    pub(super) fn sleep<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        _at_most: Option<std::time::Duration>,
    ) -> MutexGuard<'a, T> {
        self.condition.wait(guard).unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
