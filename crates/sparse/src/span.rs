//! Ranges of a file, and how a list of ranges is shortened.

/// A range of `length` bytes of a file from `position` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// The offset of the first byte from the start of the file.
    pub position: u64,
    /// How many bytes the range has.
    pub length: u64,
}

impl Span {
    /// Creates a range of `length` bytes from `position` on.
    pub const fn new(position: u64, length: u64) -> Self {
        Self { position, length }
    }

    /// Returns the position after the last byte, at most 2^64 - 1.
    pub const fn end(&self) -> u64 {
        self.position.saturating_add(self.length)
    }

    pub(crate) const fn between(position: u64, end: u64) -> Self {
        Self { position, length: end.saturating_sub(position) }
    }
}

impl std::fmt::Display for Span {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.position, self.end())
    }
}

/// When ranges to fetch become one. A request has a price of its own, so a few extra bytes are cheaper than
/// another request. One very long request, however, cannot be made in parallel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Merge {
    /// The maximum number of bytes between two ranges that become one; those bytes are fetched as well. The
    /// price of a request in bytes is its latency times the bandwidth.
    pub gap: u64,
    /// The maximum length of a merged range; longer ranges are split. At least 1.
    pub longest: u64,
}

/// Makes each of the sorted `spans` at least `least` long. A span that then touches or overlaps the one
/// before is joined to it.
pub(crate) fn lengthen(spans: &mut Vec<Span>, least: u64) {
    let mut kept: usize = 0;
    for at in 0..spans.len() {
        let span = spans[at];
        match kept.checked_sub(1).map(|last| &mut spans[last]) {
            Some(last) if span.position <= last.end() => {
                *last = Span::between(last.position, last.end().max(span.end()));
            }
            _ => {
                let most = u64::MAX - span.position;
                spans[kept] = Span::new(span.position, span.length.max(least).min(most));
                kept += 1;
            }
        }
    }
    spans.truncate(kept);
}

/// Returns the sorted `spans`, with spans that touch or overlap joined.
#[cfg(feature = "remote")]
pub(crate) fn joined(spans: &[Span]) -> Vec<Span> {
    let mut spans = spans.to_vec();
    lengthen(&mut spans, 0);
    spans
}

/// Turns the sorted `spans` into a list of requests.
pub(crate) fn merge(spans: &[Span], how: Merge) -> Vec<Span> {
    let longest = how.longest.max(1);
    let mut merged: Vec<Span> = Vec::new();
    for span in spans {
        let mut from = span.position;
        let end = span.end();
        if let Some(last) = merged.last_mut()
            && from.saturating_sub(last.end()) <= how.gap
        {
            // A range that shares only its first bytes with the request before stays whole.
            let whole = end.max(last.end());
            if whole - last.position <= longest {
                last.length = whole - last.position;
                continue;
            }
            from = from.max(last.end());
        }
        while from < end {
            let length = longest.min(end - from);
            merged.push(Span::new(from, length));
            from += length;
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(pairs: &[(u64, u64)]) -> Vec<Span> {
        pairs.iter().map(|(position, length)| Span::new(*position, *length)).collect()
    }

    #[test]
    fn what_touches_or_overlaps_the_lengthened_one_before_joins_it() {
        let mut list = spans(&[(0, 4), (2, 6), (14, 2), (30, 4)]);
        lengthen(&mut list, 5);
        assert_eq!(list, spans(&[(0, 8), (14, 5), (30, 5)]));
        let mut list = spans(&[(0, 10), (14, 6), (24, 16)]);
        lengthen(&mut list, 41);
        assert_eq!(list, spans(&[(0, 41)]));
    }

    #[test]
    fn no_lengthened_range_passes_the_last_position() {
        let mut list = spans(&[(u64::MAX - 3, 1)]);
        lengthen(&mut list, 100);
        assert_eq!(list, spans(&[(u64::MAX - 3, 3)]));
    }

    #[test]
    fn near_ranges_are_one_request_until_it_is_long_enough() {
        let list = spans(&[(0, 10), (15, 5), (30, 10), (100, 1)]);
        assert_eq!(merge(&list, Merge { gap: 5, longest: 100 }), spans(&[(0, 20), (30, 10), (100, 1)]));
        assert_eq!(merge(&list, Merge { gap: 10, longest: 100 }), spans(&[(0, 40), (100, 1)]));
        assert_eq!(merge(&list, Merge { gap: 10, longest: 25 }), spans(&[(0, 20), (30, 10), (100, 1)]));
        assert_eq!(
            merge(&list, Merge { gap: 0, longest: 6 })[..4],
            spans(&[(0, 6), (6, 4), (15, 5), (30, 6)])
        );
    }
}
