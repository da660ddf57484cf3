//! The executor on which evaluations continue after their first wait: this thread's event loop, or tokio's
//! threads.

use std::cell::Cell;
use std::pin::Pin;
use std::task::Waker;

use super::event_loop;
use super::running::Running;
use super::storage::Slot;

/// This thread's event loop. Code need not be `Send`: it runs while the thread is in
/// [`block_on`](super::block_on), and never leaves the thread.
#[derive(Debug, Clone, Copy, Default)]
pub struct Here;

/// The tokio runtime of the caller. Code must be `Send`: when it waits, it becomes a task of that runtime,
/// and may continue on any of its threads.
#[derive(Debug, Clone, Copy, Default)]
pub struct OnTokio;

/// An executor for evaluations of code of type `Fut`: [`Here`] or [`OnTokio`].
pub trait Home<Fut: Future>: Runs<Fut> {}
impl<Fut: Future, H: Runs<Fut>> Home<Fut> for H {}

/// The functions of a home. They stay private to this crate, so that they may change.
pub trait Runs<Fut: Future>: Copy {
    /// The event source that [`wait`](super::wait) and similar functions use in this home.
    const PLACE: EventSource;

    /// Schedules code that has not started.
    fn start(code: impl FnOnce() -> Running<Fut>);

    /// Adopts code that was left waiting. Returns its waker if that is known already.
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

/// The owner of the timers and descriptors for the code that runs now on this thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventSource {
    /// No evaluation runs. Then tokio is used if the thread is in a runtime, and else this thread's event
    /// loop.
    Unsaid,
    Here,
    Tokio,
}

thread_local! {
    static PLACE: Cell<EventSource> = const { Cell::new(EventSource::Unsaid) };
}

/// Sets the event source of this thread until it is dropped.
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

/// True if waits use tokio's timers and descriptors.
pub(super) fn is_tokio() -> bool {
    match PLACE.get() {
        EventSource::Here => false,
        EventSource::Tokio => true,
        EventSource::Unsaid => tokio::runtime::Handle::try_current().is_ok(),
    }
}
