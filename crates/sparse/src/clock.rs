//! The times at which a file was last read and written.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How exactly a file records when it was last read and written. Asking the system for the time costs about
/// as much as reading a byte, so it is off by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Clock {
    /// Not at all.
    #[default]
    Off,
    /// To a few milliseconds, at a third of the cost of the exact time. Where the system has no such clock,
    /// it is exact.
    Coarse,
    /// To a microsecond.
    Exact,
}

impl Clock {
    fn micros(self) -> u64 {
        #[cfg(target_os = "linux")]
        if self == Clock::Coarse {
            let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
            return now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1_000;
        }
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
    }
}

/// The time of the latest of some events, in microseconds since 1970; zero if there was none.
#[derive(Debug, Default)]
pub(crate) struct Latest(AtomicU64);

impl Latest {
    /// Records that an event happens now. Of two concurrent events either time may be kept: both are now.
    #[inline]
    pub fn note(&self, clock: Clock) {
        if clock != Clock::Off {
            self.0.store(clock.micros(), Ordering::Relaxed);
        }
    }

    /// Records the time of another event, if it is later.
    pub fn raise(&self, micros: u64) {
        self.0.fetch_max(micros, Ordering::Relaxed);
    }

    pub fn micros(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

pub(crate) fn time(micros: u64) -> Option<SystemTime> {
    (micros > 0).then(|| UNIX_EPOCH + Duration::from_micros(micros))
}
