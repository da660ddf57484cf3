//! How long the source waits before it asks a queue again whose answers bring no new message.
//!
//! A queue without messages answers late, or the request waits by itself. One that delivers the same messages
//! again and again, or whose answers are too long, would be asked without a pause.

use std::time::{Duration, Instant};

use super::POLL;

/// The number of times that a pause is doubled. The longest one is 3.2 s.
const DOUBLINGS: usize = 5;
/// The least time between two warnings.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// The pauses of a source.
#[derive(Default)]
pub(super) struct Pauses {
    /// The number of answers that brought nothing new, since the last one that did.
    fruitless: usize,
    /// When there was a warning.
    warned: Option<Instant>,
}

impl Pauses {
    /// Notes an answer that is not empty.
    pub(super) fn note(&mut self, has_new: bool) {
        self.fruitless = if has_new { 0 } else { self.fruitless.saturating_add(1) };
    }

    /// Returns the pause before the next request. `concurrency` is the number of requests at the same time.
    pub(super) fn next(&self, concurrency: usize) -> Duration {
        match self.fruitless.checked_sub(1) {
            None => Duration::ZERO,
            Some(before) => POLL * (1_u32 << (before / concurrency.max(1)).min(DOUBLINGS)),
        }
    }

    /// Returns true if there is to be a warning now, and notes that there is.
    pub(super) fn warns(&mut self) -> bool {
        let is_due = self.warned.is_none_or(|at| at.elapsed() >= WARN_EVERY);
        if is_due {
            self.warned = Some(Instant::now());
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the pauses after each of some answers without a new message, in milliseconds.
    fn grown(pauses: &mut Pauses, concurrency: usize, answers: usize) -> Vec<u128> {
        let after = |_| {
            pauses.note(false);
            pauses.next(concurrency).as_millis()
        };
        (0..answers).map(after).collect()
    }

    #[test]
    fn a_pause_grows_until_a_new_message_comes() {
        let mut pauses = Pauses::default();
        assert_eq!(pauses.next(1), Duration::ZERO);
        assert_eq!(grown(&mut pauses, 1, 8), [100, 200, 400, 800, 1600, 3200, 3200, 3200]);
        pauses.note(true);
        assert_eq!(pauses.next(1), Duration::ZERO);
        // Answers to requests that were made at the same time count as one.
        assert_eq!(grown(&mut pauses, 2, 5), [100, 100, 200, 200, 400]);
    }

    #[test]
    fn a_pause_has_an_end_after_however_many_answers() {
        let pauses = Pauses { fruitless: usize::MAX, warned: None };
        assert_eq!(pauses.next(1), Duration::from_millis(3200));
        assert_eq!(pauses.next(0), Duration::from_millis(3200));
    }

    #[test]
    fn a_warning_is_not_repeated_at_once() {
        let mut pauses = Pauses::default();
        assert_eq!([pauses.warns(), pauses.warns()], [true, false]);
    }
}
