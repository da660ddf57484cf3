use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use thalweg_engine::testing::{self, Arrived, Bounds};
use thalweg_engine::{Error, Reading, Rejects, Sink, Source, SourceOutput};
use thalweg_record::Outcome;

use super::Ledger;
use crate::client::{Generation, Incoming, Partition, TopicId};
use crate::session::Session;
use crate::session::tests::{Broker, Commit, Fake, session};
use crate::sink::KafkaSink;
use crate::sink::testing::transactional;
use crate::source::tests::{bounded_output, lent_output};

const COUNT: i64 = 200;

/// Reads numbers from a partition without end, and commits their offsets by a ledger.
struct Numbers {
    broker: Arc<Broker>,
    session: Arc<Session<Fake>>,
    /// The number of records in a batch.
    size: i64,
    /// The values of records.
    value: fn(i64) -> String,
    random: Random,
}

/// Numbers that follow from a seed.
#[derive(Clone)]
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

fn partition() -> Partition {
    Partition { topic: "in".into(), number: 0 }
}

fn record(number: i64) -> Incoming {
    Incoming {
        partition: partition(),
        offset: number,
        timestamp: 0,
        key: None,
        value: Some(number.to_string().into()),
        headers: Vec::new(),
    }
}

#[async_trait]
impl Source for Numbers {
    async fn run(&mut self, out: &mut SourceOutput) -> Result<(), Error> {
        let ledger = Arc::new(Ledger::new(self.session.clone(), out));
        ledger.break_off("it begins");
        let (mut next, mut losses) = (0, 5);
        loop {
            if ledger.is_broken() {
                ledger.clone().renew().await?;
                next = self.broker.offset(&partition());
                ledger.forget(&[partition()]);
                ledger.mend();
            }
            if next >= COUNT {
                ledger.end_now().await;
                match ledger.is_broken() {
                    true => continue,
                    false => return Ok(()),
                }
            }
            ledger.set_generation(Some(self.broker.generation()));
            let size = self.size.min(ledger.most_records() as i64);
            let records: Vec<Incoming> = (next..COUNT.min(next + size)).map(record).collect();
            let values: Vec<String> = (next..COUNT.min(next + size)).map(self.value).collect();
            let payload = testing::batch(values.iter().map(String::as_str)).payload().clone();
            let count = ledger.count();
            let Some(mut owed) = ledger.admit(&partition(), count).await else { continue };
            owed.note(&records);
            out.send(Reading { payload, path: None, positions: None, checkpoint: None }).await?;
            ledger.end_if_due(&mut owed).await;
            drop(owed);
            next += size;
            if losses > 0 && self.random.below(10) == 0 {
                losses -= 1;
                // The messages are still on their way.
                ledger.lose(&[partition()]);
            }
        }
    }
}

/// Runs once, with a sink. Returns true if the run came to its end.
async fn run(broker: &Arc<Broker>, random: &mut Random, killed_after: Option<Duration>) -> bool {
    let size = 1 + random.below(60) as i64;
    run_with(broker, random, size, |number| number.to_string(), killed_after).await
}

/// As [`run`], with batches of this size, and records with these values.
async fn run_with(
    broker: &Arc<Broker>,
    random: &mut Random,
    size: i64,
    value: fn(i64) -> String,
    killed_after: Option<Duration>,
) -> bool {
    let session = session(broker, Duration::from_secs(10));
    let (broker, of_source) = (broker.clone(), session.clone());
    let numbers = Numbers { broker, session: of_source, size, value, random: random.clone() };
    let source = testing::start_source(Box::new(numbers), 1 << 10, BTreeMap::new());
    let yaml = "{ brokers: 'a:1', topic: t, transactional_id: x }";
    let mut sink = transactional(&testing::options::<KafkaSink>(yaml), session);
    let write = async {
        while let Some((_, Arrived::Messages(batch))) = source.main.take().await {
            if random.below(4) == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let mut rejects = Rejects::default();
            while let Err(error) = sink.write(&batch, &mut rejects).await {
                assert!(error.kind().is_temporary(), "{}", error.full());
            }
            batch.settle(Outcome::Delivered);
        }
    };
    let has_ended = match killed_after {
        Some(after) => tokio::time::timeout(after, write).await.is_ok(),
        None => {
            write.await;
            true
        }
    };
    source.task.abort();
    // It must not take the id from the next run.
    let _ = source.task.await;
    has_ended
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_record_is_stored_once_whatever_becomes_of_commits_and_runs() {
    let outcomes = [Commit::Done, Commit::Failed, Commit::Unanswered, Commit::Lost, Commit::Fenced];
    for seed in 0..40_u64 {
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let broker = Arc::new(Broker::default());
        let count = random.below(12);
        broker.plan((0..count).map(|_| outcomes[random.below(5) as usize]).collect::<Vec<_>>());
        for _ in 0..random.below(4) {
            let after = Duration::from_millis(random.below(20));
            run(&broker, &mut random, Some(after)).await;
        }
        assert!(run(&broker, &mut random, None).await);
        let expected: Vec<String> = (0..COUNT).map(|number| number.to_string()).collect();
        assert_eq!(broker.stored(), expected, "seed {seed}");
        assert_eq!(broker.offset(&partition()), COUNT);
    }
}

/// Sends a record in the transaction of a ledger. Returns false if it is dropped.
async fn sent(ledger: &Ledger<Fake>, out: &mut SourceOutput, number: i64, count: u64) -> bool {
    let Some(mut owed) = ledger.admit(&partition(), count).await else { return false };
    owed.note(&[record(number)]);
    let payload = testing::batch([number.to_string().as_str()]).payload().clone();
    out.send(Reading { payload, path: None, positions: None, checkpoint: None }).await.unwrap();
    true
}

#[tokio::test]
async fn nothing_more_is_sent_of_a_partition_from_the_moment_in_which_it_is_given_up() {
    let broker = Arc::new(Broker::default());
    let (mut out, source) = lent_output().await;
    let ledger = Ledger::new(session(&broker, Duration::from_secs(100)), &out);
    ledger.set_generation(Some(broker.generation()));
    let read = ledger.count();
    assert!(sent(&ledger, &mut out, 0, read).await);
    let given_up = [partition()];
    let mut release = std::pin::pin!(ledger.release(&given_up, Duration::from_secs(60)));
    // It waits for the message.
    assert!(tokio::time::timeout(Duration::ZERO, &mut release).await.is_err());
    assert!(ledger.count() > read);
    let Some((_, Arrived::Messages(batch))) = source.main.take().await else { panic!() };
    batch.settle(Outcome::Delivered);
    release.await;
    assert_eq!((ledger.is_broken(), broker.offset(&partition())), (false, 1));
    assert!(!sent(&ledger, &mut out, 1, read).await);
}

#[tokio::test]
async fn what_was_committed_of_a_topic_is_not_that_of_the_next_topic_of_its_name() {
    let broker = Arc::new(Broker::default());
    let (mut out, source) = lent_output().await;
    let ledger = Ledger::new(session(&broker, Duration::from_secs(100)), &out);
    ledger.set_generation(Some(broker.generation()));
    let (old, new) = (Some(TopicId::from("a")), Some(TopicId::from("b")));
    ledger.set_topic(&partition(), old.as_ref());
    assert!(sent(&ledger, &mut out, 0, ledger.count()).await);
    let Some((_, Arrived::Messages(batch))) = source.main.take().await else { panic!() };
    batch.settle(Outcome::Delivered);
    ledger.end_now().await;
    assert_eq!(broker.offset(&partition()), 1);
    assert!(ledger.has_committed(&partition()));
    assert!(ledger.is_of_former_topic(&partition(), 1, new.as_ref()));
    assert!(!ledger.is_of_former_topic(&partition(), 1, old.as_ref()));
    ledger.set_topic(&partition(), new.as_ref());
    assert!(!ledger.has_committed(&partition()));
}

#[tokio::test]
async fn another_member_does_not_commit_what_this_one_has_read() {
    let broker = Arc::new(Broker::default());
    let (mut out, source) = lent_output().await;
    let ledger = Ledger::new(session(&broker, Duration::from_secs(100)), &out);
    let first = broker.generation();
    ledger.set_generation(Some(first.clone()));
    assert!(sent(&ledger, &mut out, 0, ledger.count()).await);
    let Some((_, Arrived::Messages(batch))) = source.main.take().await else { panic!() };
    batch.settle(Outcome::Delivered);
    ledger.set_generation(Some(Generation { number: 1, ..first.clone() }));
    assert!(!ledger.is_broken());
    ledger.set_generation(Some(Generation { member: "n".to_owned(), ..first }));
    assert!(ledger.is_broken());
    ledger.end_now().await;
    assert_eq!(broker.offset(&partition()), 0);
}

/// More refused records before the first commit than transactions may be aborted one after another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_refused_records_are_passed_by_small_transactions_that_commit_the_others() {
    let broker = Arc::new(Broker::default());
    let is_bad = |number: &i64| number % 3 == 0;
    let value = |number: i64| match number % 3 {
        0 => format!("bad {number}"),
        _ => number.to_string(),
    };
    assert!(run_with(&broker, &mut Random(1), COUNT, value, None).await);
    let good = (0..COUNT).filter(|number| !is_bad(number));
    assert_eq!(broker.stored(), good.map(|number| number.to_string()).collect::<Vec<_>>());
    assert_eq!(broker.offset(&partition()), COUNT);
}

#[tokio::test]
async fn transactions_are_smaller_after_an_aborted_one_and_the_limit_does_not_count_it() {
    let broker = Arc::new(Broker::default());
    let (mut out, source) = bounded_output(Bounds { limit: Some(9), ..Bounds::default() }).await;
    let ledger = Arc::new(Ledger::new(session(&broker, Duration::from_secs(100)), &out));
    ledger.set_generation(Some(broker.generation()));
    for number in 0..8 {
        assert!(sent(&ledger, &mut out, number, ledger.count()).await);
        let Some((_, Arrived::Messages(batch))) = source.main.take().await else { panic!() };
        batch.settle(Outcome::Delivered);
    }
    assert_eq!(out.left(), 1);
    ledger.break_off("a record was refused");
    ledger.clone().renew().await.unwrap();
    ledger.mend();
    assert_eq!((out.left(), ledger.most_records()), (9, 2));
    assert!(sent(&ledger, &mut out, 0, ledger.count()).await);
    let Some((_, Arrived::Messages(batch))) = source.main.take().await else { panic!() };
    batch.settle(Outcome::Delivered);
    ledger.end_now().await;
    assert_eq!((out.left(), ledger.most_records(), broker.offset(&partition())), (8, 4, 1));
}

#[tokio::test]
async fn before_a_slow_transform_the_first_transaction_has_one_record() {
    let (out, _source) = bounded_output(Bounds { rows: Some(16), ..Bounds::default() }).await;
    let ledger = Ledger::new(session(&Arc::new(Broker::default()), Duration::from_secs(100)), &out);
    assert_eq!(ledger.most_records(), 1);
}
