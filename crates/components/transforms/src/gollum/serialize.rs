//! Writes whole messages as gollum serializes them (`format.Serialize`): a protocol buffer with the stream,
//! the time, the payload and the fields.
//!
//! It is no function of one value, as the other formatters are, so it is a transform of its own. The copy of
//! the message as it was before all formatters, which gollum adds in producers, is left out: it is optional.

use arrow_array::Array;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_codec::columns::FieldType;
use thalweg_codec::protobuf::write::{bytes, number};
use thalweg_codec::target::{Input, Slot, Target};
use thalweg_codec::template::column;
use thalweg_engine::{Error, Outputs, Transform};
use thalweg_record::{Batch, ViewBuilder};

/// Writes a message with its stream, time and fields.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Serialize {
    /// The name of the message's stream.
    stream: String,
    /// The name of its previous stream.
    previous: String,
    /// The form of gollum 0.4: without fields, and with the message's number.
    #[serde(default)]
    numbered: bool,
    /// Writes base64 and a line feed.
    #[serde(default)]
    base64: bool,
}

/// Serializes messages.
pub(super) struct Serializer {
    options: Serialize,
    input: Input,
    slot: Slot,
    /// The number of messages so far.
    number: u64,
}

impl Serialize {
    /// Prepares the transform.
    pub(super) fn build(&self, target: &Target) -> Serializer {
        let slot = Slot::new(target.output(), FieldType::Text);
        Serializer { options: self.clone(), input: target.input(), slot, number: 0 }
    }
}

impl Serializer {
    /// Appends a message.
    fn message(&self, payload: &[u8], fields: &[(&str, Vec<u8>)], nanoseconds: u64, out: &mut Vec<u8>) {
        number(1, stream_id(&self.options.stream), out);
        let previous = stream_id(&self.options.previous);
        if self.options.numbered {
            number(2, previous, out);
            number(3, nanoseconds, out);
            number(4, self.number, out);
            return bytes(5, payload, out);
        }
        let mut data = Vec::new();
        bytes(1, payload, &mut data);
        for (name, value) in fields {
            let mut entry = Vec::new();
            bytes(1, name.as_bytes(), &mut entry);
            bytes(2, value, &mut entry);
            bytes(2, &entry, &mut data);
        }
        bytes(2, &data, out);
        number(3, previous, out);
        // The stream in which the message began.
        number(4, stream_id(&self.options.stream), out);
        number(5, nanoseconds, out);
    }
}

impl Transform for Serializer {
    fn apply(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
        let Some(input) = self.input.read(&batch) else {
            out.send(batch);
            return Ok(());
        };
        let times = column(&batch, "meta.time");
        let schema = batch.fields().schema();
        let columns: Vec<_> = schema
            .fields()
            .iter()
            .map(|field| (field.name().as_str(), column(&batch, field.name())))
            .collect();
        let payload = batch.payload().clone();
        let mut result = ViewBuilder::over(&[], batch.rows());
        let (mut message, mut written) = (Vec::new(), Vec::new());
        for row in 0..batch.rows() {
            if input.is_null(row) {
                result.push_null();
                continue;
            }
            let present = columns.iter().filter(|(_, values)| !values.is_null(row));
            let fields: Vec<(&str, Vec<u8>)> = present
                .map(|(name, values)| {
                    let mut text = Vec::new();
                    values.write_text(row, &mut text);
                    (*name, text)
                })
                .collect();
            let time = times.time(row).and_then(|time| time.timestamp_nanos_opt()).unwrap_or_default();
            message.clear();
            self.message(payload.value(row), &fields, time.cast_unsigned(), &mut message);
            self.number += 1;
            written.clear();
            if self.options.base64 {
                written.extend_from_slice(STANDARD.encode(&message).as_bytes());
                written.push(b'\n');
            } else {
                written.extend_from_slice(&message);
            }
            result.push(&written);
        }
        Ok(self.slot.put(batch, result.finish(), Vec::new(), out)?)
    }
}

/// Returns the number of a stream: the hash of its name.
fn stream_id(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_engine::testing;

    use crate::gollum::Gollum;

    fn serialized(options: &str) -> Vec<u8> {
        let yaml = format!("formatter: {{ serialize: {options} }}");
        let given = testing::apply::<Gollum>(&yaml, [testing::batch(["hello"])]);
        given.outputs.into_values().flatten().next().unwrap().payload().value(0).to_vec()
    }

    #[test]
    fn a_message_has_the_fields_of_gollum_0_5() {
        let message = serialized("{ stream: s, previous: '' }");
        // The start of what gollum 0.5.4 wrote; the time follows.
        let start: &[u8] = b"\x08\xa2\x96\x88\xb0\xc8\xc9\xfb\xb1\xaf\x01\x12\x07\x0a\x05hello\
            \x18\xa5\xc6\x88\xa1\xc8\x9c\xa7\xf9\xcb\x01\x20\xa2\x96\x88\xb0\xc8\xc9\xfb\xb1\xaf\x01\x28";
        assert_eq!(&message[..start.len()], start);
    }

    #[test]
    fn a_message_of_0_4_is_numbered_and_in_base64() {
        let text = serialized("{ stream: s, previous: s, numbered: true, base64: true }");
        let message = STANDARD.decode(text.strip_suffix(b"\n").unwrap()).unwrap();
        assert!(message.starts_with(b"\x08\xa2\x96\x88\xb0\xc8\xc9\xfb\xb1\xaf\x01\x10\xa2\x96"));
        assert!(message.ends_with(b"\x20\x00\x2a\x05hello"));
    }
}
