//! `aws_kinesis_firehose`: puts messages into a delivery stream of Firehose.
//!
//! Firehose joins records without anything between them, so the sink ends each with a line feed, unless the
//! user wants something else.

use bytes::Bytes;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use thalweg_config::ByteSize;
use thalweg_engine::{Component, Context, Error, InFlight, Mistake, Sink, SinkConfig, TransformConfig};
use thalweg_net::requests::{Encode, Encoded};
use thalweg_record::Batch;
use thalweg_stream::encode::EncodeConfig;

use super::records::{MOST_COUNT, Put, write_base64};
use super::sending::{Common, Plan, Probe, SendingOptions};
use crate::api::FIREHOSE;
use crate::options::AwsOptions;

/// The largest record, in bytes.
const MOST_RECORD: usize = 1000 << 10;

/// Puts messages into a delivery stream of Amazon Data Firehose, each as a record.
///
/// A message is acknowledged when Firehose has confirmed its record, which it keeps until it is delivered.
/// Records that Firehose has no room for are sent again alone. A message that is too large (1000 KiB) leaves
/// by `errors`. While the service does not answer, messages wait.
///
/// After a lost answer or a restart, records are sent again, and are there twice: Firehose recognises none.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AwsKinesisFirehose {
    #[serde(flatten)]
    aws: AwsOptions,
    #[serde(flatten)]
    sending: SendingOptions,
    /// The name of the delivery stream.
    #[schemars(example = &"archive")]
    stream: String,
    /// The text after each message. The default is a line feed: Firehose puts records one after the other.
    #[serde(default = "line_feed")]
    delimiter: String,
    /// The format of records, for example `json`. By default the payload is sent unchanged.
    #[serde(default)]
    encode: EncodeConfig,
    #[serde(skip)]
    common: Common,
}

fn line_feed() -> String {
    "\n".to_owned()
}

impl AwsKinesisFirehose {
    fn plan(&self) -> Plan<'_> {
        Plan {
            service: &FIREHOSE,
            aws: &self.aws,
            sending: &self.sending,
            common: &self.common,
            place: &self.stream,
            most_count: MOST_COUNT,
            // Firehose counts the bytes before base64, so a third more would fit.
            most_bytes: ByteSize::mib(4),
            is_in_order: false,
        }
    }
}

impl Component for AwsKinesisFirehose {
    const NAME: &'static str = "aws_kinesis_firehose";
    const EXAMPLE: &'static str = r#"
sources:
  messages: { generate: { message: '{"id": %6d, "service": "shop"}', count: 100 } }
pipelines:
  main: { from: messages, to: archive }
sinks:
  archive:
    aws_kinesis_firehose:
      region: us-east-1
      url: "http://127.0.0.1:4566"
      auth: { access_key_id: test, secret_access_key: test }
      stream: archive
"#;

    fn check(&self) -> Vec<Mistake> {
        let mut mistakes = self.aws.check();
        mistakes.extend(self.encode.mistakes());
        if self.stream.is_empty() || self.stream.starts_with("arn:") {
            let mistake = Mistake::new("stream", "This is no name of a delivery stream.");
            mistakes.push(mistake.help("For example `archive`; the region is in `region`."));
        }
        mistakes
    }
}

impl SinkConfig for AwsKinesisFirehose {
    fn encoder(&self) -> Option<Box<dyn TransformConfig>> {
        self.encode.encoder()
    }

    fn in_flight(&self) -> InFlight {
        self.plan().in_flight()
    }

    fn build(&self, context: &Context) -> Result<Box<dyn Sink>, Error> {
        const MEMBER: &str = "DeliveryStreamName";
        let probe = Probe {
            action: "DescribeDeliveryStream",
            body: Bytes::from(json!({ MEMBER: self.stream }).to_string()),
        };
        let records = Records { delimiter: self.delimiter.clone().into_bytes(), data: Vec::new() };
        let put = Put::new(&FIREHOSE, "PutRecordBatch", MEMBER, &self.stream);
        self.plan().build(context, probe, put, records)
    }
}

/// Writes messages as records.
struct Records {
    delimiter: Vec<u8>,
    /// The data of a record, kept for its memory.
    data: Vec<u8>,
}

impl Encode for Records {
    fn encode(&mut self, batch: &Batch, rows: &[usize], into: &mut Encoded) {
        for &row in rows {
            let payload = batch.payload().value(row);
            let size = payload.len() + self.delimiter.len();
            if size > MOST_RECORD {
                into.reject(
                    row,
                    format!("the record has {size} bytes, but Firehose takes at most {MOST_RECORD}"),
                );
                continue;
            }
            self.data.clear();
            self.data.extend_from_slice(payload);
            self.data.extend_from_slice(&self.delimiter);
            let out = into.buffer();
            out.extend_from_slice(b"{\"Data\":\"");
            write_base64(&self.data, out);
            out.extend_from_slice(b"\"}");
            into.end(row);
        }
    }
}
