//! The bytes that some systems put before a message.

use schemars::JsonSchema;
use serde::Deserialize;

use super::kind::unzigzag;
use super::wire::Reader;

/// The bytes before a message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum WireFormat {
    /// Nothing.
    #[default]
    None,
    /// The wire format of Confluent's schema registry: a zero, the number of the schema in 4 bytes, and the
    /// indexes of the message type in its file. The header is skipped, whatever schema it names.
    Confluent,
}

/// The maximum number of indexes: a type declared in a type has one for each level.
const MOST_INDEXES: i64 = 100;

impl WireFormat {
    /// Returns a message without its header.
    ///
    /// # Errors
    /// The reason, if it has none.
    #[inline]
    pub(super) fn skip(self, message: &[u8]) -> Result<&[u8], String> {
        match self {
            Self::None => Ok(message),
            Self::Confluent => after_confluent(message).ok_or_else(|| {
                "has no header of Confluent's wire format: leave out `wire_format`".to_owned()
            }),
        }
    }
}

fn after_confluent(message: &[u8]) -> Option<&[u8]> {
    let [0, _, _, _, _, rest @ ..] = message else { return None };
    let mut reader = Reader::new(rest);
    let count = unzigzag(reader.varint().ok()?);
    // None means the first type of the file.
    for _ in 0..Some(count).filter(|count| (0..=MOST_INDEXES).contains(count))? {
        reader.varint().ok()?;
    }
    Some(reader.rest())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_of_confluent_has_any_number_of_indexes() {
        let skip = |message: &'static [u8]| WireFormat::Confluent.skip(message);
        assert_eq!(skip(b"\0\0\0\0\x07\0ab"), Ok(&b"ab"[..]));
        assert_eq!(skip(b"\0\0\0\0\x07\x04\x02\0ab"), Ok(&b"ab"[..]));
        assert_eq!(skip(b"\0\0\0\0\x07\0"), Ok(&b""[..]));
        for wrong in [
            &b""[..],
            b"\x08\x01",
            b"\0\0\0\0\x07",
            b"\0\0\0\0\x07\x04\x02",
            b"\0\0\0\0\x07\x01\0",
            b"\0\0\0\0\x07\xff\x7f",
        ] {
            assert!(WireFormat::Confluent.skip(wrong).is_err(), "{wrong:?}");
        }
        assert_eq!(WireFormat::None.skip(b"\0"), Ok(&b"\0"[..]));
    }
}
