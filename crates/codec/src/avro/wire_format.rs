//! The bytes before a datum that name its schema.

use schemars::JsonSchema;
use serde::Deserialize;

use super::Schema;

/// The bytes before the datum of a message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WireFormat {
    /// None: the message is the datum.
    #[default]
    None,
    /// Avro's single-object encoding: the bytes `C3 01`, and the fingerprint of the schema. A message of
    /// another schema is rejected.
    SingleObject,
    /// The wire format of Confluent's serializers: a zero byte, and the number of the schema in a registry.
    Confluent,
}

impl WireFormat {
    /// Returns the number of the schema, if the format has one, and the datum.
    ///
    /// # Errors
    /// The reason for rejecting the message.
    pub fn split<'a>(self, message: &'a [u8], schema: &Schema) -> Result<(Option<u32>, &'a [u8]), String> {
        match self {
            Self::None => Ok((None, message)),
            Self::SingleObject => single_object(message, schema).map(|datum| (None, datum)),
            Self::Confluent => confluent(message).map(|(id, datum)| (Some(id), datum)),
        }
    }
}

fn single_object<'a>(message: &'a [u8], schema: &Schema) -> Result<&'a [u8], String> {
    let found = message.strip_prefix(b"\xc3\x01").and_then(|rest| rest.split_first_chunk::<8>());
    let Some((found, datum)) = found else {
        return Err(
            "does not begin as the single-object encoding does, with `C3 01` and the fingerprint of a \
                    schema"
                .to_owned(),
        );
    };
    let (found, expected) = (u64::from_le_bytes(*found), schema.fingerprint());
    match found == expected {
        true => Ok(datum),
        false => Err(format!(
            "has another schema: its fingerprint is `{found:016x}`, and that of the given schema is \
             `{expected:016x}`"
        )),
    }
}

fn confluent(message: &[u8]) -> Result<(u32, &[u8]), String> {
    let found = message.strip_prefix(b"\0").and_then(|rest| rest.split_first_chunk::<4>());
    found.map(|(id, datum)| (u32::from_be_bytes(*id), datum)).ok_or_else(|| {
        "does not begin as Confluent's wire format does, with a zero and the four bytes of a schema's number"
            .to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_removed_and_another_one_is_rejected() {
        let schema = Schema::parse("\"int\"").unwrap();
        let split = |format: WireFormat, message| format.split(message, &schema);
        assert_eq!(split(WireFormat::None, b"\0"), Ok((None, &b"\0"[..])));
        assert_eq!(split(WireFormat::Confluent, b"\0\0\0\x01\x02ab"), Ok((Some(258), &b"ab"[..])));
        assert!(split(WireFormat::Confluent, b"\0\0\0\x01").is_err());
        assert!(split(WireFormat::Confluent, b"\x01\0\0\x01\x02ab").is_err());
        let single = b"\xc3\x01\x8f\x5c\x39\x3f\x1a\xd5\x75\x72ab";
        assert_eq!(split(WireFormat::SingleObject, single), Ok((None, &b"ab"[..])));
        let other = b"\xc3\x01\x8f\x5c\x39\x3f\x1a\xd5\x75\x73ab";
        assert_eq!(
            split(WireFormat::SingleObject, other).unwrap_err(),
            "has another schema: its fingerprint is `7375d51a3f395c8f`, and that of the given schema is \
             `7275d51a3f395c8f`"
        );
        assert!(split(WireFormat::SingleObject, b"\xc3\x01ab").unwrap_err().contains("does not begin"));
    }
}
