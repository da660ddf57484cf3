//! The packets of MQTT 3.1.1 and 5, as a client reads and writes them.
//!
//! [`frames`] cuts the bytes of a connection into packets, [`parse`] reads them, and [`write`](mod@write)
//! makes those of a client. The properties of MQTT 5 are read from their bytes when they are asked for, so
//! that a message with thousands of them takes no more memory than its bytes.
//!
//! The specifications are those of OASIS: MQTT Version 3.1.1 (2014) and MQTT Version 5.0 (2019). Packets that
//! a client never receives are not read.

mod frames;
mod input;
mod parse;
mod properties;
mod reason;
#[cfg(test)]
mod tests;
mod write;

pub(crate) use frames::{Frame, Frames};
pub(crate) use parse::{Ack, ConnAck, Disconnect, Packet, Publish, SubAck, parse};
pub(crate) use properties::{Properties, property};
pub(crate) use reason::{Reason, Remedy};
pub(crate) use thalweg_broker::input::Malformed;
pub(crate) use write::{
    AckKind, Connect, Outgoing, ack, connect, disconnect, number_property, pair_property, ping, publish,
    subscribe, text_property,
};

/// The version of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    /// MQTT 3.1.1.
    V3,
    /// MQTT 5.
    V5,
}

/// How often a message is delivered.
#[expect(clippy::enum_variant_names, reason = "these are the names of the specification")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Qos {
    AtMostOnce,
    AtLeastOnce,
    ExactlyOnce,
}

impl Qos {
    /// Returns the level with this number, if there is one.
    pub(crate) fn of(number: u8) -> Option<Self> {
        [Self::AtMostOnce, Self::AtLeastOnce, Self::ExactlyOnce].get(usize::from(number)).copied()
    }
}
