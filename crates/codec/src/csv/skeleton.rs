//! The form of a table in another character set in which its records are searched.
//!
//! It has one byte for each unit of the text: characters of ASCII are themselves, and all others are bytes
//! that are no syntax. So the search for quotes and line feeds needs to know nothing of character sets, and
//! what it finds has an offset in the file. (Rejected: to decode the file before. The offset of a record in
//! the decoded text is none in the file.)

use crate::charset::Charset;

/// A character of several bytes or units.
const OTHER: u8 = 0x80;

/// The byte order mark of UTF-16.
pub(super) const MARK: u8 = 0xfe;

/// Returns the skeleton of a text. The last character may be incomplete.
pub(super) fn skeleton(charset: Charset, text: &[u8], is_end: bool) -> Vec<u8> {
    if charset.unit() == 2 { units(charset, text, is_end) } else { characters(charset, text) }
}

fn units(charset: Charset, text: &[u8], is_end: bool) -> Vec<u8> {
    let is_big = charset.is_big_endian();
    let byte = |unit: &[u8]| {
        let code = match (unit, is_big) {
            ([high, low], true) => u16::from_be_bytes([*high, *low]),
            ([low, high], false) => u16::from_le_bytes([*low, *high]),
            _ => u16::MAX,
        };
        match code {
            0xfeff => MARK,
            _ => u8::try_from(code).ok().filter(u8::is_ascii).unwrap_or(OTHER),
        }
    };
    text.chunks(2).filter(|unit| unit.len() == 2 || is_end).map(byte).collect()
}

fn characters(charset: Charset, text: &[u8]) -> Vec<u8> {
    let mut found = Vec::with_capacity(text.len());
    while let Some(rest) = text.get(found.len()..).filter(|rest| !rest.is_empty()) {
        match (charset.character(rest), rest.first()) {
            (Some(1), Some(byte)) => found.push(*byte),
            (length, _) => found.resize(found.len() + length.unwrap_or(rest.len()), OTHER),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_that_only_look_like_syntax_are_none() {
        let skeleton =
            |name: &str, text: &[u8]| skeleton(Charset::try_from(name.to_owned()).unwrap(), text, true);
        // The second byte of the first character is that of a bar.
        assert_eq!(skeleton("shift_jis", b"\x83|a|\x83"), b"\x80\x80a|\x80");
        assert_eq!(skeleton("utf-16le", b"\xff\xfe\"\0\x0a\x0a\n\0x"), b"\xfe\"\x80\n\x80");
        assert_eq!(skeleton("utf-16be", b"\xfe\xff\0\"\x0a\x0a\0\n"), b"\xfe\"\x80\n");
    }
}
