//! From the messages of a queue to those of the engine.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringViewArray, TimestampMicrosecondArray};
use arrow_schema::{DataType, Field as Column, TimeUnit};
use serde::Deserialize;
use thalweg_config::{ByteSize, List};
use thalweg_engine::{Error, Reading, Received, SourceOutput};
use thalweg_stream::whole::{self, Whole};

use crate::queue::is_fifo;

/// A part of a message that becomes a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Field {
    Id,
    /// When it was sent.
    Time,
    /// How many times it was delivered.
    Deliveries,
    /// A text that the service has for each message, by its name there.
    System(&'static str),
    /// An attribute that the sender gave to it.
    Attribute(String),
}

const SENT: &str = "SentTimestamp";
const DELIVERIES: &str = "ApproximateReceiveCount";
const GROUP: &str = "MessageGroupId";

/// The answer to a request for messages.
#[derive(Debug, Deserialize)]
pub(crate) struct Body {
    #[serde(rename = "Messages", default)]
    pub(crate) messages: Option<Vec<Incoming>>,
}

/// A message that was received.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Incoming {
    #[serde(rename = "MessageId")]
    pub(super) id: String,
    #[serde(rename = "ReceiptHandle")]
    pub(super) handle: String,
    #[serde(default)]
    pub(super) body: String,
    #[serde(default)]
    attributes: BTreeMap<String, String>,
    #[serde(default)]
    message_attributes: BTreeMap<String, Attribute>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Attribute {
    /// A text, also of a number. Bytes have none.
    #[serde(default)]
    string_value: Option<String>,
}

impl Field {
    /// Returns the part with this name, if there is one.
    pub(super) fn new(name: &str) -> Option<Self> {
        Some(match name {
            "id" => Self::Id,
            "time" => Self::Time,
            "deliveries" => Self::Deliveries,
            "message_group" => Self::System(GROUP),
            "deduplication_id" => Self::System("MessageDeduplicationId"),
            "sequence" => Self::System("SequenceNumber"),
            other => {
                let name = other.strip_prefix("attribute.").filter(|name| !name.is_empty())?;
                Self::Attribute(name.to_owned())
            }
        })
    }

    /// Returns the description of the column of this part.
    pub(super) fn described(&self, name: &str) -> Column {
        let kind = match self {
            Self::Time => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            Self::Deliveries => DataType::Int64,
            Self::Id | Self::System(_) | Self::Attribute(_) => DataType::Utf8View,
        };
        Column::new(name, kind, true)
    }

    /// Returns this part of some messages as a column.
    fn column(&self, messages: &[Incoming]) -> ArrayRef {
        let texts = |of: &dyn Fn(&Incoming) -> Option<String>| -> ArrayRef {
            Arc::new(messages.iter().map(of).collect::<StringViewArray>())
        };
        match self {
            Self::Id => texts(&|message| Some(message.id.clone())),
            Self::Time => {
                let times = messages.iter().map(|message| message.number(SENT)?.checked_mul(1000));
                Arc::new(times.collect::<TimestampMicrosecondArray>().with_timezone("UTC"))
            }
            Self::Deliveries => {
                let counts = messages.iter().map(|message| message.number(DELIVERIES));
                Arc::new(counts.collect::<Int64Array>())
            }
            Self::System(name) => texts(&|message| message.attributes.get(*name).cloned()),
            Self::Attribute(name) => {
                texts(&|message| message.message_attributes.get(name)?.string_value.clone())
            }
        }
    }
}

impl Incoming {
    fn number(&self, name: &str) -> Option<i64> {
        self.attributes.get(name)?.parse().ok()
    }

    /// Returns its group in a queue in order.
    pub(super) fn group(&self) -> Option<&str> {
        self.attributes.get(GROUP).map(String::as_str)
    }

    /// About how many bytes it takes.
    pub(super) fn bytes(&self) -> usize {
        let attributes = self
            .message_attributes
            .iter()
            .map(|(name, attribute)| name.len() + attribute.string_value.as_ref().map_or(0, String::len));
        self.body.len() + self.handle.len() + attributes.sum::<usize>()
    }
}

/// Makes batches of messages.
pub(super) struct Messages {
    fields: Vec<(String, Field)>,
    whole: Whole,
    /// `meta.path` of the messages: the queue.
    path: Arc<str>,
}

impl Messages {
    pub(super) fn new(names: &List<String>, max_message_bytes: ByteSize, path: &str) -> Self {
        let fields = names.iter().filter_map(|name| Some((name.clone(), Field::new(name)?)));
        Self { fields: fields.collect(), whole: Whole::new(max_message_bytes), path: path.into() }
    }

    /// Returns what the service is asked for beside the texts: what it knows of messages, and the attributes
    /// that senders gave to them. The reader of a queue in order has to know the groups.
    pub(super) fn wanted(&self) -> (Vec<&str>, Vec<&str>) {
        let known = self.fields.iter().filter_map(|(_, field)| match field {
            Field::Time => Some(SENT),
            Field::Deliveries => Some(DELIVERIES),
            Field::System(name) => Some(*name),
            Field::Id | Field::Attribute(_) => None,
        });
        let attributes = self.fields.iter().filter_map(|(_, field)| match field {
            Field::Attribute(name) => Some(name.as_str()),
            _ => None,
        });
        let mut system: Vec<&str> = known.collect();
        if is_fifo(&self.path) && !system.contains(&GROUP) {
            system.push(GROUP);
        }
        (system, attributes.collect())
    }

    /// Returns the number of messages that make the next batch of about `bytes` bytes: a message that is too
    /// large is alone.
    pub(super) fn batch(&self, messages: &[Incoming], bytes: usize) -> usize {
        self.whole.batch(messages.iter().map(|message| message.body.as_bytes()), bytes)
    }

    /// Returns the reason to reject a batch: its only message is too large.
    pub(super) fn rejected(&self, messages: &[Incoming]) -> Option<String> {
        self.whole.rejected(messages.first()?.body.as_bytes())
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
        let payloads: Vec<&[u8]> = messages.iter().map(|message| message.body.as_bytes()).collect();
        Ok(Received {
            reading: Reading {
                payload: self.whole.payload(&payloads, out).await,
                path: Some(self.path.clone()),
                positions: None,
                checkpoint: None,
            },
            fields: self.columns(messages)?,
        })
    }

    fn columns(&self, messages: &[Incoming]) -> Result<Option<RecordBatch>, Error> {
        let columns = self.fields.iter();
        let columns = columns.map(|(name, field)| (field.described(name), field.column(messages)));
        whole::fields(columns, messages.len())
    }
}
