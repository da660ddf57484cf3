//! Which windows a message is in.

use std::time::Duration;

/// How windows end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Timing {
    /// There is one window, to the end of the input.
    Whole,
    /// After a number of messages.
    Count(u64),
    /// By the times that messages have.
    Event(Spans, /* the delay of late messages, in microseconds */ i64),
    /// By the times at which messages arrive.
    Arrival(Spans),
}

/// Windows of one length that begin at regular times, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Spans {
    /// The time from the start of a window to that of the next one.
    pub(super) every: i64,
    pub(super) length: i64,
}

/// The most windows that a message is in.
pub(super) const MOST: i64 = 100;
/// Times beyond this number of microseconds before or after 1970 are no times: about 73,000 years.
const FARTHEST: u64 = (i64::MAX / 4) as u64;

impl Timing {
    /// The spans of windows by time.
    pub(super) fn spans(self) -> Option<Spans> {
        match self {
            Timing::Event(spans, _) | Timing::Arrival(spans) => Some(spans),
            Timing::Whole | Timing::Count(_) => None,
        }
    }

    /// The same windows, none of which ends while messages come if they are by event time.
    pub(super) fn without_end(self) -> Self {
        match self {
            // Twice the farthest time: no message is later than another by more.
            Timing::Event(spans, _) => Timing::Event(spans, 2 * FARTHEST as i64),
            other => other,
        }
    }
}

impl Spans {
    /// Returns the starts of the windows that a time is in, the last one first.
    pub(super) fn starts(self, time: i64) -> impl Iterator<Item = i64> {
        let last = time.div_euclid(self.every) * self.every;
        std::iter::successors(Some(last), move |start| Some(start - self.every))
            .take_while(move |start| time < start + self.length)
    }
}

/// True if windows can be computed for a time.
pub(super) fn is_usable(time: i64) -> bool {
    time.unsigned_abs() <= FARTHEST
}

/// True if a window of a usable time may begin or end then, or such a time with a delay is then.
pub(super) fn is_reachable(time: i64) -> bool {
    time.unsigned_abs() <= 2 * FARTHEST
}

/// Returns a span of time in microseconds, at least one.
pub(super) fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX).clamp(1, FARTHEST as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_in_all_windows_that_begin_before_it_and_end_after_it() {
        let starts = |every, length, time| Spans { every, length }.starts(time).collect::<Vec<_>>();
        assert_eq!(starts(10, 10, 25), [20]);
        assert_eq!(starts(10, 10, 20), [20]);
        assert_eq!(starts(10, 10, -1), [-10]);
        assert_eq!(starts(10, 25, 25), [20, 10]);
        assert_eq!(starts(10, 25, 24), [20, 10, 0]);
        for time in [i64::MIN, i64::MAX] {
            assert!(!is_usable(time));
        }
        let far = FARTHEST as i64;
        assert_eq!(starts(far, far, far), [far]);
        assert_eq!(starts(far, far, -far), [-far]);
        let least = starts(far - 1, far - 1, -far);
        assert!(least.iter().all(|start| is_reachable(*start) && !is_usable(*start)), "{least:?}");
        assert_eq!(micros(Duration::MAX), far);
        assert_eq!(micros(Duration::ZERO), 1);
    }
}
