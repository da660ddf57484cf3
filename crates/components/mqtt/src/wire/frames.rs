//! From the bytes of a connection to packets.
//!
//! A packet says its length first, which may be 256 MiB. Memory is taken as bytes arrive, and never more than
//! a limit: of a packet that is longer the beginning is returned, and the rest is skipped.

use thalweg_broker::input::Input;

use super::Malformed;
use super::input::Elements;

/// A packet, or the beginning of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Frame<'a> {
    /// Its kind and flags.
    pub(crate) first: u8,
    /// The bytes after its length, as far as the limit allows.
    pub(crate) body: &'a [u8],
    /// The length of all that follows.
    pub(crate) length: usize,
}

/// Cuts bytes into packets.
#[derive(Debug)]
pub(crate) struct Frames {
    buffer: Vec<u8>,
    /// The bytes before this one were returned.
    start: usize,
    /// The number of bytes to skip that have not arrived yet.
    skip: usize,
    /// The most bytes of a packet that are returned.
    limit: usize,
}

impl Frames {
    pub(crate) fn new(limit: usize) -> Self {
        Self { buffer: Vec::new(), start: 0, skip: 0, limit }
    }

    /// Returns the buffer to append arriving bytes to. Call it when [`cut`](Self::cut) has returned none.
    pub(crate) fn buffer(&mut self) -> &mut Vec<u8> {
        self.buffer.drain(..self.start);
        self.start = 0;
        // A large packet leaves a large buffer, which is seldom needed again.
        if self.buffer.is_empty() && self.buffer.capacity() > 1 << 20 {
            self.buffer = Vec::new();
        }
        &mut self.buffer
    }

    /// Returns the next packet, if it has arrived.
    ///
    /// # Errors
    /// If it has no length.
    pub(crate) fn cut(&mut self) -> Result<Option<Frame<'_>>, Malformed> {
        let skipped = self.skip.min(self.buffer.len() - self.start);
        self.start += skipped;
        self.skip -= skipped;
        let mut input = Input(self.buffer.get(self.start..).unwrap_or_default());
        let arrived = input.0.len();
        let Ok(first) = input.byte() else { return Ok(None) };
        let length = match input.number() {
            Ok(length) => length,
            // The length has not arrived as a whole.
            Err(_) if arrived < 5 => return Ok(None),
            Err(malformed) => return Err(malformed),
        };
        let kept = length.min(self.limit);
        let head = arrived - input.0.len();
        if input.0.len() < kept {
            return Ok(None);
        }
        let begin = self.start + head;
        self.start = begin + kept;
        self.skip = length - kept;
        Ok(Some(Frame { first, body: self.buffer.get(begin..self.start).unwrap_or_default(), length }))
    }
}
