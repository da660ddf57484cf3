//! `aws_sns`: publishes messages to a topic of SNS.
//!
//! SNS speaks the older protocol of Amazon's services: a form whose names have the number of the entry in
//! them, and an answer in XML.

use bytes::Bytes;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_codec::template::Template;
use thalweg_config::ByteSize;
use thalweg_engine::{Component, Context, Error, InFlight, Mistake, Sink, SinkConfig, TransformConfig};
use thalweg_net::requests::{Answer, Parts, Reading, Request, Service};
use thalweg_stream::encode::EncodeConfig;

use super::sending::{Common, Plan, Probe, SendingOptions};
use super::texts::{Failed, MOST_COUNT, Successful, Text, TextOptions, verdicts};
use crate::api::SNS;
use crate::options::AwsOptions;
use crate::queue::is_fifo;
use crate::refusal::{not_understood, refused};

/// The largest message, in bytes, with its attributes.
const MOST_MESSAGE: usize = 256 << 10;

/// Publishes messages to a topic of Amazon SNS.
///
/// A message is acknowledged when SNS has confirmed it. Messages that the topic does not take for now are
/// sent again alone. A message that it refuses, or that is empty, not UTF-8 or larger than 256 KiB, leaves by
/// `errors` with the reason. While the service does not answer, messages wait.
///
/// After a lost answer, messages are sent again. A topic in order (FIFO) recognises them by their
/// `deduplication_id`; subscribers of other topics get them twice. In a topic in order, messages of a group
/// are in order, except for those that the topic takes only at a further attempt.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AwsSns {
    #[serde(flatten)]
    aws: AwsOptions,
    #[serde(flatten)]
    sending: SendingOptions,
    #[serde(flatten)]
    texts: TextOptions,
    /// The ARN of the topic.
    #[schemars(example = &"arn:aws:sns:eu-west-1:123456789012:orders")]
    topic: String,
    /// The subject of the message, for subscribers by mail. Columns in braces are replaced for each message.
    /// By default messages have none.
    #[serde(default)]
    subject: Option<Template>,
    /// The format of messages, for example `json`. By default the payload is sent unchanged.
    #[serde(default)]
    encode: EncodeConfig,
    #[serde(skip)]
    common: Common,
}

impl AwsSns {
    fn plan(&self) -> Plan<'_> {
        Plan {
            service: &SNS,
            aws: &self.aws,
            sending: &self.sending,
            common: &self.common,
            place: &self.topic,
            most_count: MOST_COUNT,
            most_bytes: ByteSize::kib(256),
            is_in_order: is_fifo(&self.topic),
        }
    }
}

impl Component for AwsSns {
    const NAME: &'static str = "aws_sns";
    const EXAMPLE: &'static str = r#"
sources:
  messages: { generate: { message: '{"id": %6d, "service": "shop"}', count: 100 } }
pipelines:
  main: { from: messages, transforms: [parse_json: {}], to: topic }
sinks:
  topic:
    aws_sns:
      url: "http://127.0.0.1:4566"
      auth: { access_key_id: test, secret_access_key: test }
      topic: "arn:aws:sns:us-east-1:123456789012:orders"
      attributes: { service: "{service}" }
"#;

    fn check(&self) -> Vec<Mistake> {
        let mut mistakes = self.aws.check();
        mistakes.extend(self.encode.mistakes());
        mistakes.extend(self.texts.check(is_fifo(&self.topic)));
        let parts = self.topic.split(':').collect::<Vec<_>>();
        if !matches!(parts[..], ["arn", _, "sns", _, _, name] if !name.is_empty()) {
            let mistake = Mistake::new("topic", "This is no ARN of a topic.");
            mistakes.push(mistake.help("For example `arn:aws:sns:eu-west-1:123456789012:orders`."));
        }
        mistakes
    }
}

impl SinkConfig for AwsSns {
    fn encoder(&self) -> Option<Box<dyn TransformConfig>> {
        self.encode.encoder()
    }

    fn fields(&self) -> Vec<String> {
        self.texts.fields().into_iter().chain(self.subject.iter().flat_map(Template::fields)).collect()
    }

    fn in_flight(&self) -> InFlight {
        self.plan().in_flight()
    }

    fn build(&self, context: &Context) -> Result<Box<dyn Sink>, Error> {
        let probe =
            Probe { action: "GetTopicAttributes", body: form("GetTopicAttributes", &self.topic).into() };
        let mut texts = self.texts.texts(is_fifo(&self.topic), MOST_MESSAGE, self.common.ids.clone(), write);
        texts.subject = self.subject.clone();
        self.plan().build(context, probe, Publish::new(&self.topic), texts)
    }
}

/// Appends a value of a form.
fn write_value(text: &str, out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            out.push(byte);
        } else {
            out.push(b'%');
            out.push(DIGITS[usize::from(byte >> 4)]);
            out.push(DIGITS[usize::from(byte & 15)]);
        }
    }
}

/// Returns a form for an action with a topic.
fn form(action: &str, topic: &str) -> Vec<u8> {
    let mut form = format!("Action={action}&Version=2010-03-31&TopicArn=").into_bytes();
    write_value(topic, &mut form);
    form
}

/// Appends the fields of an entry, but for its id, each without the number of the entry.
fn write(message: &Text<'_>, out: &mut Vec<u8>) {
    let field = |name: &str, value: &str, out: &mut Vec<u8>| {
        out.extend_from_slice(name.as_bytes());
        out.push(b'=');
        write_value(value, out);
    };
    field("Message", message.text, out);
    let others = [
        ("&Subject", &message.subject),
        ("&MessageGroupId", &message.message_group),
        ("&MessageDeduplicationId", &message.deduplication_id),
    ];
    for (name, value) in others {
        if let Some(value) = value {
            field(name, value, out);
        }
    }
    for (number, (name, value)) in message.attributes.iter().enumerate() {
        let before = format!("&MessageAttributes.entry.{}", number + 1);
        field(&format!("{before}.Name"), name, out);
        field(&format!("{before}.Value.DataType"), "String", out);
        field(&format!("{before}.Value.StringValue"), value, out);
    }
}

/// The action that takes messages.
pub(crate) struct Publish {
    /// The text before the entries in a body.
    start: Vec<u8>,
}

impl Publish {
    pub(crate) fn new(topic: &str) -> Self {
        Self { start: form("PublishBatch", topic) }
    }
}

/// The answer.
#[derive(Deserialize)]
struct Published {
    #[serde(rename = "PublishBatchResult", default)]
    result: Fates,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Fates {
    successful: Members<Successful>,
    failed: Members<Failed>,
}

#[derive(Deserialize)]
#[serde(bound = "T: Deserialize<'de>")]
struct Members<T> {
    #[serde(default = "Vec::new")]
    member: Vec<T>,
}

impl<T> Default for Members<T> {
    fn default() -> Self {
        Self { member: Vec::new() }
    }
}

impl Service for Publish {
    fn body(&self, parts: &Parts) -> Bytes {
        let mut body = Vec::with_capacity(self.start.len() + parts.bytes().len() + 400 * parts.len());
        body.extend_from_slice(&self.start);
        for (number, part) in parts.iter().enumerate() {
            let before = format!("&PublishBatchRequestEntries.member.{}.", number + 1);
            body.extend_from_slice(format!("{before}Id={number}").as_bytes());
            for field in part.split(|byte| *byte == b'&') {
                body.extend_from_slice(before.as_bytes());
                body.extend_from_slice(field);
            }
        }
        body.into()
    }

    fn read(&self, request: &Request, answer: &Answer, parts: &Parts) -> Reading {
        if !answer.status.is_success() {
            return refused(request, answer);
        }
        let body = std::str::from_utf8(&answer.body).ok().filter(|_| answer.is_whole);
        match body.and_then(|body| quick_xml::de::from_str(body).ok()) {
            Some(Published { result: Fates { successful, failed } }) => {
                Reading::Each(verdicts(request, parts.len(), &successful.member, &failed.member))
            }
            None => not_understood(request),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_names_the_messages_that_were_not_taken() {
        let answer = "<PublishBatchResponse xmlns=\"http://sns.amazonaws.com/doc/2010-03-31/\">\
                      <PublishBatchResult><Failed><member><Id>1</Id><Code>InvalidParameter</Code>\
                      <Message>no</Message><SenderFault>true</SenderFault></member></Failed>\
                      <Successful><member><Id>0</Id><MessageId>m</MessageId></member></Successful>\
                      </PublishBatchResult><ResponseMetadata><RequestId>r</RequestId></ResponseMetadata>\
                      </PublishBatchResponse>";
        let Published { result } = quick_xml::de::from_str(answer).unwrap();
        assert_eq!((result.successful.member.len(), result.failed.member.len()), (1, 1));
        let none = "<PublishBatchResponse><PublishBatchResult><Failed/><Successful><member><Id>0</Id></member>\
                    </Successful></PublishBatchResult></PublishBatchResponse>";
        let Published { result } = quick_xml::de::from_str(none).unwrap();
        assert_eq!((result.successful.member.len(), result.failed.member.len()), (1, 0));
    }

    #[test]
    fn a_message_cannot_write_fields_of_its_own() {
        let message = Text { text: "a&Subject=b é+%", subject: Some("s".to_owned()), ..Text::default() };
        let mut part = Vec::new();
        write(&message, &mut part);
        assert_eq!(String::from_utf8(part).unwrap(), "Message=a%26Subject%3Db%20%C3%A9%2B%25&Subject=s");
    }
}
