//! Counts warnings that repeat, so that a server that is down does not fill the log.
//!
//! The first warning of a kind is printed at once. Others of the same kind within [`WINDOW`] are counted, and
//! the count is printed afterwards: before the next warning, when the time is over, or when the run ends.
//! Warnings are of one kind if they differ only in a time or a number of messages: see [`UNITS`]. Any other
//! number may be what matters, such as the status of an answer, or a line of a program that fails. (Rejected:
//! a limit for each place in the code. One component that fails would hide the warnings of the others.)

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use thalweg_config::counted;

/// The time after a printed warning in which others of its kind are counted.
pub(crate) const WINDOW: Duration = Duration::from_secs(10);

/// The words after a number that differs between warnings of one kind.
const UNITS: [&str; 5] = ["s", "message", "messages", "connections", "dead"];

/// The most kinds that are known. Warnings of other kinds are all printed.
const MOST: usize = 256;

/// The warnings of the last seconds, by their kinds.
pub(crate) struct Repeats(BTreeMap<String, Seen>);

struct Seen {
    /// When the first was printed.
    since: Instant,
    /// When the last one came.
    until: Instant,
    /// The number of those that were not printed.
    more: u64,
    /// The text of the last one.
    last: String,
}

/// The texts to print when a warning comes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Passed {
    /// Summaries of earlier warnings.
    pub(crate) before: Vec<String>,
    /// True if the warning itself is printed.
    pub(crate) is_shown: bool,
}

impl Repeats {
    pub(crate) const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// Counts a warning that comes now.
    pub(crate) fn pass(&mut self, text: &str, now: Instant) -> Passed {
        let before = self.due(now);
        let kind = kind(text);
        if let Some(seen) = self.0.get_mut(&kind) {
            seen.more += 1;
            seen.until = now;
            text.clone_into(&mut seen.last);
            return Passed { before, is_shown: false };
        }
        if self.0.len() < MOST {
            self.0.insert(kind, Seen { since: now, until: now, more: 0, last: String::new() });
        }
        Passed { before, is_shown: true }
    }

    /// Returns the summaries of warnings that were not printed, and whose time is over.
    pub(crate) fn due(&mut self, now: Instant) -> Vec<String> {
        self.take(|seen| now.duration_since(seen.since) >= WINDOW)
    }

    /// True if some warnings were not printed.
    pub(crate) fn has_counted(&self) -> bool {
        self.0.values().any(|seen| seen.more > 0)
    }

    /// Returns the summaries of all warnings that were not printed.
    pub(crate) fn end(&mut self) -> Vec<String> {
        self.take(|_| true)
    }

    /// Forgets kinds, and returns the summaries of those that were counted.
    fn take(&mut self, is_over: impl Fn(&Seen) -> bool) -> Vec<String> {
        let over = self.0.extract_if(.., |_, seen| is_over(seen));
        let counted = over.filter(|(_, seen)| seen.more > 0);
        counted.map(|(_, seen)| seen.summary()).collect()
    }
}

impl Seen {
    fn summary(&self) -> String {
        let span = self.until.duration_since(self.since).as_secs_f64();
        format!("{} like this in {span:.1} s, the last: {}", counted(self.more, "more warning"), self.last)
    }
}

/// Returns a text without the numbers before [`UNITS`].
fn kind(text: &str) -> String {
    let mut words = text.split(' ').peekable();
    let mut kind = String::with_capacity(text.len());
    while let Some(word) = words.next() {
        let next = words.peek().map(|next| next.trim_end_matches(|end: char| !end.is_alphanumeric()));
        let is_number = word.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b','));
        if !(is_number && next.is_some_and(|next| UNITS.contains(&next))) {
            kind.push_str(word);
        }
        kind.push(' ');
    }
    kind
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(is_shown: bool, before: &[&str]) -> Passed {
        Passed { before: before.iter().map(|&text| text.to_owned()).collect(), is_shown }
    }

    #[test]
    fn warnings_of_one_kind_are_counted_until_the_window_ends() {
        let (mut repeats, start) = (Repeats::new(), Instant::now());
        let mut pass =
            |text: &str, tenths: u32| repeats.pass(text, start + Duration::from_millis(100) * tenths);
        assert_eq!(pass("`a1`: refused; trying again in 0.1 s", 0), shown(true, &[]));
        assert_eq!(pass("`a1`: refused; trying again in 0.2 s", 1), shown(false, &[]));
        assert_eq!(pass("`a2`: refused; trying again in 0.2 s", 1), shown(true, &[]));
        assert_eq!(pass("`a1`: timed out; trying again in 0.2 s", 2), shown(true, &[]));
        assert_eq!(pass("`a1`: refused; trying again in 10.0 s", 25), shown(false, &[]));
        let summary = "2 more warnings like this in 2.5 s, the last: `a1`: refused; trying again in 10.0 s";
        assert_eq!(pass("other", 100), shown(true, &[summary]));
        assert_eq!(pass("`a1`: refused; trying again in 7.0 s", 101), shown(true, &[]));
        assert_eq!(pass("`a1`: refused; trying again in 8.0 s", 102), shown(false, &[]));
        let summary = "1 more warning like this in 0.1 s, the last: `a1`: refused; trying again in 8.0 s";
        assert_eq!(repeats.end(), [summary]);
        assert!(repeats.end().is_empty());
    }

    #[test]
    fn only_a_time_and_a_number_of_messages_may_differ_within_a_kind() {
        for (one, other, is_same) in [
            ("`out`: refused; trying again in 0.1 s", "`out`: refused; trying again in 10.0 s", true),
            ("`out`: 1,200 messages are sent again: no", "`out`: 3 messages are sent again: no", true),
            ("2 dead letters dropped, the oldest first", "13 dead letters dropped, the oldest first", true),
            ("`out`: answered 503; trying again in 1 s", "`out`: answered 401; trying again in 1 s", false),
            ("`run`: error 17", "`run`: error 18", false),
            ("it's `a 1 s`", "it's `b 1 s`", false),
            ("broker 10.0.0.1:9092 is down", "broker 10.0.0.2:9092 is down", false),
        ] {
            assert_eq!(kind(one) == kind(other), is_same, "{one}; {other}");
        }
    }

    #[test]
    fn counts_are_due_when_their_time_is_over() {
        let (mut repeats, start) = (Repeats::new(), Instant::now());
        repeats.pass("a", start);
        assert!(!repeats.has_counted());
        repeats.pass("a", start + WINDOW / 2);
        assert!(repeats.has_counted() && repeats.due(start + WINDOW / 2).is_empty());
        assert_eq!(repeats.due(start + WINDOW), ["1 more warning like this in 5.0 s, the last: a"]);
        assert!(!repeats.has_counted());
    }

    #[test]
    fn the_memory_for_kinds_is_bounded_and_what_is_not_known_is_shown() {
        let (mut repeats, now) = (Repeats::new(), Instant::now());
        for number in 0..2 * MOST {
            assert!(repeats.pass(&format!("`{number}`"), now).is_shown);
        }
        assert_eq!(repeats.0.len(), MOST);
        assert!(!repeats.pass("`0`", now).is_shown);
        assert!(repeats.pass(&format!("`{}`", 2 * MOST - 1), now).is_shown);
    }
}
