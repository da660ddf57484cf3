//! The parts that the sources and sinks of brokers share.
//!
//! Each protocol has a crate of its own, and a client of its own. The duties around a protocol are the same:
//! a source acknowledges messages when they are settled, while it reads others; a sink sends a batch until
//! each of its messages is confirmed or refused.
//!
//! - [`ahead`]: how far a source may be ahead of its acknowledgements.
//! - [`confirmed`]: sinks whose server confirms each message.
//! - [`halves`]: bytes of a connection are read, and whole frames written.
//! - [`input`]: the elements of frames and packets, for parsers.
//! - [`keeping`]: reading and acknowledging over one connection, until both have ended.
//! - [`outcomes`]: the messages of a batch on their way to a server.
//!
//! A part is here if two crates of brokers use it, and if it knows no protocol. No component lives here, and
//! no option of one: those that all network components share are in `thalweg-net`.
//!
//! See docs/decisions/107-brokers-share-a-crate.md.

pub mod ahead;
pub mod confirmed;
pub mod halves;
pub mod input;
pub mod keeping;
pub mod outcomes;
