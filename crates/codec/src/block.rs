//! A short text that is written many times.

/// A text that is copied as a block of fixed size if it is short enough. Compilers turn that into two moves.
/// A copy of unknown length is a function call.
#[derive(Debug, Clone)]
pub(crate) struct Block {
    start: [u8; Block::SIZE],
    length: usize,
    /// The whole text, for texts longer than the block.
    text: Vec<u8>,
}

impl Block {
    /// The size of a block, in bytes. An output needs this much capacity beyond its contents.
    pub(crate) const SIZE: usize = 32;

    /// Creates a block from a text.
    pub(crate) fn new(text: Vec<u8>) -> Self {
        let mut start = [0; Self::SIZE];
        start.iter_mut().zip(&text).for_each(|(to, from)| *to = *from);
        Self { start, length: text.len(), text }
    }

    /// Returns the text.
    pub(crate) fn text(&self) -> &[u8] {
        &self.text
    }

    /// Appends the text to `out`.
    #[inline]
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        if self.length <= Self::SIZE {
            let end = out.len() + self.length;
            out.extend_from_slice(&self.start);
            out.truncate(end);
        } else {
            out.extend_from_slice(&self.text);
        }
    }
}
