//! `aws_kinesis_streams`: reads the shards of a stream.
//!
//! A shard is a partition of the checkpoint, whose offset is the number of a record. A shard that was divided
//! or merged ends, and others continue it: [`shards`] keeps a shard waiting until those before it are read to
//! their ends. [`reader`] asks several shards at the same time. The shards are not divided among several
//! runs: Kinesis keeps no positions, and a table of DynamoDB for them, as Amazon's own library has it, would
//! be a service of its own to run.

mod reader;
mod records;
mod shards;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use thalweg_config::{ByteSize, List, TimeSpan};
use thalweg_engine::{Component, Context, Endless, Error, KnownFields, Mistake, Source, SourceConfig};

use crate::api::{Api, KINESIS};
use crate::options::AwsOptions;
use reader::Kinesis;
pub(crate) use records::Page;
use records::{Field, Records};

/// How many bytes of an answer are read. It has up to 10 MiB of records, in base64.
const MOST_ANSWER: usize = 24 << 20;
/// The least size of what is asked for at once.
const LEAST_FETCH: usize = 16 << 10;

/// Reads the records of a stream of Amazon Kinesis Data Streams.
///
/// The order of the records of a shard is kept, and of those of a partition key also when shards are divided
/// or merged: a shard is read after those that it continues. The payload of a message is the data of the
/// record. Records that a producer has packed together (KPL) are not taken apart.
///
/// With `--state`, each shard is resumed where the checkpoint is. Without it, each run begins at `start`.
/// Several runs do not share the shards: each reads all of them.
///
/// `meta.path` is the stream as it is given here.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AwsKinesisStreamsSource {
    #[serde(flatten)]
    aws: AwsOptions,
    /// The name of the stream, or its ARN.
    #[schemars(example = &"events")]
    stream: String,
    /// Where to begin in a stream without a checkpoint: `earliest`, `latest`, or a point in time such as
    /// `2026-11-25T08:00:00Z`. The default is `earliest`.
    #[serde(default)]
    start: Start,
    /// How long to wait before a shard is asked again that had no further records. The default is 1 s.
    #[serde(default = "thalweg_net::net::defaults::one_second")]
    poll_interval: TimeSpan,
    /// Parts of the record that become fields of its message, under the same names: `shard`, `partition_key`,
    /// `sequence` (its number in the shard) and `time` (when it arrived).
    #[serde(default)]
    fields: List<String>,
    /// The largest message, in bytes. Of a larger one, the first 4 KiB leave by the `errors` output.
    #[serde(default = "thalweg_net::net::defaults::limit")]
    max_message_bytes: ByteSize,
    /// End the source after this time without records, when all shards are read to their ends. By default it
    /// reads until the run is stopped.
    #[serde(default)]
    end_after_idle: Option<TimeSpan>,
}

/// Where to begin in a stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
enum Start {
    /// At the first record.
    #[default]
    Earliest,
    /// At the next record.
    Latest,
    /// At the first record that is not older, in milliseconds since 1970.
    Time(i64),
}

impl TryFrom<String> for Start {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.as_str() {
            "earliest" => Ok(Self::Earliest),
            "latest" => Ok(Self::Latest),
            time => match chrono::DateTime::parse_from_rfc3339(time) {
                Ok(time) => Ok(Self::Time(time.timestamp_millis())),
                Err(_) => Err(format!(
                    "`{time}` is neither `earliest` nor `latest` nor a time such as `2026-11-25T08:00:00Z`."
                )),
            },
        }
    }
}

impl JsonSchema for Start {
    fn schema_name() -> Cow<'static, str> {
        "StartOfShards".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string" })
    }
}

impl Component for AwsKinesisStreamsSource {
    const NAME: &'static str = "aws_kinesis_streams";
    const EXAMPLE: &'static str = r#"
sources:
  events:
    aws_kinesis_streams:
      region: us-east-1
      url: "http://127.0.0.1:4566"
      auth: { access_key_id: test, secret_access_key: test }
      stream: events
      fields: [partition_key, time]
      end_after_idle: 1s
pipelines:
  main: { from: events, to: all }
sinks:
  all:
    file:
      path: out/events.jsonl
      encode: { format: json, fields: [partition_key, time, payload] }
"#;

    fn check(&self) -> Vec<Mistake> {
        let mut mistakes = self.aws.check();
        if self.stream.is_empty() {
            let mistake = Mistake::new("stream", "The stream has no name.");
            mistakes.push(mistake.help("For example `events`."));
        }
        if let Some(wrong) = self.fields.iter().find(|name| Field::new(name).is_none()) {
            let mistake = Mistake::new("fields", format!("A record has no `{wrong}`."));
            mistakes.push(mistake.help("There are `shard`, `partition_key`, `sequence` and `time`."));
        }
        if self.poll_interval.duration() < Duration::from_millis(10) {
            let mistake = Mistake::new("poll_interval", "Kinesis answers at most 5 times a second.");
            mistakes.push(mistake.help("The default is `1s`."));
        }
        mistakes
    }
}

impl SourceConfig for AwsKinesisStreamsSource {
    fn endless(&self) -> Option<Endless> {
        Endless::unless("end_after_idle", self.end_after_idle.is_some())
    }

    fn fields(&self) -> KnownFields {
        KnownFields::of(self.fields.iter().filter_map(|name| Some(Field::new(name)?.described(name))))
    }

    fn blocks(&self) -> bool {
        false
    }

    fn starts_over(&self) -> bool {
        self.start != Start::Latest
    }

    // It reads on at the positions of its shards, wherever it began.
    fn rereads(&self) -> bool {
        true
    }

    fn build(&self, context: &Context) -> Result<Box<dyn Source>, Error> {
        let access = Arc::new(self.aws.access(&KINESIS, &self.stream)?);
        let api = Api::new(&access, &self.aws.requests(access.url.clone()), MOST_ANSWER)?;
        let fetch_bytes = (context.memory.budget().limit() / 32).clamp(LEAST_FETCH, 2 << 20);
        let records = Records::new(&self.fields, self.max_message_bytes, &self.stream);
        let lag = Arc::new(AtomicU64::new(0));
        let shown = lag.clone();
        let help = "How far the slowest of its shards is behind, in seconds.";
        context.details.show_gauge("lag_seconds", help, move || shown.load(Relaxed));
        Ok(Box::new(Kinesis::new(self.clone(), Arc::new(api), records, fetch_bytes, lag)))
    }
}
