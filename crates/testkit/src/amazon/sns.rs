//! Topics of SNS: a form as a request, and an answer in XML. Each topic has a queue that gets its messages as
//! they are.

use std::collections::BTreeMap;
use std::time::Instant;

use serde_json::{Value, json};

use super::Services;
use super::http::Answer;

/// The most messages of a request.
const MOST_COUNT: usize = 10;

/// Decodes a value of a form.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        let digits = after.get(..2).and_then(|digits| str::from_utf8(digits).ok());
        match (byte, digits.and_then(|digits| u8::from_str_radix(digits, 16).ok())) {
            (b'%', Some(code)) => {
                bytes.push(code);
                rest = &after[2..];
            }
            (b'+', _) => bytes.push(b' '),
            _ => bytes.push(*byte),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns the fields of a form.
fn fields(form: &str) -> BTreeMap<String, String> {
    let pairs = form.split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (decoded(name), decoded(value))).collect()
}

fn refused(code: &str, message: &str) -> Answer {
    let body = format!(
        "<ErrorResponse xmlns=\"http://sns.amazonaws.com/doc/2010-03-31/\"><Error><Type>Sender</Type>\
         <Code>{code}</Code><Message>{message}</Message></Error><RequestId>r</RequestId></ErrorResponse>"
    );
    Answer { status: if code == "NotFound" { 404 } else { 400 }, body }
}

/// Returns the entries of a request as messages of a queue, each with its id.
fn entries(fields: &BTreeMap<String, String>) -> Vec<(String, Value)> {
    let mut entries = Vec::new();
    for number in 1.. {
        let start = format!("PublishBatchRequestEntries.member.{number}.");
        let field = |name: &str| fields.get(&format!("{start}{name}")).cloned();
        let Some(id) = field("Id") else { break };
        let mut attributes = json!({});
        for number in 1.. {
            let part = |name: &str| field(&format!("MessageAttributes.entry.{number}.{name}"));
            let Some(name) = part("Name") else { break };
            let (kind, value) = (part("Value.DataType"), part("Value.StringValue"));
            attributes[name] = json!({ "DataType": kind, "StringValue": value });
        }
        let entry = json!({
            "MessageBody": field("Message"),
            "MessageGroupId": field("MessageGroupId"),
            "MessageDeduplicationId": field("MessageDeduplicationId"),
            "MessageAttributes": attributes,
        });
        entries.push((id, entry));
    }
    entries
}

impl Services {
    /// Answers a request to a topic.
    pub(super) fn topic(&mut self, form: &str) -> Answer {
        let fields = fields(form);
        let field = |name: &str| fields.get(name).map(String::as_str).unwrap_or_default();
        let name = field("TopicArn").rsplit(':').next().unwrap_or_default();
        if !self.topics.contains(name) {
            return refused("NotFound", "Topic does not exist");
        }
        match field("Action") {
            "GetTopicAttributes" => {
                let body = "<GetTopicAttributesResponse><GetTopicAttributesResult><Attributes/>\
                            </GetTopicAttributesResult></GetTopicAttributesResponse>";
                Answer { status: 200, body: body.to_owned() }
            }
            "PublishBatch" => self.publish(name, &entries(&fields)),
            _ => refused("InvalidAction", "there is no such action"),
        }
    }

    fn publish(&mut self, topic: &str, entries: &[(String, Value)]) -> Answer {
        if entries.is_empty() || entries.len() > MOST_COUNT {
            return refused("TooManyEntriesInBatchRequest", "a request has from 1 to 10 messages");
        }
        let Ok(queue) = self.queues.named(topic) else { return refused("NotFound", "Topic has no queue") };
        let (mut successful, mut failed) = (String::new(), String::new());
        for (id, entry) in entries {
            match queue.send(entry, Instant::now()) {
                Ok(_) => {
                    successful += &format!("<member><Id>{id}</Id><MessageId>{id}</MessageId></member>");
                }
                Err(code) => {
                    failed += &format!(
                        "<member><Id>{id}</Id><Code>{code}</Code><Message>not possible</Message>\
                         <SenderFault>true</SenderFault></member>"
                    );
                }
            }
        }
        let body = format!(
            "<PublishBatchResponse xmlns=\"http://sns.amazonaws.com/doc/2010-03-31/\"><PublishBatchResult>\
             <Failed>{failed}</Failed><Successful>{successful}</Successful></PublishBatchResult>\
             <ResponseMetadata><RequestId>r</RequestId></ResponseMetadata></PublishBatchResponse>"
        );
        Answer { status: 200, body }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_is_taken_apart() {
        let form = "Action=PublishBatch&A=a%26b%3Dc+%C3%A9%25&PublishBatchRequestEntries.member.1.Id=0&\
                    PublishBatchRequestEntries.member.1.Message=m";
        let fields = fields(form);
        assert_eq!(fields["A"], "a&b=c é%");
        let entries = entries(&fields);
        let [(id, entry)] = &entries[..] else { panic!("one entry") };
        assert_eq!((id.as_str(), entry["MessageBody"].as_str()), ("0", Some("m")));
    }
}
