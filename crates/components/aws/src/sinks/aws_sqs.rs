//! `aws_sqs`: sends messages to a queue of SQS.

use async_trait::async_trait;
use bytes::Bytes;
use http::HeaderMap;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use thalweg_codec::json::write_text;
use thalweg_config::ByteSize;
use thalweg_engine::{Component, Context, Error, InFlight, Mistake, Sink, SinkConfig, TransformConfig};
use thalweg_net::requests::{Answer, Failure, Parts, Reading, Request, Service};
use thalweg_stream::encode::EncodeConfig;

use super::sending::{Common, Plan, Probe, SendingOptions};
use super::texts::{Failed, MOST_COUNT, Successful, Text, TextOptions, verdicts};
use crate::api::{CallError, SQS};
use crate::options::AwsOptions;
use crate::queue::{Queue, is_fifo, is_queue};
use crate::refusal::{not_understood, refused};

/// The largest message, in bytes, with its attributes.
const MOST_MESSAGE: usize = 1 << 20;

/// Sends messages to a queue of Amazon SQS.
///
/// A message is acknowledged when SQS has confirmed it. Messages that the queue does not take for now are
/// sent again alone. A message that it refuses, or that is empty, not UTF-8 or larger than 1 MiB, leaves by
/// `errors` with the reason. While the service does not answer, messages wait.
///
/// After a lost answer, messages are sent again. A queue in order (FIFO) recognises them by their
/// `deduplication_id`; in other queues they are twice. In a queue in order, messages of a group are in order,
/// except for those that the queue takes only at a further attempt.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AwsSqs {
    #[serde(flatten)]
    aws: AwsOptions,
    #[serde(flatten)]
    sending: SendingOptions,
    #[serde(flatten)]
    texts: TextOptions,
    /// The URL of the queue, or its name.
    #[schemars(example = &"https://sqs.eu-west-1.amazonaws.com/123456789012/orders")]
    queue: String,
    /// The format of messages, for example `json`. By default the payload is sent unchanged.
    #[serde(default)]
    encode: EncodeConfig,
    #[serde(skip)]
    common: Common,
}

impl AwsSqs {
    fn plan(&self) -> Plan<'_> {
        Plan {
            service: &SQS,
            aws: &self.aws,
            sending: &self.sending,
            common: &self.common,
            place: &self.queue,
            most_count: MOST_COUNT,
            // The limit was 256 KiB for long, and other servers still have it.
            most_bytes: ByteSize::kib(256),
            is_in_order: is_fifo(&self.queue),
        }
    }
}

impl Component for AwsSqs {
    const NAME: &'static str = "aws_sqs";
    const EXAMPLE: &'static str = r#"
sources:
  messages: { generate: { message: '{"id": %6d, "customer": "c%2d"}', count: 100 } }
pipelines:
  main: { from: messages, transforms: [parse_json: {}], to: queue }
sinks:
  queue:
    aws_sqs:
      region: us-east-1
      url: "http://127.0.0.1:4566"
      auth: { access_key_id: test, secret_access_key: test }
      queue: orders.fifo
      message_group: "{customer}"
      deduplication_id: "{id}"
"#;

    fn check(&self) -> Vec<Mistake> {
        let mut mistakes = self.aws.check();
        mistakes.extend(self.encode.mistakes());
        mistakes.extend(self.texts.check(is_fifo(&self.queue)));
        if !is_queue(&self.queue) {
            // The text is not shown: it may be a URL with a password.
            let mistake = Mistake::new("queue", "This is neither a URL of a queue nor a name.");
            mistakes.push(mistake.help("For example `orders`."));
        }
        mistakes
    }
}

impl SinkConfig for AwsSqs {
    fn encoder(&self) -> Option<Box<dyn TransformConfig>> {
        self.encode.encoder()
    }

    fn fields(&self) -> Vec<String> {
        self.texts.fields()
    }

    fn in_flight(&self) -> InFlight {
        self.plan().in_flight()
    }

    fn build(&self, context: &Context) -> Result<Box<dyn Sink>, Error> {
        let queue = Queue::new(&self.queue);
        let probe = match queue.known() {
            Some(url) => Probe {
                action: "GetQueueAttributes",
                body: json!({ "QueueUrl": url, "AttributeNames": ["QueueArn"] }).to_string().into(),
            },
            None => {
                Probe { action: "GetQueueUrl", body: json!({ "QueueName": self.queue }).to_string().into() }
            }
        };
        let texts = self.texts.texts(is_fifo(&self.queue), MOST_MESSAGE, self.common.ids.clone(), write);
        self.plan().build(context, probe, SendBatch { queue }, texts)
    }
}

/// Appends the members of an entry, but for its id and the brace before it.
fn write(message: &Text<'_>, out: &mut Vec<u8>) {
    let member = |name: &str, value: &str, out: &mut Vec<u8>| {
        write_text(name, out);
        out.push(b':');
        write_text(value, out);
    };
    member("MessageBody", message.text, out);
    let others =
        [("MessageGroupId", &message.message_group), ("MessageDeduplicationId", &message.deduplication_id)];
    for (name, value) in others {
        if let Some(value) = value {
            out.push(b',');
            member(name, value, out);
        }
    }
    if !message.attributes.is_empty() {
        out.extend_from_slice(b",\"MessageAttributes\":{");
        for (number, (name, value)) in message.attributes.iter().enumerate() {
            if number > 0 {
                out.push(b',');
            }
            write_text(name, out);
            out.extend_from_slice(b":{\"DataType\":\"String\",");
            member("StringValue", value, out);
            out.push(b'}');
        }
        out.push(b'}');
    }
    out.push(b'}');
}

/// The action that takes messages.
pub(crate) struct SendBatch {
    pub(crate) queue: Queue,
}

/// The answer.
#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Sent {
    successful: Vec<Successful>,
    failed: Vec<Failed>,
}

#[async_trait]
impl Service for SendBatch {
    fn body(&self, parts: &Parts) -> Bytes {
        let mut body = Vec::with_capacity(parts.bytes().len() + 256 + 16 * parts.len());
        body.extend_from_slice(b"{\"QueueUrl\":");
        write_text(self.queue.known().unwrap_or_default(), &mut body);
        body.extend_from_slice(b",\"Entries\":[");
        for (number, part) in parts.iter().enumerate() {
            if number > 0 {
                body.push(b',');
            }
            body.extend_from_slice(format!("{{\"Id\":\"{number}\",").as_bytes());
            body.extend_from_slice(part);
        }
        body.extend_from_slice(b"]}");
        body.into()
    }

    fn headers(&self) -> HeaderMap {
        SQS.action("SendMessageBatch")
    }

    async fn prepare(&self, request: &Request, _: &Parts) -> Result<(), Failure> {
        self.queue.url(request).await.map(|_| ()).map_err(CallError::failure)
    }

    fn read(&self, request: &Request, answer: &Answer, parts: &Parts) -> Reading {
        if !answer.status.is_success() {
            return refused(request, answer);
        }
        let sent = serde_json::from_slice(&answer.body).ok().filter(|_| answer.is_whole);
        match sent {
            Some(Sent { successful, failed }) => {
                Reading::Each(verdicts(request, parts.len(), &successful, &failed))
            }
            None => not_understood(request),
        }
    }
}
