//! The properties of MQTT 5: a list of identifiers and values.

use thalweg_broker::input::Input;

use super::Malformed;
use super::input::Elements;

/// The identifiers of the properties that are read or written here.
pub(crate) mod property {
    pub(crate) const MESSAGE_EXPIRY: u8 = 0x02;
    pub(crate) const CONTENT_TYPE: u8 = 0x03;
    pub(crate) const RESPONSE_TOPIC: u8 = 0x08;
    pub(crate) const SESSION_EXPIRY: u8 = 0x11;
    pub(crate) const SERVER_KEEP_ALIVE: u8 = 0x13;
    pub(crate) const SERVER_REFERENCE: u8 = 0x1c;
    pub(crate) const REASON_STRING: u8 = 0x1f;
    pub(crate) const RECEIVE_MAXIMUM: u8 = 0x21;
    pub(crate) const MAXIMUM_QOS: u8 = 0x24;
    pub(crate) const RETAIN_AVAILABLE: u8 = 0x25;
    pub(crate) const USER: u8 = 0x26;
    pub(crate) const MAXIMUM_PACKET_SIZE: u8 = 0x27;
}

/// The value of a property.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    Number(u32),
    Text(&'a str),
    /// Binary data, which nothing here reads.
    Binary,
    Pair(&'a str, &'a str),
}

/// The properties of a packet, in their order.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Properties<'a>(Input<'a>);

impl<'a> Properties<'a> {
    /// Reads properties from their bytes, without the length before them.
    pub(crate) fn of(bytes: &'a [u8]) -> Self {
        Self(Input(bytes))
    }

    /// Checks that all can be read.
    pub(super) fn check(self) -> Result<(), Malformed> {
        let mut input = self.0;
        while !input.is_empty() {
            read(&mut input)?;
        }
        Ok(())
    }

    /// Returns the first text with this identifier.
    pub(crate) fn text(mut self, identifier: u8) -> Option<&'a str> {
        self.find_map(|(found, value)| match value {
            Value::Text(text) if found == identifier => Some(text),
            _ => None,
        })
    }

    /// Returns the first number with this identifier.
    pub(crate) fn number(mut self, identifier: u8) -> Option<u32> {
        self.find_map(|(found, value)| match value {
            Value::Number(number) if found == identifier => Some(number),
            _ => None,
        })
    }

    /// Returns the first user property with this name.
    pub(crate) fn user(mut self, name: &str) -> Option<&'a str> {
        self.find_map(|(_, value)| match value {
            Value::Pair(found, value) if found == name => Some(value),
            _ => None,
        })
    }
}

impl<'a> Iterator for Properties<'a> {
    type Item = (u8, Value<'a>);

    /// Ends before the first property that cannot be read.
    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() { None } else { read(&mut self.0).ok() }
    }
}

/// Reads a property. The identifier says which kind of value follows.
fn read<'a>(input: &mut Input<'a>) -> Result<(u8, Value<'a>), Malformed> {
    let identifier = input.byte()?;
    let value = match identifier {
        0x01 | 0x17 | 0x19 | 0x24 | 0x25 | 0x28 | 0x29 | 0x2a => Value::Number(u32::from(input.byte()?)),
        0x13 | 0x21 | 0x22 | 0x23 => Value::Number(u32::from(input.two_bytes()?)),
        0x02 | 0x11 | 0x18 | 0x27 => Value::Number(input.four_bytes()?),
        // It has at most 28 bits.
        0x0b => Value::Number(u32::try_from(input.number()?).unwrap_or(u32::MAX)),
        0x03 | 0x08 | 0x12 | 0x15 | 0x1a | 0x1c | 0x1f => Value::Text(input.text()?),
        0x09 | 0x16 => {
            input.bytes()?;
            Value::Binary
        }
        0x26 => Value::Pair(input.text()?, input.text()?),
        _ => return Err(Malformed("a property has an unknown identifier")),
    };
    Ok((identifier, value))
}
