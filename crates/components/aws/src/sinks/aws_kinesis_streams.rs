//! `aws_kinesis_streams`: puts messages into a stream of Kinesis.
//!
//! A request has up to 500 records, and its answer names each that was not taken: only those are sent again.
//! Kinesis does not recognise a record that is sent twice, so a lost answer makes a record come twice.

use bytes::Bytes;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use thalweg_codec::json::write_text;
use thalweg_codec::template::Template;
use thalweg_config::ByteSize;
use thalweg_engine::{Component, Context, Error, InFlight, Mistake, Sink, SinkConfig, TransformConfig};
use thalweg_net::requests::{Encode, Encoded};
use thalweg_record::Batch;
use thalweg_stream::encode::EncodeConfig;

use super::records::{MOST_COUNT, Put, write_base64};
use super::sending::{Common, Ids, Plan, Probe, SendingOptions};
use crate::api::KINESIS;
use crate::options::AwsOptions;

/// The longest partition key, in characters.
const LONGEST_KEY: usize = 256;

/// Puts messages into a stream of Amazon Kinesis Data Streams, each as a record.
///
/// A message is acknowledged when Kinesis has confirmed its record. Records that a shard has no room for are
/// sent again alone. A message that is too large leaves by `errors`. While the service does not answer,
/// messages wait.
///
/// After a lost answer or a restart, records are sent again, and are there twice: Kinesis recognises none.
/// With `concurrency: 1`, records of a key are in order, except for those that Kinesis takes only at a
/// further attempt.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AwsKinesisStreams {
    #[serde(flatten)]
    aws: AwsOptions,
    #[serde(flatten)]
    sending: SendingOptions,
    /// The name of the stream, or its ARN.
    #[schemars(example = &"events")]
    stream: String,
    /// The partition key, for example `{customer}`: records with the same key go to the same shard. Columns
    /// in braces are replaced for each message. By default, and if it is empty, each message has a key of its
    /// own.
    #[serde(default)]
    partition_key: Option<Template>,
    /// The largest record that the stream takes, with its key. The default is 1 MiB; a stream may be set to
    /// take up to 10 MiB.
    #[serde(default = "one_mebibyte")]
    max_record_bytes: ByteSize,
    /// The format of records, for example `json`. By default the payload is sent unchanged.
    #[serde(default)]
    encode: EncodeConfig,
    #[serde(skip)]
    common: Common,
}

fn one_mebibyte() -> ByteSize {
    ByteSize::mib(1)
}

impl AwsKinesisStreams {
    fn plan(&self) -> Plan<'_> {
        Plan {
            service: &KINESIS,
            aws: &self.aws,
            sending: &self.sending,
            common: &self.common,
            place: &self.stream,
            most_count: MOST_COUNT,
            // Kinesis counts the bytes before base64, so a third more would fit.
            most_bytes: ByteSize::mib(5),
            is_in_order: false,
        }
    }

    /// Returns the member of requests that names the stream.
    fn member(&self) -> &'static str {
        if self.stream.starts_with("arn:") { "StreamARN" } else { "StreamName" }
    }
}

impl Component for AwsKinesisStreams {
    const NAME: &'static str = "aws_kinesis_streams";
    const EXAMPLE: &'static str = r#"
sources:
  messages: { generate: { message: '{"id": %6d, "customer": "c%2d"}', count: 100 } }
pipelines:
  main: { from: messages, transforms: [parse_json: {}], to: stream }
sinks:
  stream:
    aws_kinesis_streams:
      region: us-east-1
      url: "http://127.0.0.1:4566"
      auth: { access_key_id: test, secret_access_key: test }
      stream: events
      partition_key: "{customer}"
"#;

    fn check(&self) -> Vec<Mistake> {
        let mut mistakes = self.aws.check();
        mistakes.extend(self.encode.mistakes());
        if self.stream.is_empty() {
            let mistake = Mistake::new("stream", "The stream has no name.");
            mistakes.push(mistake.help("For example `events`."));
        }
        if !(1..=10 << 20).contains(&self.max_record_bytes.as_usize()) {
            let mistake = Mistake::new("max_record_bytes", "No stream takes records of this size.");
            mistakes.push(mistake.help("It is at most `10MiB`."));
        }
        mistakes
    }
}

impl SinkConfig for AwsKinesisStreams {
    fn encoder(&self) -> Option<Box<dyn TransformConfig>> {
        self.encode.encoder()
    }

    fn fields(&self) -> Vec<String> {
        self.partition_key.iter().flat_map(Template::fields).collect()
    }

    fn in_flight(&self) -> InFlight {
        self.plan().in_flight()
    }

    fn build(&self, context: &Context) -> Result<Box<dyn Sink>, Error> {
        let member = self.member();
        let probe = Probe {
            action: "DescribeStreamSummary",
            body: Bytes::from(json!({ member: self.stream }).to_string()),
        };
        let records = Records {
            partition_key: self.partition_key.clone(),
            most_bytes: self.max_record_bytes.as_usize(),
            ids: self.common.ids.clone(),
            first: 0,
        };
        let put = Put::new(&KINESIS, "PutRecords", member, &self.stream);
        self.plan().build(context, probe, put, records)
    }
}

/// Writes messages as records.
struct Records {
    partition_key: Option<Template>,
    most_bytes: usize,
    ids: Ids,
    /// The number of the first message of the batch.
    first: u64,
}

impl Encode for Records {
    fn begin(&mut self, batch: &Batch) {
        self.first = self.ids.take(batch);
    }

    fn encode(&mut self, batch: &Batch, rows: &[usize], into: &mut Encoded) {
        let mut keys = self.partition_key.as_mut().map(|key| key.bind(batch));
        let mut key = Vec::new();
        for &row in rows {
            key.clear();
            if let Some(keys) = &mut keys {
                keys.render(row, &mut key);
            }
            if key.is_empty() {
                self.ids.write(self.first + row as u64, &mut key);
            }
            let text = String::from_utf8_lossy(&key);
            let payload = batch.payload().value(row);
            let size = payload.len() + text.len();
            let length = text.chars().count();
            if length > LONGEST_KEY {
                let reason = format!(
                    "the partition key has {length} characters, but at most {LONGEST_KEY} are possible"
                );
                into.reject(row, reason);
                continue;
            }
            if size > self.most_bytes {
                let most = self.most_bytes;
                into.reject(
                    row,
                    format!("the record has {size} bytes, more than `max_record_bytes` ({most})"),
                );
                continue;
            }
            let out = into.buffer();
            out.extend_from_slice(b"{\"Data\":\"");
            write_base64(payload, out);
            out.extend_from_slice(b"\",\"PartitionKey\":");
            write_text(&text, out);
            out.push(b'}');
            into.end(row);
        }
    }
}
