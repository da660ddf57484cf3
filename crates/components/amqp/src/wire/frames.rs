//! From the bytes of a connection to frames.
//!
//! Client and server agree on the size of a frame when the connection begins. A longer one is refused before
//! its bytes have arrived, so the buffer has a bound.

use thalweg_broker::input::Input;

use super::Malformed;

/// The bytes of a frame beside its content: kind, channel, length and end.
pub(crate) const OVERHEAD: usize = 8;
const HEAD: usize = 7;
const END: u8 = 0xce;

/// A frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Frame<'a> {
    pub(super) kind: Kind,
    pub(super) channel: u16,
    pub(super) body: &'a [u8],
}

/// The kind of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Method = 1,
    Header = 2,
    Body = 3,
    Heartbeat = 8,
}

/// Cuts bytes into frames.
#[derive(Debug)]
pub(crate) struct Frames {
    buffer: Vec<u8>,
    /// The bytes before this one were returned.
    start: usize,
    /// The size of the largest frame.
    limit: usize,
}

impl Frames {
    /// Accepts frames of at most `limit` bytes.
    pub(crate) fn new(limit: usize) -> Self {
        Self { buffer: Vec::new(), start: 0, limit }
    }

    /// Returns the buffer to append arriving bytes to. Call it when [`cut`](Self::cut) has returned none.
    pub(crate) fn buffer(&mut self) -> &mut Vec<u8> {
        self.buffer.drain(..self.start);
        self.start = 0;
        &mut self.buffer
    }

    /// Returns the next frame, if it has arrived.
    ///
    /// # Errors
    /// If it is none that a server sends.
    pub(crate) fn cut(&mut self) -> Result<Option<Frame<'_>>, Malformed> {
        let arrived = self.buffer.get(self.start..).unwrap_or_default();
        let Some(&first) = arrived.first() else { return Ok(None) };
        let kind = match first {
            1 => Kind::Method,
            2 => Kind::Header,
            3 => Kind::Body,
            8 => Kind::Heartbeat,
            // So does a server that wants another version of the protocol begin.
            b'A' => return Err(Malformed("the server does not speak AMQP 0.9.1")),
            _ => return Err(Malformed("a frame has an unknown kind")),
        };
        if arrived.len() < HEAD {
            return Ok(None);
        }
        let mut input = Input(arrived);
        input.take(1)?;
        let channel = input.two_bytes()?;
        let length = input.four_bytes()? as usize;
        if length.saturating_add(OVERHEAD) > self.limit {
            return Err(Malformed("a frame is longer than was agreed"));
        }
        if input.0.len() <= length {
            return Ok(None);
        }
        let body = input.take(length)?;
        if input.byte()? != END {
            return Err(Malformed("a frame has no end"));
        }
        self.start += length + OVERHEAD;
        Ok(Some(Frame { kind, channel, body }))
    }
}
