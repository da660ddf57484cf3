//! Character sets: the form of a text in a file, which messages have in UTF-8.
//!
//! A stream is cut into messages as it is, with a delimiter in its character set, and each message is
//! decoded. So positions are those of the bytes in the file, and a run resumes in the middle. Decoding the
//! stream before it is cut was rejected: a position in the decoded text is none in the file. The messages are
//! the same, because a delimiter is found between two characters only. The units of UTF-16 are at even
//! positions. In Shift_JIS and its like, the last byte of a character may look like a delimiter, so a
//! delimiter that may be mistaken is searched from character to character.
//!
//! The names are those of the Encoding Standard of the WHATWG, which the library `encoding_rs` implements.
//!
//! See docs/decisions/087-text-is-cut-before-it-is-decoded.md.

use std::borrow::Cow;

use encoding_rs::{
    BIG5, DecoderResult, EUC_JP, EUC_KR, Encoding, GB18030, GBK, ISO_2022_JP, REPLACEMENT, SHIFT_JIS, UTF_8,
    UTF_16BE, UTF_16LE,
};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use thalweg_config::{FormatError, register_format};
use thalweg_record::ViewBuilder;

/// The number of bytes that are decoded into at once.
const CHUNK: usize = 16 << 10;

/// The first byte that the last byte of a character of several bytes may equal.
const FIRST_TRAIL: u8 = 0x30;

/// A character set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Charset {
    encoding: &'static Encoding,
    /// True for `utf-16`, whose byte order mark tells the order of its bytes.
    is_marked: bool,
}

impl Default for Charset {
    fn default() -> Self {
        Self { encoding: UTF_8, is_marked: false }
    }
}

/// The format of the names in schemas.
const FORMAT: &str = "charset";

impl JsonSchema for Charset {
    fn schema_name() -> Cow<'static, str> {
        "Charset".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        register_format(FORMAT, |name| Self::try_from(name.to_owned()).map(|_| ()));
        json_schema!({
            "type": "string",
            "format": FORMAT,
            "description": "A character set.",
            "examples": ["latin1", "windows-1252", "utf-16", "shift_jis"],
        })
    }
}

impl TryFrom<String> for Charset {
    type Error = FormatError;

    fn try_from(name: String) -> Result<Self, FormatError> {
        match Encoding::for_label(name.as_bytes()) {
            None => Err(FormatError::new(format!("`{name}` is not a known character set."))
                .help("Write for example `latin1`, `windows-1252`, `utf-16` or `shift_jis`.")),
            Some(found) if found == ISO_2022_JP || found == REPLACEMENT => Err(FormatError::new(format!(
                "`{name}` cannot be cut into messages: its bytes depend on those before."
            ))
            .help("Convert the input with `iconv`.")),
            Some(encoding) => {
                Ok(Self { encoding, is_marked: name.trim_ascii().eq_ignore_ascii_case("utf-16") })
            }
        }
    }
}

impl Charset {
    /// True for UTF-8, the character set of messages. They are then passed on as they are, whatever they are.
    pub fn is_utf8(self) -> bool {
        self.encoding == UTF_8
    }

    /// True if characters of ASCII have their usual bytes.
    pub fn has_ascii(self) -> bool {
        self.unit() == 1
    }

    /// True if a byte order mark tells the order of the bytes.
    pub fn is_marked(self) -> bool {
        self.is_marked
    }

    /// Returns the number of bytes to whose multiples the characters are aligned.
    pub fn unit(self) -> usize {
        if self.encoding == UTF_16LE || self.encoding == UTF_16BE { 2 } else { 1 }
    }

    /// True for UTF-16 whose units begin with their high byte.
    pub fn is_big_endian(self) -> bool {
        self.encoding == UTF_16BE
    }

    /// Returns the same character set after a byte order mark: with the other order, if `big` is true.
    #[must_use]
    pub fn ordered(self, big: bool) -> Self {
        let encoding = match (self.is_marked, big) {
            (false, _) => self.encoding,
            (true, true) => UTF_16BE,
            (true, false) => UTF_16LE,
        };
        Self { encoding, ..self }
    }

    /// Returns the byte order marks that a text may begin with, each with the character set that follows it.
    fn marks(self) -> impl Iterator<Item = (&'static [u8], Self)> {
        const UTF8: &[u8] = b"\xef\xbb\xbf";
        const LITTLE: &[u8] = b"\xff\xfe";
        const BIG: &[u8] = b"\xfe\xff";
        let is = |encoding: &'static Encoding| {
            self.encoding == encoding || self.is_marked && self.unit() == 2 && encoding != UTF_8
        };
        let marks = [(UTF8, is(UTF_8), false), (LITTLE, is(UTF_16LE), false), (BIG, is(UTF_16BE), true)];
        marks.into_iter().filter(|(_, is, _)| *is).map(move |(mark, _, big)| (mark, self.ordered(big)))
    }

    /// Returns the length of the byte order mark at the start of a text, which may be 0, and the character
    /// set of the rest. `None` if more bytes are needed to tell.
    pub fn after_mark(self, text: &[u8], is_end: bool) -> Option<(usize, Self)> {
        for (mark, charset) in self.marks() {
            if text.starts_with(mark) {
                return Some((mark.len(), charset));
            }
            if !is_end && mark.starts_with(text) {
                return None;
            }
        }
        Some((0, self))
    }

    /// Returns a delimiter in this character set. A delimiter that is no text, or has none of its characters
    /// there, stays as it is.
    pub fn encoded(self, delimiter: &[u8]) -> Vec<u8> {
        let Ok(text) = std::str::from_utf8(delimiter) else { return delimiter.to_vec() };
        if self.unit() == 2 {
            let is_big = self.is_big_endian();
            let bytes = |unit: u16| if is_big { unit.to_be_bytes() } else { unit.to_le_bytes() };
            return text.encode_utf16().flat_map(bytes).collect();
        }
        match self.encoding.encode(text) {
            (bytes, _, false) => bytes.into_owned(),
            (_, _, true) => delimiter.to_vec(),
        }
    }

    /// True if the bytes of this delimiter may occur where it is not, within a character or across two.
    pub fn may_mistake(self, delimiter: &[u8]) -> bool {
        let has_pairs = [SHIFT_JIS, GBK, GB18030, BIG5, EUC_JP, EUC_KR].contains(&self.encoding);
        has_pairs && delimiter.iter().any(|byte| *byte >= FIRST_TRAIL)
    }

    /// Returns the length in bytes of the first character of a text, of a character set whose characters have
    /// one byte or several. `None` if more bytes are needed to tell. A byte that begins no character counts
    /// as one.
    pub(crate) fn character(self, text: &[u8]) -> Option<usize> {
        let lead = *text.first()?;
        let second = text.get(1).copied();
        let has_four_bytes = (self.encoding == GBK || self.encoding == GB18030)
            && second.is_some_and(|byte| byte.is_ascii_digit());
        let is_alone = match lead {
            0..=0x80 | 0xff => true,
            0xa0..=0xdf | 0xfd.. => self.encoding == SHIFT_JIS || lead == 0xa0 && self.encoding == EUC_JP,
            0x81..=0x8d | 0x90..=0x9f => self.encoding == EUC_JP,
            _ => false,
        };
        if is_alone {
            return Some(1);
        }
        let length = match lead {
            0x8f if self.encoding == EUC_JP => 3,
            _ if has_four_bytes => 4,
            _ => 2,
        };
        // A line feed is part of no character, so it is seen even if the bytes after it are not known yet.
        if text.iter().take(length).skip(1).any(|byte| *byte < FIRST_TRAIL) {
            return Some(1);
        }
        let character = text.get(..length)?;
        let is_valid = self.encoding.decode_without_bom_handling_and_without_replacement(character).is_some();
        match (is_valid, second) {
            (true, _) => Some(length),
            // A byte of ASCII is a character of its own if the byte before it cannot have it.
            (false, Some(0x80..)) if length == 2 => Some(2),
            (false, _) => Some(1),
        }
    }

    /// Returns a message that is in UTF-8 already.
    #[inline]
    pub fn as_utf8(self, message: &[u8]) -> Option<&[u8]> {
        let is_ascii = || self.has_ascii() && Encoding::ascii_valid_up_to(message) == message.len();
        (self.is_utf8() || is_ascii()).then_some(message)
    }

    /// Adds a message in UTF-8 to a column. Returns true if it had to be decoded.
    ///
    /// # Errors
    /// The reason, if the message is invalid. Nothing is added then.
    #[inline]
    pub fn push(self, message: &[u8], column: &mut ViewBuilder) -> Result<bool, String> {
        if let Some(text) = self.as_utf8(message) {
            column.push(text);
            return Ok(false);
        }
        column.push_written(|into| self.decode_onto(message, into))?;
        Ok(true)
    }

    /// Appends a message in UTF-8. Decodes it in pieces, so that nothing but the text itself takes memory.
    ///
    /// # Errors
    /// The reason, if the message is invalid. The text before it is appended.
    pub fn decode_onto(self, message: &[u8], into: &mut Vec<u8>) -> Result<(), String> {
        let mut decoder = self.encoding.new_decoder_without_bom_handling();
        let mut read = 0;
        loop {
            let rest = message.get(read..).unwrap_or_default();
            let most = decoder.max_utf8_buffer_length_without_replacement(rest.len()).unwrap_or(CHUNK);
            let start = into.len();
            into.resize(start + most.min(CHUNK), 0);
            let free = into.get_mut(start..).unwrap_or_default();
            let (result, consumed, written) = decoder.decode_to_utf8_without_replacement(rest, free, true);
            into.truncate(start + written);
            read += consumed;
            match result {
                DecoderResult::InputEmpty => return Ok(()),
                DecoderResult::OutputFull => {}
                DecoderResult::Malformed(..) => {
                    return Err(format!("is not {}, at byte {read} of the message", self.encoding.name()));
                }
            }
        }
    }

    /// Decodes a text that may be cut off or invalid. Invalid parts become `�`.
    pub(crate) fn decode_lossy(self, text: &[u8]) -> Cow<'_, str> {
        self.encoding.decode_without_bom_handling(text).0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn charset(name: &str) -> Charset {
        Charset::try_from(name.to_owned()).unwrap()
    }

    fn decoded(charset: Charset, bytes: &[u8]) -> Result<String, String> {
        let mut text = Vec::new();
        charset.decode_onto(bytes, &mut text).map(|()| String::from_utf8(text).unwrap())
    }

    #[test]
    fn texts_are_decoded_and_what_is_invalid_has_a_position() {
        let decoded = |name: &str, bytes: &[u8]| decoded(charset(name), bytes);
        assert_eq!(decoded("latin1", b"plain"), Ok("plain".to_owned()));
        assert_eq!(decoded("latin1", b"Caf\xe9 \x80"), Ok("Café €".to_owned()));
        assert_eq!(decoded("utf-16le", b"A\0\xe9\0"), Ok("Aé".to_owned()));
        assert_eq!(decoded("utf-16be", b"\0A\x20\xac"), Ok("A€".to_owned()));
        assert_eq!(decoded("shift_jis", b"\x93\xfa"), Ok("日".to_owned()));
        assert_eq!(
            decoded("utf-16le", b"A\0\0"),
            Err("is not UTF-16LE, at byte 3 of the message".to_owned())
        );
    }

    #[test]
    fn a_text_of_many_pieces_takes_no_memory_but_its_own() {
        let mut text = Vec::new();
        charset("latin1").decode_onto(&[b'x'; 1 << 20], &mut text).unwrap();
        assert_eq!(text.len(), 1 << 20);
        assert!(text.capacity() <= (2 << 20) + CHUNK, "{}", text.capacity());
        assert_eq!(decoded(charset("latin1"), &[0xe9; 100_000]), Ok("é".repeat(100_000)));
    }

    #[test]
    fn a_name_that_is_not_known_is_a_mistake() {
        let mistake = |name: &str| Charset::try_from(name.to_owned()).unwrap_err();
        assert!(mistake("latin9000").message.starts_with("`latin9000` is not a known character set"));
        assert!(mistake("iso-2022-jp").message.starts_with("`iso-2022-jp` cannot be cut into messages"));
    }

    #[test]
    fn a_byte_order_mark_tells_the_order_of_utf_16_and_of_nothing_else() {
        let after = |name: &str, text: &[u8]| {
            let (length, charset) = charset(name).after_mark(text, true).unwrap();
            (length, charset.encoding.name())
        };
        assert_eq!(after("utf-8", b"\xef\xbb\xbfa"), (3, "UTF-8"));
        assert_eq!(after("utf-8", b"\xef\xbb"), (0, "UTF-8"));
        assert_eq!(after("utf-16", b"\xff\xfea\0"), (2, "UTF-16LE"));
        assert_eq!(after(" UTF-16 ", b"\xfe\xff\0a"), (2, "UTF-16BE"));
        assert_eq!(after("utf-16", b"a\0"), (0, "UTF-16LE"));
        assert_eq!(after("utf-16le", b"\xfe\xff"), (0, "UTF-16LE"));
        assert_eq!(after("utf-16be", b"\xfe\xff"), (2, "UTF-16BE"));
        assert_eq!(after("latin1", b"\xef\xbb\xbf"), (0, "windows-1252"));
        assert_eq!(charset("utf-16").after_mark(b"\xfe", false), None);
        assert_eq!(charset("utf-8").after_mark(b"", false), None);
        assert_eq!(charset("utf-8").after_mark(b"a", false), Some((0, charset("utf-8"))));
    }

    /// The character sets with characters of several bytes.
    const PAIRS: [&str; 6] = ["shift_jis", "gbk", "gb18030", "big5", "euc-jp", "euc-kr"];

    proptest! {
        #[test]
        fn characters_have_the_length_that_their_encoding_has(
            characters in prop::collection::vec(any::<char>(), 0..20),
            kind in 0..PAIRS.len(),
        ) {
            let charset = charset(PAIRS[kind]);
            let encode = |character: &char| {
                let text = character.to_string();
                let (bytes, _, is_wrong) = charset.encoding.encode(&text);
                (!is_wrong).then(|| bytes.into_owned())
            };
            let encoded: Vec<Vec<u8>> = characters.iter().filter_map(encode).collect();
            let text = encoded.concat();
            let mut at = 0;
            for character in &encoded {
                prop_assert_eq!(charset.character(&text[at..]), Some(character.len()));
                prop_assert!(character.len() == 1 || charset.character(&character[..1]).is_none());
                at += character.len();
            }
        }

        #[test]
        fn any_bytes_have_characters_that_end(bytes in prop::collection::vec(any::<u8>(), 1..40), kind in 0..6usize) {
            let charset = charset(PAIRS[kind]);
            let mut at = 0;
            while let Some(length) = charset.character(&bytes[at..]) {
                prop_assert!((1..=4).contains(&length));
                at += length;
            }
            prop_assert!(bytes.len() - at < 4 && !bytes[at..].contains(&b'\n'));
            // An error is no panic.
            let _ = decoded(charset, &bytes);
        }
    }
}
