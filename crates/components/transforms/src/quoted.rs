//! Values in quotes, and the escapes in them.

use memchr::{memchr, memchr2};

use crate::pairs::Value;

/// Returns the value whose opening quote, a single byte, is at byte `at`, which becomes the byte after the
/// closing quote. A value with escapes is decoded to the end of `decoded`.
///
/// # Errors
/// If the quote is not closed, or an escape is incomplete.
pub(crate) fn quoted(text: &str, at: &mut usize, decoded: &mut String) -> Result<Value, String> {
    let opening = *at;
    let unclosed = || format!("the quote at byte {opening} is not closed");
    let bytes = text.as_bytes();
    let quote = *bytes.get(opening).ok_or_else(unclosed)?;
    let begin = decoded.len();
    let mut start = opening + 1;
    loop {
        let rest = bytes.get(start..).unwrap_or_default();
        let end = start + memchr2(quote, b'\\', rest).ok_or_else(unclosed)?;
        let piece = text.get(start..end).unwrap_or_default();
        if bytes.get(end) == Some(&quote) {
            *at = end + 1;
            if start == opening + 1 {
                return Ok(Value::Raw(start..end));
            }
            decoded.push_str(piece);
            return Ok(Value::Decoded(begin..decoded.len()));
        }
        decoded.push_str(piece);
        start = end + 2;
        match bytes.get(end + 1).ok_or_else(unclosed)? {
            byte if *byte == quote => decoded.push(char::from(quote)),
            b'n' => decoded.push('\n'),
            b't' => decoded.push('\t'),
            b'r' => decoded.push('\r'),
            b'u' => {
                let (character, length) = unicode(text, start).ok_or_else(|| {
                    format!("the escape at byte {end} does not have four hexadecimal digits")
                })?;
                decoded.push(character);
                start += length;
            }
            byte @ (b'"' | b'\\' | b'/' | b'\'') => decoded.push(char::from(*byte)),
            _ => {
                // A backslash before another character is a plain backslash, as in Windows paths written
                // without doubled backslashes.
                decoded.push('\\');
                start = end + 1;
            }
        }
    }
}

/// Returns the character written as four hexadecimal digits at `at`, or as two such escapes for a UTF-16
/// pair. Also returns the length of the text read, in bytes.
fn unicode(text: &str, at: usize) -> Option<(char, usize)> {
    let unit = |at: usize| {
        let digits =
            text.get(at..at + 4).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
        u16::from_str_radix(digits, 16).ok()
    };
    let first = unit(at)?;
    if let Some(character) = char::from_u32(u32::from(first)) {
        return Some((character, 4));
    }
    let second = text.get(at + 4..at + 6).filter(|escape| *escape == "\\u").and_then(|_| unit(at + 6));
    let pair = second.and_then(|second| char::decode_utf16([first, second]).next()?.ok());
    Some(pair.map_or((char::REPLACEMENT_CHARACTER, 4), |character| (character, 10)))
}

/// Returns a text of an access log without its escapes: `\xHH` is a byte, and `\n`, `\t`, `\r`, `\b`, `\f`,
/// `\v`, `\"`, `\\` and `\uHHHH` are as in C and JSON. A text without escapes is returned unchanged, and so
/// is one whose bytes are not UTF-8 without them.
#[inline]
pub(crate) fn unescaped<'a>(text: &'a str, decoded: &'a mut Vec<u8>) -> &'a str {
    match memchr(b'\\', text.as_bytes()) {
        None => text,
        Some(first) => {
            decode(text, first, decoded);
            std::str::from_utf8(decoded).unwrap_or(text)
        }
    }
}

/// Decodes a text whose first backslash is at byte `first`.
fn decode(text: &str, first: usize, decoded: &mut Vec<u8>) {
    decoded.clear();
    let bytes = text.as_bytes();
    let mut start = 0;
    let mut next = Some(first);
    while let Some(end) = next {
        decoded.extend_from_slice(bytes.get(start..end).unwrap_or_default());
        let (byte, length) = match bytes.get(end + 1) {
            Some(b'x') => (hexadecimal(bytes, end + 2), 4),
            Some(b'n') => (Some(b'\n'), 2),
            Some(b't') => (Some(b'\t'), 2),
            Some(b'r') => (Some(b'\r'), 2),
            Some(b'b') => (Some(8), 2),
            Some(b'f') => (Some(12), 2),
            Some(b'v') => (Some(11), 2),
            Some(&byte @ (b'"' | b'\\' | b'/')) => (Some(byte), 2),
            _ => (None, 0),
        };
        start = match (byte, bytes.get(end + 1)) {
            (Some(byte), _) => {
                decoded.push(byte);
                end + length
            }
            (None, Some(b'u')) if let Some((character, length)) = unicode(text, end + 2) => {
                decoded.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                end + 2 + length
            }
            _ => {
                decoded.push(b'\\');
                end + 1
            }
        };
        next = memchr(b'\\', bytes.get(start..).unwrap_or_default()).map(|found| start + found);
    }
    decoded.extend_from_slice(bytes.get(start..).unwrap_or_default());
}

/// Returns the byte whose two hexadecimal digits are at `at`.
pub(crate) fn hexadecimal(bytes: &[u8], at: usize) -> Option<u8> {
    let digit = |at: usize| char::from(*bytes.get(at)?).to_digit(16);
    u8::try_from(digit(at)? * 16 + digit(at + 1)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_of_access_logs_are_bytes() {
        let mut decoded = Vec::new();
        for (text, plain) in [
            ("plain", "plain"),
            (r"a\x22b\x5Cc", "a\"b\\c"),
            (r"\xD0\xBF\u00e9\n\v", "пé\n\u{b}"),
            (r"\x16\x03\x01", "\u{16}\u{3}\u{1}"),
            // Not UTF-8, or no escape.
            (r"a\xffb\x22", r"a\xffb\x22"),
            (r"C:\dir\xg\u12\", r"C:\dir\xg\u12\"),
        ] {
            assert_eq!(unescaped(text, &mut decoded), plain, "{text}");
        }
    }
}
