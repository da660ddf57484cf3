//! From the rows of a batch to records.

use arrow_array::{Array, BinaryViewArray, Int64Array, cast::AsArray};
use arrow_buffer::Buffer;
use arrow_schema::{DataType, Field};
use bytes::Bytes;
use thalweg_codec::keys::bytes_of;
use thalweg_codec::template::{BoundTemplate, Template};
use thalweg_codec::values::Values;
use thalweg_record::Batch;

use super::KafkaSink;
use super::refusals::{Origin, Refusals, Suspicion};
use crate::client::Outgoing;

/// The records of a transaction that a broker refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// Nothing.
    None,
    /// Nothing but what was known to be refused: sending it again was in vain.
    Known,
    /// Something of which less was known before.
    New,
}

/// Makes records of messages.
pub(super) struct Records {
    topic: Template,
    key: Option<String>,
    partition: Option<String>,
    timestamp: Option<String>,
    headers: Vec<(String, Template)>,
    /// The records that aborted transactions had. None without transactions.
    refusals: Option<Refusals>,
}

impl Records {
    pub(super) fn new(config: &KafkaSink) -> Self {
        let headers = config.headers.iter().map(|(name, value)| (name.clone(), value.clone()));
        Self {
            topic: config.topic.clone(),
            key: config.key.clone(),
            partition: config.partition.clone(),
            timestamp: config.timestamp.clone(),
            headers: headers.collect(),
            refusals: config.transactional_id.is_some().then(Refusals::default),
        }
    }

    /// Notes rows that the broker refused, each for a reason of its own if it has one: the records come again
    /// after their transaction.
    pub(super) fn note_refused(&mut self, batch: &Batch, rows: Vec<(usize, Option<String>)>) -> Refused {
        let mut records = Vec::new();
        {
            let mut made = self.bind(batch);
            for (row, reason) in rows {
                records.extend(made.record(row).ok().map(|record| (record, origin(batch, row), reason)));
            }
        }
        let mut refused = if records.is_empty() { Refused::None } else { Refused::Known };
        for (record, origin, reason) in records {
            if self.refusals.as_ref().is_some_and(|refusals| refusals.note(&record, origin, reason)) {
                refused = Refused::New;
            }
        }
        refused
    }

    /// True if all messages have the same topic.
    pub(super) fn has_one_topic(&self) -> bool {
        self.topic.is_constant()
    }

    /// Looks up the columns in a batch.
    pub(super) fn bind<'a>(&'a mut self, batch: &'a Batch) -> Bound<'a> {
        let column = |name: &Option<String>| name.as_ref().and_then(|name| bytes_of(batch, name));
        Bound {
            batch,
            payload: batch.payload(),
            // Values of up to twelve bytes are in their views; all others are slices of these.
            buffers: batch
                .payload()
                .data_buffers()
                .iter()
                .map(|b| Bytes::from_owner(Shared(b.clone())))
                .collect(),
            topic: self.topic.bind(batch),
            key: column(&self.key),
            partition: self.partition.as_deref().and_then(|name| whole_numbers(batch, name)),
            partition_name: self.partition.as_deref(),
            timestamp: self.timestamp.as_deref().and_then(|name| times(batch, name)),
            headers: self
                .headers
                .iter_mut()
                .map(|(name, value)| (name.as_str(), value.bind(batch)))
                .collect(),
            refusals: self.refusals.as_ref().filter(|refusals| !refusals.is_empty()),
        }
    }
}

/// The names that topics can have, for messages.
pub(super) const TOPIC_RULE: &str = "1 to 249 letters, digits, dots, underscores and hyphens";

/// True if a topic can have this name.
pub(super) fn is_topic(name: &str) -> bool {
    let is_right = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=249).contains(&name.len()) && ![".", ".."].contains(&name) && name.bytes().all(is_right)
}

/// A buffer of payloads, kept by the records that are slices of it.
struct Shared(Buffer);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// A batch of which records are made.
pub(super) struct Bound<'a> {
    batch: &'a Batch,
    payload: &'a BinaryViewArray,
    buffers: Vec<Bytes>,
    topic: BoundTemplate<'a>,
    key: Option<BinaryViewArray>,
    partition: Option<Int64Array>,
    partition_name: Option<&'a str>,
    timestamp: Option<Times>,
    headers: Vec<(&'a str, BoundTemplate<'a>)>,
    /// None if nothing was refused.
    refusals: Option<&'a Refusals>,
}

impl Bound<'_> {
    /// Returns the record of a message, or why there is none.
    pub(super) fn record(&mut self, row: usize) -> Result<Outgoing, String> {
        let mut topic = Vec::new();
        self.topic.render(row, &mut topic);
        let topic = String::from_utf8(topic)
            .ok()
            .filter(|topic| is_topic(topic))
            .ok_or_else(|| format!("the topic of the message has no name of {TOPIC_RULE}"))?;
        let headers = self.headers.iter_mut().map(|(name, value)| {
            let mut text = Vec::new();
            value.render(row, &mut text);
            ((*name).to_owned(), Some(text.into()))
        });
        let headers = headers.collect();
        let record = Outgoing {
            topic,
            key: self.key.as_ref().filter(|key| key.is_valid(row)).map(|key| bytes_at(key, row)),
            partition: self.partition(row)?,
            value: self.value(row),
            timestamp: self.timestamp.as_ref().and_then(|times| times.milliseconds(row)),
            headers,
        };
        match self.refusals.and_then(|refusals| refusals.reason(&record, origin(self.batch, row))) {
            Some(reason) => Err(reason),
            None => Ok(record),
        }
    }

    /// Returns the suspicion that says that the record of a message must be sent by itself, if there is one.
    pub(super) fn suspicion(&self, row: usize, record: &Outgoing) -> Option<Suspicion<'_>> {
        self.refusals?.suspicion(record, origin(self.batch, row))
    }

    fn partition(&self, row: usize) -> Result<Option<i32>, String> {
        let Some(numbers) = self.partition.as_ref().filter(|numbers| numbers.is_valid(row)) else {
            return Ok(None);
        };
        let number = numbers.value(row);
        let name = self.partition_name.unwrap_or_default();
        i32::try_from(number)
            .ok()
            .filter(|number| *number >= 0)
            .map(Some)
            .ok_or_else(|| format!("`{name}` is {number}, which is no number of a partition"))
    }

    /// Returns the payload of a message, without a copy if it is in a buffer.
    fn value(&self, row: usize) -> Bytes {
        let view = place_of(self.payload.views()[row]);
        let in_buffer = view.and_then(|(buffer, range)| {
            let bytes = self.buffers.get(buffer)?;
            (range.end <= bytes.len()).then(|| bytes.slice(range))
        });
        in_buffer.unwrap_or_else(|| bytes_at(self.payload, row))
    }
}

/// Returns the place of a message in its source. None if it has none, or if others beside it have the same: a
/// transform has made several messages of one.
fn origin(batch: &Batch, row: usize) -> Option<Origin<'_>> {
    let (meta, positions) = (batch.meta(), batch.positions()?);
    let position = |row: usize| positions.values().get(row);
    let own = position(row)?;
    let is_alone = position(row + 1) != Some(own) && row.checked_sub(1).and_then(position) != Some(own);
    is_alone.then(|| (&*meta.source, meta.sequence.as_deref().unwrap_or_default(), *own))
}

fn bytes_at(column: &BinaryViewArray, row: usize) -> Bytes {
    Bytes::copy_from_slice(column.value(row))
}

/// Returns the buffer and the range of a view, unless its bytes are in the view itself.
fn place_of(view: u128) -> Option<(usize, std::ops::Range<usize>)> {
    let view = arrow_data::ByteView::from(view);
    let (offset, length) = (view.offset as usize, view.length as usize);
    (length > arrow_data::MAX_INLINE_VIEW_LEN as usize)
        .then(|| (view.buffer_index as usize, offset..offset + length))
}

/// Returns a column of whole numbers: also numbers in text.
fn whole_numbers(batch: &Batch, name: &str) -> Option<Int64Array> {
    let column = batch.column(name)?;
    let numbers = arrow_cast::cast(&column, &DataType::Int64).ok()?;
    Some(numbers.as_primitive::<arrow_array::types::Int64Type>().clone())
}

/// A column of points in time.
enum Times {
    /// In milliseconds since 1970.
    Numbers(Int64Array),
    Values(Values),
}

impl Times {
    fn milliseconds(&self, row: usize) -> Option<i64> {
        let time = match self {
            Times::Numbers(numbers) => numbers.is_valid(row).then(|| numbers.value(row)),
            Times::Values(values) => values.time(row).map(|time| time.timestamp_millis()),
        };
        time.filter(|time| *time >= 0)
    }
}

fn times(batch: &Batch, name: &str) -> Option<Times> {
    let column = batch.column(name)?;
    if *column.data_type() == DataType::Int64 {
        return Some(Times::Numbers(column.as_primitive::<arrow_array::types::Int64Type>().clone()));
    }
    let field = Field::new(name, column.data_type().clone(), true);
    Some(Times::Values(Values::of(&field, &column)))
}
