use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::json;

use thalweg_engine::testing::{
    batch, context, messages, open_sink, options, sink_conforms, write_until_durable,
};
use thalweg_engine::{Component, ErrorKind, SinkConfig};
use thalweg_record::{Ack, Batch, Meta};
use thalweg_testbed::{Fault, Proxy, Rule, Times};
use thalweg_testkit::amazon::AmazonServer;

use super::aws_cloudwatch_logs::AwsCloudwatchLogs;
use super::aws_kinesis_firehose::AwsKinesisFirehose;
use super::aws_kinesis_streams::AwsKinesisStreams;
use super::aws_sns::AwsSns;
use super::aws_sqs::AwsSqs;

/// Returns the options of a sink that sends at once.
fn yaml(amazon: &AmazonServer, more: &str) -> String {
    format!("{{ {}, max_delay: 0s, {more} }}", AmazonServer::options(amazon.address()))
}

/// As `yaml`, through a proxy, and without the request that checks the service.
fn through(proxy: &Proxy, more: &str) -> String {
    format!("{{ {}, max_delay: 0s, check: false, {more} }}", AmazonServer::options(proxy.address()))
}

/// Writes messages, and returns those that were refused.
async fn write<C: Component + SinkConfig>(yaml: &str, texts: &[&str]) -> Vec<(u32, String)> {
    let mut sink = open_sink::<C>(yaml).await;
    write_until_durable(&mut *sink, recent(texts), |_| {}).await
}

/// Returns messages that were read just now: CloudWatch Logs refuses events of former weeks.
fn recent(texts: &[&str]) -> Batch {
    let batch = batch(texts);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let time_us = i64::try_from(now.as_micros()).unwrap();
    let meta = Meta { source: "test".into(), path: None, time_us, sequence: None, number: 0 };
    Batch::new(batch.payload().clone(), Arc::new(meta), Ack::noop())
}

/// Lets the first request have this answer, which the server does not see.
fn answered_first(amazon: &AmazonServer, body: &serde_json::Value) -> Proxy {
    let proxy = Proxy::start(amazon.address()).unwrap();
    let fault = Fault::Status { code: 200, retry_after: None, body: body.to_string() };
    proxy.set([Rule::new(fault).times(Times::Nth(1))]);
    proxy
}

/// Returns the texts of the messages that were sent to a queue.
fn texts(amazon: &AmazonServer, queue: &str) -> Vec<String> {
    let sent = amazon.sent(queue);
    sent.iter().map(|message| message["MessageBody"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn they_conform() {
    let amazon = AmazonServer::start().unwrap();
    amazon.create_stream("s", 1);
    amazon.create_delivery_stream("delivery");
    amazon.create_queue("q");
    amazon.create_topic("t");
    sink_conforms::<AwsKinesisStreams>(&yaml(&amazon, "stream: s")).await;
    sink_conforms::<AwsKinesisFirehose>(&yaml(&amazon, "stream: delivery")).await;
    sink_conforms::<AwsSqs>(&yaml(&amazon, "queue: q")).await;
    sink_conforms::<AwsSns>(&yaml(&amazon, "topic: 'arn:aws:sns:us-east-1:123456789012:t'")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_have_their_keys_and_an_answer_for_another_number_of_them_is_none() {
    let amazon = AmazonServer::start().unwrap();
    amazon.create_stream("s", 1);
    let proxy = answered_first(
        &amazon,
        &json!({ "FailedRecordCount": 2, "Records": [
            { "SequenceNumber": "1", "ShardId": "s" },
            { "ErrorCode": "ProvisionedThroughputExceededException", "ErrorMessage": "slow down" },
            { "SequenceNumber": "2", "ShardId": "s" },
            { "ErrorCode": "InternalFailure", "ErrorMessage": "oops" },
        ] }),
    );
    let options = through(&proxy, "stream: s, partition_key: 'k-{payload}', max_record_bytes: 12");
    let rejected = write::<AwsKinesisStreams>(&options, &["a", "b", "c", "d", "far too long", "é"]).await;
    assert_eq!(rejected, [(4, "the record has 26 bytes, more than `max_record_bytes` (12)".to_owned())]);
    let mut stored = amazon.records("s");
    stored.sort();
    let record = |text: &str| (format!("k-{text}"), text.as_bytes().to_vec());
    // The first answer was for four of five records, so that all were sent again.
    let expected: Vec<_> = ["a", "b", "c", "d", "é"].into_iter().map(record).collect();
    assert_eq!(stored, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_request_only_the_records_that_were_not_taken_are_sent_again() {
    let amazon = AmazonServer::start().unwrap();
    amazon.create_stream("s", 1);
    let proxy = answered_first(
        &amazon,
        &json!({ "FailedRecordCount": 2, "Records": [
            { "SequenceNumber": "1", "ShardId": "s" },
            { "ErrorCode": "ProvisionedThroughputExceededException", "ErrorMessage": "slow down" },
            { "ErrorCode": "InvalidArgumentException", "ErrorMessage": "no such key" },
        ] }),
    );
    let rejected = write::<AwsKinesisStreams>(&through(&proxy, "stream: s"), &["a", "b", "c"]).await;
    assert_eq!(rejected.len(), 1);
    let (row, reason) = &rejected[0];
    assert!(*row == 2 && reason.ends_with("answered InvalidArgumentException for the message: no such key"));
    let stored = amazon.records("s");
    let stored: Vec<&[u8]> = stored.iter().map(|(_, data)| data.as_slice()).collect();
    assert_eq!(stored, [b"b"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn delivered_records_are_lines() {
    let amazon = AmazonServer::start().unwrap();
    amazon.create_delivery_stream("delivery");
    assert_eq!(write::<AwsKinesisFirehose>(&yaml(&amazon, "stream: delivery"), &["a", "b"]).await, []);
    assert_eq!(amazon.delivered("delivery"), b"a\nb\n");
    let large = "x".repeat(1000 << 10);
    let rejected = write::<AwsKinesisFirehose>(&yaml(&amazon, "stream: delivery"), &[&large]).await;
    let reason = "the record has 1024001 bytes, but Firehose takes at most 1024000".to_owned();
    assert_eq!(rejected, [(0, reason)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn log_groups_and_log_streams_are_created_and_events_have_their_reasons() {
    let amazon = AmazonServer::start().unwrap();
    let options = yaml(&amazon, "log_group: 'g/{payload}', log_stream: s");
    let rejected = write::<AwsCloudwatchLogs>(&options, &["a", "b b", "", "a"]).await;
    assert_eq!(
        rejected,
        [
            (
                1,
                "`g/b b` is no `log_group`: it has other characters than letters, digits and `_-/.#`"
                    .to_owned()
            ),
            (2, "the message is empty, and no event".to_owned()),
        ]
    );
    let events = amazon.events("g/a", "s");
    assert_eq!(events.iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>(), ["a", "a"]);
    let old = json!({ "rejectedLogEventsInfo": { "tooOldLogEventEndIndex": 1 } });
    let proxy = answered_first(&amazon, &old);
    let options = through(&proxy, "log_group: g/a, log_stream: s, create: false");
    let rejected = write::<AwsCloudwatchLogs>(&options, &["x", "y"]).await;
    assert_eq!(rejected, [(0, "the event is too old for CloudWatch Logs".to_owned())]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_queue_does_not_take_is_sent_again_and_what_it_refuses_has_its_reason() {
    let amazon = AmazonServer::start().unwrap();
    let queue = amazon.create_queue("q");
    let proxy = answered_first(
        &amazon,
        &json!({
            "Successful": [{ "Id": "0" }],
            "Failed": [
                { "Id": "1", "SenderFault": true, "Code": "InvalidMessageContents", "Message": "no" },
                { "Id": "2", "SenderFault": false, "Code": "InternalError" },
            ],
        }),
    );
    let options = through(&proxy, &format!("queue: '{queue}'"));
    let rejected = write::<AwsSqs>(&options, &["a", "b", "c", "d"]).await;
    assert_eq!(rejected.len(), 1);
    let (row, reason) = &rejected[0];
    assert!(*row == 1 && reason.ends_with("answered InvalidMessageContents for the message: no"), "{reason}");
    // The answer did not name the last one.
    assert_eq!(texts(&amazon, &queue), ["c", "d"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_in_order_has_each_message_once_although_an_answer_was_lost() {
    let amazon = AmazonServer::start().unwrap();
    let queue = amazon.create_queue("q.fifo");
    let proxy = Proxy::start(amazon.address()).unwrap();
    let lost = Fault::StatusAfter { code: 500, retry_after: None, body: String::new() };
    proxy.set([Rule::new(lost).times(Times::Nth(1))]);
    let numbers: Vec<String> = (0..25).map(|number| number.to_string()).collect();
    let numbers: Vec<&str> = numbers.iter().map(String::as_str).collect();
    let options = through(&proxy, &format!("queue: '{queue}', message_group: all"));
    assert_eq!(write::<AwsSqs>(&options, &numbers).await, []);
    assert_eq!(texts(&amazon, &queue), numbers);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_passes_on_messages_with_their_attributes() {
    let amazon = AmazonServer::start().unwrap();
    let topic = amazon.create_topic("t");
    let options =
        yaml(&amazon, &format!("topic: '{topic}', attributes: {{ text: 'of {{payload}}', none: '{{x}}' }}"));
    let large = "x".repeat(256 << 10);
    let rejected = write::<AwsSns>(&options, &["a&b=c+ é", "", &large]).await;
    assert_eq!(
        rejected,
        [
            (1, "the message is empty, which the service does not take".to_owned()),
            (2, "the message has 524301 bytes, but at most 262144 are possible".to_owned()),
        ]
    );
    let sent = amazon.sent("t");
    assert_eq!(sent[0]["MessageBody"], "a&b=c+ é");
    let attributes = &sent[0]["MessageAttributes"];
    assert_eq!(attributes["text"]["StringValue"], "of a&b=c+ é");
    assert_eq!(attributes.as_object().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_does_not_begin_without_what_it_writes_into_and_shows_no_secret() {
    let amazon = AmazonServer::start().unwrap();
    let refused = async |yaml: &str| {
        let mut sink = options::<AwsSqs>(yaml).build(&context()).unwrap();
        let error = sink.open(None).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Permanent);
        error.full()
    };
    let absent = yaml(&amazon, "queue: none");
    let text = refused(&absent).await;
    assert!(text.contains("the service cannot be used") && text.contains("does not exist"), "{text}");
    let wrong = absent.replace("secret_access_key: test", "secret_access_key: SEKRET");
    let text = refused(&wrong).await;
    assert!(text.contains("InvalidSignatureException") && text.contains("correct `auth`"), "{text}");
    assert!(!text.contains("SEKRET"), "{text}");
    let absent = yaml(&amazon, "stream: none");
    let mut sink = options::<AwsKinesisStreams>(&absent).build(&context()).unwrap();
    assert!(sink.open(None).await.unwrap_err().full().contains("ResourceNotFoundException"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_wait_for_a_service_that_fails() {
    let amazon = AmazonServer::start().unwrap();
    let queue = amazon.create_queue("q");
    let proxy = Proxy::start(amazon.address()).unwrap();
    let busy = json!({ "__type": "com.amazonaws.sqs#RequestThrottled", "message": "slow down" }).to_string();
    let busy = Fault::Status { code: 400, retry_after: None, body: busy };
    let broken = Fault::Status { code: 500, retry_after: None, body: String::new() };
    let denied = json!({ "__type": "com.amazon#AccessDeniedException" }).to_string();
    let denied = Fault::Status { code: 400, retry_after: None, body: denied };
    proxy.set([
        Rule::new(busy).times(Times::Nth(1)),
        Rule::new(broken).times(Times::Nth(2)),
        Rule::new(denied).times(Times::Nth(3)),
    ]);
    let options = through(&proxy, &format!("queue: '{queue}'"));
    let mut sink = open_sink::<AwsSqs>(&options).await;
    let mut kinds = Vec::new();
    let rejected = write_until_durable(&mut *sink, batch(["a"]), |error| kinds.push(error.kind())).await;
    assert_eq!(rejected, []);
    assert_eq!(kinds, [ErrorKind::Overloaded, ErrorKind::Temporary, ErrorKind::Temporary]);
    assert_eq!(texts(&amazon, &queue), ["a"]);
}

#[test]
fn mistakes_are_named() {
    let sqs = |yaml: &str| messages(options::<AwsSqs>(yaml).check());
    assert_eq!(sqs("{ queue: 'a b' }"), ["This is neither a URL of a queue nor a name."]);
    assert_eq!(sqs("{ queue: a.fifo }"), ["A message in order has a group."]);
    let recognises = "Only a target in order, whose name ends with `.fifo`, recognises messages.";
    assert_eq!(sqs("{ queue: a, deduplication_id: '{id}' }"), [recognises]);
    for id in ["x", "{meta.hostname}", "{now:%Y}"] {
        assert_eq!(
            sqs(&format!("{{ queue: a.fifo, message_group: g, deduplication_id: '{id}' }}")),
            ["Of several messages with the same id, only one is kept."]
        );
    }
    for name in ["a b", ".a", "a.", "a..b", "AWS.a", "amazon.a"] {
        let expected = format!("`{name}` is no name of an attribute.");
        assert_eq!(sqs(&format!("{{ queue: a, attributes: {{ '{name}': x }} }}")), [expected]);
    }
    let sns = |yaml: &str| messages(options::<AwsSns>(yaml).check());
    assert_eq!(sns("{ topic: orders }"), ["This is no ARN of a topic."]);
    let kinesis = |yaml: &str| messages(options::<AwsKinesisStreams>(yaml).check());
    assert_eq!(kinesis("{ stream: '' }"), ["The stream has no name."]);
    assert_eq!(kinesis("{ stream: s, max_record_bytes: 0 }"), ["No stream takes records of this size."]);
    let firehose = |yaml: &str| messages(options::<AwsKinesisFirehose>(yaml).check());
    assert_eq!(firehose("{ stream: 'arn:x' }"), ["This is no name of a delivery stream."]);
    let logs = |yaml: &str| messages(options::<AwsCloudwatchLogs>(yaml).check());
    assert_eq!(logs("{ log_group: g, log_stream: 'a:b' }"), ["This is no name: it has a `:` or a `*`."]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_whose_ids_lack_a_part_are_all_kept() {
    let amazon = AmazonServer::start().unwrap();
    let queue = amazon.create_queue("q.fifo");
    let options = yaml(
        &amazon,
        &format!("queue: '{queue}', message_group: '{{payload}}', deduplication_id: 'id-{{x}}'"),
    );
    assert_eq!(write::<AwsSqs>(&options, &["a", "b", "c"]).await, []);
    let mut stored = texts(&amazon, &queue);
    stored.sort();
    assert_eq!(stored, ["a", "b", "c"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_does_not_begin_with_an_invalid_name_of_what_it_writes_into() {
    let amazon = AmazonServer::start().unwrap();
    let invalid = json!({ "__type": "ValidationException", "message": "no such name" });
    amazon.script(move |_, _| Some((400, invalid.clone())));
    let yaml = yaml(&amazon, "stream: 'a b'");
    let mut sink = options::<AwsKinesisStreams>(&yaml).build(&context()).unwrap();
    let error = sink.open(None).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Permanent);
    assert!(error.full().contains("the service cannot be used"), "{}", error.full());
}
