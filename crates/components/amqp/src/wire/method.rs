//! The methods that a server sends.

use std::fmt;

use thalweg_broker::input::Input;

use super::Malformed;
use super::input::Elements;

/// A method of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Method {
    /// The beginning of a connection, with the mechanisms to log in.
    Start(Vec<String>),
    /// A further question while logging in.
    Secure,
    Tune(Tune),
    OpenOk,
    /// The end of the connection.
    Close(Close),
    CloseOk,
    /// The server reads nothing more of this connection for now, for this reason.
    Blocked(String),
    Unblocked,
    ChannelOpenOk,
    /// True if the client may send messages, false if not.
    Flow(bool),
    /// The end of the channel.
    ChannelClose(Close),
    ChannelCloseOk,
    ExchangeDeclareOk,
    QueueDeclareOk(Queue),
    QueueBindOk,
    QosOk,
    ConsumeOk,
    /// The server ends the consumer with this tag.
    Cancel(String),
    CancelOk,
    Return(Return),
    Deliver(Deliver),
    /// The server has the messages with this number, or up to it.
    Ack(Confirmation),
    /// The server could not take them.
    Nack(Confirmation),
    SelectOk,
}

/// The limits that a server proposes. Zero is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tune {
    /// The size of the largest frame, in bytes.
    pub(crate) frame_max: u32,
    /// The seconds after which a silent peer is gone.
    pub(crate) heartbeat: u16,
}

/// The state of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Queue {
    /// The number of messages that wait for a consumer.
    pub(crate) messages: u32,
    pub(crate) consumers: u32,
}

/// Why a server ends a channel or a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Close {
    pub(crate) code: u16,
    pub(crate) text: String,
}

/// The beginning of a message that comes back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Return {
    pub(super) reason: Close,
    pub(super) routing_key: Vec<u8>,
}

/// The beginning of a message for a consumer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Deliver {
    pub(super) consumer: String,
    pub(super) tag: u64,
    pub(super) is_redelivered: bool,
    pub(super) exchange: String,
    pub(super) routing_key: String,
}

/// The numbers of messages that a server confirms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Confirmation {
    pub(crate) tag: u64,
    /// True if all messages up to this one are meant.
    pub(crate) is_multiple: bool,
}

impl Close {
    /// True if the channel was closed because of what was asked for, so that the same fails again.
    pub(crate) fn is_lasting(&self) -> bool {
        matches!(self.code, 402..=404 | 406 | 501..=505 | 530 | 540)
    }

    /// True if the channel was closed because of one message: the user may not send it, or it is too large.
    pub(crate) fn concerns_message(&self) -> bool {
        matches!(self.code, 311 | 403 | 406)
    }

    fn read(input: &mut Input<'_>) -> Result<Self, Malformed> {
        Ok(Self { code: input.two_bytes()?, text: input.short_text()? })
    }
}

impl fmt::Display for Close {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.text, self.code)
    }
}

impl std::error::Error for Close {}

impl Method {
    /// Reads a method from the body of its frame.
    ///
    /// # Errors
    /// If it is none that a server sends.
    pub(super) fn read(body: &[u8]) -> Result<Self, Malformed> {
        let mut input = Input(body);
        let (class, number) = (input.two_bytes()?, input.two_bytes()?);
        let input = &mut input;
        match class {
            10 => Self::of_connection(number, input),
            20 => Self::of_channel(number, input),
            60 => Self::of_basic(number, input),
            _ => match (class, number) {
                (40, 11) => Ok(Self::ExchangeDeclareOk),
                (50, 11) => {
                    input.short()?;
                    let messages = input.four_bytes()?;
                    Ok(Self::QueueDeclareOk(Queue { messages, consumers: input.four_bytes()? }))
                }
                (50, 21) => Ok(Self::QueueBindOk),
                (85, 11) => Ok(Self::SelectOk),
                _ => Err(UNKNOWN),
            },
        }
    }

    fn of_connection(number: u16, input: &mut Input<'_>) -> Result<Self, Malformed> {
        Ok(match number {
            10 => {
                input.take(2)?;
                // The properties of the server.
                input.long()?;
                let mechanisms = String::from_utf8_lossy(input.long()?).into_owned();
                Self::Start(mechanisms.split_ascii_whitespace().map(str::to_owned).collect())
            }
            20 => Self::Secure,
            30 => {
                // The number of channels.
                input.take(2)?;
                Self::Tune(Tune { frame_max: input.four_bytes()?, heartbeat: input.two_bytes()? })
            }
            41 => Self::OpenOk,
            50 => Self::Close(Close::read(input)?),
            51 => Self::CloseOk,
            60 => Self::Blocked(input.short_text()?),
            61 => Self::Unblocked,
            _ => return Err(UNKNOWN),
        })
    }

    fn of_channel(number: u16, input: &mut Input<'_>) -> Result<Self, Malformed> {
        Ok(match number {
            11 => Self::ChannelOpenOk,
            20 => Self::Flow(input.byte()? & 1 != 0),
            40 => Self::ChannelClose(Close::read(input)?),
            41 => Self::ChannelCloseOk,
            _ => return Err(UNKNOWN),
        })
    }

    fn of_basic(number: u16, input: &mut Input<'_>) -> Result<Self, Malformed> {
        Ok(match number {
            11 => Self::QosOk,
            21 => Self::ConsumeOk,
            30 => Self::Cancel(input.short_text()?),
            31 => Self::CancelOk,
            50 => {
                let reason = Close::read(input)?;
                // The exchange.
                input.short()?;
                Self::Return(Return { reason, routing_key: input.short()?.to_vec() })
            }
            60 => Self::Deliver(Deliver {
                consumer: input.short_text()?,
                tag: input.eight_bytes()?,
                is_redelivered: input.byte()? & 1 != 0,
                exchange: input.short_text()?,
                routing_key: input.short_text()?,
            }),
            80 => Self::Ack(Confirmation::read(input)?),
            120 => Self::Nack(Confirmation::read(input)?),
            _ => return Err(UNKNOWN),
        })
    }
}

impl Confirmation {
    fn read(input: &mut Input<'_>) -> Result<Self, Malformed> {
        Ok(Self { tag: input.eight_bytes()?, is_multiple: input.byte()? & 1 != 0 })
    }
}

const UNKNOWN: Malformed = Malformed("a method is none that servers send");
