//! The parsers of this crate that fuzz targets reach only from here.

use http::HeaderMap;
use thalweg_net::fuzzing::{answered, counts};
use thalweg_net::requests::{Parts, Service};

use crate::api::{FIREHOSE, KINESIS};
use crate::queue::Queue;
use crate::sinks::aws_cloudwatch_logs::Put as PutEvents;
use crate::sinks::aws_sns::Publish;
use crate::sinks::aws_sqs::SendBatch;
use crate::sinks::records::Put;
use crate::sources::aws_kinesis_streams::Page;
use crate::sources::aws_sqs::Body;

/// Reads the answer of a service to a request of this many messages, for each of the services. Returns the
/// numbers of messages that are delivered, refused, and to be sent again. Nothing if the answer cannot be
/// one.
pub fn service_answer(status: u16, headers: &HeaderMap, body: &[u8], messages: usize) -> Vec<[usize; 3]> {
    let Some((request, answer)) = answered(status, headers, body) else { return Vec::new() };
    let mut parts = Parts::default();
    // An event of CloudWatch Logs without a place, at 0.
    (0..messages).for_each(|_| parts.push(b"\0\0\0\0\0\0\0\0\0\0\0\0\"a\""));
    let services: [&dyn Service; 5] = [
        &Put::new(&KINESIS, "PutRecords", "StreamName", "s"),
        &Put::new(&FIREHOSE, "PutRecordBatch", "DeliveryStreamName", "s"),
        &PutEvents::new(false),
        &SendBatch { queue: Queue::new("http://127.0.0.1:1/1/q") },
        &Publish::new("arn:aws:sns:us-east-1:1:t"),
    ];
    services.map(|service| counts(service.read(&request, &answer, &parts), messages)).to_vec()
}

/// Reads the records that a shard has. Returns how many they are.
pub fn shard_answer(body: &[u8]) -> Option<usize> {
    serde_json::from_slice::<Page>(body).ok().map(|page| page.records.len())
}

/// Reads the messages that a queue delivers. Returns how many they are.
pub fn queue_answer(body: &[u8]) -> Option<usize> {
    serde_json::from_slice::<Body>(body).ok().map(|body| body.messages.unwrap_or_default().len())
}
