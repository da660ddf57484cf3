//! Writes the wire format of Protocol Buffers: messages whose length is not known before, and values by their
//! types.
//!
//! The length of a message stands before it and is known after it. It is inserted then: a fixed number of
//! bytes for it would be valid, but not the shortest form, which other encoders write.

use super::schema::{Field, Kind, Label};
use crate::protobuf::write::{BYTES, FIXED32, FIXED64, VARINT, tag, varint};

pub(super) use crate::protobuf::write::{
    bytes as bytes_field, double as double_field, number as varint_field,
};

/// Writes a field of bytes, if there are any.
pub(super) fn bytes_if_any(number: u32, bytes: &[u8], out: &mut Vec<u8>) {
    if !bytes.is_empty() {
        bytes_field(number, bytes, out);
    }
}

/// Begins a message in a field. Returns its start, for [`end`].
pub(super) fn begin(number: u32, out: &mut Vec<u8>) -> usize {
    tag(number, BYTES, out);
    out.len()
}

/// Ends the message that begins at `start`.
pub(super) fn end(start: usize, out: &mut Vec<u8>) {
    let content = out.len() - start;
    varint(content as u64, out);
    // Before the message, without memory for it elsewhere.
    let length = out.len() - start - content;
    if let Some(message) = out.get_mut(start..) {
        message.rotate_right(length);
    }
}

/// Returns an integer as the bits of this type. None if it is too large for the type, or the type is none of
/// integers.
pub(super) fn bits(kind: Kind, value: i128) -> Option<u64> {
    Some(match kind {
        Kind::Int | Kind::SFixed64 => i64::try_from(value).ok()? as u64,
        Kind::Enum(_) => i64::from(i32::try_from(value).ok()?) as u64,
        Kind::UInt32 | Kind::Fixed32 => u32::try_from(value).ok()?.into(),
        Kind::UInt64 | Kind::Fixed64 | Kind::Time => u64::try_from(value).ok()?,
        Kind::SInt32 => {
            let value = i32::try_from(value).ok()?;
            u64::from((value << 1 ^ value >> 31) as u32)
        }
        _ => return None,
    })
}

/// Writes a number of this type without its tag.
pub(super) fn number(kind: Kind, bits: u64, out: &mut Vec<u8>) {
    match kind {
        Kind::Double | Kind::Time | Kind::Fixed64 | Kind::SFixed64 => {
            out.extend_from_slice(&bits.to_le_bytes());
        }
        Kind::Fixed32 => out.extend_from_slice(&(bits as u32).to_le_bytes()),
        _ => varint(bits, out),
    }
}

/// Writes a field with a number, unless that is as good as none.
pub(super) fn number_field(field: &Field, bits: u64, out: &mut Vec<u8>) {
    if bits == 0 && matches!(field.label, Label::Implicit | Label::Zero) {
        return;
    }
    let wire = match field.kind {
        Kind::Double | Kind::Time | Kind::Fixed64 | Kind::SFixed64 => FIXED64,
        Kind::Fixed32 => FIXED32,
        _ => VARINT,
    };
    tag(field.number, wire, out);
    number(field.kind, bits, out);
}

/// True if a list of this type is one value without tags.
pub(super) fn is_packed(kind: Kind) -> bool {
    use Kind::{Attributes, Bytes, Id, Message, Text, Value};
    !matches!(kind, Text | Bytes | Id(_) | Value | Attributes | Message(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_its_length_before_it() {
        let mut out = b"x".to_vec();
        let outer = begin(1, &mut out);
        let inner = begin(2, &mut out);
        bytes_field(1, b"ab", &mut out);
        end(inner, &mut out);
        bytes_if_any(3, b"", &mut out);
        end(outer, &mut out);
        assert_eq!(out, b"x\x0a\x06\x12\x04\x0a\x02ab");
        let mut out = Vec::new();
        let start = begin(1, &mut out);
        out.resize(start + 200, 7);
        end(start, &mut out);
        assert_eq!((out.len(), &out[..3]), (203, &b"\x0a\xc8\x01"[..]));
    }

    #[test]
    fn an_integer_fits_its_type_or_not() {
        assert_eq!(bits(Kind::SInt32, -1), Some(1));
        assert_eq!(bits(Kind::SInt32, 1), Some(2));
        assert_eq!(bits(Kind::SInt32, i32::MIN.into()), Some(u32::MAX.into()));
        assert_eq!(bits(Kind::Int, -1), Some(u64::MAX));
        assert_eq!(bits(Kind::UInt32, -1), None);
        assert_eq!(bits(Kind::UInt32, 1 << 32), None);
        assert_eq!(bits(Kind::Time, u64::MAX.into()), Some(u64::MAX));
        assert_eq!(bits(Kind::Int, u64::MAX.into()), None);
        assert_eq!(bits(Kind::Text, 1), None);
    }
}
