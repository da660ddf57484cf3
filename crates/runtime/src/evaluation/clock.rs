//! The clock of an event loop: real time, or virtual time that tests control.

use std::cell::Cell;
use std::marker::PhantomData;
use std::time::{Duration, Instant};

use super::event_loop;

/// A clock that counts nanoseconds since the event loop was created and never goes back. It lasts for 584
/// years.
pub(super) struct Clock {
    origin: Instant,
    /// How far virtual time got ahead of real time, in nanoseconds.
    ahead: Cell<u64>,
    /// The time while it is virtual, in nanoseconds.
    stopped_at: Cell<Option<u64>>,
}

impl Clock {
    pub(super) fn new() -> Self {
        Self { origin: Instant::now(), ahead: Cell::new(0), stopped_at: Cell::new(None) }
    }

    pub(super) fn now(&self) -> u64 {
        self.stopped_at
            .get()
            .unwrap_or_else(|| self.ahead.get().saturating_add(nanoseconds(self.origin.elapsed())))
    }

    pub(super) fn is_virtual(&self) -> bool {
        self.stopped_at.get().is_some()
    }

    /// Moves virtual time forward, never back.
    pub(super) fn jump_to(&self, time: u64) {
        if let Some(now) = self.stopped_at.get() {
            self.stopped_at.set(Some(now.max(time)));
        }
    }

    fn stop(&self) {
        self.stopped_at.set(Some(self.now()));
    }

    fn go_on(&self) {
        if let Some(now) = self.stopped_at.take() {
            self.ahead.set(now.saturating_sub(nanoseconds(self.origin.elapsed())).max(self.ahead.get()));
        }
    }
}

pub(super) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Virtual time on this thread's event loop while this value lives: for tests.
///
/// Time does not advance while any code is ready to run. When no code is ready, it jumps to the next timer. A
/// test that waits for hours therefore takes no time, and sees the same times in every run.
///
/// ```
/// use std::time::Duration;
/// use thalweg_runtime::evaluation::{VirtualTime, block_on, wait};
///
/// let time = VirtualTime::start();
/// let start = time.now();
/// block_on(wait(Duration::from_secs(3600)));
/// assert_eq!(time.now() - start, Duration::from_secs(3600));
/// ```
#[derive(Debug)]
pub struct VirtualTime {
    /// The event loop belongs to this thread.
    not_send: PhantomData<*const ()>,
}

impl VirtualTime {
    /// Stops the clock of this thread's event loop at its present time.
    #[must_use = "virtual time ends when this is dropped"]
    pub fn start() -> Self {
        event_loop::with_clock(Clock::stop);
        Self { not_send: PhantomData }
    }

    /// Moves time forward. Timers that are due then fire when the event loop runs next.
    pub fn advance(&self, by: Duration) {
        event_loop::with_clock(|clock| clock.jump_to(clock.now().saturating_add(nanoseconds(by))));
    }

    /// Returns the time since the event loop was created.
    pub fn now(&self) -> Duration {
        let mut now = 0;
        event_loop::with_clock(|clock| now = clock.now());
        Duration::from_nanos(now)
    }
}

impl Drop for VirtualTime {
    fn drop(&mut self) {
        event_loop::with_clock(Clock::go_on);
    }
}
