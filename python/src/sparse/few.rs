//! A few ranges, without an allocation.

use std::ops::Deref;

use thalweg_sparse::{Span, SparseFile};

/// The maximum number of ranges.
const MOST: usize = 32;

/// Up to 32 ranges.
pub struct Few {
    spans: [Span; MOST],
    count: usize,
}

impl Few {
    /// Returns the ranges to fetch so that `wanted` is held; `None` if there are too many.
    #[inline]
    pub fn needed(file: &SparseFile, wanted: Span) -> Option<Self> {
        let mut few = Self { spans: [Span::new(0, 0); MOST], count: 0 };
        file.each_missing(wanted, |span| {
            if let Some(place) = few.spans.get_mut(few.count) {
                *place = span;
            }
            few.count += 1;
        });
        (few.count <= MOST).then_some(few)
    }
}

impl Deref for Few {
    type Target = [Span];

    fn deref(&self) -> &[Span] {
        self.spans.get(..self.count).unwrap_or_default()
    }
}
