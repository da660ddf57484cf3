//! Character sets: the form of a text in a file, which messages have in UTF-8.
//!
//! A stream is cut into messages as it is, with a delimiter in its character set, and each message is
//! decoded. So positions are those of the bytes in the file, and a run resumes in the middle. Decoding the
//! stream before it is cut was rejected: a position in the decoded text is none in the file. In all character
//! sets that are accepted, a delimiter in ASCII is found where it is: no other character has its bytes, and
//! the two bytes of a character in UTF-16 are at even positions.
//!
//! The names are those of the Encoding Standard of the WHATWG, which the library `encoding_rs` implements.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::Deserialize;

use encoding_rs::{DecoderResult, Encoding, ISO_2022_JP, REPLACEMENT, UTF_8, UTF_16BE, UTF_16LE};

/// A character set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
#[schemars(with = "String", extend("examples" = ["latin1", "windows-1252", "utf-16le", "shift_jis"]))]
pub struct Charset(&'static Encoding);

impl Default for Charset {
    fn default() -> Self {
        Self(UTF_8)
    }
}

impl TryFrom<String> for Charset {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        match Encoding::for_label(name.as_bytes()) {
            None => Err(format!(
                "`{name}` is not a known character set: write for example `latin1`, `windows-1252`, `utf-16le` or \
                 `shift_jis`."
            )),
            Some(found) if found == ISO_2022_JP || found == REPLACEMENT => Err(format!(
                "`{name}` cannot be cut into messages: its bytes depend on those before. Convert the input with `iconv`."
            )),
            Some(found) => Ok(Self(found)),
        }
    }
}

impl Charset {
    /// True for UTF-8, the character set of messages. They are then passed on as they are, whatever they are.
    pub fn is_utf8(self) -> bool {
        self.0 == UTF_8
    }

    /// True if characters of ASCII have their usual bytes.
    pub fn has_ascii(self) -> bool {
        self.unit() == 1
    }

    /// Returns the number of bytes to whose multiples the characters are aligned.
    pub(crate) fn unit(self) -> usize {
        if self.0 == UTF_16LE || self.0 == UTF_16BE { 2 } else { 1 }
    }

    /// Returns a delimiter in this character set. A delimiter that is no text, or has none of its characters
    /// there, stays as it is.
    pub fn encoded(self, delimiter: &[u8]) -> Vec<u8> {
        let Ok(text) = std::str::from_utf8(delimiter) else { return delimiter.to_vec() };
        if self.unit() == 2 {
            let is_little = self.0 == UTF_16LE;
            let bytes = |unit: u16| if is_little { unit.to_le_bytes() } else { unit.to_be_bytes() };
            return text.encode_utf16().flat_map(bytes).collect();
        }
        match self.0.encode(text) {
            (bytes, _, false) => bytes.into_owned(),
            (_, _, true) => delimiter.to_vec(),
        }
    }

    /// Returns a message in UTF-8: itself, or in the buffer. `is_first` is true at the beginning of the
    /// stream, where a byte order mark may be.
    ///
    /// # Errors
    /// The reason, if the message is invalid.
    pub fn text<'t>(
        self,
        message: &'t [u8],
        is_first: bool,
        buffer: &'t mut String,
    ) -> Result<&'t [u8], String> {
        if self.is_utf8() || self.has_ascii() && Encoding::ascii_valid_up_to(message) == message.len() {
            return Ok(message);
        }
        buffer.clear();
        let mut decoder = self.0.new_decoder_without_bom_handling();
        buffer.reserve(decoder.max_utf8_buffer_length_without_replacement(message.len()).unwrap_or_default());
        let (result, read) = decoder.decode_to_string_without_replacement(message, buffer, true);
        match result {
            DecoderResult::InputEmpty => {
                let text = buffer.as_str();
                let marked = text.strip_prefix('\u{feff}').filter(|_| is_first);
                Ok(marked.unwrap_or(text).as_bytes())
            }
            _ => Err(format!("is not {}, at byte {read} of the message", self.0.name())),
        }
    }

    /// Decodes a text that may be cut off or invalid. Invalid parts become `�`.
    pub(crate) fn decode_lossy(self, text: &[u8]) -> Cow<'_, str> {
        self.0.decode_without_bom_handling(text).0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn charset(name: &str) -> Charset {
        Charset::try_from(name.to_owned()).unwrap()
    }

    #[test]
    fn texts_are_decoded_and_what_is_invalid_has_a_position() {
        let decoded = |name: &str, bytes: &[u8]| {
            let mut buffer = String::new();
            charset(name).text(bytes, true, &mut buffer).map(|text| String::from_utf8(text.to_vec()).unwrap())
        };
        assert_eq!(decoded("latin1", b"plain"), Ok("plain".to_owned()));
        assert_eq!(decoded("latin1", b"Caf\xe9 \x80"), Ok("Café €".to_owned()));
        assert_eq!(decoded("utf-16le", b"\xff\xfeA\0\xe9\0"), Ok("Aé".to_owned()));
        assert_eq!(decoded("utf-16be", b"\0A\x20\xac"), Ok("A€".to_owned()));
        assert_eq!(decoded("shift_jis", b"\x93\xfa"), Ok("日".to_owned()));
        assert_eq!(
            decoded("utf-16le", b"A\0\0"),
            Err("is not UTF-16LE, at byte 3 of the message".to_owned())
        );
    }

    #[test]
    fn a_name_that_is_not_known_is_a_mistake() {
        let mistake = |name: &str| Charset::try_from(name.to_owned()).unwrap_err();
        assert!(mistake("latin9000").starts_with("`latin9000` is not a known character set"));
        assert!(mistake("iso-2022-jp").starts_with("`iso-2022-jp` cannot be cut into messages"));
    }
}
