//! The properties of a message: flags, and the values of those that are there.

use thalweg_broker::input::Input;

use super::Malformed;
use super::input::Elements;
use super::table::Table;

/// A property. The number is the place of its flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Property {
    ContentType = 15,
    ContentEncoding = 14,
    Headers = 13,
    DeliveryMode = 12,
    Priority = 11,
    CorrelationId = 10,
    ReplyTo = 9,
    Expiration = 8,
    MessageId = 7,
    Timestamp = 6,
    Type = 5,
    UserId = 4,
    AppId = 3,
    ClusterId = 2,
}

/// The properties in the order of their values.
const ALL: [Property; 14] = [
    Property::ContentType,
    Property::ContentEncoding,
    Property::Headers,
    Property::DeliveryMode,
    Property::Priority,
    Property::CorrelationId,
    Property::ReplyTo,
    Property::Expiration,
    Property::MessageId,
    Property::Timestamp,
    Property::Type,
    Property::UserId,
    Property::AppId,
    Property::ClusterId,
];

/// The value of a property.
#[derive(Debug, Clone, Copy)]
pub(crate) enum PropertyValue<'a> {
    Text(&'a [u8]),
    Number(u64),
    Headers(Table<'a>),
}

/// The properties of a message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Properties<'a>(&'a [u8]);

impl Property {
    /// Returns the flag of the property.
    pub(crate) fn flag(self) -> u16 {
        1 << (self as u16)
    }

    fn read<'a>(self, input: &mut Input<'a>) -> Result<PropertyValue<'a>, Malformed> {
        Ok(match self {
            Self::Headers => PropertyValue::Headers(Table::of(input.long()?)),
            Self::DeliveryMode | Self::Priority => PropertyValue::Number(u64::from(input.byte()?)),
            Self::Timestamp => PropertyValue::Number(input.eight_bytes()?),
            _ => PropertyValue::Text(input.short()?),
        })
    }
}

impl<'a> Properties<'a> {
    /// Reads properties from their bytes. A server passes on what it was sent, so what cannot be read is not
    /// there.
    pub(crate) fn of(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Returns a property, if the message has it.
    pub(crate) fn get(self, wanted: Property) -> Option<PropertyValue<'a>> {
        let mut input = Input(self.0);
        let flags = input.two_bytes().ok()?;
        // The lowest bit says that there are more flags, which no property has.
        if flags & 1 != 0 || flags & wanted.flag() == 0 {
            return None;
        }
        for property in ALL.into_iter().filter(|property| flags & property.flag() != 0) {
            let value = property.read(&mut input).ok()?;
            if property == wanted {
                return Some(value);
            }
        }
        None
    }

    /// Returns a property that is a text.
    pub(crate) fn text(self, wanted: Property) -> Option<&'a str> {
        match self.get(wanted)? {
            PropertyValue::Text(text) => std::str::from_utf8(text).ok(),
            _ => None,
        }
    }

    /// Returns a property that is a number.
    pub(crate) fn number(self, wanted: Property) -> Option<u64> {
        match self.get(wanted)? {
            PropertyValue::Number(number) => Some(number),
            _ => None,
        }
    }

    /// Returns a header as a text: see [`Table::text`].
    pub(crate) fn header(self, name: &str) -> Option<String> {
        match self.get(Property::Headers)? {
            PropertyValue::Headers(headers) => headers.text(name),
            _ => None,
        }
    }
}
