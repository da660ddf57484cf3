//! From the records of a shard to the messages of the engine.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, StringViewArray, TimestampMicrosecondArray};
use arrow_schema::{DataType, Field as Column, TimeUnit};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer};
use thalweg_config::{ByteSize, List};
use thalweg_engine::{Error, Reading, Received, SourceOutput};
use thalweg_stream::whole::{self, Whole};

/// A part of a record that becomes a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    Shard,
    PartitionKey,
    Sequence,
    /// When it arrived.
    Time,
}

/// The answer to a request for records.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Page {
    /// Each page has them, though they may be none: another answer would seem to be the end of the shard.
    pub(crate) records: Vec<Incoming>,
    /// None if the shard is closed, and read to its end.
    #[serde(default)]
    pub(super) next_shard_iterator: Option<String>,
    /// How far the answer is behind the end of the shard.
    #[serde(default)]
    pub(super) millis_behind_latest: Option<f64>,
}

/// A record that was received.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Incoming {
    pub(super) sequence_number: String,
    #[serde(default)]
    partition_key: String,
    #[serde(deserialize_with = "bytes")]
    pub(super) data: Vec<u8>,
    /// In seconds since 1970.
    #[serde(default)]
    approximate_arrival_timestamp: Option<f64>,
}

fn bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let text = String::deserialize(deserializer)?;
    STANDARD.decode(text).map_err(serde::de::Error::custom)
}

impl Field {
    /// Returns the part with this name, if there is one.
    pub(super) fn new(name: &str) -> Option<Self> {
        Some(match name {
            "shard" => Self::Shard,
            "partition_key" => Self::PartitionKey,
            "sequence" => Self::Sequence,
            "time" => Self::Time,
            _ => return None,
        })
    }

    /// Returns the description of the column of this part.
    pub(super) fn described(self, name: &str) -> Column {
        let kind = match self {
            Self::Time => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            Self::Shard | Self::PartitionKey | Self::Sequence => DataType::Utf8View,
        };
        Column::new(name, kind, true)
    }

    /// Returns this part of some records of a shard as a column.
    fn column(self, records: &[Incoming], shard: &str) -> ArrayRef {
        let texts = |text: &dyn Fn(&Incoming) -> String| -> ArrayRef {
            Arc::new(records.iter().map(|record| Some(text(record))).collect::<StringViewArray>())
        };
        match self {
            Self::Shard => texts(&|_| shard.to_owned()),
            Self::PartitionKey => texts(&|record| record.partition_key.clone()),
            Self::Sequence => texts(&|record| record.sequence_number.clone()),
            Self::Time => {
                // A number that is no time becomes the nearest one.
                let micros = |seconds: f64| (seconds * 1e6) as i64;
                let times = records.iter().map(|record| record.approximate_arrival_timestamp.map(micros));
                Arc::new(times.collect::<TimestampMicrosecondArray>().with_timezone("UTC"))
            }
        }
    }
}

impl Incoming {
    /// About how many bytes it takes.
    pub(super) fn bytes(&self) -> usize {
        self.data.len() + self.partition_key.len() + self.sequence_number.len()
    }
}

/// Makes batches of records.
pub(super) struct Records {
    fields: Vec<(String, Field)>,
    whole: Whole,
    /// `meta.path` of the messages: the stream.
    path: Arc<str>,
}

impl Records {
    pub(super) fn new(names: &List<String>, max_message_bytes: ByteSize, path: &str) -> Self {
        let fields = names.iter().filter_map(|name| Some((name.clone(), Field::new(name)?)));
        Self { fields: fields.collect(), whole: Whole::new(max_message_bytes), path: path.into() }
    }

    /// Returns the number of records that make the next batch of about `bytes` bytes: one that is too large
    /// is alone.
    pub(super) fn batch(&self, records: &[Incoming], bytes: usize) -> usize {
        self.whole.batch(records.iter().map(|record| record.data.as_slice()), bytes)
    }

    /// Returns the reason to reject a batch: its only record is too large.
    pub(super) fn rejected(&self, records: &[Incoming]) -> Option<String> {
        self.whole.rejected(&records.first()?.data)
    }

    /// Waits for memory, and returns a batch of all these records of a shard.
    ///
    /// # Errors
    /// If the fields do not fit together.
    pub(super) async fn received(
        &self,
        records: &[Incoming],
        shard: &str,
        out: &SourceOutput,
    ) -> Result<Received, Error> {
        let payloads: Vec<&[u8]> = records.iter().map(|record| record.data.as_slice()).collect();
        Ok(Received {
            reading: Reading {
                payload: self.whole.payload(&payloads, out).await,
                path: Some(self.path.clone()),
                positions: None,
                checkpoint: None,
            },
            fields: self.columns(records, shard)?,
        })
    }

    fn columns(&self, records: &[Incoming], shard: &str) -> Result<Option<RecordBatch>, Error> {
        let columns = self.fields.iter();
        let columns = columns.map(|(name, field)| (field.described(name), field.column(records, shard)));
        whole::fields(columns, records.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_bytes_and_the_place_of_the_next() {
        let page: Page = serde_json::from_str(
            r#"{"Records":[{"SequenceNumber":"7","PartitionKey":"k","Data":"AP8=","ApproximateArrivalTimestamp":1.5,
                "EncryptionType":"NONE"}],"NextShardIterator":"i","MillisBehindLatest":0,"ChildShards":[]}"#,
        )
        .unwrap();
        assert_eq!(page.records[0].data, [0, 255]);
        assert_eq!((page.next_shard_iterator.as_deref(), page.millis_behind_latest), (Some("i"), Some(0.0)));
        let last: Page = serde_json::from_str(r#"{"Records":[],"NextShardIterator":null}"#).unwrap();
        assert_eq!(last.next_shard_iterator, None);
        let bad = r#"{"Records":[{"SequenceNumber":"7","Data":"%"}]}"#;
        assert!(serde_json::from_str::<Page>(bad).is_err());
    }

    #[test]
    fn an_answer_without_records_is_not_the_end_of_a_shard() {
        for text in ["{}", r#"{"__type":"InternalFailure"}"#, r#"{"Records":[{}]}"#] {
            assert!(serde_json::from_str::<Page>(text).is_err(), "{text}");
        }
    }
}
