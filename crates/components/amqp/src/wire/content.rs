//! From frames to methods and messages.
//!
//! A message is a method, a header with its length and properties, and the parts of its payload. The length
//! may be anything. Memory is taken as bytes arrive, and never more than a limit: of a payload that is longer
//! the beginning is kept.

use thalweg_broker::input::Input;

use super::frames::{Frame, Kind};
use super::method::{Deliver, Method, Return};
use super::{Close, Frames, Malformed};

/// The channel of a connection that is used. Number zero is that of the connection itself.
pub(super) const CHANNEL: u16 = 1;
/// The class of messages.
pub(super) const BASIC: u16 = 60;

/// A complete part of the stream of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    /// A method without a message.
    Method(Method),
    Delivery(Delivery),
    Returned(Returned),
    Heartbeat,
}

/// A message for a consumer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Delivery {
    /// The tag of the consumer.
    pub(crate) consumer: String,
    /// The number with which it is acknowledged on this channel.
    pub(crate) tag: u64,
    /// True if it was delivered before.
    pub(crate) is_redelivered: bool,
    pub(crate) exchange: String,
    pub(crate) routing_key: String,
    /// The bytes of its properties.
    pub(crate) properties: Vec<u8>,
    /// Its payload, of a long one the beginning.
    pub(crate) payload: Vec<u8>,
    /// The length of the whole payload.
    pub(crate) length: u64,
}

/// A message that the server could not route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Returned {
    pub(crate) reason: Close,
    pub(crate) routing_key: Vec<u8>,
    /// The bytes of its properties.
    pub(crate) properties: Vec<u8>,
    /// The beginning of its payload.
    pub(crate) payload: Vec<u8>,
    /// The length of the whole payload.
    pub(crate) length: u64,
}

/// The method with which a message begins.
#[derive(Debug)]
enum Head {
    Deliver(Deliver),
    Return(Return),
}

/// A message that has not arrived as a whole.
#[derive(Debug)]
struct Partial {
    head: Head,
    properties: Vec<u8>,
    payload: Vec<u8>,
    length: u64,
    /// The number of bytes that have not arrived.
    missing: u64,
}

/// Puts messages together.
#[derive(Debug)]
pub(crate) struct Assembler {
    /// The most bytes of a payload that are kept.
    limit: usize,
    /// A message without its header.
    head: Option<Head>,
    partial: Option<Partial>,
}

impl Assembler {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, head: None, partial: None }
    }

    /// Returns what has arrived next, if it has arrived as a whole.
    ///
    /// # Errors
    /// If the bytes are none that a server sends.
    pub(crate) fn next(&mut self, frames: &mut Frames) -> Result<Option<Event>, Malformed> {
        while let Some(frame) = frames.cut()? {
            if let Some(event) = self.take(frame)? {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }

    fn take(&mut self, frame: Frame<'_>) -> Result<Option<Event>, Malformed> {
        match frame.kind {
            Kind::Heartbeat => return Ok(Some(Event::Heartbeat)),
            Kind::Method => {}
            Kind::Header | Kind::Body if frame.channel != CHANNEL => return Err(CHANNEL_UNKNOWN),
            Kind::Header => return self.header(frame.body),
            Kind::Body => return self.part(frame.body),
        }
        match frame.channel {
            0 => Method::read(frame.body).map(|method| Some(Event::Method(method))),
            CHANNEL if self.head.is_some() || self.partial.is_some() => match Method::read(frame.body)? {
                // The server may end the channel at any time.
                method @ Method::ChannelClose(_) => Ok(Some(Event::Method(method))),
                _ => Err(Malformed("a message is not complete")),
            },
            CHANNEL => Ok(match Method::read(frame.body)? {
                Method::Deliver(deliver) => {
                    self.head = Some(Head::Deliver(deliver));
                    None
                }
                Method::Return(returned) => {
                    self.head = Some(Head::Return(returned));
                    None
                }
                method => Some(Event::Method(method)),
            }),
            _ => Err(CHANNEL_UNKNOWN),
        }
    }

    fn header(&mut self, body: &[u8]) -> Result<Option<Event>, Malformed> {
        let head = self.head.take().ok_or(Malformed("a header belongs to no message"))?;
        let mut input = Input(body);
        let (class, _weight, length) = (input.two_bytes()?, input.two_bytes()?, input.eight_bytes()?);
        if class != BASIC {
            return Err(Malformed("a header has an unknown class"));
        }
        let (properties, payload) = (input.0.to_vec(), Vec::new());
        let partial = Partial { head, properties, payload, length, missing: length };
        if length == 0 {
            return Ok(Some(partial.complete()));
        }
        self.partial = Some(partial);
        Ok(None)
    }

    fn part(&mut self, body: &[u8]) -> Result<Option<Event>, Malformed> {
        let mut partial = self.partial.take().ok_or(Malformed("a payload belongs to no message"))?;
        partial.missing = partial
            .missing
            .checked_sub(body.len() as u64)
            .ok_or(Malformed("a payload is longer than its message"))?;
        let kept = body.len().min(self.limit.saturating_sub(partial.payload.len()));
        partial.payload.extend_from_slice(body.get(..kept).unwrap_or_default());
        if partial.missing == 0 {
            return Ok(Some(partial.complete()));
        }
        self.partial = Some(partial);
        Ok(None)
    }
}

impl Partial {
    fn complete(self) -> Event {
        let Self { head, properties, payload, length, .. } = self;
        match head {
            Head::Deliver(Deliver { consumer, tag, is_redelivered, exchange, routing_key }) => {
                Event::Delivery(Delivery {
                    consumer,
                    tag,
                    is_redelivered,
                    exchange,
                    routing_key,
                    properties,
                    payload,
                    length,
                })
            }
            Head::Return(Return { reason, routing_key }) => {
                Event::Returned(Returned { reason, routing_key, properties, payload, length })
            }
        }
    }
}

const CHANNEL_UNKNOWN: Malformed = Malformed("a frame has an unknown channel");
