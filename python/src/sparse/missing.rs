//! Missing ranges, without an allocation while they are few.

use std::ops::Deref;

use thalweg_sparse::{Span, SparseFile};

/// The number of ranges that need no allocation.
const FEW: usize = 8;

/// The ranges to fetch so that a range is held.
pub struct Missing {
    few: [Span; FEW],
    count: usize,
    /// All of them, if there are more.
    many: Vec<Span>,
}

impl Missing {
    /// Returns the missing parts of `wanted`.
    #[inline]
    pub fn of(file: &SparseFile, wanted: Span) -> Self {
        let mut missing = Self { few: [Span::new(0, 0); FEW], count: 0, many: Vec::new() };
        file.each_missing(wanted, |span| missing.push(span));
        missing
    }

    #[inline]
    fn push(&mut self, span: Span) {
        match self.few.get_mut(self.count) {
            Some(place) => {
                *place = span;
                self.count += 1;
            }
            None => {
                if self.many.is_empty() {
                    self.many.extend(self.few);
                }
                self.many.push(span);
            }
        }
    }
}

impl Deref for Missing {
    type Target = [Span];

    #[inline]
    fn deref(&self) -> &[Span] {
        match self.many.is_empty() {
            true => self.few.get(..self.count).unwrap_or_default(),
            false => &self.many,
        }
    }
}
