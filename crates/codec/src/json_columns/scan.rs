//! The grammar of JSON over bytes: finds the end of a value and its kind.
//!
//! Nothing here allocates or looks back. An error names the offset of the wrong byte.

use std::fmt;

use super::{DEEPEST, LONGEST};
use crate::columns::FieldType;
use crate::json::find_special;

/// Why a payload is rejected.
#[derive(Debug)]
pub(super) enum Fault {
    Syntax { at: usize, what: &'static str },
    Unfit { at: usize, name: Box<str>, wanted: FieldType },
    TooMany { at: usize, most: usize, limit: &'static str },
    LongNames { at: usize, most: usize },
    TooLong,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Syntax { at, what } => write!(f, "is not a JSON object: {what} at byte {at}"),
            Fault::Unfit { at, name, wanted } => write!(f, "`{name}` at byte {at} is not {}", wanted.noun()),
            Fault::TooMany { at, most, limit } => {
                write!(f, "has a new field at byte {at}, but there are {most} already (see `{limit}`)")
            }
            Fault::LongNames { at, most } => write!(
                f,
                "has a new field at byte {at}, but the names of all fields would have more than {most} bytes"
            ),
            Fault::TooLong => write!(f, "is longer than {LONGEST} bytes"),
        }
    }
}

#[cold]
pub(super) fn fault<T>(at: usize, what: &'static str) -> Result<T, Fault> {
    Err(Fault::Syntax { at, what })
}

pub(super) fn as_text(payload: &[u8]) -> Result<&str, Fault> {
    match simdutf8::basic::from_utf8(payload) {
        Ok(text) => Ok(text),
        Err(_) => match std::str::from_utf8(payload) {
            Ok(text) => Ok(text),
            Err(error) => fault(error.valid_up_to(), "invalid UTF-8"),
        },
    }
}

/// The kind of a value, as its first byte tells. For numbers, their form decides too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Kind {
    Missing = 0,
    Null,
    Bool,
    /// A whole number of at most 18 digits.
    Int,
    /// A whole number that may exceed 64 bits.
    LongInt,
    Float,
    Text,
    EscapedText,
    Nested,
}

#[inline]
pub(super) fn skip_blanks(bytes: &[u8], mut at: usize) -> usize {
    while let Some(b' ' | b'\n' | b'\r' | b'\t') = bytes.get(at) {
        at += 1;
    }
    at
}

/// Scans a text whose opening quote is before `at`. Returns the index of the closing quote, and true if the
/// text has escapes.
#[inline]
pub(super) fn string(bytes: &[u8], at: usize) -> Result<(usize, bool), Fault> {
    let mut from = at;
    let mut escaped = false;
    loop {
        let Some(special) = find_special(bytes, from) else { return fault(at - 1, "an unterminated text") };
        match bytes.get(special) {
            Some(b'"') => return Ok((special, escaped)),
            Some(b'\\') => {
                from = escape(bytes, special)?;
                escaped = true;
            }
            _ => return fault(special, "a control character in a text"),
        }
    }
}

/// Returns the index after the escape that begins at `at`.
pub(super) fn escape(bytes: &[u8], at: usize) -> Result<usize, Fault> {
    match bytes.get(at + 1) {
        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok(at + 2),
        Some(b'u') => match code_unit(bytes, at) {
            Some(0xd800..=0xdbff) => match code_unit(bytes, at + 6) {
                Some(0xdc00..=0xdfff) => Ok(at + 12),
                _ => fault(at, "half of a surrogate pair"),
            },
            Some(0xdc00..=0xdfff) => fault(at, "half of a surrogate pair"),
            Some(_) => Ok(at + 6),
            None => fault(at, "an escape that is not `\\u` and four hexadecimal digits"),
        },
        _ => fault(at, "an unknown escape"),
    }
}

/// Returns the number in a `\u0000` at `at`.
pub(super) fn code_unit(bytes: &[u8], at: usize) -> Option<u32> {
    let (prefix, digits) = bytes.get(at..at + 6)?.split_at(2);
    if prefix != b"\\u" {
        return None;
    }
    digits.iter().try_fold(0, |number, &digit| Some(number << 4 | char::from(digit).to_digit(16)?))
}

/// Decodes the escapes of a text that [`string`] has accepted.
pub(super) fn unescape<'a>(raw: &str, decoded: &'a mut String) -> &'a str {
    decoded.clear();
    let mut rest = raw;
    while let Some(at) = memchr::memchr(b'\\', rest.as_bytes()) {
        decoded.push_str(&rest[..at]);
        let bytes = rest.as_bytes();
        let (character, length) = match bytes.get(at + 1) {
            Some(b'b') => ('\u{8}', 2),
            Some(b'f') => ('\u{c}', 2),
            Some(b'n') => ('\n', 2),
            Some(b'r') => ('\r', 2),
            Some(b't') => ('\t', 2),
            Some(b'u') => match (code_unit(bytes, at), code_unit(bytes, at + 6)) {
                (Some(high @ 0xd800..=0xdbff), Some(low @ 0xdc00..=0xdfff)) => {
                    let code = 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
                    (char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER), 12)
                }
                (code, _) => (code.and_then(char::from_u32).unwrap_or(char::REPLACEMENT_CHARACTER), 6),
            },
            Some(&other) => (char::from(other), 2),
            None => break,
        };
        decoded.push(character);
        rest = rest.get(at + length..).unwrap_or_default();
    }
    decoded.push_str(rest);
    decoded
}

/// Scans a key whose opening quote is at `at`. Returns the index of its closing quote, the index after its
/// colon, and true if the key has escapes.
pub(super) fn key(bytes: &[u8], at: usize) -> Result<(usize, usize, bool), Fault> {
    if bytes.get(at) != Some(&b'"') {
        return fault(at, "expected a key in quotes");
    }
    let (end, escaped) = string(bytes, at + 1)?;
    let colon = skip_blanks(bytes, end + 1);
    if bytes.get(colon) != Some(&b':') {
        return fault(colon, "expected `:`");
    }
    Ok((end, colon + 1, escaped))
}

/// Returns the end and the kind of the value that begins at `at`.
#[inline]
pub(super) fn value(bytes: &[u8], at: usize, depth: usize) -> Result<(usize, Kind), Fault> {
    match bytes.get(at) {
        Some(b'{' | b'[') => Ok((nested(bytes, at, depth)?, Kind::Nested)),
        _ => scalar(bytes, at),
    }
}

#[inline]
pub(super) fn scalar(bytes: &[u8], at: usize) -> Result<(usize, Kind), Fault> {
    let word = |word: &[u8], kind| match bytes.get(at..at + word.len()) {
        Some(found) if found == word => Ok((at + word.len(), kind)),
        _ => fault(at, "expected a value"),
    };
    match bytes.get(at) {
        Some(b'"') => {
            let (end, escaped) = string(bytes, at + 1)?;
            Ok((end + 1, if escaped { Kind::EscapedText } else { Kind::Text }))
        }
        Some(b'-' | b'0'..=b'9') => number(bytes, at),
        Some(b't') => word(b"true", Kind::Bool),
        Some(b'f') => word(b"false", Kind::Bool),
        Some(b'n') => word(b"null", Kind::Null),
        _ => fault(at, "expected a value"),
    }
}

#[inline]
pub(super) fn skip_digits(bytes: &[u8], mut at: usize) -> usize {
    while bytes.get(at).is_some_and(u8::is_ascii_digit) {
        at += 1;
    }
    at
}

#[inline]
pub(super) fn number(bytes: &[u8], at: usize) -> Result<(usize, Kind), Fault> {
    let first = at + usize::from(bytes.get(at) == Some(&b'-'));
    let mut end = match bytes.get(first) {
        Some(b'0') => first + 1,
        Some(b'1'..=b'9') => skip_digits(bytes, first + 1),
        _ => return fault(first, "expected a digit"),
    };
    let digits = end - first;
    let mut kind = match digits {
        // Only a floating-point number keeps the sign of `-0`.
        1 if first > at && bytes.get(first) == Some(&b'0') => Kind::Float,
        ..=18 => Kind::Int,
        _ => Kind::LongInt,
    };
    let mut may_overflow = digits > 300;
    if bytes.get(end) == Some(&b'.') {
        let fraction = end + 1;
        end = skip_digits(bytes, fraction);
        if end == fraction {
            return fault(end, "expected a digit");
        }
        kind = Kind::Float;
    }
    if let Some(b'e' | b'E') = bytes.get(end) {
        let exponent = end + 1 + usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        end = skip_digits(bytes, exponent);
        if end == exponent {
            return fault(end, "expected a digit");
        }
        kind = Kind::Float;
        may_overflow = true;
    }
    if may_overflow && !parse_std_float(bytes.get(at..end).unwrap_or_default()).is_finite() {
        return fault(at, "a number too large");
    }
    Ok((end, kind))
}

pub(super) fn parse_std_float(token: &[u8]) -> f64 {
    std::str::from_utf8(token).ok().and_then(|token| token.parse().ok()).unwrap_or(f64::NAN)
}

/// Returns the index after the nested value whose `{` or `[` is at `at`. One bit per level tells whether it
/// is an object.
pub(super) fn nested(bytes: &[u8], at: usize, depth: usize) -> Result<usize, Fault> {
    let mut at = at;
    let mut objects: u128 = 0;
    let mut levels = 0;
    'value: loop {
        match bytes.get(at) {
            Some(&open @ (b'{' | b'[')) => {
                levels += 1;
                if depth + levels > DEEPEST {
                    return fault(at, "nested too deep");
                }
                let is_object = open == b'{';
                objects = objects << 1 | u128::from(is_object);
                at = skip_blanks(bytes, at + 1);
                match (bytes.get(at), is_object) {
                    (Some(b'}'), true) | (Some(b']'), false) => {}
                    (_, true) => {
                        at = skip_blanks(bytes, key(bytes, at)?.1);
                        continue 'value;
                    }
                    (_, false) => continue 'value,
                }
            }
            _ => at = scalar(bytes, at)?.0,
        }
        loop {
            at = skip_blanks(bytes, at);
            match (bytes.get(at), objects & 1 == 1) {
                (Some(b','), true) => {
                    at = skip_blanks(bytes, at + 1);
                    at = skip_blanks(bytes, key(bytes, at)?.1);
                    continue 'value;
                }
                (Some(b','), false) => {
                    at = skip_blanks(bytes, at + 1);
                    continue 'value;
                }
                (Some(b'}'), true) | (Some(b']'), false) => {
                    at += 1;
                    levels -= 1;
                    objects >>= 1;
                    if levels == 0 {
                        return Ok(at);
                    }
                }
                (_, true) => return fault(at, "expected `,` or `}`"),
                (_, false) => return fault(at, "expected `,` or `]`"),
            }
        }
    }
}
