//! The packets that a client sends. Each function appends one to a buffer.
//!
//! Texts are at most 65,535 bytes long: the options and the sink see to it.

use super::properties::property;
use super::{Qos, Reason, Version};

/// A connection.
#[derive(Debug, Clone)]
pub(crate) struct Connect<'a> {
    pub(crate) client_id: &'a str,
    pub(crate) user: Option<&'a str>,
    pub(crate) password: Option<&'a str>,
    /// The seconds after which the server ends a silent connection. Zero for never.
    pub(crate) keep_alive: u16,
    /// True to begin a new session.
    pub(crate) is_clean: bool,
    /// How many seconds the server keeps the session after the connection. Only MQTT 5 has it.
    pub(crate) session_expiry: u32,
    /// How many messages the server may send without an answer. Only MQTT 5 has it.
    pub(crate) receive_maximum: Option<u16>,
}

/// A message to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Outgoing<'a> {
    pub(crate) topic: &'a [u8],
    pub(crate) payload: &'a [u8],
    pub(crate) qos: Qos,
    pub(crate) is_retained: bool,
    /// The bytes of its properties, without their length. Only MQTT 5 has them.
    pub(crate) properties: &'a [u8],
}

/// A step of the delivery of a message.
#[expect(clippy::enum_variant_names, reason = "these are the names of the specification")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AckKind {
    PubAck = 0x40,
    PubRec = 0x50,
    PubRel = 0x62,
    PubComp = 0x70,
}

impl Outgoing<'_> {
    /// Returns the length of the packet.
    pub(crate) fn length(&self, version: Version) -> usize {
        let length = self.remaining(version);
        1 + number_length(length) + length
    }

    fn remaining(&self, version: Version) -> usize {
        let id = if self.qos == Qos::AtMostOnce { 0 } else { 2 };
        let properties = match version {
            Version::V3 => 0,
            Version::V5 => number_length(self.properties.len()) + self.properties.len(),
        };
        2 + self.topic.len() + id + properties + self.payload.len()
    }
}

/// Appends a connection.
pub(crate) fn connect(version: Version, connect: &Connect<'_>, out: &mut Vec<u8>) {
    let mut body = Vec::new();
    bytes(b"MQTT", &mut body);
    body.push(if version == Version::V5 { 5 } else { 4 });
    let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
    let user = flag(connect.user.is_some(), 0x80) | flag(connect.password.is_some(), 0x40);
    body.push(user | flag(connect.is_clean, 0x02));
    body.extend_from_slice(&connect.keep_alive.to_be_bytes());
    if version == Version::V5 {
        let mut properties = Vec::new();
        number_property(property::SESSION_EXPIRY, connect.session_expiry, &mut properties);
        if let Some(maximum) = connect.receive_maximum {
            properties.push(property::RECEIVE_MAXIMUM);
            properties.extend_from_slice(&maximum.to_be_bytes());
        }
        number(properties.len(), &mut body);
        body.extend_from_slice(&properties);
    }
    bytes(connect.client_id.as_bytes(), &mut body);
    for text in [connect.user, connect.password].into_iter().flatten() {
        bytes(text.as_bytes(), &mut body);
    }
    packet(0x10, &body, out);
}

/// Appends a subscription to filters.
pub(crate) fn subscribe<'a>(
    version: Version,
    id: u16,
    filters: impl IntoIterator<Item = &'a str>,
    qos: Qos,
    out: &mut Vec<u8>,
) {
    let mut body = id.to_be_bytes().to_vec();
    // Retained messages are sent for a subscription that is new, and not each time that it is repeated.
    let options = match version {
        Version::V3 => qos as u8,
        Version::V5 => {
            number(0, &mut body);
            qos as u8 | 0x10
        }
    };
    for filter in filters {
        bytes(filter.as_bytes(), &mut body);
        body.push(options);
    }
    packet(0x82, &body, out);
}

/// Appends a message. `is_duplicate` says that it may have been sent before.
pub(crate) fn publish(
    version: Version,
    message: &Outgoing<'_>,
    id: u16,
    is_duplicate: bool,
    out: &mut Vec<u8>,
) {
    let duplicate = if is_duplicate { 0x08 } else { 0 };
    out.push(0x30 | duplicate | ((message.qos as u8) << 1) | u8::from(message.is_retained));
    number(message.remaining(version), out);
    bytes(message.topic, out);
    if message.qos != Qos::AtMostOnce {
        out.extend_from_slice(&id.to_be_bytes());
    }
    if version == Version::V5 {
        number(message.properties.len(), out);
        out.extend_from_slice(message.properties);
    }
    out.extend_from_slice(message.payload);
}

/// Appends a step of the delivery of a message. MQTT 3.1.1 has no reasons.
pub(crate) fn ack(version: Version, kind: AckKind, id: u16, reason: u8, out: &mut Vec<u8>) {
    let [high, low] = id.to_be_bytes();
    match (version, reason) {
        (Version::V5, 1..) => packet(kind as u8, &[high, low, reason], out),
        (Version::V3, _) | (_, Reason::SUCCESS) => packet(kind as u8, &[high, low], out),
    }
}

/// Appends the question whether the server is there.
pub(crate) fn ping(out: &mut Vec<u8>) {
    packet(0xc0, &[], out);
}

/// Appends the end of the connection.
pub(crate) fn disconnect(out: &mut Vec<u8>) {
    packet(0xe0, &[], out);
}

/// Appends a property that is a text.
pub(crate) fn text_property(identifier: u8, text: &[u8], out: &mut Vec<u8>) {
    out.push(identifier);
    bytes(text, out);
}

/// Appends a property that is a number of four bytes.
pub(crate) fn number_property(identifier: u8, number: u32, out: &mut Vec<u8>) {
    out.push(identifier);
    out.extend_from_slice(&number.to_be_bytes());
}

/// Appends a user property.
pub(crate) fn pair_property(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    out.push(property::USER);
    bytes(name, out);
    bytes(value, out);
}

fn packet(first: u8, body: &[u8], out: &mut Vec<u8>) {
    out.push(first);
    number(body.len(), out);
    out.extend_from_slice(body);
}

/// Appends bytes after their length.
fn bytes(bytes: &[u8], out: &mut Vec<u8>) {
    let length = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(bytes.get(..usize::from(length)).unwrap_or_default());
}

/// Appends a number of up to 28 bits.
fn number(mut number: usize, out: &mut Vec<u8>) {
    while number > 0x7f {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn number_length(number: usize) -> usize {
    match number {
        0..=0x7f => 1,
        0x80..=0x3fff => 2,
        0x4000..=0x1f_ffff => 3,
        _ => 4,
    }
}
