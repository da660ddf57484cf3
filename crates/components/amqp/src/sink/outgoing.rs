//! From the rows of a batch to the messages of the server.

use std::hash::{DefaultHasher, Hash, Hasher};

use arrow_array::BinaryViewArray;
use thalweg_codec::template::{BoundTemplate, Template};
use thalweg_record::Batch;

use super::AmqpSink;
use crate::wire::{self, LONGEST, Property, Returned};

/// The bytes of a header beside the properties.
const HEAD: usize = 12;
/// The delivery modes of messages.
const TRANSIENT: u8 = 1;
const PERSISTENT: u8 = 2;

/// Makes messages of rows.
pub(super) struct Rows {
    routing_key: Template,
    /// The properties in the order of their values.
    properties: Vec<(&'static str, Property, Value)>,
}

/// The value of a property.
enum Value {
    Text(Template),
    Number(u8),
    /// The bytes of a text that is the same for all messages.
    Constant(Vec<u8>),
    Headers(Vec<(String, Template)>),
}

impl Rows {
    pub(super) fn new(config: &AmqpSink) -> Self {
        let texts = config.texts().into_iter();
        let mut properties: Vec<_> = texts
            .filter_map(|(option, property, text)| Some((option, property, Value::Text(text?.clone()))))
            .collect();
        let mode = if config.persistent { PERSISTENT } else { TRANSIENT };
        properties.push(("persistent", Property::DeliveryMode, Value::Number(mode)));
        if let Some(priority) = config.priority {
            properties.push(("priority", Property::Priority, Value::Number(priority)));
        }
        if let Some(age) = config.max_age {
            let milliseconds = age.duration().as_millis().to_string().into_bytes();
            properties.push(("max_age", Property::Expiration, Value::Constant(milliseconds)));
        }
        if !config.headers.is_empty() {
            let headers = config.headers.iter().map(|(name, value)| (name.clone(), value.clone()));
            properties.push(("headers", Property::Headers, Value::Headers(headers.collect())));
        }
        // The value of the highest flag is the first.
        properties.sort_by_key(|(_, property, _)| std::cmp::Reverse(property.flag()));
        Self { routing_key: config.routing_key.clone(), properties }
    }

    /// Looks up the columns in a batch. `most` is the size of the largest header, in bytes.
    pub(super) fn bind<'a>(&'a mut self, batch: &'a Batch, most: usize) -> Bound<'a> {
        let properties = self.properties.iter_mut().map(|(option, property, value)| {
            let value = match value {
                Value::Text(text) => BoundValue::Text(text.bind(batch)),
                Value::Number(number) => BoundValue::Number(*number),
                Value::Constant(text) => BoundValue::Constant(text),
                Value::Headers(headers) => BoundValue::Headers(
                    headers.iter_mut().map(|(name, value)| (&**name, value.bind(batch))).collect(),
                ),
            };
            (*option, *property, value)
        });
        Bound {
            payload: batch.payload(),
            properties: properties.collect(),
            routing_key: self.routing_key.bind(batch),
            most,
            rendered: Rendered::default(),
        }
    }
}

/// A batch of which messages are made.
pub(super) struct Bound<'a> {
    payload: &'a BinaryViewArray,
    routing_key: BoundTemplate<'a>,
    properties: Vec<(&'static str, Property, BoundValue<'a>)>,
    most: usize,
    rendered: Rendered,
}

enum BoundValue<'a> {
    Text(BoundTemplate<'a>),
    Number(u8),
    Constant(&'a [u8]),
    Headers(Vec<(&'a str, BoundTemplate<'a>)>),
}

/// The texts of the last message, whose memory is used again.
#[derive(Default)]
struct Rendered {
    routing_key: Vec<u8>,
    text: Vec<u8>,
    headers: Vec<u8>,
    properties: Vec<u8>,
}

/// A message without its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Outgoing<'a> {
    pub(super) routing_key: &'a [u8],
    /// The bytes of its properties.
    pub(super) properties: &'a [u8],
}

impl<'a> Bound<'a> {
    /// Returns the payload of a row.
    pub(super) fn payload(&self, row: usize) -> &'a [u8] {
        self.payload.value(row)
    }

    /// Returns the message of a row, or why there is none.
    pub(super) fn message(&mut self, row: usize) -> Result<Outgoing<'_>, String> {
        let Rendered { routing_key, text, headers, properties } = &mut self.rendered;
        render("routing_key", &mut self.routing_key, row, routing_key)?;
        properties.clear();
        properties.extend_from_slice(&[0, 0]);
        let mut flags = 0_u16;
        for (option, property, value) in &mut self.properties {
            match value {
                BoundValue::Text(value) => {
                    render(option, value, row, text)?;
                    if text.is_empty() {
                        continue;
                    }
                    wire::short_text(text, properties);
                }
                BoundValue::Number(number) => properties.push(*number),
                BoundValue::Constant(text) => wire::short_text(text, properties),
                BoundValue::Headers(values) => {
                    headers.clear();
                    for (name, value) in values {
                        text.clear();
                        value.render(row, text);
                        wire::short_text(name.as_bytes(), headers);
                        headers.push(b'S');
                        wire::long_text(text, headers);
                    }
                    wire::long_text(headers, properties);
                }
            }
            flags |= property.flag();
        }
        let [high, low] = flags.to_be_bytes();
        (properties[0], properties[1]) = (high, low);
        match HEAD + properties.len() {
            length if length > self.most => Err(format!(
                "the properties and headers of the message have {length} bytes, more than the server takes \
                 ({})",
                self.most
            )),
            _ => Ok(Outgoing { routing_key, properties }),
        }
    }
}

fn render(option: &str, value: &mut BoundTemplate<'_>, row: usize, text: &mut Vec<u8>) -> Result<(), String> {
    text.clear();
    value.render(row, text);
    if text.len() > LONGEST {
        return Err(format!("`{option}` of the message has {} bytes, more than 255", text.len()));
    }
    Ok(())
}

/// By what a message is known again that the server returns. It has no number then. Two messages that are
/// equal in this are routed alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Content {
    /// Of the routing key, and the length and beginning of the payload.
    rough: u64,
    /// Also of the properties, which a plugin of the server may change.
    exact: u64,
}

impl Content {
    /// The bytes at the beginning of a payload that are compared.
    pub(super) const KEPT: usize = 4096;

    pub(super) fn of(message: Outgoing<'_>, payload: &[u8]) -> Self {
        let beginning = payload.get(..payload.len().min(Self::KEPT)).unwrap_or_default();
        Self::hashed(message.routing_key, payload.len() as u64, beginning, message.properties)
    }

    pub(super) fn of_returned(message: &Returned) -> Self {
        Self::hashed(&message.routing_key, message.length, &message.payload, &message.properties)
    }

    fn hashed(routing_key: &[u8], length: u64, beginning: &[u8], properties: &[u8]) -> Self {
        let mut hasher = DefaultHasher::new();
        (routing_key, length, beginning).hash(&mut hasher);
        let rough = hasher.finish();
        properties.hash(&mut hasher);
        Self { rough, exact: hasher.finish() }
    }

    /// True if a message that came back may be this one.
    pub(super) fn is_like(self, other: Self) -> bool {
        self.rough == other.rough
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, RecordBatch, StringViewArray};
    use thalweg_engine::testing::{batch, options};

    use super::*;
    use crate::wire::Properties;

    #[test]
    fn properties_are_those_of_the_row_and_an_empty_one_is_left_out() {
        let config: AmqpSink = options(
            "{ servers: h, routing_key: 'a.{key}', message_id: '{id}', type: t, max_age: 5s, priority: 3, \
             headers: { unit: '{id}', none: '' } }",
        );
        let column = |values: [&str; 3]| -> ArrayRef {
            Arc::new(values.into_iter().map(Some).collect::<StringViewArray>())
        };
        let long = "k".repeat(254);
        let columns = [("key", column(["x", &long, "x"])), ("id", column(["7", "8", ""]))];
        let batch = batch(["y"; 3]).with_fields(RecordBatch::try_from_iter(columns).unwrap()).unwrap();
        let mut rows = Rows::new(&config);
        let mut bound = rows.bind(&batch, 1000);
        let message = bound.message(0).unwrap();
        assert_eq!(message.routing_key, b"a.x");
        let read = Properties::of(message.properties);
        assert_eq!((read.text(Property::MessageId), read.text(Property::Type)), (Some("7"), Some("t")));
        assert_eq!(
            (read.number(Property::DeliveryMode), read.number(Property::Priority)),
            (Some(2), Some(3))
        );
        assert_eq!((read.text(Property::Expiration), read.text(Property::AppId)), (Some("5000"), None));
        assert_eq!((read.header("unit").as_deref(), read.header("none").as_deref()), (Some("7"), Some("")));
        assert_eq!(
            bound.message(1),
            Err("`routing_key` of the message has 256 bytes, more than 255".to_owned())
        );
        let read = Properties::of(bound.message(2).unwrap().properties);
        assert_eq!((read.text(Property::MessageId), read.text(Property::Type)), (None, Some("t")));
        drop(bound);
        let mut narrow = rows.bind(&batch, 40);
        let reason = narrow.message(0).unwrap_err();
        assert!(reason.ends_with("more than the server takes (40)"), "{reason}");
    }
}
