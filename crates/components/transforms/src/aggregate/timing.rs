//! Which windows a message is in.

use std::time::Duration;

use serde::{Deserialize, Serialize};

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
    /// After a time without messages of the key, by the times that messages have.
    EventSessions(Gaps, /* the delay of late messages, in microseconds */ i64),
    /// The same, by the times at which messages arrive.
    ArrivalSessions(Gaps),
}

/// Windows of one length that begin at regular times, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Spans {
    /// The time from the start of a window to that of the next one.
    pub(super) every: i64,
    pub(super) length: i64,
}

/// When sessions end, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Gaps {
    /// The time without messages that ends a session.
    pub(super) timeout: i64,
    /// Sessions also end at multiples of this time.
    pub(super) every: Option<i64>,
}

/// The time from the start of a session to before its end, in microseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Span {
    pub(super) start: i64,
    pub(super) end: i64,
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
            Timing::Whole | Timing::Count(_) | Timing::EventSessions(..) | Timing::ArrivalSessions(_) => None,
        }
    }

    /// The gaps between sessions.
    pub(super) fn gaps(self) -> Option<Gaps> {
        match self {
            Timing::EventSessions(gaps, _) | Timing::ArrivalSessions(gaps) => Some(gaps),
            Timing::Whole | Timing::Count(_) | Timing::Event(..) | Timing::Arrival(_) => None,
        }
    }

    /// True if windows end by the clock.
    pub(super) fn is_by_arrival(self) -> bool {
        matches!(self, Timing::Arrival(_) | Timing::ArrivalSessions(_))
    }

    /// The delay of late messages, if windows end by the times that messages have.
    pub(super) fn delay(self) -> Option<i64> {
        match self {
            Timing::Event(_, delay) | Timing::EventSessions(_, delay) => Some(delay),
            _ => None,
        }
    }

    /// The same windows, none of which ends while messages come if they are by event time.
    pub(super) fn without_end(self) -> Self {
        // Twice the farthest time: no message is later than another by more.
        const ENDLESS: i64 = 2 * FARTHEST as i64;
        match self {
            Timing::Event(spans, _) => Timing::Event(spans, ENDLESS),
            Timing::EventSessions(gaps, _) => Timing::EventSessions(gaps, ENDLESS),
            Timing::Whole | Timing::Count(_) | Timing::Arrival(_) | Timing::ArrivalSessions(_) => self,
        }
    }
}

impl Gaps {
    /// The span of a session with one message.
    pub(super) fn span(self, time: i64) -> Span {
        let end = time + self.timeout;
        let divided = self.every.map_or(end, |every| (time.div_euclid(every) + 1) * every);
        Span { start: time, end: end.min(divided) }
    }
}

impl Span {
    /// The span of both and of what is between.
    pub(super) fn and(self, other: Span) -> Span {
        Span { start: self.start.min(other.start), end: self.end.max(other.end) }
    }

    /// True if it can be that of a session.
    pub(super) fn is_possible(self) -> bool {
        self.start < self.end && is_reachable(self.start) && is_reachable(self.end)
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

    #[test]
    fn a_session_ends_after_its_gap_and_at_a_multiple_of_a_time() {
        let span = |timeout, every, time| {
            let Span { start, end } = Gaps { timeout, every }.span(time);
            (start, end)
        };
        assert_eq!(span(10, None, 25), (25, 35));
        assert_eq!(span(10, Some(100), 89), (89, 99));
        assert_eq!(span(10, Some(100), 95), (95, 100));
        assert_eq!(span(10, Some(100), -1), (-1, 0));
        let far = FARTHEST as i64;
        for (time, every) in [(far, None), (far, Some(far)), (-far, Some(far)), (far, Some(far - 1))] {
            assert!(Gaps { timeout: far, every }.span(time).is_possible());
        }
    }
}
