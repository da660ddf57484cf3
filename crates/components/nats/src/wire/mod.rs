//! The protocol of NATS, as a client reads and writes it.
//!
//! [`decode`] makes operations of the bytes of a connection, and [`write`](mod@write) makes those of a
//! client. Headers are read from their bytes when they are asked for, so that a message with thousands of
//! them takes no more memory than its bytes.
//!
//! The protocol sets no limit for a line or a body, so this module does: a server, or what answers in its
//! place, cannot make the process hold more.

mod decode;
mod headers;
mod message;
#[cfg(test)]
mod tests;
mod write;

pub(crate) use decode::{Decoder, Operation};
pub(crate) use headers::{Headers, LARGEST_HEADERS};
pub(crate) use message::{Info, Message, status};
pub(crate) use write::{Connect, PING, PONG, Publication, connect, publish, subscribe, unsubscribe};

/// Bytes of a server that are not of the protocol. The text completes the sentence "the server sent".
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) String);

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the server sent {}", self.0)
    }
}

impl std::error::Error for Malformed {}
