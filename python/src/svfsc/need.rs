//! The ranges to fetch, as `svfsc` computes them.
//!
//! Its sums of positions and lengths are modulo 2^64, and empty ranges have results of their own. The sparse
//! file computes the usual case. The others follow `svfsc` step by step: slower, but no program needs them
//! often.

use thalweg_sparse::Span;

use super::held::Held;
use crate::sparse::Missing;

impl Held {
    /// Returns the ranges to fetch so that a range is held, if the range is usual.
    #[inline]
    pub fn usually(&self, position: u64, length: u64) -> Option<Missing> {
        let wanted = Span::new(position, length);
        is_usual(&wanted, 0).then(|| Missing::of(&self.file, wanted))
    }

    /// Returns the ranges to fetch so that a range is held.
    #[inline]
    pub fn need(&self, position: u64, length: u64, greedy: u64) -> Vec<Span> {
        let wanted = Span::new(position, length);
        if is_usual(&wanted, greedy) {
            return self.file.need(position, length, greedy);
        }
        let mut missing = Vec::new();
        self.unusual(wanted, &mut missing);
        if greedy > length { joined(&missing, greedy) } else { missing }
    }

    /// Returns the ranges to fetch so that all of `spans` are held.
    pub fn need_many(&self, spans: &[Span], greedy: u64) -> Vec<Span> {
        if spans.iter().all(|span| is_usual(span, greedy)) {
            return self.file.need_many(spans, greedy);
        }
        let mut sorted = spans.to_vec();
        sorted.sort_unstable();
        let mut missing = Vec::new();
        sorted.into_iter().for_each(|span| self.unusual(span, &mut missing));
        joined(&missing, greedy)
    }

    /// Appends the missing parts of any range.
    fn unusual(&self, span: Span, missing: &mut Vec<Span>) {
        let Span { position, length } = span;
        if self.file.is_empty() {
            missing.push(span);
        } else if position.checked_add(length).is_none() {
            beyond(&self.file.blocks(), span, missing);
        } else if length > 0 {
            missing.extend(self.file.need(position, length, 0));
        } else if self.block_before(position).is_none() {
            // An empty range is missing only before all blocks.
            missing.push(span);
        }
    }
}

/// True if the sparse file gives the result of `svfsc`: the range has bytes, and no sum exceeds 64 bits.
#[inline]
fn is_usual(span: &Span, greedy: u64) -> bool {
    let end = span.position.checked_add(span.length);
    span.length > 0 && end.is_some_and(|end| end.checked_add(greedy).is_some())
}

/// Appends the missing parts of a range whose end is beyond 2^64.
fn beyond(blocks: &[Span], span: Span, missing: &mut Vec<Span>) {
    let Span { position: mut from, length: mut rest } = span;
    let end = from.wrapping_add(rest);
    let next = blocks.partition_point(|block| block.position <= from);
    match next.checked_sub(1).and_then(|before| blocks.get(before)) {
        None => {
            missing.push(span);
            return;
        }
        Some(before) if from < before.end() => {
            rest -= rest.min(before.end() - from);
            from = end.min(before.end());
        }
        Some(_) => {}
    }
    let mut blocks = blocks.get(next..).unwrap_or_default().iter();
    while rest > 0 {
        let Some(block) = blocks.next().filter(|block| from.wrapping_add(rest) > block.position) else {
            missing.push(Span::new(from, rest));
            return;
        };
        if from < block.position {
            missing.push(Span::new(from, block.position - from));
            rest = rest.wrapping_sub(block.position - from);
            from = block.position;
        }
        if from.wrapping_add(rest) <= block.end() {
            return;
        }
        from = from.wrapping_add(block.length);
        rest = rest.wrapping_sub(block.length);
    }
}

/// Makes each of the sorted `spans` at least `greedy` long, and joins those that then touch or overlap.
fn joined(spans: &[Span], greedy: u64) -> Vec<Span> {
    let end = |span: &Span| span.position.wrapping_add(span.length);
    let mut made: Vec<Span> = Vec::with_capacity(spans.len());
    for span in spans {
        match made.last_mut() {
            Some(last) if span.position <= end(last) => {
                if end(span) > end(last) {
                    last.length = last.length.wrapping_add(end(span) - end(last));
                }
            }
            _ => made.push(Span::new(span.position, span.length.max(greedy))),
        }
    }
    made
}
