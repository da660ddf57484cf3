//! The delimiter between two messages: parsed from a text with escapes, and written back as one.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The text between two messages.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub struct Delimiter(pub(super) Vec<u8>);

impl Default for Delimiter {
    fn default() -> Self {
        Self(b"\n".to_vec())
    }
}

impl Delimiter {
    /// Returns the delimiter that is a NUL.
    pub fn nul() -> Self {
        Self(vec![0])
    }

    /// Returns the bytes of the delimiter.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl TryFrom<String> for Delimiter {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let mut bytes = Vec::with_capacity(text.len());
        let mut rest = text.chars();
        while let Some(character) = rest.next() {
            if character != '\\' {
                bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                continue;
            }
            bytes.push(match rest.next() {
                Some('n') => b'\n',
                Some('r') => b'\r',
                Some('t') => b'\t',
                Some('0') => 0,
                Some('\\') => b'\\',
                Some('x') => {
                    let digits: String = rest.by_ref().take(2).collect();
                    // `from_str_radix` would accept a sign.
                    let is_byte = digits.len() == 2 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
                    u8::from_str_radix(&digits, 16)
                        .ok()
                        .filter(|_| is_byte)
                        .ok_or_else(|| format!("`\\x{digits}` is not a byte: write two digits, as in `\\x1e`."))?
                }
                other => {
                    let other = other.map(String::from).unwrap_or_default();
                    return Err(format!(
                        "`\\{other}` is not known here: write `\\n`, `\\r`, `\\t`, `\\0`, `\\xHH`, or `\\\\` for a \
                         backslash."
                    ));
                }
            });
        }
        if bytes.is_empty() {
            return Err("A delimiter cannot be empty: write `\\n`, `\\0` or some other text.".to_owned());
        }
        Ok(Self(bytes))
    }
}

impl From<Delimiter> for String {
    fn from(delimiter: Delimiter) -> Self {
        let mut text = String::new();
        for chunk in delimiter.0.utf8_chunks() {
            for character in chunk.valid().chars() {
                match character {
                    '\n' => text.push_str("\\n"),
                    '\r' => text.push_str("\\r"),
                    '\t' => text.push_str("\\t"),
                    '\0' => text.push_str("\\0"),
                    '\\' => text.push_str("\\\\"),
                    other => text.push(other),
                }
            }
            chunk.invalid().iter().for_each(|byte| text.push_str(&format!("\\x{byte:02x}")));
        }
        text
    }
}
