//! Where evaluations run on once they wait: on this thread's event loop, or on tokio's threads.

use std::cell::Cell;
use std::pin::Pin;
use std::task::Waker;

use super::event_loop;
use super::running::Running;
use super::storage::Slot;

/// This thread's event loop. Code need not be `Send`; it runs while the thread is in
/// [`block_on`](super::block_on), and never leaves it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Here;

/// The tokio runtime that the caller is in. Code must be `Send`; what waits is a task of that runtime, and may go
/// on on any of its threads.
#[derive(Debug, Clone, Copy, Default)]
pub struct OnTokio;

/// A home for evaluations of code of type `Fut`: [`Here`] or [`OnTokio`].
pub trait Home<Fut: Future>: Runs<Fut> {}
impl<Fut: Future, H: Runs<Fut>> Home<Fut> for H {}

/// What a home does. It stays within this crate, so that it may change.
pub trait Runs<Fut: Future>: Copy {
    /// What [`wait`](super::wait) and its like use below this.
    const PLACE: EventSource;

    /// Schedules code that has not started.
    fn start(code: impl FnOnce() -> Running<Fut>);

    /// Takes code over that was left waiting. Gives its waker, where that is known already.
    fn adopt(code: Pin<Slot<Running<Fut>>>) -> Option<Waker>;
}

impl<Fut: Future + 'static> Runs<Fut> for Here {
    const PLACE: EventSource = EventSource::Here;

    #[inline]
    fn start(code: impl FnOnce() -> Running<Fut>) {
        event_loop::start(Slot::erase(Slot::pin_with(code)));
    }

    fn adopt(code: Pin<Slot<Running<Fut>>>) -> Option<Waker> {
        event_loop::adopt(Slot::erase(code))
    }
}

impl<Fut> Runs<Fut> for OnTokio
where
    Fut: Future + Send + 'static,
    Fut::Output: Send + 'static,
{
    const PLACE: EventSource = EventSource::Tokio;

    fn start(code: impl FnOnce() -> Running<Fut>) {
        tokio::spawn(code());
    }

    fn adopt(code: Pin<Slot<Running<Fut>>>) -> Option<Waker> {
        tokio::spawn(code);
        None
    }
}

/// Whose timers and descriptors the code uses that runs now on this thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventSource {
    /// Nothing of ours runs. Then it is tokio's where the thread is in a runtime, and else this thread's.
    Unsaid,
    Here,
    Tokio,
}

thread_local! {
    static PLACE: Cell<EventSource> = const { Cell::new(EventSource::Unsaid) };
}

/// Says, until it is dropped, where the code runs that runs now on this thread.
pub(super) struct Within {
    before: EventSource,
}

impl Within {
    #[inline]
    pub(super) fn enter(place: EventSource) -> Self {
        Self { before: PLACE.replace(place) }
    }
}

impl Drop for Within {
    #[inline]
    fn drop(&mut self) {
        PLACE.set(self.before);
    }
}

/// Whether to wait with tokio's timers and descriptors.
pub(super) fn is_tokio() -> bool {
    match PLACE.get() {
        EventSource::Here => false,
        EventSource::Tokio => true,
        EventSource::Unsaid => tokio::runtime::Handle::try_current().is_ok(),
    }
}
