//! From the messages of the server to those of the engine.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, Int64Array, RecordBatch, RecordBatchOptions, StringViewArray, TimestampMicrosecondArray,
    UInt64Array,
};
use arrow_schema::{DataType, Field as Column, Schema, TimeUnit};
use async_nats::Message;
use thalweg_config::{ByteSize, List};
use thalweg_engine::{Checkpoint, Error, Reading, Received, SourceOutput};
use thalweg_record::ViewBuilder;

use super::place::Place;
use crate::options::is_header_name;

/// How much is kept of a message that is too large.
const KEPT: usize = 4 << 10;

/// A part of a message that becomes a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Field {
    Subject,
    Reply,
    Sequence,
    Time,
    Deliveries,
    Header(String),
}

/// A message that was received.
#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) message: Message,
    /// Its place in its stream. None for a message of a subscription.
    pub(super) place: Option<Place>,
}

impl Field {
    /// Returns the part with this name, if there is one.
    pub(super) fn new(name: &str) -> Option<Self> {
        Some(match name {
            "subject" => Self::Subject,
            "reply" => Self::Reply,
            "sequence" => Self::Sequence,
            "time" => Self::Time,
            "deliveries" => Self::Deliveries,
            other => {
                let name = other.strip_prefix("header.").filter(|name| is_header_name(name))?;
                Self::Header(name.to_owned())
            }
        })
    }

    /// True if only messages of streams have the part.
    pub(super) fn is_of_streams(&self) -> bool {
        matches!(self, Self::Sequence | Self::Time | Self::Deliveries)
    }

    /// Returns the description of the column of this part.
    pub(super) fn described(&self, name: &str) -> Column {
        let kind = match self {
            Self::Subject | Self::Reply | Self::Header(_) => DataType::Utf8View,
            Self::Sequence | Self::Deliveries => DataType::Int64,
            Self::Time => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        };
        Column::new(name, kind, true)
    }

    /// Returns this part of some messages as a column.
    fn column(&self, messages: &[Incoming]) -> ArrayRef {
        let places = messages.iter().map(|incoming| incoming.place);
        match self {
            Self::Subject => texts(messages, |message| Some(message.subject.as_str())),
            Self::Reply => {
                Arc::new(messages.iter().map(|incoming| incoming.reply()).collect::<StringViewArray>())
            }
            Self::Header(name) => texts(messages, |message| {
                let headers = message.headers.as_ref()?;
                headers.get(name.as_str()).map(|value| value.as_str())
            }),
            Self::Sequence => Arc::new(numbers(places, |place| place.sequence)),
            Self::Deliveries => Arc::new(numbers(places, |place| place.attempt)),
            Self::Time => {
                let times = places.map(|place| Some(place?.stored_ns / 1000));
                Arc::new(times.collect::<TimestampMicrosecondArray>().with_timezone("UTC"))
            }
        }
    }
}

impl Incoming {
    /// Returns the subject at which the sender expects an answer. That of a message of a stream is for the
    /// server.
    fn reply(&self) -> Option<&str> {
        self.message.reply.as_ref().filter(|_| self.place.is_none()).map(|reply| reply.as_str())
    }
}

fn texts<'a>(messages: &'a [Incoming], part: impl Fn(&'a Message) -> Option<&'a str>) -> ArrayRef {
    Arc::new(messages.iter().map(|incoming| part(&incoming.message)).collect::<StringViewArray>())
}

fn numbers(places: impl Iterator<Item = Option<Place>>, number: impl Fn(&Place) -> u64) -> Int64Array {
    places.map(|place| i64::try_from(number(place.as_ref()?)).ok()).collect()
}

/// Makes batches of messages.
pub(super) struct Messages {
    fields: Vec<(String, Field)>,
    max_message_bytes: usize,
    /// `meta.path` of the messages.
    path: Arc<str>,
}

impl Messages {
    pub(super) fn new(fields: &List<String>, max_message_bytes: ByteSize, path: &str) -> Self {
        let fields = fields.iter().filter_map(|name| Some((name.clone(), Field::new(name)?)));
        Self { fields: fields.collect(), max_message_bytes: max_message_bytes.as_usize(), path: path.into() }
    }

    /// Returns the number of messages that make the next batch of about `bytes` bytes: a message that is too
    /// large is alone.
    pub(super) fn batch(&self, messages: &[Incoming], bytes: usize) -> usize {
        let mut sum = 0;
        let fits = |incoming: &&Incoming| {
            sum += incoming.message.payload.len();
            sum <= bytes && !self.is_too_large(incoming)
        };
        messages.iter().take_while(fits).count().max(1)
    }

    fn is_too_large(&self, incoming: &Incoming) -> bool {
        incoming.message.payload.len() > self.max_message_bytes
    }

    /// Returns the reason to reject a batch: its only message is too large.
    pub(super) fn rejected(&self, messages: &[Incoming]) -> Option<String> {
        let first = messages.first().filter(|first| self.is_too_large(first))?;
        let (size, limit) = (first.message.payload.len(), self.max_message_bytes);
        Some(format!("the message has {size} bytes, more than `max_message_bytes` ({limit})"))
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
        let longest = if self.rejected(messages).is_some() { KEPT } else { usize::MAX };
        let kept = |incoming: &Incoming| incoming.message.payload.len().min(longest);
        let bytes = messages.iter().map(kept).sum::<usize>();
        let mut arena = out.arena(bytes.max(1)).await;
        let mut filled = 0;
        for incoming in messages {
            let payload = incoming.message.payload.get(..kept(incoming)).unwrap_or_default();
            if let Some(place) = arena.get_mut(filled..filled + payload.len()) {
                place.copy_from_slice(payload);
            }
            filled += payload.len();
        }
        let mut payloads = ViewBuilder::over(&[arena.freeze()], messages.len());
        let mut begin = 0;
        for incoming in messages {
            payloads.push_range(0, begin, kept(incoming));
            begin += kept(incoming);
        }
        let sequence = |incoming: &Incoming| incoming.place.map(|place| place.sequence);
        let positions: Option<Vec<u64>> = messages.iter().map(sequence).collect();
        Ok(Received {
            reading: Reading {
                payload: payloads.finish(),
                path: Some(self.path.clone()),
                positions: positions.map(UInt64Array::from),
                checkpoint: None,
            },
            fields: self.columns(messages)?,
        })
    }

    fn columns(&self, messages: &[Incoming]) -> Result<Option<RecordBatch>, Error> {
        if self.fields.is_empty() {
            return Ok(None);
        }
        let columns: Vec<ArrayRef> = self.fields.iter().map(|(_, field)| field.column(messages)).collect();
        let described = self.fields.iter().map(|(name, field)| field.described(name));
        let schema = Arc::new(Schema::new(described.collect::<Vec<_>>()));
        let options = RecordBatchOptions::new().with_row_count(Some(messages.len()));
        Ok(Some(RecordBatch::try_new_with_options(schema, columns, &options)?))
    }
}

/// Adds a checkpoint to a batch.
pub(super) fn with_checkpoint(mut received: Received, checkpoint: Checkpoint) -> Received {
    received.reading.checkpoint = Some(checkpoint);
    received
}

#[cfg(test)]
mod tests {
    use super::*;

    fn incoming(payload: &str, place: Option<Place>) -> Incoming {
        let mut headers = async_nats::HeaderMap::new();
        headers.insert("Trace-Id", "t1");
        let message = Message {
            subject: "a.b".into(),
            reply: Some("answer.here".into()),
            payload: payload.to_owned().into(),
            headers: Some(headers),
            status: None,
            description: None,
            length: 0,
        };
        Incoming { message, place }
    }

    #[test]
    fn names_of_fields_are_parts_and_headers() {
        assert_eq!(Field::new("subject"), Some(Field::Subject));
        assert_eq!(Field::new("header.Trace-Id"), Some(Field::Header("Trace-Id".to_owned())));
        for wrong in ["", "header.", "header.a b", "header.a:b", "header.\u{e4}", "partition"] {
            assert_eq!(Field::new(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_batch_ends_before_its_size_and_around_a_message_that_is_too_large() {
        let messages = Messages::new(&List::default(), "10".parse().unwrap(), "S");
        let all = ["four", "four", "four", "more than ten", "two"].map(|payload| incoming(payload, None));
        assert_eq!(messages.batch(&all, 8), 2);
        assert_eq!(messages.batch(&all, 1), 1);
        assert_eq!(messages.batch(&all, 1000), 3);
        assert_eq!(messages.batch(&all[3..], 1000), 1);
        assert_eq!(messages.rejected(&all[..3]), None);
        assert_eq!(
            messages.rejected(&all[3..4]).unwrap(),
            "the message has 13 bytes, more than `max_message_bytes` (10)"
        );
    }

    #[test]
    fn parts_of_a_message_are_columns() {
        let names =
            ["subject", "reply", "sequence", "time", "deliveries", "header.Trace-Id", "header.trace-id"];
        let names: List<String> = names.into_iter().map(str::to_owned).collect();
        let messages = Messages::new(&names, ByteSize::kib(1), "S");
        let place = Place { sequence: 7, delivery: 9, attempt: 2, stored_ns: 1_700_000_000_000_000_999 };
        let columns = messages.columns(&[incoming("", Some(place)), incoming("", None)]).unwrap().unwrap();
        let rows: Vec<String> =
            thalweg_engine::testing::rows(&columns).iter().map(ToString::to_string).collect();
        assert_eq!(
            rows,
            [
                r#"{"subject":"a.b","sequence":7,"time":1700000000000000,"deliveries":2,"header.Trace-Id":"t1"}"#,
                r#"{"subject":"a.b","reply":"answer.here","header.Trace-Id":"t1"}"#,
            ]
        );
    }
}
