//! From records to messages.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, BooleanArray, Int64Array, RecordBatch, RecordBatchOptions, StringViewArray,
    TimestampMicrosecondArray, UInt64Array,
};
use arrow_schema::{DataType, Field as Column, Schema, TimeUnit};
use thalweg_config::{ByteSize, List};
use thalweg_engine::{Checkpoint, Error, Reading, Received, SourceOutput};
use thalweg_record::ViewBuilder;
use tokio::sync::mpsc;

use crate::client::{Incoming, Partition};

/// How much is kept of a message that is too large.
const KEPT: usize = 4 << 10;

/// A part of a record that becomes a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Field {
    Topic,
    Partition,
    Offset,
    Timestamp,
    Key,
    Tombstone,
    Header(String),
}

impl Field {
    /// Returns the part with this name, if there is one.
    pub(super) fn new(name: &str) -> Option<Self> {
        Some(match name {
            "topic" => Self::Topic,
            "partition" => Self::Partition,
            "offset" => Self::Offset,
            "timestamp" => Self::Timestamp,
            "key" => Self::Key,
            "tombstone" => Self::Tombstone,
            other => Self::Header(other.strip_prefix("header.").filter(|name| !name.is_empty())?.to_owned()),
        })
    }

    /// Returns the description of the column of this part.
    pub(super) fn described(&self, name: &str) -> Column {
        let kind = match self {
            Self::Topic | Self::Key | Self::Header(_) => DataType::Utf8View,
            Self::Partition | Self::Offset => DataType::Int64,
            Self::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            Self::Tombstone => DataType::Boolean,
        };
        Column::new(name, kind, true)
    }

    /// Returns this part of some records as a column.
    fn column(&self, records: &[Incoming]) -> ArrayRef {
        let text =
            |value: Option<&bytes::Bytes>| value.map(|value| String::from_utf8_lossy(value).into_owned());
        match self {
            Self::Topic => {
                let topics = records.iter().map(|record| Some(&*record.partition.topic));
                Arc::new(topics.collect::<StringViewArray>())
            }
            Self::Partition => {
                let numbers = records.iter().map(|record| i64::from(record.partition.number));
                Arc::new(Int64Array::from_iter_values(numbers))
            }
            Self::Offset => {
                Arc::new(Int64Array::from_iter_values(records.iter().map(|record| record.offset)))
            }
            Self::Timestamp => {
                let times = records.iter().map(|record| record.timestamp.saturating_mul(1000));
                Arc::new(TimestampMicrosecondArray::from_iter_values(times).with_timezone("UTC"))
            }
            Self::Key => {
                let keys = records.iter().map(|record| text(record.key.as_ref()));
                Arc::new(keys.collect::<StringViewArray>())
            }
            Self::Tombstone => {
                Arc::new(records.iter().map(|record| Some(record.value.is_none())).collect::<BooleanArray>())
            }
            Self::Header(name) => {
                let values = records.iter().map(|record| {
                    let header = record.headers.iter().find(|(known, _)| known == name);
                    text(header.and_then(|(_, value)| value.as_ref()))
                });
                Arc::new(values.collect::<StringViewArray>())
            }
        }
    }
}

/// Passes records on as messages.
pub(super) struct Forward {
    out: SourceOutput,
    fields: Vec<(String, Field)>,
    max_message_bytes: usize,
}

impl Forward {
    pub(super) fn new(out: SourceOutput, fields: &List<String>, max_message_bytes: ByteSize) -> Self {
        let fields = fields.iter().filter_map(|name| Some((name.clone(), Field::new(name)?)));
        Self { out, fields: fields.collect(), max_message_bytes: max_message_bytes.as_usize() }
    }

    /// Passes on what comes through the queue, until it ends.
    ///
    /// # Errors
    /// If nothing takes the messages.
    pub(super) async fn run(mut self, mut queue: mpsc::Receiver<Vec<Incoming>>) -> Result<(), Error> {
        while let Some(records) = queue.recv().await {
            for run in records.chunk_by(|a, b| a.partition == b.partition) {
                let mut rest = run;
                while !rest.is_empty() {
                    let (batch, after) = rest.split_at(self.batch(rest));
                    self.send(batch).await?;
                    rest = after;
                }
            }
        }
        Ok(())
    }

    /// Returns the number of records that make the next batch: a record that is too large is alone.
    fn batch(&self, records: &[Incoming]) -> usize {
        let mut bytes = 0;
        let fits = |record: &&Incoming| {
            bytes += value(record).len();
            bytes <= self.out.batch_bytes() && !self.is_too_large(record)
        };
        records.iter().take_while(fits).count().max(1)
    }

    fn is_too_large(&self, record: &Incoming) -> bool {
        value(record).len() > self.max_message_bytes
    }

    async fn send(&mut self, records: &[Incoming]) -> Result<(), Error> {
        let [first, ..] = records else { return Ok(()) };
        let is_too_large = self.is_too_large(first);
        let longest = if is_too_large { KEPT } else { usize::MAX };
        let bytes = records.iter().map(|record| kept(record, longest).len()).sum::<usize>();
        let mut arena = self.out.arena(bytes.max(1)).await;
        let mut filled = 0;
        for record in records {
            let payload = kept(record, longest);
            if let Some(place) = arena.get_mut(filled..filled + payload.len()) {
                place.copy_from_slice(payload);
            }
            filled += payload.len();
        }
        let mut payloads = ViewBuilder::over(&[arena.freeze()], records.len());
        let mut begin = 0;
        for record in records {
            payloads.push_range(0, begin, kept(record, longest).len());
            begin += kept(record, longest).len();
        }
        let received = Received {
            reading: Reading {
                payload: payloads.finish(),
                path: Some(first.partition.topic.clone()),
                positions: Some(UInt64Array::from_iter_values(records.iter().map(offset))),
                checkpoint: records.last().map(|last| checkpoint(&last.partition, last.offset + 1)),
            },
            fields: self.columns(records)?,
        };
        match is_too_large {
            false => self.out.send(received).await,
            true => {
                let (size, limit) = (value(first).len(), self.max_message_bytes);
                let reason = format!("the message has {size} bytes, more than `max_message_bytes` ({limit})");
                self.out.reject(received, &reason).await
            }
        }
    }

    fn columns(&self, records: &[Incoming]) -> Result<Option<RecordBatch>, Error> {
        if self.fields.is_empty() {
            return Ok(None);
        }
        let columns: Vec<ArrayRef> = self.fields.iter().map(|(_, field)| field.column(records)).collect();
        let described = self.fields.iter().map(|(name, field)| field.described(name));
        let schema = Arc::new(Schema::new(described.collect::<Vec<_>>()));
        let options = RecordBatchOptions::new().with_row_count(Some(records.len()));
        Ok(Some(RecordBatch::try_new_with_options(schema, columns, &options)?))
    }
}

/// Returns the value of a record. That of a tombstone is empty.
fn value(record: &Incoming) -> &[u8] {
    record.value.as_deref().unwrap_or_default()
}

/// Returns what is passed on of the value of a record.
fn kept(record: &Incoming, longest: usize) -> &[u8] {
    value(record).get(..longest).unwrap_or_else(|| value(record))
}

fn offset(record: &Incoming) -> u64 {
    u64::try_from(record.offset).unwrap_or_default()
}

fn checkpoint(partition: &Partition, offset: i64) -> Checkpoint {
    Checkpoint { partition: partition.name().into(), offset: offset.into() }
}
