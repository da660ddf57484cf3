//! Which row a value is in, if rows have spans of values: networks, and ranges of numbers or times.
//!
//! Spans may lie within each other or overlap. They are cut at their ends into disjoint pieces, of which each
//! belongs to one row. So a look-up is one binary search, however many spans contain a value. A tree of
//! prefixes was rejected: it serves networks only, and is no faster.

use std::collections::BTreeSet;

use super::index::{Duplicates, Twice};

/// The values of a row, from the first to the last.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    pub(super) first: u128,
    pub(super) last: u128,
    /// Of several spans that contain a value, that of the highest rank is found.
    pub(super) rank: u8,
    pub(super) row: u32,
}

/// Disjoint pieces of spans, in order.
#[derive(Debug, Default)]
pub(super) struct Spans {
    /// The first values of the pieces. A piece ends where the next one begins.
    starts: Vec<u128>,
    /// The row of each piece, or `NONE`.
    rows: Vec<u32>,
}

/// No row: a gap between spans.
const NONE: u32 = u32::MAX;

impl Spans {
    /// Cuts spans into pieces.
    ///
    /// # Errors
    /// If two spans of one rank contain a value, and duplicates are an error.
    pub(super) fn of(spans: &[Span], duplicates: Duplicates) -> Result<Self, Twice> {
        // At one value, spans end before others begin.
        let ends = spans.iter().filter_map(|span| Some((span.last.checked_add(1)?, false, span)));
        let starts = spans.iter().map(|span| (span.first, true, span));
        let mut events: Vec<(u128, bool, &Span)> = ends.chain(starts).collect();
        events.sort_by_key(|(at, begins, span)| (*at, *begins, span.row));
        let mut open: BTreeSet<(u8, u32, u32)> = BTreeSet::new();
        let mut pieces = Self::default();
        for (at, begins, span) in events {
            let order = if duplicates == Duplicates::First { NONE - span.row } else { span.row };
            let entry = (span.rank, order, span.row);
            if begins {
                let same_rank = (span.rank, 0, 0)..=(span.rank, u32::MAX, u32::MAX);
                if duplicates == Duplicates::Error
                    && let Some((_, _, other)) = open.range(same_rank).next()
                {
                    return Err(Twice { first: span.row.min(*other), second: span.row.max(*other) });
                }
                open.insert(entry);
            } else {
                open.remove(&entry);
            }
            pieces.begin(at, open.last().map_or(NONE, |(_, _, row)| *row));
        }
        pieces.starts.shrink_to_fit();
        pieces.rows.shrink_to_fit();
        Ok(pieces)
    }

    /// From this value on, values are in this row.
    fn begin(&mut self, at: u128, row: u32) {
        if self.starts.last() == Some(&at) {
            self.starts.pop();
            self.rows.pop();
        }
        if self.rows.last().copied().unwrap_or(NONE) != row {
            self.starts.push(at);
            self.rows.push(row);
        }
    }

    /// Returns the row that a value is in.
    #[inline]
    pub(super) fn find(&self, value: u128) -> Option<u32> {
        let after = self.starts.partition_point(|start| *start <= value);
        let row = *self.rows.get(after.checked_sub(1)?)?;
        (row != NONE).then_some(row)
    }

    /// The bytes in memory.
    pub(super) fn bytes(&self) -> usize {
        self.starts.capacity() * size_of::<u128>() + self.rows.capacity() * size_of::<u32>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn span(first: u128, last: u128, rank: u8, row: u32) -> Span {
        Span { first, last, rank, row }
    }

    #[test]
    fn the_highest_rank_is_found_and_gaps_are_gaps() {
        let all = [span(0, u128::MAX, 0, 0), span(10, 19, 1, 1), span(12, 12, 2, 2), span(20, 29, 1, 3)];
        let spans = Spans::of(&all, Duplicates::Error).unwrap();
        let found = [9, 10, 12, 13, 19, 20, 29, 30, u128::MAX].map(|value| spans.find(value).unwrap());
        assert_eq!(found, [0, 1, 2, 1, 1, 3, 3, 0, 0]);
        let spans = Spans::of(&all[1..2], Duplicates::Error).unwrap();
        assert_eq!([9, 10, 19, 20].map(|value| spans.find(value)), [None, Some(1), Some(1), None]);
        assert_eq!(Spans::of(&[], Duplicates::Error).unwrap().find(0), None);
    }

    #[test]
    fn spans_that_overlap_are_duplicates() {
        let all = [span(0, 10, 0, 0), span(20, 30, 0, 1), span(10, 12, 0, 2)];
        let Twice { first, second } = Spans::of(&all, Duplicates::Error).unwrap_err();
        assert_eq!((first, second), (0, 2));
        assert_eq!(Spans::of(&all, Duplicates::First).unwrap().find(10), Some(0));
        assert_eq!(Spans::of(&all, Duplicates::Last).unwrap().find(10), Some(2));
    }

    proptest! {
        #[test]
        fn pieces_are_like_a_search_of_all_spans(
            all in prop::collection::vec((0..40u128, 0..10u128, 0..3u8), 0..12),
            value in 0..60u128,
        ) {
            let span = |(row, (first, length, rank)): (usize, &(u128, u128, u8))| {
                span(*first, first + length, *rank, row as u32)
            };
            let all: Vec<Span> = all.iter().enumerate().map(span).collect();
            let contain = || all.iter().filter(|span| span.first <= value && value <= span.last);
            let last = contain().max_by_key(|span| (span.rank, span.row)).map(|span| span.row);
            prop_assert_eq!(Spans::of(&all, Duplicates::Last).unwrap().find(value), last);
            let first = contain().max_by_key(|span| (span.rank, u32::MAX - span.row)).map(|span| span.row);
            prop_assert_eq!(Spans::of(&all, Duplicates::First).unwrap().find(value), first);
            if let Ok(spans) = Spans::of(&all, Duplicates::Error) {
                prop_assert_eq!(spans.find(value), last);
            } else {
                let share = |one: &Span, other: &Span| {
                    one.row < other.row && one.rank == other.rank && one.first <= other.last && other.first <= one.last
                };
                prop_assert!(all.iter().any(|one| all.iter().any(|other| share(one, other))));
            }
        }
    }
}
