//! A short text that is written again and again.

/// A text that is copied as a block of fixed size where it is short enough: compilers turn that into two moves, where a
/// copy of unknown length is a call.
#[derive(Debug, Clone)]
pub struct Block {
    start: [u8; Block::SIZE],
    length: usize,
    /// All of it, where it is longer than the block.
    text: Vec<u8>,
}

impl Block {
    /// The most that is copied as a block: so much more room an output needs than is written.
    pub const SIZE: usize = 32;

    /// Of this text.
    pub fn new(text: Vec<u8>) -> Self {
        let mut start = [0; Self::SIZE];
        start.iter_mut().zip(&text).for_each(|(to, from)| *to = *from);
        Self { start, length: text.len(), text }
    }

    /// The text.
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// Appends it.
    #[inline]
    pub fn write(&self, out: &mut Vec<u8>) {
        if self.length <= Self::SIZE {
            let end = out.len() + self.length;
            out.extend_from_slice(&self.start);
            out.truncate(end);
        } else {
            out.extend_from_slice(&self.text);
        }
    }
}
