//! The bytes of a part or of an object, wherever they lie in memory.

use bytes::Bytes;

/// Bytes in pieces, in their order: what is sent goes from where it is, and need not be put together before. Clones share the
/// memory.
#[derive(Debug, Clone, Default)]
pub struct Body {
    pieces: Vec<Bytes>,
    length: usize,
}

impl Body {
    /// Adds a piece at the end.
    pub fn push(&mut self, piece: Bytes) {
        self.length += piece.len();
        self.pieces.push(piece);
    }

    /// How many bytes it has.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Its pieces.
    pub fn pieces(&self) -> &[Bytes] {
        &self.pieces
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
