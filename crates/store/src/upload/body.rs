//! The bytes of a part or an object, in several pieces of memory.

use bytes::Bytes;

/// Bytes in pieces, in their order. They are sent without being copied into one buffer. Clones share the
/// memory.
#[derive(Debug, Clone, Default)]
pub struct Body {
    pieces: Vec<Bytes>,
    length: usize,
}

impl Body {
    /// Appends a piece.
    pub fn push(&mut self, piece: Bytes) {
        self.length += piece.len();
        self.pieces.push(piece);
    }

    /// Returns how many bytes the body has.
    pub fn len(&self) -> usize {
        self.length
    }

    /// True if the body has no bytes.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns the pieces.
    pub fn pieces(&self) -> &[Bytes] {
        &self.pieces
    }

    /// Removes the bytes from the offset `at` on, and returns them.
    #[must_use]
    pub fn split_off(&mut self, at: usize) -> Self {
        let (mut kept, mut rest) = (Self::default(), Self::default());
        for mut piece in std::mem::take(&mut self.pieces) {
            let behind = piece.split_off(at.saturating_sub(kept.length).min(piece.len()));
            [(&mut kept, piece), (&mut rest, behind)]
                .into_iter()
                .filter(|(_, piece)| !piece.is_empty())
                .for_each(|(body, piece)| body.push(piece));
        }
        *self = kept;
        rest
    }

    pub(super) fn crc32c(&self) -> u32 {
        self.pieces.iter().fold(0, |crc, piece| crc32c::crc32c_append(crc, piece))
    }
}

impl From<Bytes> for Body {
    fn from(piece: Bytes) -> Self {
        Self { length: piece.len(), pieces: vec![piece] }
    }
}

impl From<String> for Body {
    fn from(text: String) -> Self {
        Bytes::from(text).into()
    }
}

impl FromIterator<Bytes> for Body {
    fn from_iter<I: IntoIterator<Item = Bytes>>(pieces: I) -> Self {
        let mut body = Self::default();
        pieces.into_iter().for_each(|piece| body.push(piece));
        body
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_body_is_divided_as_its_bytes_are(
            pieces in prop::collection::vec("[a-z]{0,9}", 0..6), at in 0..60usize,
        ) {
            let whole = pieces.concat();
            let at = at.min(whole.len());
            let mut body: Body = pieces.into_iter().map(Bytes::from).collect();
            let rest = body.split_off(at);
            for (body, text) in [(body, &whole[..at]), (rest, &whole[at..])] {
                prop_assert_eq!(body.pieces().concat(), text.as_bytes());
                prop_assert_eq!((body.len(), body.crc32c()), (text.len(), crc32c::crc32c(text.as_bytes())));
            }
        }
    }
}
