//! The position and kind of a value, in eight bytes.

use super::scan::Kind;

/// A set of kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kinds(pub(super) u32);

impl Kinds {
    pub(super) const NULLS: Kinds = Kinds(1 << Kind::Missing as u32 | 1 << Kind::Null as u32);
    pub(super) const EXPLICIT: Kinds = Kinds(1 << Kind::Null as u32);
    pub(super) const INTS: Kinds = Kinds(1 << Kind::Int as u32 | 1 << Kind::LongInt as u32);
    pub(super) const FLOATS: Kinds = Kinds(1 << Kind::Float as u32);
    pub(super) const NUMBERS: Kinds = Kinds(Self::INTS.0 | Self::FLOATS.0);
    pub(super) const BOOLS: Kinds = Kinds(1 << Kind::Bool as u32);
    pub(super) const TEXTS: Kinds = Kinds(1 << Kind::Text as u32 | 1 << Kind::EscapedText as u32);

    pub(super) fn of(spans: &[Span]) -> Self {
        Self(spans.iter().fold(0, |kinds, span| kinds | 1 << (span.word >> Span::SHIFT)))
    }

    pub(super) fn without(self, others: Kinds) -> Kinds {
        Kinds(self.0 & !others.0)
    }

    pub(super) fn within(self, others: Kinds) -> bool {
        self.without(others).0 == 0
    }

    pub(super) fn has(self, others: Kinds) -> bool {
        self.0 & others.0 != 0
    }
}

/// The position of a value in its payload, and its kind.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    pub(super) start: u32,
    /// The length in the lower 28 bits, the kind in the upper four.
    pub(super) word: u32,
}

impl Span {
    pub(super) const SHIFT: u32 = 28;
    pub(super) const MISSING: Span = Span { start: 0, word: 0 };

    #[inline]
    pub(super) fn new(start: usize, end: usize, kind: Kind) -> Self {
        Self { start: start as u32, word: (end - start) as u32 | (kind as u32) << Self::SHIFT }
    }

    #[inline]
    pub(super) fn is_null(self) -> bool {
        self.word >> Self::SHIFT <= Kind::Null as u32
    }

    /// Returns the value as it is written in the payload.
    #[inline]
    pub(super) fn token(self, text: &str) -> &str {
        let start = self.start as usize;
        text.get(start..start + (self.word & ((1 << Self::SHIFT) - 1)) as usize).unwrap_or_default()
    }

    #[inline]
    pub(super) fn kind(self) -> Kind {
        match self.word >> Self::SHIFT {
            0 => Kind::Missing,
            1 => Kind::Null,
            2 => Kind::Bool,
            3 => Kind::Int,
            4 => Kind::LongInt,
            5 => Kind::Float,
            6 => Kind::Text,
            7 => Kind::EscapedText,
            _ => Kind::Nested,
        }
    }
}
