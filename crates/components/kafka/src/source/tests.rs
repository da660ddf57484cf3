use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use thalweg_engine::testing::{self, Arrived, Bounds, messages, numbers, options, payloads, refused, rows};
use thalweg_engine::{Component, Context, Error, Link, SinkConfig, Source, SourceOutput};
use thalweg_record::Outcome;
use thalweg_testbed::{Kafka, Patience, Record};
use tokio::sync::oneshot;

use super::KafkaSource;
use super::ledger::Ledger;
use crate::client::rust::RustConnector;
use crate::client::{Consumer, Failure, Generation, Incoming, Partition, Place, TopicId};
use crate::session::KafkaSession;
use crate::sink::KafkaSink;

/// Lends its output to a test.
struct Lender(Option<oneshot::Sender<SourceOutput>>);

#[async_trait]
impl Source for Lender {
    async fn run(&mut self, out: &mut SourceOutput) -> Result<(), Error> {
        if let Some(lend) = self.0.take() {
            let _ = lend.send(out.clone());
        }
        std::future::pending().await
    }
}

/// Returns the output of a source that runs, and the source.
pub(super) async fn lent_output() -> (SourceOutput, testing::RunningSource) {
    bounded_output(Bounds::default()).await
}

/// As [`lent_output`], with bounds.
pub(super) async fn bounded_output(bounds: Bounds) -> (SourceOutput, testing::RunningSource) {
    let (lend, lent) = oneshot::channel();
    let source = testing::start_bounded(Box::new(Lender(Some(lend))), 1 << 16, bounds);
    (lent.await.unwrap(), source)
}

/// Returns a ledger whose session is not connected.
pub(super) fn unconnected_ledger(out: &SourceOutput) -> Arc<Ledger<RustConnector>> {
    let link = Link::default();
    let context = Context { link: Some(link.clone()), ..testing::context() };
    let sink = options::<KafkaSink>("{ brokers: 'a:1', topic: t, transactional_id: x }");
    drop(sink.build(&context).unwrap());
    Arc::new(Ledger::new(link.get::<KafkaSession>().unwrap(), out))
}

/// A member that never has a partition. If `failure` is set, each of its requests fails.
#[derive(Default)]
pub(super) struct Idle {
    pub(super) failure: Option<fn() -> Failure>,
    /// The times that were sought.
    pub(super) sought: Mutex<Vec<i64>>,
    /// The offsets that were sought.
    pub(super) places: Mutex<Vec<i64>>,
    /// The offset of the first record of each log, and that behind the last one.
    pub(super) first: i64,
    pub(super) end: Option<i64>,
    /// The id of each topic.
    pub(super) topic: Option<&'static str>,
    /// The offset that the group has committed in each partition, and its topic.
    pub(super) group: Option<(i64, Option<&'static str>)>,
}

impl Idle {
    fn answer<T>(&self, answer: T) -> Result<T, Failure> {
        match self.failure {
            Some(failure) => Err(failure()),
            None => Ok(answer),
        }
    }
}

#[async_trait]
impl Consumer for Idle {
    async fn subscribe(&self, _: &[String]) -> Result<(), Failure> {
        Ok(())
    }

    async fn topics(&self) -> Result<Vec<String>, Failure> {
        Ok(Vec::new())
    }

    async fn poll(&self, _: Duration) -> Result<Vec<Incoming>, Failure> {
        tokio::task::yield_now().await;
        self.answer(Vec::new())
    }

    async fn pause(&self, _: bool) {}

    async fn commit(&self, _: &BTreeMap<Partition, Place>) -> Result<(), Failure> {
        self.answer(())
    }

    async fn committed(&self, partitions: &[Partition]) -> Result<BTreeMap<Partition, i64>, Failure> {
        let committed = partitions.iter().filter_map(|known| Some((known.clone(), self.group?.0)));
        self.answer(committed.collect())
    }

    async fn committed_topic(&self, _: &Partition) -> Result<Option<TopicId>, Failure> {
        self.answer(self.group.and_then(|(_, topic)| topic).map(Into::into))
    }

    async fn topic_ids(&self, topics: &BTreeSet<Arc<str>>) -> Result<BTreeMap<Arc<str>, TopicId>, Failure> {
        let ids = topics.iter().filter_map(|name| Some((name.clone(), self.topic?.into())));
        self.answer(ids.collect())
    }

    async fn generation(&self) -> Option<Generation> {
        None
    }

    async fn seek(&self, _: &Partition, offset: i64) -> Result<(), Failure> {
        self.places.lock().push(offset);
        Ok(())
    }

    async fn seek_to_time(&self, _: &Partition, timestamp: i64) -> Result<(), Failure> {
        self.sought.lock().push(timestamp);
        Ok(())
    }

    async fn bounds(&self, _: &Partition) -> Result<(i64, i64), Failure> {
        self.answer((self.first, self.end.unwrap_or(i64::MAX)))
    }

    async fn lag(&self) -> Option<u64> {
        Some(0)
    }

    async fn close(&self) {}
}

fn store(kafka: &Kafka, topic: &str, numbers: std::ops::Range<u32>, partitions: u32) {
    let record =
        |number: u32| Record::new(topic, number.to_string()).partition((number % partitions).cast_signed());
    kafka.store(numbers.map(record)).unwrap();
}

#[test]
fn options_that_cannot_work_are_mistakes() {
    for (yaml, expected) in [
        ("{ brokers: 'a:1', topics: [], group: g }", "There is no topic to read."),
        ("{ brokers: 'a:1', topics: '^(', group: g }", "It is not a regular expression"),
        ("{ brokers: 'a:1', topics: t, group: '' }", "The group has no name."),
        ("{ brokers: 'a:1', topics: t, group: g, fields: header. }", "A record has no `header.`."),
        ("{ brokers: 'a:1', topics: t, group: g, session_timeout: 1ms }", "A member must have at least"),
    ] {
        let found = messages(options::<KafkaSource>(yaml).check());
        assert!(found.len() == 1 && found[0].contains(expected), "{yaml}: {found:?}");
    }
    let found = refused::<KafkaSource>("{ brokers: 'a:1', topics: t, group: g, start: now }");
    assert!(found.contains("`now` is neither `earliest`"), "{found}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parts_of_records_are_fields_and_a_later_run_continues_where_the_group_is() {
    let kafka = Kafka::start(2).unwrap();
    let long = "x".repeat(5000);
    let record = |value: &str, partition: i32| Record::new("logs-a", value.to_owned()).partition(partition);
    let stored = [
        record("first", 0).key("k1").header("trace-id", "t1").timestamp(1_700_000_000_000),
        record("", 0).key("k2").without_value().timestamp(1_700_000_000_001),
        record(&long, 0).timestamp(1_700_000_000_002),
        record("last", 0).timestamp(1_700_000_000_003),
        record("other", 1).timestamp(1_700_000_001_000),
    ];
    tokio::task::block_in_place(|| kafka.store(stored).unwrap());
    let yaml = |group: &str, more: &str| {
        format!(
            "{{ brokers: '{}', topics: '^logs-.$', group: {group}, max_message_bytes: 4999, end_after_idle: 2s, \
             fields: [topic, partition, offset, timestamp, key, tombstone, header.trace-id]{more} }}",
            kafka.address()
        )
    };
    let sent = testing::read_all::<KafkaSource>(&yaml("g", ""), 1 << 16).await;
    assert!(sent.result.is_none(), "{:?}", sent.result);
    let mut found: Vec<_> = sent.main.iter().flat_map(|batch| rows(batch.fields())).collect();
    found.sort_by_key(|row| (row["partition"].as_i64(), row["offset"].as_i64()));
    let shown: Vec<String> = found.iter().map(ToString::to_string).collect();
    assert_eq!(
        shown,
        [
            r#"{"topic":"logs-a","partition":0,"offset":0,"timestamp":1700000000000000,"key":"k1","tombstone":false,"header.trace-id":"t1"}"#,
            r#"{"topic":"logs-a","partition":0,"offset":1,"timestamp":1700000000001000,"key":"k2","tombstone":true}"#,
            r#"{"topic":"logs-a","partition":0,"offset":3,"timestamp":1700000000003000,"tombstone":false}"#,
            r#"{"topic":"logs-a","partition":1,"offset":0,"timestamp":1700000001000000,"tombstone":false}"#,
        ]
    );
    let [error] = &sent.errors[..] else { panic!() };
    assert_eq!(payloads(error)[0].len(), 4096);
    assert_eq!(
        rows(error.fields())[0]["error_reason"],
        "the message has 5000 bytes, more than `max_message_bytes` (4999)"
    );
    let committed = tokio::task::block_in_place(|| kafka.committed("g", "logs-a", 2).unwrap());
    assert_eq!(committed, [Some(4), Some(1)]);
    tokio::task::block_in_place(|| kafka.store([record("new", 1)]).unwrap());
    assert_eq!(testing::read_all::<KafkaSource>(&yaml("g", ""), 1 << 16).await.payloads(), ["new"]);
    let at = ", start: '2023-11-14T22:13:20.003Z'";
    let mut later = testing::read_all::<KafkaSource>(&yaml("h", at), 1 << 16).await.payloads();
    later.sort();
    assert_eq!(later, ["last", "new", "other"]);
    assert!(
        testing::read_all::<KafkaSource>(&yaml("i", ", start: latest"), 1 << 16).await.payloads().is_empty()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_what_is_settled_is_committed_and_a_saved_position_comes_before_that_of_the_group() {
    let kafka = Kafka::start(1).unwrap();
    tokio::task::block_in_place(|| store(&kafka, "t", 0..100, 1));
    let yaml = format!("{{ brokers: '{}', topics: t, group: g, end_after_idle: 1s }}", kafka.address());
    let source = testing::start::<KafkaSource>(&yaml, 20, BTreeMap::new());
    // Messages have one or two digits, so a batch of 20 bytes has 15 of them at first.
    let mut open = Vec::new();
    let mut taken = 0;
    while taken < 100 {
        let Some((_, Arrived::Messages(batch))) = source.main.take().await else { panic!() };
        taken += batch.rows();
        open.push(batch);
    }
    let second = open.remove(1);
    let first = open[0].rows();
    open.into_iter().for_each(|batch| batch.settle(Outcome::Delivered));
    tokio::time::sleep(Duration::from_secs(3)).await;
    let committed = || tokio::task::block_in_place(|| kafka.committed("g", "t", 1).unwrap());
    assert_eq!(committed(), [Some(first as i64)]);
    second.settle(Outcome::Delivered);
    assert!(source.finish().await.result.is_none());
    assert_eq!(committed(), [Some(100)]);
    tokio::task::block_in_place(|| store(&kafka, "t", 100..130, 1));
    let saved = BTreeMap::from([("t/0".to_owned(), 120.into())]);
    let sent = testing::start::<KafkaSource>(&yaml, 1 << 16, saved).finish().await;
    assert_eq!(sent.payloads(), (120..130).map(|number: u32| number.to_string()).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_that_was_made_again_is_read_from_its_start_although_a_later_position_is_saved() {
    let kafka = Kafka::start(1).unwrap();
    tokio::task::block_in_place(|| store(&kafka, "t", 0..100, 1));
    let yaml = format!("{{ brokers: '{}', topics: t, group: g, end_after_idle: 1s }}", kafka.address());
    let saved = BTreeMap::from([("t/0".to_owned(), 1000.into())]);
    let sent = testing::start::<KafkaSource>(&yaml, 1 << 16, saved).finish().await;
    assert_eq!(sent.payloads(), (0..100).map(|number: u32| number.to_string()).collect::<Vec<_>>());
    let committed = tokio::task::block_in_place(|| kafka.committed("g", "t", 1).unwrap());
    assert_eq!(committed, [Some(100)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_that_was_created_again_and_is_as_long_as_the_saved_position_is_read_from_its_start() {
    let kafka = Kafka::start(1).unwrap();
    tokio::task::block_in_place(|| store(&kafka, "t", 0..100, 1));
    let yaml = format!("{{ brokers: '{}', topics: t, group: g, end_after_idle: 1s }}", kafka.address());
    let expected =
        |numbers: std::ops::Range<u32>| numbers.map(|number| number.to_string()).collect::<Vec<_>>();
    let source = testing::start::<KafkaSource>(&yaml, 1 << 16, BTreeMap::new());
    let positions = source.positions.clone();
    assert_eq!(source.finish().await.payloads(), expected(0..100));
    let changes = positions.take_changes().into_iter();
    let saved: BTreeMap<String, serde_json::Value> =
        changes.filter_map(|(partition, place)| Some((partition.to_string(), place?))).collect();
    tokio::task::block_in_place(|| {
        store(&kafka, "t", 100..110, 1);
        kafka.delete("t").unwrap();
        store(&kafka, "t", 200..350, 1);
    });
    let source = testing::start::<KafkaSource>(&yaml, 1 << 16, saved);
    assert_eq!(source.finish().await.payloads(), expected(200..350));
}

async fn members_share(protocol: &str) {
    let mut kafka = Kafka::start(4).unwrap();
    let count = 4000;
    tokio::task::block_in_place(|| store(&kafka, "t", 0..count, 4));
    let yaml = format!(
        "{{ brokers: '{}', topics: t, group: g, protocol: {protocol}, session_timeout: 2s, fetch_size: 2KiB }}",
        kafka.relayed_address()
    );
    let start = || testing::start::<KafkaSource>(&yaml, 64, BTreeMap::new());
    let (mut seen, mut repeated) = (BTreeSet::new(), 0);
    let mut note = |numbers: Vec<u32>| {
        for number in numbers {
            repeated += usize::from(!seen.insert(number));
        }
        seen.len()
    };
    let mut members = vec![start()];
    let (mut step, mut total) = (0, 0);
    let patience = Patience::begin();
    loop {
        for member in &members {
            if let Some(numbers) = member.take_numbers(Duration::from_millis(20)).await {
                total = note(numbers);
            }
        }
        patience.check(|| format!("{total} of {count} messages after step {step}"));
        // A member comes, one leaves without a word, connections are cut, the broker crashes.
        match (step, total) {
            (0, 300..) => members.push(start()),
            (1, 900..) => kafka.cut(),
            (2, 1500..) => {
                let left = members.remove(0);
                left.task.abort();
                members.push(start());
            }
            (3, 2200..) => {
                kafka.kill().unwrap();
                tokio::task::block_in_place(|| kafka.restart().unwrap());
            }
            (4, 3000..) => {
                let left = members.remove(0);
                left.stop.request();
                let sent = left.finish().await;
                assert!(sent.result.is_none());
                total = note(sent.main.iter().flat_map(numbers).collect());
            }
            _ if total == count as usize => break,
            _ => continue,
        }
        step += 1;
    }
    assert!(step >= 4, "{step}");
    for member in members {
        member.stop.request();
        assert!(member.finish().await.result.is_none());
    }
    // Those repeat that a member had not committed when it was aborted, when it was cut off, or when it left
    // while they were in its pipeline.
    assert!(repeated < count as usize, "{repeated}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_that_come_and_go_lose_no_record_with_the_classic_protocol() {
    members_share("classic").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_that_come_and_go_lose_no_record_with_the_protocol_of_the_broker() {
    members_share("consumer").await;
}
