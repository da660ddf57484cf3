//! Who reads in order is read ahead for.
//!
//! A few readers of one file are told apart by where each would go on. One that has gone on twice where it left
//! off is taken to read in order (once is what everyone does who reads a head and then what it is about), and what lies
//! before it is fetched: twice what it has read so far, up to a limit. It goes on in steps of at least half of that, so that
//! requests stay long. To double with each step was rejected: who reads a few numbers one by one, as parsers do, would
//! fetch megabytes for them.

use crate::Span;

const READERS: usize = 8;
/// Who skips so little still reads in order.
const SKIPPED: u64 = 16 << 10;

#[derive(Debug, Default)]
pub(crate) struct Ahead {
    readers: [Reader; READERS],
    uses: u64,
}

#[derive(Debug, Default, Clone, Copy)]
struct Reader {
    /// Where it would go on.
    next: u64,
    /// How often it has gone on.
    steps: u32,
    /// How much it has read in order.
    read: u64,
    /// How much is fetched before it.
    window: u64,
    /// Up to where that was asked for.
    until: u64,
    used: u64,
}

impl Ahead {
    /// Notes that `span` is read, and says what to fetch in advance, if anything. `limits` are asked for when that may be so:
    /// at least how many bytes (but for the limit), and at most.
    pub fn note(&mut self, span: Span, limits: impl FnOnce() -> Option<(u64, u64)>) -> Option<Span> {
        self.uses += 1;
        let goes_on = |reader: &&mut Reader| {
            reader.used > 0 && (reader.next..=reader.next.saturating_add(SKIPPED)).contains(&span.position)
        };
        let Some(reader) = self.readers.iter_mut().find(goes_on) else {
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
