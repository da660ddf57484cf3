//! From the replies of the server to the messages of the engine.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, StringViewArray, TimestampMicrosecondArray};
use arrow_schema::{DataType, Field as Column, TimeUnit};
use thalweg_config::{ByteSize, List};
use thalweg_engine::{Error, Reading, Received, SourceOutput};
use thalweg_stream::whole::{self, Whole};

use crate::id::Id;
use crate::resp::{KEPT, Reply, Text};

/// A part of a message that becomes a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Field {
    /// The id of the entry.
    Id,
    /// The time in the id of the entry.
    Time,
    /// The key of the stream or list, or the channel.
    Key,
    /// The pattern that the channel matched.
    Pattern,
    /// A field of the entry.
    Part(String),
}

/// The kind of input that a source reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Stream,
    List,
    Channels,
}

/// A message that was received.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    /// Its id, if it is an entry of a stream.
    pub(super) id: Option<Id>,
    pub(super) payload: Vec<u8>,
    /// The fields of the entry, beside the payload.
    pub(super) parts: Vec<(Vec<u8>, Vec<u8>)>,
    /// The channel, and the pattern that it matched.
    pub(super) channel: Option<String>,
    pub(super) pattern: Option<String>,
    /// The size of the message, if it is larger than `max_message_bytes`. The payload is its beginning.
    pub(super) too_large: Option<usize>,
}

impl Field {
    /// Returns the part with this name that messages of this kind of input have, if there is one.
    pub(super) fn new(name: &str, kind: Kind) -> Option<Self> {
        Some(match (name, kind) {
            ("id", Kind::Stream) => Self::Id,
            ("time", Kind::Stream) => Self::Time,
            ("stream", Kind::Stream) | ("list", Kind::List) | ("channel", Kind::Channels) => Self::Key,
            ("pattern", Kind::Channels) => Self::Pattern,
            (other, Kind::Stream) => {
                let name = other.strip_prefix("field.").filter(|name| !name.is_empty())?;
                Self::Part(name.to_owned())
            }
            _ => return None,
        })
    }

    /// Returns the description of the column of this part.
    pub(super) fn described(&self, name: &str) -> Column {
        let kind = match self {
            Self::Time => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            Self::Id | Self::Key | Self::Pattern | Self::Part(_) => DataType::Utf8View,
        };
        Column::new(name, kind, true)
    }

    /// Returns this part of some messages as a column.
    fn column(&self, messages: &[Incoming], key: &str) -> ArrayRef {
        match self {
            Self::Id => {
                let ids = messages.iter().map(|message| message.id.map(|id| id.to_string()));
                Arc::new(ids.collect::<StringViewArray>())
            }
            Self::Time => {
                let micros = |id: Id| i64::try_from(id.milliseconds).ok()?.checked_mul(1000);
                let times = messages.iter().map(|message| message.id.and_then(micros));
                Arc::new(times.collect::<TimestampMicrosecondArray>().with_timezone("UTC"))
            }
            Self::Key => {
                let keys = messages.iter().map(|message| Some(message.channel.as_deref().unwrap_or(key)));
                Arc::new(keys.collect::<StringViewArray>())
            }
            Self::Pattern => {
                let patterns = messages.iter().map(|message| message.pattern.as_deref());
                Arc::new(patterns.collect::<StringViewArray>())
            }
            Self::Part(name) => {
                let text = |part| String::from_utf8_lossy(part).into_owned();
                let parts = messages.iter().map(|message| message.part(name.as_bytes()).map(text));
                Arc::new(parts.collect::<StringViewArray>())
            }
        }
    }
}

impl Incoming {
    /// Returns the message of an element of a list, or of a channel. `None` if there was no room for it.
    pub(super) fn of_text(text: Text, limit: usize) -> Option<Self> {
        if text.length > limit {
            return Some(Self { too_large: Some(text.length), payload: text.kept, ..Self::default() });
        }
        text.is_whole().then(|| Self { payload: text.kept, ..Self::default() })
    }

    fn part(&self, name: &[u8]) -> Option<&[u8]> {
        self.parts.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_slice())
    }
}

/// Makes batches of messages.
pub(super) struct Messages {
    fields: Vec<(String, Field)>,
    whole: Whole,
    limit: usize,
    /// The field of an entry that is the payload.
    payload_field: Vec<u8>,
    /// The names of the fields of entries that become columns.
    parts: Vec<Vec<u8>>,
    /// `meta.path` of the messages: the key.
    path: Arc<str>,
}

impl Messages {
    pub(super) fn new(
        names: &List<String>,
        kind: Kind,
        max_message_bytes: ByteSize,
        payload_field: &str,
        path: &str,
    ) -> Self {
        let fields: Vec<(String, Field)> =
            names.iter().filter_map(|name| Some((name.clone(), Field::new(name, kind)?))).collect();
        let parts = fields.iter().filter_map(|(_, field)| match field {
            Field::Part(name) => Some(name.as_bytes().to_vec()),
            _ => None,
        });
        Self {
            parts: parts.collect(),
            whole: Whole::new(max_message_bytes),
            limit: max_message_bytes.as_usize(),
            payload_field: payload_field.as_bytes().to_vec(),
            path: path.into(),
            fields,
        }
    }

    /// The size of the largest message.
    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// Makes a message of an entry: of its id, and of its fields with their values in turn. `None` if there
    /// was no room for all of it. `is_alone` if it was read by itself, so that there is no more room.
    pub(super) fn entry(&self, id: Id, fields: Vec<Reply>, is_cut: bool, is_alone: bool) -> Option<Incoming> {
        let mut message = Incoming { id: Some(id), ..Incoming::default() };
        let (mut all, mut size, mut is_whole) = (Vec::new(), 0_usize, !is_cut);
        let mut values = fields.into_iter();
        while let (Some(Reply::Text(name)), Some(Reply::Text(value))) = (values.next(), values.next()) {
            size = size.saturating_add(name.length).saturating_add(value.length);
            is_whole &= name.is_whole() && value.is_whole();
            all.push((name.kept, value.kept));
        }
        if size > self.limit || (is_alone && !is_whole) {
            message.too_large = Some(size);
            message.payload = self.payload(&mut all);
            message.payload.truncate(KEPT);
            return Some(message);
        }
        if !is_whole {
            return None;
        }
        message.parts.extend(all.iter().filter(|(name, _)| self.parts.contains(name)).cloned());
        message.payload = self.payload(&mut all);
        // An object is longer than its fields.
        if message.payload.len() > self.limit {
            message.too_large = Some(message.payload.len());
            message.payload.truncate(KEPT);
        }
        Some(message)
    }

    /// Takes the payload of an entry: one of its fields, or all as a JSON object.
    fn payload(&self, all: &mut Vec<(Vec<u8>, Vec<u8>)>) -> Vec<u8> {
        match all.iter().position(|(name, _)| *name == self.payload_field) {
            Some(place) => all.swap_remove(place).1,
            None => object(all),
        }
    }

    /// Returns the number of messages that make the next batch of about `bytes` bytes: a message that is too
    /// large is alone.
    pub(super) fn batch(&self, messages: &[Incoming], bytes: usize) -> usize {
        let ordinary = messages.iter().take_while(|message| message.too_large.is_none()).count();
        let ordinary = messages.get(..ordinary).unwrap_or_default();
        self.whole.batch(ordinary.iter().map(|message| message.payload.as_slice()), bytes)
    }

    /// Returns the reason to reject a batch: its only message is too large.
    pub(super) fn rejected(&self, messages: &[Incoming]) -> Option<String> {
        let (size, limit) = (messages.first()?.too_large?, self.limit);
        let many = || format!("the message has too many fields for `max_message_bytes` ({limit})");
        Some(self.whole.refused(size).unwrap_or_else(many))
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
        let payloads: Vec<&[u8]> = messages.iter().map(|message| message.payload.as_slice()).collect();
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
        let columns =
            columns.map(|(name, field)| (field.described(name), field.column(messages, &self.path)));
        whole::fields(columns, messages.len())
    }
}

/// Returns fields as a JSON object. Bytes that are no UTF-8 are replaced.
fn object(fields: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let mut json = vec![b'{'];
    for (number, (name, value)) in fields.iter().enumerate() {
        if number > 0 {
            json.push(b',');
        }
        string(name, &mut json);
        json.push(b':');
        string(value, &mut json);
    }
    json.push(b'}');
    json
}

fn string(text: &[u8], json: &mut Vec<u8>) {
    // Writing into memory does not fail.
    let _ = serde_json::to_writer(json, &String::from_utf8_lossy(text));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(text: &str) -> Reply {
        Reply::Text(Text { kept: text.as_bytes().to_vec(), length: text.len() })
    }

    fn messages(names: &[&str]) -> Messages {
        let names: List<String> = names.iter().map(|name| (*name).to_owned()).collect();
        Messages::new(&names, Kind::Stream, "20".parse().unwrap(), "payload", "s")
    }

    #[test]
    fn names_of_fields_depend_on_the_kind_of_input() {
        assert_eq!(Field::new("id", Kind::Stream), Some(Field::Id));
        assert_eq!(Field::new("field.a b", Kind::Stream), Some(Field::Part("a b".to_owned())));
        assert_eq!(Field::new("pattern", Kind::Channels), Some(Field::Pattern));
        for (wrong, kind) in [
            ("id", Kind::List),
            ("field.", Kind::Stream),
            ("field.a", Kind::Channels),
            ("stream", Kind::List),
        ] {
            assert_eq!(Field::new(wrong, kind), None, "{wrong}");
        }
    }

    #[test]
    fn an_entry_has_its_payload_in_one_field_or_is_an_object() {
        let messages = messages(&["id", "time", "stream", "field.a"]);
        let id = Id { milliseconds: 1_700_000_000_001, number: 2 };
        let entry = |fields: &[&str]| {
            messages.entry(id, fields.iter().map(|field| text(field)).collect(), false, false).unwrap()
        };
        let all = [entry(&["a", "1", "payload", "p"]), entry(&["x", "\"", "y", "2"])];
        assert_eq!(
            (all[0].payload.as_slice(), all[1].payload.as_slice()),
            (&b"p"[..], &br#"{"x":"\"","y":"2"}"#[..])
        );
        let columns = messages.columns(&all).unwrap().unwrap();
        let rows: Vec<String> =
            thalweg_engine::testing::rows(&columns).iter().map(ToString::to_string).collect();
        assert_eq!(
            rows,
            [
                r#"{"id":"1700000000001-2","time":1700000000001000,"stream":"s","field.a":"1"}"#,
                r#"{"id":"1700000000001-2","time":1700000000001000,"stream":"s"}"#,
            ]
        );
    }

    #[test]
    fn an_entry_that_has_no_room_is_read_again_and_one_that_is_too_large_is_rejected() {
        let messages = messages(&[]);
        let id = Id { milliseconds: 1, number: 0 };
        let dropped = || vec![text("payload"), Reply::Text(Text { kept: Vec::new(), length: 9 })];
        assert!(messages.entry(id, dropped(), false, false).is_none());
        assert_eq!(messages.entry(id, dropped(), false, true).unwrap().too_large, Some(16));
        assert!(messages.entry(id, vec![text("payload"), text("p")], true, false).is_none());
        let large =
            messages.entry(id, vec![text("payload"), text("more than fourteen")], false, false).unwrap();
        assert_eq!((large.too_large, large.payload.as_slice()), (Some(25), &b"more than fourteen"[..]));
        let all = [Incoming { payload: b"a".to_vec(), ..Incoming::default() }, large];
        assert_eq!((messages.batch(&all, 1000), messages.batch(&all[1..], 1000)), (1, 1));
        assert_eq!(messages.rejected(&all), None);
        let reason = "the message has 25 bytes, more than `max_message_bytes` (20)".to_owned();
        assert_eq!(messages.rejected(&all[1..]), Some(reason));
    }

    proptest! {
        #[test]
        fn any_fields_are_a_json_object(fields: Vec<(Vec<u8>, Vec<u8>)>) {
            let json: serde_json::Value = serde_json::from_slice(&object(&fields)).unwrap();
            prop_assert!(json.is_object());
        }
    }
}
