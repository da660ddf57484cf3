use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};

use thalweg_engine::testing::{self, context, messages, numbers, options, payloads, rows};
use thalweg_engine::{Component, SourceConfig};
use thalweg_record::{Batch, Budget, Outcome};
use thalweg_testbed::{Fault, Patience, Proxy, Rule, Times};
use thalweg_testkit::amazon::AmazonServer;

use super::{AwsSqsSource, concurrency};

const WAIT: Duration = Duration::from_secs(30);

/// A server with a queue that has messages with these numbers. Returns the URL of the queue too.
fn numbered(name: &str, count: u32) -> (AmazonServer, String) {
    let amazon = AmazonServer::start().unwrap();
    let queue = amazon.create_queue(name);
    amazon.enqueue(&queue, (0..count).map(|number| number.to_string()));
    (amazon, queue)
}

fn yaml(amazon: &AmazonServer, queue: &str, more: &str) -> String {
    format!("{{ {}, queue: '{queue}'{more} }}", AmazonServer::options(amazon.address()))
}

/// Waits until this many messages of a queue can be received, and were and are not deleted.
async fn until(amazon: &AmazonServer, queue: &str, expected: (usize, usize)) {
    let patience = Patience::begin();
    loop {
        let queued = amazon.queued(queue);
        if queued == expected {
            return;
        }
        patience.check(|| format!("{queued:?} are in the queue, and not {expected:?}"));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Takes batches until they have this many messages.
async fn take(source: &testing::RunningSource, count: usize) -> Vec<Batch> {
    let mut taken: Vec<Batch> = Vec::new();
    while taken.iter().map(Batch::rows).sum::<usize>() < count {
        taken.push(source.take_batch(WAIT).await.unwrap());
    }
    taken
}

fn sorted(batches: &[Batch]) -> Vec<u32> {
    let mut all: Vec<u32> = batches.iter().flat_map(numbers).collect();
    all.sort_unstable();
    all
}

#[test]
fn options_that_cannot_work_are_mistakes() {
    for (yaml, expected) in [
        ("{ queue: 'https://user:password@host/1/q' }", "This is neither a URL of a queue nor a name."),
        ("{ queue: q, visibility_timeout: 500ms }", "No queue waits for this time."),
        ("{ queue: q, visibility_timeout: 13h }", "No queue waits for this time."),
        ("{ queue: q, fields: [body] }", "A message has no `body`."),
        ("{ queue: q, fields: ['attribute.'] }", "A message has no `attribute.`."),
    ] {
        assert_eq!(messages(options::<AwsSqsSource>(yaml).check()), [expected], "{yaml}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parts_of_messages_are_fields_and_what_is_delivered_is_deleted() {
    let (amazon, queue) = numbered("q", 0);
    let attributes = json!({ "Host": { "DataType": "String", "StringValue": "h1" } });
    amazon.send(&queue, &json!({ "MessageBody": "first", "MessageAttributes": attributes }));
    amazon.enqueue(&queue, ["x".repeat(5000)]);
    let more =
        ", max_message_bytes: 4999, end_after_idle: 300ms, fields: [deliveries, attribute.Host, sequence]";
    // The queue is found by its name.
    let sent = testing::read_all::<AwsSqsSource>(&yaml(&amazon, "q", more), 1 << 16).await;
    assert!(sent.result.is_none(), "{:?}", sent.result);
    assert_eq!(sent.payloads(), ["first"]);
    let shown: Vec<Value> = sent.main.iter().flat_map(|batch| rows(batch.fields())).collect();
    assert_eq!(shown, [json!({ "deliveries": 1, "attribute.Host": "h1" })]);
    let [error] = &sent.errors[..] else { panic!("{:?}", sent.errors) };
    assert_eq!(payloads(error)[0].len(), 4096);
    let reason = "the message has 5000 bytes, more than `max_message_bytes` (4999)";
    assert_eq!(rows(error.fields())[0]["error_reason"], reason);
    until(&amazon, &queue, (0, 0)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_what_is_settled_is_deleted_and_the_rest_is_kept_however_long_that_takes() {
    let (amazon, queue) = numbered("q", 30);
    let source = testing::start::<AwsSqsSource>(
        &yaml(&amazon, &queue, ", visibility_timeout: 1s"),
        1 << 16,
        BTreeMap::new(),
    );
    let mut open = take(&source, 30).await;
    assert_eq!(sorted(&open), (0..30).collect::<Vec<u32>>());
    let kept = open.remove(0);
    let left = kept.rows();
    open.into_iter().for_each(|batch| batch.settle(Outcome::Delivered));
    until(&amazon, &queue, (0, left)).await;
    // The queue would have delivered it again several times.
    assert!(source.take_batch(Duration::from_secs(4)).await.is_none());
    until(&amazon, &queue, (0, left)).await;
    kept.settle(Outcome::Delivered);
    source.stop.request();
    let sent = source.finish().await;
    assert!(sent.result.is_none() && sent.main.is_empty(), "{:?}", sent.result);
    until(&amazon, &queue, (0, 0)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_fails_comes_again() {
    let (amazon, queue) = numbered("q", 3);
    let options = yaml(&amazon, &queue, ", retry_delay: 1s, end_after_idle: 300ms");
    let source = testing::start::<AwsSqsSource>(&options, 1 << 16, BTreeMap::new());
    let first = take(&source, 3).await;
    first.into_iter().for_each(|batch| batch.settle(Outcome::Failed));
    let again = take(&source, 3).await;
    assert_eq!(sorted(&again), [0, 1, 2]);
    again.into_iter().for_each(|batch| batch.settle(Outcome::Delivered));
    until(&amazon, &queue, (0, 0)).await;
    drop(source.finish().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_of_a_group_are_in_order_also_after_one_that_failed() {
    let (amazon, queue) = numbered("q.fifo", 25);
    let options = yaml(&amazon, &queue, ", retry_delay: 1s, end_after_idle: 300ms");
    let source = testing::start::<AwsSqsSource>(&options, 1 << 16, BTreeMap::new());
    let mut delivered = Vec::new();
    let mut has_failed = false;
    while delivered.len() < 25 {
        let batch = source.take_batch(WAIT).await.unwrap();
        if !delivered.is_empty() && !has_failed {
            has_failed = true;
            batch.settle(Outcome::Failed);
            continue;
        }
        delivered.extend(numbers(&batch));
        batch.settle(Outcome::Delivered);
    }
    assert_eq!(delivered, (0..25).collect::<Vec<u32>>());
    until(&amazon, &queue, (0, 0)).await;
    drop(source.finish().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_a_message_of_a_group_none_is_sent_on_before_it_is_settled() {
    let (amazon, queue) = numbered("q.fifo", 4);
    let options = yaml(&amazon, &queue, ", retry_delay: 1s, end_after_idle: 300ms");
    // Each message is a batch.
    let source = testing::start::<AwsSqsSource>(&options, 1, BTreeMap::new());
    let mut order = Vec::new();
    let mut has_failed = false;
    while order.len() < 5 {
        let batch = source.take_batch(WAIT).await.unwrap();
        order.extend(numbers(&batch));
        assert!(source.take_batch(Duration::from_millis(200)).await.is_none(), "after {order:?}");
        let fails = order.len() == 2 && !has_failed;
        has_failed |= fails;
        batch.settle(if fails { Outcome::Failed } else { Outcome::Delivered });
    }
    assert_eq!(order, [0, 1, 1, 2, 3]);
    drop(source.finish().await);
    until(&amazon, &queue, (0, 0)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_of_other_groups_do_not_wait() {
    let (amazon, queue) = numbered("q.fifo", 0);
    for group in ["a", "b", "c"] {
        let entry = json!({ "MessageBody": "1", "MessageGroupId": group, "MessageDeduplicationId": group });
        amazon.send(&queue, &entry);
    }
    // Each message is a batch.
    let source = testing::start::<AwsSqsSource>(&yaml(&amazon, &queue, ""), 1, BTreeMap::new());
    let open = take(&source, 3).await;
    open.into_iter().for_each(|batch| batch.settle(Outcome::Delivered));
    until(&amazon, &queue, (0, 0)).await;
    source.stop.request();
    assert!(source.finish().await.result.is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_whose_deletions_are_not_confirmed_is_not_at_its_end() {
    let (amazon, queue) = numbered("q", 1);
    let is_lost = Arc::new(Mutex::new(true));
    let loses = is_lost.clone();
    // The queue has nothing any more, and does not say so.
    amazon.script(move |action, _| match action {
        "GetQueueAttributes" => Some((200, json!({ "Attributes": {} }))),
        "DeleteMessageBatch" if *loses.lock() => Some((503, json!({ "__type": "ServiceUnavailable" }))),
        _ => None,
    });
    let options = yaml(&amazon, &queue, ", end_after_idle: 100ms, timeout: 1900ms");
    let source = testing::start::<AwsSqsSource>(&options, 1 << 16, BTreeMap::new());
    take(&source, 1).await.remove(0).settle(Outcome::Delivered);
    // Longer than it takes to end.
    tokio::time::sleep(Duration::from_secs(1)).await;
    amazon.enqueue(&queue, ["1".to_owned()]);
    take(&source, 1).await.remove(0).settle(Outcome::Delivered);
    *is_lost.lock() = false;
    assert!(source.finish().await.result.is_none());
    until(&amazon, &queue, (0, 0)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_checkpoint_covers_is_deleted_and_not_sent_on_again() {
    let (amazon, queue) = numbered("q", 20);
    let receive = json!({ "QueueUrl": queue, "MaxNumberOfMessages": 10, "VisibilityTimeout": 1 });
    let received = amazon.call("AmazonSQS.ReceiveMessage", &receive);
    let pairs: Vec<Value> = received["Messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|message| json!([message["MessageId"], message["ReceiptHandle"]]))
        .collect();
    let count = pairs.len();
    let saved = BTreeMap::from([(format!("{queue}/7"), Value::from(pairs))]);
    let options = yaml(&amazon, &queue, ", visibility_timeout: 1s, end_after_idle: 300ms");
    let source = testing::start::<AwsSqsSource>(&options, 1 << 16, saved);
    let taken = take(&source, 20 - count).await;
    let all = sorted(&taken);
    assert_eq!(all.len(), 20 - count);
    taken.into_iter().for_each(|batch| batch.settle(Outcome::Delivered));
    until(&amazon, &queue, (0, 0)).await;
    let sent = source.finish().await;
    assert!(sent.result.is_none() && sent.main.is_empty(), "{:?}", sent.result);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_message_is_lost_when_requests_fail() {
    let (amazon, queue) = numbered("q", 200);
    let proxy = Proxy::start(amazon.address()).unwrap();
    let status = |code| Fault::Status { code, retry_after: None, body: String::new() };
    let lost = Fault::StatusAfter { code: 503, retry_after: None, body: String::new() };
    proxy.set([
        Rule::new(status(500)).times(Times::Every(7)),
        Rule::new(lost).times(Times::Every(11)),
        Rule::new(Fault::CutBody { after: 20 }).times(Times::Every(13)),
    ]);
    let options = format!(
        "{{ {}, queue: '{queue}', visibility_timeout: 2s, end_after_idle: 300ms, timeout: 4s }}",
        AmazonServer::options(proxy.address())
    );
    let source = testing::start_retried::<AwsSqsSource>(&options, 1 << 16);
    let mut seen = BTreeSet::new();
    let patience = Patience::begin();
    // All that comes is taken until the queue is empty: what is not settled stays in the queue.
    loop {
        let has_ended = source.task.is_finished();
        if let Some(batch) = source.take_batch(Duration::from_millis(100)).await {
            seen.extend(numbers(&batch));
            batch.settle(Outcome::Delivered);
        }
        let left = amazon.queued(&queue);
        if left == (0, 0) {
            break;
        }
        assert!(!has_ended, "the source ended, and {left:?} are in the queue");
        patience.check(|| format!("{} messages came, {left:?} are left", seen.len()));
    }
    let sent = source.finish().await;
    assert!(sent.result.is_none(), "{:?}", sent.result);
    assert_eq!(seen, (0..200).collect::<BTreeSet<u32>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_that_share_a_queue_lose_no_message() {
    let (amazon, queue) = numbered("q", 300);
    let options = yaml(&amazon, &queue, ", visibility_timeout: 5s, end_after_idle: 500ms");
    let readers = [0, 1].map(|_| testing::start::<AwsSqsSource>(&options, 1 << 16, BTreeMap::new()));
    let mut all = Vec::new();
    let patience = Patience::begin();
    while all.len() < 300 {
        for reader in &readers {
            while let Some(batch) = reader.take_batch(Duration::from_millis(100)).await {
                all.extend(numbers(&batch));
                batch.settle(Outcome::Delivered);
            }
        }
        patience.check(|| format!("{} messages", all.len()));
    }
    for reader in readers {
        all.extend(reader.finish().await.main.iter().flat_map(numbers));
    }
    all.sort_unstable();
    assert_eq!(all, (0..300).collect::<Vec<u32>>());
}

/// The handles that a queue has seen.
#[derive(Default)]
struct Handles {
    delivered: BTreeSet<String>,
    /// Those of messages that were kept from other readers for longer.
    extended: BTreeSet<String>,
    /// The number of requests for that.
    extensions: usize,
}

impl Handles {
    /// Returns the answer with a new message of this size.
    fn deliver(&mut self, size: usize) -> Value {
        let handle = format!("h{}", self.delivered.len());
        self.delivered.insert(handle.clone());
        let body = "x".repeat(size);
        json!({ "Messages": [{ "MessageId": handle, "ReceiptHandle": handle, "Body": body }] })
    }

    fn are_extended(&self) -> bool {
        self.delivered.is_subset(&self.extended)
    }

    fn extend(&mut self, body: &Value) {
        self.extensions += 1;
        let entries = body["Entries"].as_array().into_iter().flatten();
        self.extended.extend(entries.filter_map(|entry| entry["ReceiptHandle"].as_str().map(str::to_owned)));
    }
}

/// Returns the options of a source for a queue that a script plays.
fn scripted(amazon: &AmazonServer, more: &str) -> String {
    let address = amazon.address();
    let options = AmazonServer::options(address);
    format!("{{ {options}, queue: 'http://{address}/1/q', visibility_timeout: 1s, {more} }}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_are_kept_from_other_readers_while_they_cannot_be_deleted() {
    let handles = Arc::new(Mutex::new(Handles::default()));
    let known = handles.clone();
    let amazon = AmazonServer::start().unwrap();
    amazon.script(move |action, body| {
        let mut handles = known.lock();
        Some(match action {
            "ReceiveMessage" if handles.delivered.len() < 2 => (200, handles.deliver(1)),
            "ChangeMessageVisibilityBatch" => {
                handles.extend(body);
                (200, json!({}))
            }
            "DeleteMessageBatch" => (503, json!({ "__type": "ServiceUnavailable" })),
            _ => (200, json!({})),
        })
    });
    let options = scripted(&amazon, "concurrency: 1");
    let source = testing::start::<AwsSqsSource>(&options, 1 << 16, BTreeMap::new());
    let mut taken = take(&source, 2).await;
    taken.remove(0).settle(Outcome::Delivered);
    let patience = Patience::begin();
    let before = handles.lock().extensions;
    while handles.lock().extensions < before + 12 {
        patience.check(|| format!("{} requests", handles.lock().extensions));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_that_wait_for_a_slow_sink_are_kept_from_other_readers() {
    const SIZE: usize = 256 << 10;
    let handles = Arc::new(Mutex::new(Handles::default()));
    let known = handles.clone();
    let amazon = AmazonServer::start().unwrap();
    amazon.script(move |action, body| {
        let mut handles = known.lock();
        Some(match action {
            "ReceiveMessage" if handles.delivered.len() < 200 => (200, handles.deliver(SIZE)),
            "ChangeMessageVisibilityBatch" => {
                handles.extend(body);
                (200, json!({}))
            }
            _ => (200, json!({})),
        })
    });
    let yaml = scripted(&amazon, "concurrency: 4");
    let source = options::<AwsSqsSource>(&yaml).build(&context()).unwrap();
    // Nothing takes the messages, so the source waits for memory.
    let _source = testing::start_source_within(&Budget::new(16 << 20), source, 1 << 16, BTreeMap::new());
    let (patience, mut seen, mut still) = (Patience::begin(), 0, 0);
    // When no more are delivered, each has been extended.
    while still < 20 || !handles.lock().are_extended() {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let count = handles.lock().delivered.len();
        still = if count > 0 && count == seen { still + 1 } else { 0 };
        seen = count;
        patience.check(|| {
            let handles = handles.lock();
            format!("{:?} were delivered, {:?} extended", handles.delivered, handles.extended)
        });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_that_repeats_what_is_on_its_way_is_not_asked_without_end() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let amazon = AmazonServer::start().unwrap();
    amazon.script(move |action, _| {
        if action != "ReceiveMessage" {
            return Some((200, json!({})));
        }
        count.fetch_add(1, Relaxed);
        let message = json!({ "MessageId": "m", "ReceiptHandle": "h", "Body": "1" });
        Some((200, json!({ "Messages": [message] })))
    });
    let options = scripted(&amazon, "concurrency: 1");
    let source = testing::start::<AwsSqsSource>(&options, 1 << 16, BTreeMap::new());
    let _open = take(&source, 1).await;
    assert!(source.take_batch(Duration::from_secs(3)).await.is_none());
    let asked = asked.load(Relaxed);
    // With growing pauses, 50 take minutes.
    assert!(asked < 50, "{asked} requests");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_is_claimed_while_it_is_read() {
    const SIZE: usize = 8 << 20;
    let handles = Mutex::new(Handles::default());
    let amazon = AmazonServer::start().unwrap();
    amazon.script(move |action, _| {
        let mut handles = handles.lock();
        Some(match action {
            "ReceiveMessage" if handles.delivered.is_empty() => (200, handles.deliver(SIZE)),
            _ => (200, json!({})),
        })
    });
    let yaml = scripted(&amazon, "concurrency: 1, max_message_bytes: 1MiB, end_after_idle: 300ms");
    let source = options::<AwsSqsSource>(&yaml).build(&context()).unwrap();
    let budget = Budget::new(64 << 20);
    let sent = testing::start_source_within(&budget, source, 1 << 16, BTreeMap::new()).finish().await;
    assert!(sent.result.is_none() && sent.errors.len() == 1, "{:?}", sent.result);
    let peak = budget.peak();
    assert!(peak >= 2 * SIZE, "{peak} bytes were claimed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_whose_url_is_too_long_cannot_be_used() {
    let amazon = AmazonServer::start().unwrap();
    amazon.script(|action, _| {
        (action == "GetQueueUrl").then(|| (200, json!({ "QueueUrl": "u".repeat(3000) })))
    });
    let sent = testing::read_all::<AwsSqsSource>(&yaml(&amazon, "q", ""), 1 << 16).await;
    let error = sent.result.unwrap();
    let text = error.full();
    assert!(!error.kind().is_temporary() && text.contains("a URL of 3000 bytes, more than 2048"), "{text}");
}

#[test]
fn with_little_memory_there_are_fewer_requests_at_the_same_time() {
    for (wanted, mebibytes, expected) in [(4, 256, 4), (64, 256, 16), (4, 40, 2), (4, 16, 1), (4, 1, 1)] {
        assert_eq!(concurrency(wanted, mebibytes << 20), expected, "{wanted} with {mebibytes} MiB");
    }
}

#[test]
fn a_request_does_not_wait_for_messages_until_its_answer_comes_too_late() {
    for (yaml, expected) in [
        ("{ queue: q }", 15),
        ("{ queue: q, timeout: 2m }", 20),
        ("{ queue: q, timeout: 1s }", 0),
        ("{ queue: q, timeout: 4s, end_after_idle: 300ms }", 1),
        ("{ queue: q, timeout: 4s, end_after_idle: 1m }", 2),
        ("{ queue: q, timeout: 1s, end_after_idle: 1m }", 0),
    ] {
        assert_eq!(options::<AwsSqsSource>(yaml).wait(), expected, "{yaml}");
    }
}
