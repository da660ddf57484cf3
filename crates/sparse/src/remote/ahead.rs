//! Read-ahead for readers that read in order.
//!
//! A few readers of one file are distinguished by the position at which each would continue. A reader counts
//! as sequential after it has continued twice where it left off. Once is not enough: a reader that reads a
//! header and then the data that follows it also continues once. For a sequential reader, twice the bytes
//! that it has read so far are fetched ahead, up to a limit. The window moves in steps of at least half its
//! size, so that requests stay long. Doubling at each step was rejected: a parser that reads a few numbers
//! one by one would cause megabytes to be fetched.

use crate::Span;

const READERS: usize = 8;
/// A reader that skips at most this many bytes still counts as sequential.
const SKIPPED: u64 = 16 << 10;

#[derive(Debug, Default)]
pub(crate) struct Ahead {
    readers: [Reader; READERS],
    uses: u64,
}

#[derive(Debug, Default, Clone, Copy)]
struct Reader {
    /// The position at which it would continue.
    next: u64,
    /// How often it has continued.
    steps: u32,
    /// How many bytes it has read in order.
    read: u64,
    /// How many bytes are fetched ahead of it.
    window: u64,
    /// The position up to which bytes were requested.
    until: u64,
    used: u64,
}

impl Ahead {
    /// Records that `span` is read, and returns the range to fetch in advance, if any. `limits` returns the
    /// minimum and maximum number of bytes to read ahead; the maximum wins. It is called only when needed.
    pub fn note(&mut self, span: Span, limits: impl FnOnce() -> Option<(u64, u64)>) -> Option<Span> {
        self.uses += 1;
        let continues = |reader: &&mut Reader| {
            reader.used > 0 && (reader.next..=reader.next.saturating_add(SKIPPED)).contains(&span.position)
        };
        let Some(reader) = self.readers.iter_mut().find(continues) else {
            if let Some(idle) = self.readers.iter_mut().min_by_key(|reader| reader.used) {
                let (next, until, read) = (span.end(), span.end(), span.length);
                *idle = Reader { next, until, read, used: self.uses, ..Reader::default() };
            }
            return None;
        };
        reader.used = self.uses;
        reader.next = span.end();
        reader.until = reader.until.max(span.end());
        reader.steps = reader.steps.saturating_add(1);
        reader.read = reader.read.saturating_add(span.length);
        if reader.steps < 2 || reader.until - reader.next > reader.window / 2 {
            return None;
        }
        let (least, most) = limits()?;
        reader.window = reader.read.saturating_mul(2).max(least).min(most);
        if reader.until - reader.next > reader.window / 2 {
            return None;
        }
        let ahead = Span::between(reader.until, reader.next.saturating_add(reader.window));
        reader.until = ahead.end().max(reader.until);
        (ahead.length > 0).then_some(ahead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_readers_in_order_are_read_ahead_for_and_one_who_jumps_is_not() {
        let mut ahead = Ahead::default();
        let (mut first, mut second) = (0, 0);
        for step in 0..100u64 {
            for (from, sum) in [(0, &mut first), (1 << 30, &mut second)] {
                if let Some(span) = ahead.note(Span::new(from + step * 1000, 1000), || Some((4000, 64_000))) {
                    assert!(span.position >= from + step * 1000 + 1000 && span.length <= 64_000);
                    *sum += span.length;
                }
            }
            assert_eq!(
                ahead.note(Span::new((step * 7919) % 100 * 1_000_000 + (1 << 40), 1000), || Some((
                    4000, 64_000
                ))),
                None
            );
        }
        assert!((98_000..=163_000).contains(&first) && first == second, "{first} {second}");
    }

    #[test]
    fn the_first_reads_fetch_nothing_in_advance_and_later_ones_twice_what_was_read() {
        let mut ahead = Ahead::default();
        let mut note = |from, length| ahead.note(Span::new(from, length), || Some((100, 1000)));
        assert_eq!((note(0, 4), note(4, 6)), (None, None));
        assert_eq!(note(10, 10), Some(Span::new(20, 100)));
        assert_eq!((note(20, 10), note(30, 10), note(40, 10)), (None, None, None));
        assert_eq!(note(50, 20), Some(Span::new(120, 90)));
        assert_eq!(note(70, 200), Some(Span::new(270, 540)));
    }

    #[test]
    fn nothing_goes_beyond_the_last_position() {
        let mut ahead = Ahead::default();
        ahead.note(Span::new(u64::MAX - 40, 10), || Some((100, 1000)));
        ahead.note(Span::new(u64::MAX - 30, 20), || Some((100, 1000)));
        assert_eq!(ahead.note(Span::new(u64::MAX - 10, 10), || Some((100, 1000))), None);
    }
}
