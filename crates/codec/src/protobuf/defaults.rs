//! The values of fields that a message lacks.
//!
//! A field with implicit presence, as in proto3, is not sent if it has the default value of its type, so a
//! missing field has that value. A field with explicit presence has the default that its declaration gives,
//! or none: it is NULL.

use super::descriptor::{FieldProto, Presence};
use super::kind::Kind;
use super::schema::Enum;

/// The value of a missing field.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Missing {
    Null,
    Int(i64),
    UInt(u64),
    Float(f32),
    Double(f64),
    Bool(bool),
    Text(String),
    Bytes(Vec<u8>),
    Json(&'static str),
}

/// Returns whether a missing field differs from one with the default value. `inherited` is what holds for the
/// fields of its message.
pub(super) fn presence_of(field: &FieldProto, inherited: Presence) -> Presence {
    match field.label {
        2 => Presence::Required,
        _ if field.oneof.is_some() => Presence::Explicit,
        _ => field.features.unwrap_or(inherited),
    }
}

/// Returns the value of a message that lacks the field, which is no list.
///
/// # Errors
/// The reason, if the declared default is no value of the type. `place` is the full name of the field.
pub(super) fn default_of(
    place: &str,
    field: &FieldProto,
    kind: Kind,
    presence: Presence,
    enums: &[Enum],
) -> Result<Missing, String> {
    match (&field.default, presence) {
        (Some(text), _) => {
            declared(kind, text).ok_or_else(|| format!("the default of `{place}` is no value of its type"))
        }
        (None, Presence::Implicit) => Ok(zero(kind, enums)),
        (None, _) => Ok(Missing::Null),
    }
}

/// Returns the default value of a type.
fn zero(kind: Kind, enums: &[Enum]) -> Missing {
    match kind {
        Kind::Double | Kind::JsonNumber => Missing::Double(0.0),
        Kind::Float => Missing::Float(0.0),
        Kind::UInt64 | Kind::Fixed64 => Missing::UInt(0),
        Kind::Bool => Missing::Bool(false),
        Kind::Text => Missing::Text(String::new()),
        Kind::Bytes => Missing::Bytes(Vec::new()),
        Kind::Enum(index) => Missing::Text(enums.get(index).map(Enum::first).unwrap_or_default().to_owned()),
        Kind::Message(_) | Kind::JsonNull => Missing::Null,
        _ => Missing::Int(0),
    }
}

/// Returns the value that a declaration gives as text.
fn declared(kind: Kind, text: &[u8]) -> Option<Missing> {
    let plain = || std::str::from_utf8(text).ok();
    Some(match kind {
        Kind::Double | Kind::JsonNumber => Missing::Double(plain()?.parse().ok()?),
        Kind::Float => Missing::Float(plain()?.parse().ok()?),
        Kind::UInt64 | Kind::Fixed64 => Missing::UInt(plain()?.parse().ok()?),
        Kind::Bool => Missing::Bool(plain()?.parse().ok()?),
        Kind::Text | Kind::Enum(_) => Missing::Text(plain()?.to_owned()),
        Kind::Bytes => Missing::Bytes(unescaped(text)?),
        Kind::Message(_) | Kind::JsonNull => Missing::Null,
        _ => Missing::Int(plain()?.parse().ok()?),
    })
}

/// Returns bytes that are written as in C.
fn unescaped(text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, after @ ..] = rest {
        rest = after;
        if *first != b'\\' {
            out.push(*first);
            continue;
        }
        let (byte, length) = escape(rest)?;
        out.push(byte);
        rest = rest.get(length..)?;
    }
    Some(out)
}

/// Returns the byte of an escape without its backslash, and the length of the escape.
fn escape(text: &[u8]) -> Option<(u8, usize)> {
    let number = |digits: &[u8], base| u8::from_str_radix(std::str::from_utf8(digits).ok()?, base).ok();
    Some(match text {
        [b'n', ..] => (b'\n', 1),
        [b'r', ..] => (b'\r', 1),
        [b't', ..] => (b'\t', 1),
        [b'x', digits @ ..] => (number(digits.get(..2)?, 16)?, 3),
        [b'0'..=b'3', ..] => (number(text.get(..3)?, 8)?, 3),
        [other @ (b'"' | b'\'' | b'\\'), ..] => (*other, 1),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declared_defaults_are_read_as_the_compiler_writes_them() {
        assert_eq!(declared(Kind::Int32, b"-7"), Some(Missing::Int(-7)));
        assert_eq!(declared(Kind::UInt64, b"18446744073709551615"), Some(Missing::UInt(u64::MAX)));
        assert_eq!(declared(Kind::Double, b"-inf"), Some(Missing::Double(f64::NEG_INFINITY)));
        assert_eq!(declared(Kind::Bool, b"true"), Some(Missing::Bool(true)));
        assert_eq!(
            declared(Kind::Bytes, br#"a\000\377\n\"\x41"#),
            Some(Missing::Bytes(b"a\0\xff\n\"A".to_vec()))
        );
        assert_eq!(declared(Kind::Bytes, br"\4"), None);
        assert_eq!(declared(Kind::Int32, b"x"), None);
    }
}
