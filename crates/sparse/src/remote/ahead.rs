//! Who reads in order is read ahead for.
//!
//! A few readers of one file are told apart by where each would go on. One that has gone on twice where it left
//! off is taken to read in order (once is what everyone does who reads a head and then what it is about), and what lies
//! before it is fetched: at first twice what it reads, then always twice as much, up to a limit. It goes on in steps of
//! at least half of that, so that requests stay long.

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
                *idle = Reader { next: span.end(), until: span.end(), used: self.uses, ..Reader::default() };
            }
            return None;
        };
        reader.used = self.uses;
        reader.next = span.end();
        reader.until = reader.until.max(span.end());
        reader.steps = reader.steps.saturating_add(1);
        if reader.steps < 2 || reader.window > 0 && reader.until - reader.next > reader.window / 2 {
            return None;
        }
        let (least, most) = limits()?;
        if reader.window == 0 {
            reader.window = span.length.saturating_mul(2).max(least).min(most);
            if reader.until - reader.next > reader.window / 2 {
                return None;
            }
        }
        let ahead = Span::between(reader.until, reader.next.saturating_add(reader.window));
        reader.until = ahead.end().max(reader.until);
        reader.window = reader.window.saturating_mul(2).min(most);
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
    fn the_first_reads_fetch_nothing_in_advance_and_later_steps_grow() {
        let mut ahead = Ahead::default();
        assert_eq!(ahead.note(Span::new(0, 4), || Some((100, 1000))), None);
        assert_eq!(ahead.note(Span::new(4, 6), || Some((100, 1000))), None);
        assert_eq!(ahead.note(Span::new(10, 10), || Some((100, 1000))), Some(Span::new(20, 100)));
        assert_eq!(ahead.note(Span::new(20, 10), || Some((100, 1000))), Some(Span::new(120, 110)));
        assert_eq!(ahead.note(Span::new(30, 10), || Some((100, 1000))), Some(Span::new(230, 210)));
        assert_eq!(ahead.note(Span::new(40, 10), || Some((100, 1000))), Some(Span::new(440, 410)));
        assert_eq!(ahead.note(Span::new(50, 10), || Some((100, 1000))), None);
    }

    #[test]
    fn nothing_goes_beyond_the_last_position() {
        let mut ahead = Ahead::default();
        ahead.note(Span::new(u64::MAX - 40, 10), || Some((100, 1000)));
        ahead.note(Span::new(u64::MAX - 30, 20), || Some((100, 1000)));
        assert_eq!(ahead.note(Span::new(u64::MAX - 10, 10), || Some((100, 1000))), None);
    }
}
