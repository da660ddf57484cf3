//! JSON texts: finds their end, writes them, and decodes them.

use std::borrow::Cow;

use arrow_array::StringViewArray;
use serde_json::Value;

/// Sets the lowest bit of each byte that ends a run of plain text: a quote, a backslash or a control
/// character. Checks sixteen bytes at once; compilers turn this into vector instructions.
#[inline]
fn special_bytes(chunk: [u8; 16]) -> u128 {
    u128::from_le_bytes(chunk.map(|byte| u8::from((byte == b'"') | (byte == b'\\') | (byte < 0x20))))
}

/// Returns the index of the first quote, backslash or control character from `at` on.
#[inline]
pub(crate) fn find_special(bytes: &[u8], mut at: usize) -> Option<usize> {
    while let Some(chunk) = bytes.get(at..).and_then(|rest| rest.first_chunk::<16>()) {
        let special = special_bytes(*chunk);
        if special != 0 {
            return Some(at + special.trailing_zeros() as usize / 8);
        }
        at += 16;
    }
    let rest = bytes.len().checked_sub(at).filter(|&rest| rest > 0)?;
    let special = match bytes.last_chunk::<16>() {
        // The last sixteen bytes, without those before `at`.
        Some(chunk) => special_bytes(*chunk) >> ((16 - rest) * 8),
        None => {
            let mut chunk = [b' '; 16];
            chunk.iter_mut().zip(&bytes[at..]).for_each(|(to, from)| *to = *from);
            special_bytes(chunk)
        }
    };
    (special != 0).then(|| at + special.trailing_zeros() as usize / 8)
}

/// Returns a name as the key of a member of an object: in quotes, with its colon.
pub(crate) fn key(name: &str) -> Vec<u8> {
    let mut key = Vec::with_capacity(name.len() + 3);
    write_text(name, &mut key);
    key.push(b':');
    key
}

/// Writes a text in quotes, with escapes.
#[inline]
pub fn write_text(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    write_escaped(text.as_bytes(), out);
    out.push(b'"');
}

#[inline]
fn write_escaped(text: &[u8], out: &mut Vec<u8>) {
    let mut from = 0;
    while let Some(at) = find_special(text, from) {
        out.extend_from_slice(&text[from..at]);
        write_escape(text[at], out);
        from = at + 1;
    }
    out.extend_from_slice(&text[from..]);
}

#[cold]
fn write_escape(byte: u8, out: &mut Vec<u8>) {
    let escape: &[u8] = match byte {
        b'"' => b"\\\"",
        b'\\' => b"\\\\",
        b'\n' => b"\\n",
        b'\r' => b"\\r",
        b'\t' => b"\\t",
        0x08 => b"\\b",
        0x0c => b"\\f",
        _ => {
            let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or('0') as u8;
            out.extend_from_slice(&[b'\\', b'u', b'0', b'0', digit(byte >> 4), digit(byte & 15)]);
            return;
        }
    };
    out.extend_from_slice(escape);
}

/// Writes the text of an Arrow view of at most twelve bytes in quotes. The view itself holds such a text. A
/// text without escapes is written as a single number.
#[inline]
pub(crate) fn write_inline(view: u128, out: &mut Vec<u8>) {
    let length = (view as u32).min(12);
    let text = view >> 32;
    let bytes = text.to_le_bytes();
    // After the end of the text there are zeros, which count as special.
    if special_bytes(bytes).trailing_zeros() / 8 >= length {
        let quoted = u128::from(b'"') | text << 8 | u128::from(b'"') << ((length + 1) * 8);
        let end = out.len() + length as usize + 2;
        out.extend_from_slice(&quoted.to_le_bytes());
        out.truncate(end);
    } else {
        out.push(b'"');
        write_escaped(&bytes[..length as usize], out);
        out.push(b'"');
    }
}

/// Returns a JSON value as plain text: a JSON string without its quotes and escapes, any other value
/// unchanged.
pub(crate) fn plain(value: &str) -> Cow<'_, str> {
    if !value.starts_with('"') {
        return value.into();
    }
    match serde_json::from_str(value) {
        Ok(Value::String(text)) => text.into(),
        _ => value.into(),
    }
}

/// True if a value is the JSON value `null`.
pub(crate) fn is_null(value: &str) -> bool {
    value.trim_ascii() == "null"
}

/// Applies [`plain`] to a column; `null` becomes NULL. The column is not copied if it contains neither.
pub(crate) fn plain_texts(column: &StringViewArray) -> StringViewArray {
    let changes = |value: Option<&str>| value.is_some_and(|value| value.starts_with('"') || is_null(value));
    if !column.iter().any(changes) {
        return column.clone();
    }
    column.iter().map(|value| value.filter(|value| !is_null(value)).map(plain)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::StringViewArray;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn texts_are_written_as_serde_json_writes_them(text in "([a-zé]{0,8}[\"\\\\\u{0}-\u{1f}]?){0,6}") {
            let expected = serde_json::to_string(&text).unwrap();
            let mut written = Vec::new();
            write_text(&text, &mut written);
            prop_assert_eq!(std::str::from_utf8(&written).unwrap(), &expected);
            if text.len() <= 12 {
                let array = StringViewArray::from_iter_values([&text]);
                let mut written = b"x".to_vec();
                write_inline(array.views()[0], &mut written);
                prop_assert_eq!(std::str::from_utf8(&written[1..]).unwrap(), &expected);
            }
        }

        #[test]
        fn the_first_special_byte_is_found_from_anywhere(text in "[a-c\"\\\\\n\u{1f} é]{0,60}", at in 0..70usize) {
            let expected = text.bytes().enumerate().skip(at).find(|&(_, b)| b == b'"' || b == b'\\' || b < 0x20);
            prop_assert_eq!(find_special(text.as_bytes(), at), expected.map(|(at, _)| at));
        }
    }
}
