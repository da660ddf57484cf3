//! The packets that a server sends.

use thalweg_broker::input::Input;
use thalweg_redact::beginning;

use super::input::Elements;
use super::properties::{Properties, property};
use super::{Frame, Malformed, Qos, Reason, Version};

/// A packet of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Packet {
    ConnAck(ConnAck),
    Publish(Publish),
    PubAck(Ack),
    PubRec(Ack),
    PubRel(Ack),
    PubComp(Ack),
    SubAck(SubAck),
    PingResp,
    Disconnect(Disconnect),
}

/// The answer to a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConnAck {
    /// True if the server has the session of an earlier connection.
    pub(crate) has_session: bool,
    pub(crate) reason: Reason,
    /// The bytes of its properties.
    pub(crate) properties: Vec<u8>,
}

/// A message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Publish {
    pub(crate) topic: String,
    /// The number with which it is acknowledged. Zero without an acknowledgement.
    pub(crate) id: u16,
    pub(crate) qos: Qos,
    /// True if the server may have sent it before.
    pub(crate) is_duplicate: bool,
    /// True if it was sent before the subscription.
    pub(crate) is_retained: bool,
    /// The bytes of its properties.
    pub(crate) properties: Vec<u8>,
    /// Its payload, of a long one the beginning.
    pub(crate) payload: Vec<u8>,
    /// The length of the whole payload.
    pub(crate) length: usize,
    /// True if the properties are too large to be read. There is no payload then.
    pub(crate) has_large_properties: bool,
}

/// The answer to a message, or a step of its delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ack {
    pub(crate) id: u16,
    pub(crate) reason: Reason,
}

/// The answers to the filters of a subscription, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SubAck {
    /// The codes of the reasons.
    codes: Vec<u8>,
    /// The text beside all of them.
    text: Option<String>,
}

impl SubAck {
    /// Returns the reasons, one for each filter.
    pub(crate) fn reasons(&self) -> impl Iterator<Item = Reason> {
        self.codes.iter().map(|code| Reason { code: *code, text: self.text.clone() })
    }
}

/// The end of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Disconnect {
    pub(crate) reason: Reason,
    /// The server to use in its place.
    pub(crate) other: Option<String>,
}

/// Reads a packet.
///
/// # Errors
/// If it is not one that a server sends.
pub(crate) fn parse(version: Version, frame: Frame<'_>) -> Result<Packet, Malformed> {
    let (kind, flags) = (frame.first >> 4, frame.first & 0x0f);
    if kind == 3 {
        return message(version, flags, frame).map(Packet::Publish);
    }
    if frame.body.len() < frame.length {
        return Err(Malformed("a packet is too long for its kind"));
    }
    if flags != if kind == 6 { 2 } else { 0 } {
        return Err(Malformed("a packet has unknown flags"));
    }
    let mut input = Input(frame.body);
    match kind {
        2 => connected(version, &mut input).map(Packet::ConnAck),
        4 => step(version, &mut input).map(Packet::PubAck),
        5 => step(version, &mut input).map(Packet::PubRec),
        6 => step(version, &mut input).map(Packet::PubRel),
        7 => step(version, &mut input).map(Packet::PubComp),
        9 => subscribed(version, &mut input).map(Packet::SubAck),
        13 => Ok(Packet::PingResp),
        14 if version == Version::V5 => ended(&mut input).map(Packet::Disconnect),
        _ => Err(Malformed("a packet has a kind that servers do not send")),
    }
}

/// Takes properties after their length.
fn properties<'a>(input: &mut Input<'a>) -> Result<&'a [u8], Malformed> {
    let length = input.number()?;
    let bytes = input.take(length)?;
    Properties::of(bytes).check()?;
    Ok(bytes)
}

/// The most characters of a reason that are kept: each message of a batch may have one.
const TEXT: usize = 200;

fn reason(code: u8, properties: &[u8]) -> Reason {
    let text = Properties::of(properties).text(property::REASON_STRING);
    Reason { code, text: text.map(|text| beginning(text, TEXT).into_owned()) }
}

fn connected(version: Version, input: &mut Input<'_>) -> Result<ConnAck, Malformed> {
    let has_session = input.byte()? & 1 == 1;
    let code = input.byte()?;
    if version == Version::V5 && !input.is_empty() {
        let properties = properties(input)?;
        return Ok(ConnAck {
            has_session,
            reason: reason(code, properties),
            properties: properties.to_vec(),
        });
    }
    // The codes of MQTT 3.1.1, as those of MQTT 5. A server that does not know MQTT 5 answers so too.
    let code = match code {
        0 => Reason::SUCCESS,
        1 => Reason::UNSUPPORTED_VERSION,
        2 => 0x85,
        3 => 0x88,
        4 => 0x86,
        5 => 0x87,
        other => other.max(0x80),
    };
    Ok(ConnAck { has_session, reason: Reason::new(code), properties: Vec::new() })
}

fn message(version: Version, flags: u8, frame: Frame<'_>) -> Result<Publish, Malformed> {
    let mut input = Input(frame.body);
    let qos = Qos::of((flags >> 1) & 3).ok_or(Malformed("a message has an unknown QoS"))?;
    let topic = input.text()?;
    if topic.is_empty() {
        // A number in place of a topic is only allowed if the client asks for it.
        return Err(Malformed("a message has no topic"));
    }
    let id = if qos == Qos::AtMostOnce { 0 } else { input.two_bytes()? };
    if (id == 0) != (qos == Qos::AtMostOnce) {
        return Err(Malformed("a message has the number 0"));
    }
    let mut publish = Publish {
        topic: topic.to_owned(),
        id,
        qos,
        is_duplicate: flags & 8 != 0,
        is_retained: flags & 1 != 0,
        properties: Vec::new(),
        payload: Vec::new(),
        length: 0,
        has_large_properties: false,
    };
    if version == Version::V5 {
        let length = input.number()?;
        if length > input.0.len() && frame.body.len() < frame.length {
            publish.has_large_properties = true;
            publish.length = length;
            return Ok(publish);
        }
        let properties = input.take(length)?;
        Properties::of(properties).check()?;
        publish.properties = properties.to_vec();
    }
    publish.payload = input.0.to_vec();
    publish.length = input.0.len() + (frame.length - frame.body.len());
    Ok(publish)
}

fn step(version: Version, input: &mut Input<'_>) -> Result<Ack, Malformed> {
    let id = input.two_bytes()?;
    // The reason and the properties are left out if there are none.
    if version == Version::V3 || input.is_empty() {
        return Ok(Ack { id, reason: Reason::new(Reason::SUCCESS) });
    }
    let code = input.byte()?;
    let properties = if input.is_empty() { &[][..] } else { properties(input)? };
    Ok(Ack { id, reason: reason(code, properties) })
}

fn subscribed(version: Version, input: &mut Input<'_>) -> Result<SubAck, Malformed> {
    // There is one subscription, so its number says nothing.
    input.two_bytes()?;
    let properties = if version == Version::V5 { properties(input)? } else { &[] };
    Ok(SubAck { codes: input.0.to_vec(), text: reason(Reason::SUCCESS, properties).text })
}

fn ended(input: &mut Input<'_>) -> Result<Disconnect, Malformed> {
    let code = if input.is_empty() { Reason::SUCCESS } else { input.byte()? };
    let properties = if input.is_empty() { &[][..] } else { properties(input)? };
    let other = Properties::of(properties).text(property::SERVER_REFERENCE).map(str::to_owned);
    Ok(Disconnect { reason: reason(code, properties), other })
}
