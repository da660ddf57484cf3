//! The types of fields, and the values that are written with them.

use super::wire::{Raw, Wire};
use crate::not_utf8;

/// The type of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Double,
    Float,
    Int64,
    UInt64,
    Int32,
    Fixed64,
    Fixed32,
    Bool,
    Text,
    Bytes,
    UInt32,
    SFixed32,
    SFixed64,
    SInt32,
    SInt64,
    /// A value of the enumeration of this number.
    Enum(usize),
    /// A message of the type of this number.
    Message(usize),
    /// A number of JSON: a double, and an integer if it has no fraction.
    JsonNumber,
    /// The value `null` of JSON.
    JsonNull,
}

/// A value that is no message.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Scalar<'a> {
    Int(i64),
    UInt(u64),
    Float(f32),
    Double(f64),
    Bool(bool),
    Text(&'a str),
    Bytes(&'a [u8]),
    /// A value of the enumeration of this number.
    Enum(usize, i32),
    JsonNumber(f64),
    JsonNull,
}

impl Kind {
    /// Returns the type of a number in `FieldDescriptorProto.Type`. `None` for messages and enumerations,
    /// which have names.
    pub(super) fn of_number(number: u64) -> Option<Self> {
        Some(match number {
            1 => Self::Double,
            2 => Self::Float,
            3 => Self::Int64,
            4 => Self::UInt64,
            5 => Self::Int32,
            6 => Self::Fixed64,
            7 => Self::Fixed32,
            8 => Self::Bool,
            9 => Self::Text,
            12 => Self::Bytes,
            13 => Self::UInt32,
            15 => Self::SFixed32,
            16 => Self::SFixed64,
            17 => Self::SInt32,
            18 => Self::SInt64,
            _ => return None,
        })
    }

    /// Returns how values are written.
    pub(super) fn wire(self) -> Wire {
        match self {
            Self::Double | Self::Fixed64 | Self::SFixed64 | Self::JsonNumber => Wire::Fixed64,
            Self::Float | Self::Fixed32 | Self::SFixed32 => Wire::Fixed32,
            Self::Text | Self::Bytes | Self::Message(_) => Wire::Bytes,
            Self::Int64 | Self::UInt64 | Self::Int32 | Self::UInt32 | Self::SInt32 | Self::SInt64 => {
                Wire::Varint
            }
            Self::Bool | Self::Enum(_) | Self::JsonNull => Wire::Varint,
        }
    }

    /// Returns the name of the type as it is used in a sentence.
    pub(super) fn noun(self) -> &'static str {
        match self {
            Self::Double | Self::JsonNumber => "`double`",
            Self::Float => "`float`",
            Self::Int64 => "`int64`",
            Self::UInt64 => "`uint64`",
            Self::Int32 => "`int32`",
            Self::Fixed64 => "`fixed64`",
            Self::Fixed32 => "`fixed32`",
            Self::Bool => "`bool`",
            Self::Text => "`string`",
            Self::Bytes => "`bytes`",
            Self::UInt32 => "`uint32`",
            Self::SFixed32 => "`sfixed32`",
            Self::SFixed64 => "`sfixed64`",
            Self::SInt32 => "`sint32`",
            Self::SInt64 => "`sint64`",
            Self::Enum(_) | Self::JsonNull => "an enumeration",
            Self::Message(_) => "a message",
        }
    }

    /// Returns a value of this type. `message` holds the bytes of a text. Numbers that are too large lose
    /// their upper bits, as in all implementations.
    ///
    /// # Errors
    /// The predicate of a sentence about the field: a text is invalid.
    #[inline]
    pub(super) fn scalar(self, raw: Raw, message: &[u8]) -> Result<Scalar<'_>, String> {
        Ok(match raw {
            Raw::Varint(value) => self.of_varint(value),
            Raw::Fixed64(bits) => match self {
                Self::Fixed64 => Scalar::UInt(bits),
                Self::SFixed64 => Scalar::Int(bits as i64),
                Self::JsonNumber => Scalar::JsonNumber(f64::from_bits(bits)),
                _ => Scalar::Double(f64::from_bits(bits)),
            },
            Raw::Fixed32(bits) => match self {
                Self::Fixed32 => Scalar::Int(i64::from(bits)),
                Self::SFixed32 => Scalar::Int(i64::from(bits as i32)),
                _ => Scalar::Float(f32::from_bits(bits)),
            },
            Raw::Bytes { .. } | Raw::Group { .. } => {
                let bytes = raw.bytes(message);
                match self {
                    Self::Text => {
                        Scalar::Text(simdutf8::basic::from_utf8(bytes).map_err(|_| not_utf8(bytes))?)
                    }
                    _ => Scalar::Bytes(bytes),
                }
            }
        })
    }

    #[inline]
    fn of_varint(self, value: u64) -> Scalar<'static> {
        match self {
            Self::UInt64 => Scalar::UInt(value),
            Self::Int32 => Scalar::Int(i64::from(value as i32)),
            Self::UInt32 => Scalar::Int(i64::from(value as u32)),
            Self::SInt32 => {
                let value = value as u32;
                Scalar::Int(i64::from((value >> 1) as i32 ^ -((value & 1) as i32)))
            }
            Self::SInt64 => Scalar::Int(unzigzag(value)),
            Self::Bool => Scalar::Bool(value != 0),
            Self::Enum(index) => Scalar::Enum(index, value as i32),
            Self::JsonNull => Scalar::JsonNull,
            _ => Scalar::Int(value as i64),
        }
    }
}

/// Returns the number whose sign is in the lowest bit.
pub(super) fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_width_and_the_sign_of_their_type() {
        let of = |kind: Kind, value| kind.scalar(Raw::Varint(value), b"").unwrap();
        assert_eq!(of(Kind::Int32, u64::MAX), Scalar::Int(-1));
        assert_eq!(of(Kind::Int32, 1 << 32 | 7), Scalar::Int(7));
        assert_eq!(of(Kind::UInt32, u64::MAX), Scalar::Int(i64::from(u32::MAX)));
        assert_eq!(of(Kind::UInt64, u64::MAX), Scalar::UInt(u64::MAX));
        assert_eq!(of(Kind::Int64, u64::MAX), Scalar::Int(-1));
        assert_eq!([0, 1, 2, 3].map(unzigzag), [0, -1, 1, -2]);
        assert_eq!(of(Kind::SInt32, u64::from(u32::MAX)), Scalar::Int(i64::from(i32::MIN)));
        assert_eq!(of(Kind::SInt64, u64::MAX), Scalar::Int(i64::MIN));
        assert_eq!(of(Kind::Bool, 1 << 40), Scalar::Bool(true));
        assert_eq!(of(Kind::Enum(3), u64::MAX), Scalar::Enum(3, -1));
    }
}
