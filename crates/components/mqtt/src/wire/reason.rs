//! The reasons that servers give, and what can be done about them.

use std::fmt;

/// The reason of an answer, or of the end of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reason {
    /// The code of MQTT 5. Those of MQTT 3.1.1 are translated.
    pub(crate) code: u8,
    /// The text of the server beside it.
    pub(crate) text: Option<String>,
}

/// The remedy of a client for a reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Remedy {
    /// Nothing is to be done: it is no error.
    None,
    /// A retry may succeed.
    Retry,
    /// As `Retry`, and the server has too much to do.
    Wait,
    /// No retry succeeds.
    Change,
}

impl Reason {
    /// All went well.
    pub(crate) const SUCCESS: u8 = 0x00;
    pub(crate) const UNSPECIFIED: u8 = 0x80;
    pub(crate) const IMPLEMENTATION: u8 = 0x83;
    pub(crate) const UNSUPPORTED_VERSION: u8 = 0x84;
    pub(crate) const TAKEN_OVER: u8 = 0x8e;
    pub(crate) const PACKET_ID_UNKNOWN: u8 = 0x92;

    /// Returns the reason with this code.
    pub(crate) fn new(code: u8) -> Self {
        Self { code, text: None }
    }

    /// Returns what can be done.
    pub(crate) fn remedy(&self) -> Remedy {
        match self.code {
            0x00..=0x7f => Remedy::None,
            0x89 | 0x93 | 0x96 | 0x97 | 0x9f => Remedy::Wait,
            // Of an unspecified error nothing is known; a message that is refused for it is refused again.
            0x80
            | 0x83
            | 0x84..=0x87
            | 0x8a
            | 0x8c
            | 0x8e
            | 0x8f
            | 0x90
            | 0x95
            | 0x99..=0x9b
            | 0x9d
            | 0x9e
            | 0xa1
            | 0xa2 => Remedy::Change,
            _ => Remedy::Retry,
        }
    }

    fn name(&self) -> &'static str {
        match self.code {
            0x00 => "success",
            0x04 => "disconnected with its will",
            0x10 => "no matching subscribers",
            0x11 => "no subscription existed",
            0x80 => "unspecified error",
            0x81 => "malformed packet",
            0x82 => "protocol error",
            0x83 => "implementation specific error",
            0x84 => "unsupported version of the protocol",
            0x85 => "client identifier not valid",
            0x86 => "bad user name or password",
            0x87 => "not authorized",
            0x88 => "server unavailable",
            0x89 => "server busy",
            0x8a => "banned",
            0x8b => "server shutting down",
            0x8c => "bad authentication method",
            0x8d => "keep alive timeout",
            0x8e => "session taken over",
            0x8f => "topic filter invalid",
            0x90 => "topic name invalid",
            0x91 => "packet identifier in use",
            0x92 => "packet identifier not found",
            0x93 => "receive maximum exceeded",
            0x94 => "topic alias invalid",
            0x95 => "packet too large",
            0x96 => "message rate too high",
            0x97 => "quota exceeded",
            0x98 => "administrative action",
            0x99 => "payload format invalid",
            0x9a => "retain not supported",
            0x9b => "QoS not supported",
            0x9c => "use another server",
            0x9d => "server moved",
            0x9e => "shared subscriptions not supported",
            0x9f => "connection rate exceeded",
            0xa0 => "maximum connect time",
            0xa1 => "subscription identifiers not supported",
            0xa2 => "wildcard subscriptions not supported",
            _ => "unknown reason",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (0x{:02x})", self.name(), self.code)?;
        match &self.text {
            Some(text) if !text.is_empty() => write!(f, ": {text}"),
            _ => Ok(()),
        }
    }
}
