use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};

use thalweg_engine::Component;
use thalweg_engine::testing::{self, messages, numbers, options, payloads, refused, rows};
use thalweg_record::Outcome;
use thalweg_testbed::{Fault, Patience, Proxy, Rule, Times};
use thalweg_testkit::amazon::AmazonServer;

use super::AwsKinesisStreamsSource;

const WAIT: Duration = Duration::from_secs(30);
const SHARD: &str = "shardId-000000000000";

/// A server with the stream `s`, whose shards have records with these numbers.
fn numbered(shards: u32, count: u32) -> AmazonServer {
    let amazon = AmazonServer::start().unwrap();
    amazon.create_stream("s", shards);
    put(&amazon, 0..count);
    amazon
}

fn put(amazon: &AmazonServer, numbers: std::ops::Range<u32>) {
    const KEYS: [&str; 3] = ["a", "b", "c"];
    let records = numbers.map(|number| (KEYS[number as usize % 3], number.to_string()));
    amazon.put_records("s", records);
}

fn yaml(amazon: &AmazonServer, more: &str) -> String {
    format!("{{ {}, stream: s, poll_interval: 100ms{more} }}", AmazonServer::options(amazon.address()))
}

async fn read(yaml: &str, saved: BTreeMap<String, Value>) -> Vec<u32> {
    let sent = testing::start::<AwsKinesisStreamsSource>(yaml, 1 << 16, saved).finish().await;
    assert!(sent.result.is_none(), "{:?}", sent.result);
    sent.main.iter().flat_map(numbers).collect()
}

#[test]
fn options_that_cannot_work_are_mistakes() {
    for (yaml, expected) in [
        ("{ stream: '' }", "The stream has no name."),
        ("{ stream: s, fields: [id] }", "A record has no `id`."),
        ("{ stream: s, poll_interval: 1ms }", "Kinesis answers at most 5 times a second."),
    ] {
        assert_eq!(messages(options::<AwsKinesisStreamsSource>(yaml).check()), [expected], "{yaml}");
    }
    let found = refused::<AwsKinesisStreamsSource>("{ stream: s, start: now }");
    assert!(found.contains("`now` is neither `earliest`"), "{found}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_have_their_fields_and_the_order_of_their_shard() {
    let amazon = numbered(1, 50);
    amazon.put_records("s", [("k", "x".repeat(5000))]);
    let options =
        yaml(&amazon, ", max_message_bytes: 4999, end_after_idle: 300ms, fields: [shard, partition_key]");
    let sent = testing::read_all::<AwsKinesisStreamsSource>(&options, 1 << 16).await;
    assert!(sent.result.is_none(), "{:?}", sent.result);
    let all: Vec<u32> = sent.main.iter().flat_map(numbers).collect();
    assert_eq!(all, (0..50).collect::<Vec<u32>>());
    let fields: Vec<Value> = sent.main.iter().flat_map(|batch| rows(batch.fields())).collect();
    assert_eq!(fields[1], json!({ "shard": SHARD, "partition_key": "b" }));
    let [error] = &sent.errors[..] else { panic!("{:?}", sent.errors) };
    assert_eq!(payloads(error)[0].len(), 4096);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_shard_is_resumed_at_its_checkpoint_and_all_are_read_without_one() {
    let amazon = numbered(3, 60);
    let options = yaml(&amazon, ", end_after_idle: 300ms");
    let all = read(&options, BTreeMap::new()).await;
    assert_eq!(all.iter().copied().collect::<BTreeSet<u32>>().len(), 60);
    let source = testing::start::<AwsKinesisStreamsSource>(&options, 1 << 16, BTreeMap::new());
    let positions = source.positions.clone();
    assert_eq!(source.finish().await.main.iter().flat_map(numbers).count(), 60);
    let saved: BTreeMap<String, Value> = positions
        .partitions()
        .into_iter()
        .filter_map(|partition| Some((partition.to_string(), positions.committed(&partition)?)))
        .collect();
    assert!(!saved.is_empty());
    put(&amazon, 60..66);
    let mut new = read(&options, saved).await;
    new.sort_unstable();
    assert_eq!(new, (60..66).collect::<Vec<u32>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_begins_where_the_user_wants() {
    let amazon = numbered(2, 20);
    let yaml_from = |start: &str| yaml(&amazon, &format!(", start: '{start}', end_after_idle: 300ms"));
    assert_eq!(read(&yaml_from("2100-01-01T00:00:00Z"), BTreeMap::new()).await, [0; 0]);
    assert_eq!(read(&yaml_from("2020-01-01T00:00:00Z"), BTreeMap::new()).await.len(), 20);
    let source = testing::start::<AwsKinesisStreamsSource>(
        &yaml(&amazon, ", start: latest"),
        1 << 16,
        BTreeMap::new(),
    );
    let patience = Patience::begin();
    // It begins at some time; records before that are not read.
    let (mut number, mut seen) = (20, Vec::new());
    while seen.is_empty() {
        put(&amazon, number..number + 1);
        number += 1;
        seen.extend(source.take_numbers(Duration::from_millis(500)).await.into_iter().flatten());
        patience.check(|| format!("{number} records"));
    }
    assert!(seen.iter().all(|number| *number >= 20), "{seen:?}");
    source.stop.request();
    assert!(source.finish().await.result.is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shards_that_continue_a_divided_one_are_read_too() {
    let amazon = numbered(1, 0);
    let source = testing::start::<AwsKinesisStreamsSource>(&yaml(&amazon, ""), 1 << 16, BTreeMap::new());
    put(&amazon, 0..1);
    assert_eq!(source.take_numbers(WAIT).await, Some(vec![0]));
    amazon.split_shard("s", SHARD);
    put(&amazon, 1..20);
    let mut seen = BTreeSet::new();
    let patience = Patience::begin();
    while seen.iter().filter(|number| **number > 0).count() < 19 {
        seen.extend(source.take_numbers(Duration::from_millis(500)).await.into_iter().flatten());
        patience.check(|| format!("{seen:?}"));
    }
    source.stop.request();
    assert!(source.finish().await.result.is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_record_is_lost_when_requests_fail() {
    let amazon = numbered(2, 300);
    let proxy = Proxy::start(amazon.address()).unwrap();
    let busy = json!({ "__type": "ProvisionedThroughputExceededException", "message": "slow" }).to_string();
    let expired = json!({ "__type": "ExpiredIteratorException", "message": "old" }).to_string();
    let answer = |code, body: String| Fault::Status { code, retry_after: None, body };
    proxy.set([
        Rule::new(answer(400, busy)).times(Times::Every(5)),
        Rule::new(answer(400, expired)).times(Times::Every(7)),
        Rule::new(answer(500, String::new())).times(Times::Every(9)),
        Rule::new(Fault::CutBody { after: 20 }).times(Times::Every(11)),
    ]);
    let options =
        format!("{{ {}, stream: s, poll_interval: 100ms }}", AmazonServer::options(proxy.address()));
    let source = testing::start_retried::<AwsKinesisStreamsSource>(&options, 1 << 12);
    let mut seen = Vec::new();
    let patience = Patience::begin();
    while seen.len() < 300 {
        let Some(batch) = source.take_batch(WAIT).await else { break };
        seen.extend(numbers(&batch));
        batch.settle(Outcome::Delivered);
        patience.check(|| format!("{} records", seen.len()));
    }
    seen.sort_unstable();
    // Each once: a request that is repeated begins after what was sent.
    assert_eq!(seen, (0..300).collect::<Vec<u32>>());
    source.stop.request();
    assert!(source.finish().await.result.is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_is_none_ends_no_shard_and_forgets_no_place() {
    let amazon = numbered(1, 5);
    let proxy = Proxy::start(amazon.address()).unwrap();
    let nothing = || Fault::Status { code: 200, retry_after: None, body: "{}".to_owned() };
    // The shards are listed, then there is an iterator, and then records are asked for.
    proxy.set([Rule::new(nothing()).times(Times::Nth(1)), Rule::new(nothing()).times(Times::Nth(4))]);
    let options =
        format!("{{ {}, stream: s, poll_interval: 100ms }}", AmazonServer::options(proxy.address()));
    let source = testing::start_retried::<AwsKinesisStreamsSource>(&options, 1 << 16);
    let mut seen = Vec::new();
    while seen.len() < 5 {
        let batch = source.take_batch(WAIT).await.expect("the shard is read on");
        seen.extend(numbers(&batch));
        batch.settle(Outcome::Delivered);
    }
    assert_eq!(seen, [0, 1, 2, 3, 4]);
    source.stop.request();
    assert!(source.finish().await.result.is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_checkpoint_has_the_shards_that_exist_also_those_without_records() {
    let amazon = numbered(1, 0);
    let options = yaml(&amazon, ", start: latest, end_after_idle: 300ms");
    // A shard of an earlier run no longer exists, and another one continues it.
    let saved = BTreeMap::from([("s/shardId-000000000009".to_owned(), json!({ "ended": true }))]);
    let source = testing::start::<AwsKinesisStreamsSource>(&options, 1 << 16, saved);
    let positions = source.positions.clone();
    assert!(source.finish().await.result.is_none());
    let saved: BTreeMap<String, Value> = positions
        .partitions()
        .into_iter()
        .filter_map(|partition| Some((partition.to_string(), positions.committed(&partition)?)))
        .collect();
    assert_eq!(saved, BTreeMap::from([(format!("s/{SHARD}"), json!({}))]));
    // They came while there was no run.
    put(&amazon, 0..3);
    assert_eq!(read(&options, saved).await, [0, 1, 2]);
}
