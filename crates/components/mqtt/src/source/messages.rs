//! From the messages of the server to those of the engine.

use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray, Int64Array, StringViewArray};
use arrow_schema::{DataType, Field as Column};
use thalweg_config::{ByteSize, List};
use thalweg_engine::{Error, Reading, Received, SourceOutput};
use thalweg_stream::whole::{self, Whole};

use crate::wire::{Properties, Publish, property};

/// The memory of a message, beside its bytes.
const MESSAGE: usize = 200;

/// A part of a message that becomes a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Field {
    Topic,
    Qos,
    Retained,
    Duplicate,
    ContentType,
    ResponseTopic,
    Expiry,
    Property(String),
}

/// A message that was received.
#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) message: Publish,
    /// Its key, if it is to be acknowledged.
    pub(super) key: Option<u64>,
}

impl Field {
    /// Returns the part with this name, if there is one.
    pub(super) fn new(name: &str) -> Option<Self> {
        Some(match name {
            "topic" => Self::Topic,
            "qos" => Self::Qos,
            "retained" => Self::Retained,
            "duplicate" => Self::Duplicate,
            "content_type" => Self::ContentType,
            "response_topic" => Self::ResponseTopic,
            "expiry" => Self::Expiry,
            other => {
                let name = other.strip_prefix("property.").filter(|name| !name.is_empty())?;
                Self::Property(name.to_owned())
            }
        })
    }

    /// True if only messages of MQTT 5 have the part.
    pub(super) fn is_property(&self) -> bool {
        matches!(self, Self::ContentType | Self::ResponseTopic | Self::Expiry | Self::Property(_))
    }

    /// Returns the description of the column of this part.
    pub(super) fn described(&self, name: &str) -> Column {
        let kind = match self {
            Self::Topic | Self::ContentType | Self::ResponseTopic | Self::Property(_) => DataType::Utf8View,
            Self::Qos | Self::Expiry => DataType::Int64,
            Self::Retained | Self::Duplicate => DataType::Boolean,
        };
        Column::new(name, kind, true)
    }

    /// Returns this part of some messages as a column.
    fn column(&self, messages: &[Incoming]) -> ArrayRef {
        let messages = messages.iter().map(|incoming| &incoming.message);
        match self {
            Self::Topic => texts(messages, |message| Some(message.topic.as_str())),
            Self::ContentType => texts(messages, |message| properties(message).text(property::CONTENT_TYPE)),
            Self::ResponseTopic => {
                texts(messages, |message| properties(message).text(property::RESPONSE_TOPIC))
            }
            Self::Property(name) => texts(messages, |message| properties(message).user(name)),
            Self::Qos => Arc::new(messages.map(|message| Some(message.qos as i64)).collect::<Int64Array>()),
            Self::Expiry => {
                let seconds = messages
                    .map(|message| properties(message).number(property::MESSAGE_EXPIRY).map(i64::from));
                Arc::new(seconds.collect::<Int64Array>())
            }
            Self::Retained => {
                Arc::new(messages.map(|message| Some(message.is_retained)).collect::<BooleanArray>())
            }
            Self::Duplicate => {
                Arc::new(messages.map(|message| Some(message.is_duplicate)).collect::<BooleanArray>())
            }
        }
    }
}

fn properties(message: &Publish) -> Properties<'_> {
    Properties::of(&message.properties)
}

fn texts<'a>(
    messages: impl Iterator<Item = &'a Publish>,
    part: impl Fn(&'a Publish) -> Option<&'a str>,
) -> ArrayRef {
    Arc::new(messages.map(part).collect::<StringViewArray>())
}

impl Incoming {
    fn payload(&self) -> &[u8] {
        &self.message.payload
    }

    /// The memory that it takes, in bytes.
    pub(super) fn bytes(&self) -> usize {
        MESSAGE + self.message.topic.len() + self.message.properties.len() + self.message.payload.len()
    }
}

/// Makes batches of messages.
pub(super) struct Messages {
    fields: Vec<(String, Field)>,
    whole: Whole,
    /// `meta.path` of the messages.
    path: Arc<str>,
}

impl Messages {
    pub(super) fn new(fields: &List<String>, max_message_bytes: ByteSize, path: &str) -> Self {
        let fields = fields.iter().filter_map(|name| Some((name.clone(), Field::new(name)?)));
        Self { fields: fields.collect(), whole: Whole::new(max_message_bytes), path: path.into() }
    }

    /// Returns the number of messages that make the next batch of about `bytes` bytes: a message that is
    /// rejected is alone.
    pub(super) fn batch(&self, messages: &[Incoming], bytes: usize) -> usize {
        let accepted = messages.iter().take_while(|incoming| self.reason(incoming).is_none()).count();
        let accepted = messages.get(..accepted).unwrap_or_default();
        self.whole.batch(accepted.iter().map(Incoming::payload), bytes)
    }

    /// Returns the reason to reject a batch: that of its only message.
    pub(super) fn rejected(&self, messages: &[Incoming]) -> Option<String> {
        self.reason(messages.first()?)
    }

    fn reason(&self, incoming: &Incoming) -> Option<String> {
        let message = &incoming.message;
        if message.has_large_properties {
            return Some(format!(
                "the properties of the message have {} bytes, which is too much",
                message.length
            ));
        }
        self.whole.refused(message.length)
    }

    /// Waits for memory, and returns a batch of all these messages.
    ///
    /// # Errors
    /// If the fields do not fit together.
    pub(super) async fn received(
        &self,
        messages: &[Incoming],
        out: &SourceOutput,
    ) -> Result<Received, Error> {
        let payloads: Vec<&[u8]> = messages.iter().map(Incoming::payload).collect();
        let columns = self.fields.iter().map(|(name, field)| (field.described(name), field.column(messages)));
        Ok(Received {
            fields: whole::fields(columns, messages.len())?,
            reading: Reading {
                payload: self.whole.payload(&payloads, out).await,
                path: Some(self.path.clone()),
                positions: None,
                checkpoint: None,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Qos, number_property, pair_property, text_property};

    fn incoming(properties: &[u8], length: usize) -> Incoming {
        let message = Publish {
            topic: "a/b".to_owned(),
            id: 1,
            qos: Qos::AtLeastOnce,
            is_duplicate: false,
            is_retained: true,
            properties: properties.to_vec(),
            payload: vec![b'x'; length.min(11)],
            length,
            has_large_properties: false,
        };
        Incoming { message, key: None }
    }

    #[test]
    fn names_of_fields_are_parts_and_properties() {
        assert_eq!(Field::new("topic"), Some(Field::Topic));
        assert_eq!(Field::new("property.unit"), Some(Field::Property("unit".to_owned())));
        for wrong in ["", "property.", "subject", "Topic"] {
            assert_eq!(Field::new(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn parts_of_a_message_are_columns() {
        let names = ["topic", "qos", "retained", "duplicate", "content_type", "expiry", "property.unit"];
        let mut properties = Vec::new();
        text_property(property::CONTENT_TYPE, b"text/plain", &mut properties);
        number_property(property::MESSAGE_EXPIRY, 60, &mut properties);
        pair_property(b"unit", b"K", &mut properties);
        let messages = [incoming(&properties, 1), incoming(&[], 1)];
        let columns = names.map(|name| {
            let field = Field::new(name).unwrap();
            (field.described(name), field.column(&messages))
        });
        let columns = whole::fields(columns.into_iter(), 2).unwrap().unwrap();
        let rows: Vec<String> =
            thalweg_engine::testing::rows(&columns).iter().map(ToString::to_string).collect();
        assert_eq!(
            rows,
            [
                r#"{"topic":"a/b","qos":1,"retained":true,"duplicate":false,"content_type":"text/plain","expiry":60,"property.unit":"K"}"#,
                r#"{"topic":"a/b","qos":1,"retained":true,"duplicate":false}"#,
            ]
        );
    }

    #[test]
    fn a_message_that_is_too_large_is_alone_and_says_its_whole_size() {
        let messages = Messages::new(&List::default(), "10".parse().unwrap(), "a/#");
        let mut all = vec![incoming(&[], 4), incoming(&[], 5000), incoming(&[], 4)];
        assert_eq!((messages.batch(&all, 1000), messages.rejected(&all)), (1, None));
        let reason = "the message has 5000 bytes, more than `max_message_bytes` (10)".to_owned();
        assert_eq!((messages.batch(&all[1..], 1000), messages.rejected(&all[1..])), (1, Some(reason)));
        all[2].message.has_large_properties = true;
        let reason = "the properties of the message have 4 bytes, which is too much".to_owned();
        assert_eq!((messages.batch(&all[2..], 1000), messages.rejected(&all[2..])), (1, Some(reason)));
    }
}
