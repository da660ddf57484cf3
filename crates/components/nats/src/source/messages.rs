//! From the messages of the server to those of the engine.

use std::borrow::Cow;
use std::sync::Arc;

use arrow_array::{
    ArrayRef, Int64Array, RecordBatch, StringViewArray, TimestampMicrosecondArray, UInt64Array,
};
use arrow_schema::{DataType, Field as Column, TimeUnit};
use thalweg_config::{ByteSize, List};
use thalweg_engine::{Checkpoint, Error, Reading, Received, SourceOutput};
use thalweg_stream::whole::{self, Whole};

use super::place::Place;
use crate::options::is_header_name;
use crate::wire::{LARGEST_HEADERS, Message};

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
            Self::Subject => texts(messages, |message| Some(Cow::Borrowed(&*message.subject))),
            Self::Reply => {
                Arc::new(messages.iter().map(|incoming| incoming.reply()).collect::<StringViewArray>())
            }
            Self::Header(name) => texts(messages, |message| message.headers.get(name)),
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
    fn payload(&self) -> &[u8] {
        &self.message.payload
    }

    /// True if the headers of the message were too large to be kept.
    fn has_lost_headers(&self) -> bool {
        self.message.headers_size > LARGEST_HEADERS
    }

    /// Returns the subject at which the sender expects an answer. That of a message of a stream is for the
    /// server.
    fn reply(&self) -> Option<&str> {
        self.message.reply.as_deref().filter(|_| self.place.is_none())
    }
}

fn texts<'a>(messages: &'a [Incoming], part: impl Fn(&'a Message) -> Option<Cow<'a, str>>) -> ArrayRef {
    Arc::new(messages.iter().map(|incoming| part(&incoming.message)).collect::<StringViewArray>())
}

fn numbers(places: impl Iterator<Item = Option<Place>>, number: impl Fn(&Place) -> u64) -> Int64Array {
    places.map(|place| i64::try_from(number(place.as_ref()?)).ok()).collect()
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

    /// Returns the number of messages that make the next batch of about `bytes` bytes: a message that is too
    /// large is alone.
    pub(super) fn batch(&self, messages: &[Incoming], bytes: usize) -> usize {
        let count = self.whole.batch(messages.iter().map(Incoming::payload), bytes);
        match messages.iter().take(count).position(Incoming::has_lost_headers) {
            Some(place) => place.max(1),
            None => count,
        }
    }

    /// Returns the reason to reject a batch: its only message is too large.
    pub(super) fn rejected(&self, messages: &[Incoming]) -> Option<String> {
        let first = messages.first()?;
        if first.has_lost_headers() {
            let size = first.message.headers_size;
            return Some(format!(
                "the headers of the message have {size} bytes, more than {LARGEST_HEADERS}"
            ));
        }
        self.whole.refused(first.message.size)
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
        let sequence = |incoming: &Incoming| incoming.place.map(|place| place.sequence);
        let positions: Option<Vec<u64>> = messages.iter().map(sequence).collect();
        Ok(Received {
            reading: Reading {
                payload: self.whole.payload(&payloads, out).await,
                path: Some(self.path.clone()),
                positions: positions.map(UInt64Array::from),
                checkpoint: None,
            },
            fields: self.columns(messages)?,
        })
    }

    fn columns(&self, messages: &[Incoming]) -> Result<Option<RecordBatch>, Error> {
        let columns = self.fields.iter().map(|(name, field)| (field.described(name), field.column(messages)));
        whole::fields(columns, messages.len())
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
    use crate::wire::Headers;

    fn incoming(payload: &str, place: Option<Place>) -> Incoming {
        let headers = b"NATS/1.0\r\nTrace-Id: t1\r\n\r\n";
        let message = Message {
            subject: "a.b".into(),
            reply: Some("answer.here".into()),
            headers: Headers::new(headers),
            headers_size: headers.len(),
            payload: payload.to_owned().into(),
            size: payload.len(),
        };
        Incoming { message, place }
    }

    #[test]
    fn a_message_that_is_too_large_or_whose_headers_are_is_alone_and_rejected_with_its_size() {
        let messages = Messages::new(&List::default(), "10".parse().unwrap(), "S");
        let mut large = incoming("elevenbytes", None);
        // Only the beginning was kept.
        large.message.size = 5000;
        let mut headers = incoming("short", None);
        headers.message.headers_size = LARGEST_HEADERS + 1;
        let all = [incoming("a", None), headers, incoming("b", None), large, incoming("c", None)];
        let batches: Vec<usize> = (0..all.len()).map(|from| messages.batch(&all[from..], 1000)).collect();
        assert_eq!(batches, [1, 1, 1, 1, 1]);
        let reasons: Vec<_> = (0..all.len()).map(|from| messages.rejected(&all[from..])).collect();
        let of_headers = "the headers of the message have 1048577 bytes, more than 1048576";
        let of_size = "the message has 5000 bytes, more than `max_message_bytes` (10)";
        let expected = [None, Some(of_headers), None, Some(of_size), None];
        assert_eq!(reasons, expected.map(|reason| reason.map(str::to_owned)));
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
