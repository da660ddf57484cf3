//! A broker in memory, and what a session does with it.

use std::collections::{BTreeMap, VecDeque};
use std::future::{Ready, ready};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use thalweg_engine::ErrorKind;

use super::{Moment, NotCommitted, Session, TransactionSettings};
use crate::client::{Connector, Failure, Fault, Generation, Outgoing, Partition, Producer, Transactions};

/// A broker with one group and one transactional id.
#[derive(Default)]
pub(crate) struct Broker(Mutex<State>);

#[derive(Default)]
struct State {
    /// The number of the last producer.
    producer: u64,
    /// The records of its open transaction.
    open: Vec<String>,
    stored: Vec<String>,
    offsets: BTreeMap<Partition, i64>,
    generation: i32,
    commits: VecDeque<Commit>,
}

/// The outcome of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Commit {
    Done,
    /// The broker did not get it.
    Failed,
    /// The broker got it, but its answer was lost.
    Unanswered,
    /// Neither the request nor an answer arrived, and the client cannot tell.
    Lost,
    /// Another member has the partitions.
    Fenced,
}

impl Broker {
    /// Decides the outcomes of the next commits. Later ones succeed.
    pub(crate) fn plan(&self, commits: impl IntoIterator<Item = Commit>) {
        self.0.lock().commits.extend(commits);
    }

    pub(crate) fn stored(&self) -> Vec<String> {
        self.0.lock().stored.clone()
    }

    pub(crate) fn offset(&self, partition: &Partition) -> i64 {
        self.0.lock().offsets.get(partition).copied().unwrap_or_default()
    }

    pub(crate) fn generation(&self) -> Generation {
        let number = self.0.lock().generation;
        Generation { group: "g".to_owned(), number, member: "m".to_owned(), instance: None }
    }
}

impl State {
    fn commit(&mut self, offsets: &BTreeMap<Partition, i64>) {
        self.stored.append(&mut self.open);
        self.offsets.extend(offsets.iter().map(|(partition, offset)| (partition.clone(), *offset)));
    }
}

/// Makes producers of the broker.
pub(crate) struct Fake(pub(crate) Arc<Broker>);

impl Connector for Fake {
    type Producer = FakeProducer;

    async fn connect(&self) -> Result<FakeProducer, Failure> {
        let mut state = self.0.0.lock();
        state.producer += 1;
        state.open.clear();
        Ok(FakeProducer {
            broker: self.0.clone(),
            number: state.producer,
            fault: Mutex::default(),
            is_empty: Mutex::new(true),
            is_unknown: Mutex::default(),
        })
    }
}

/// A producer. The broker refuses a record whose value begins with `bad`.
pub(crate) struct FakeProducer {
    broker: Arc<Broker>,
    number: u64,
    fault: Mutex<Option<Fault>>,
    /// True if nothing was queued in the transaction.
    is_empty: Mutex<bool>,
    /// True if the outcome of a commit is unknown.
    is_unknown: Mutex<bool>,
}

impl Producer for FakeProducer {
    type Delivery = Ready<Result<(), Failure>>;

    async fn queue(&self, record: Outgoing) -> Result<Self::Delivery, Failure> {
        let mut state = self.broker.0.lock();
        let value = String::from_utf8_lossy(&record.value).into_owned();
        if state.producer != self.number {
            let reason = "another producer".to_owned();
            *self.fault.lock() = Some(Fault { reason: reason.clone(), is_fenced: true });
            return Err(Failure::Fenced(reason));
        }
        if self.fault.lock().is_some() {
            return Err(Failure::Lost("the transaction has a fault".to_owned()));
        }
        *self.is_empty.lock() = false;
        if value.starts_with("bad") {
            let reason = "it is bad".to_owned();
            *self.fault.lock() = Some(Fault { reason: reason.clone(), is_fenced: false });
            return Ok(ready(Err(Failure::RefusedTogether(reason))));
        }
        state.open.push(value);
        Ok(ready(Ok(())))
    }

    async fn flush(&self) {}

    fn has_retried(&self) -> bool {
        false
    }

    async fn close(&self) {}
}

impl Transactions for FakeProducer {
    fn begin(&self) -> Result<(), Failure> {
        *self.fault.lock() = None;
        *self.is_empty.lock() = true;
        Ok(())
    }

    fn is_empty(&self) -> bool {
        *self.is_empty.lock()
    }

    fn fault(&self) -> Option<Fault> {
        self.fault.lock().clone()
    }

    async fn commit(
        &self,
        offsets: &BTreeMap<Partition, i64>,
        member: Option<&Generation>,
    ) -> Result<(), Failure> {
        let mut state = self.broker.0.lock();
        if state.producer != self.number {
            return Err(Failure::Fenced("another producer".to_owned()));
        }
        if std::mem::take(&mut *self.is_unknown.lock()) {
            state.commit(offsets);
            return Ok(());
        }
        if member.is_some_and(|member| member.number != state.generation) || self.fault.lock().is_some() {
            return Err(Failure::Lost("the offsets are refused".to_owned()));
        }
        let unknown = || Failure::Unknown("no answer".to_owned());
        match state.commits.pop_front().unwrap_or(Commit::Done) {
            Commit::Done => state.commit(offsets),
            Commit::Failed => return Err(Failure::Temporary("it failed".to_owned())),
            Commit::Unanswered => {
                state.commit(offsets);
                *self.is_unknown.lock() = true;
                return Err(unknown());
            }
            Commit::Lost => {
                *self.is_unknown.lock() = true;
                return Err(unknown());
            }
            Commit::Fenced => {
                state.generation += 1;
                return Err(Failure::Temporary("another generation".to_owned()));
            }
        }
        Ok(())
    }
}

/// A session with this broker, whose transactions last 2 ms if their timeout is 10 s.
pub(crate) fn session(broker: &Arc<Broker>, timeout: Duration) -> Arc<Session<Fake>> {
    let settings = TransactionSettings { id: "x".to_owned(), interval: timeout / 5000, timeout };
    Arc::new(Session::new(Fake(broker.clone()), settings))
}

fn record(value: &'static str) -> Outgoing {
    Outgoing {
        topic: "t".to_owned(),
        partition: None,
        key: None,
        value: value.as_bytes().into(),
        timestamp: None,
        headers: Vec::new(),
    }
}

async fn send(session: &Session<Fake>, value: &'static str) -> Result<(), Failure> {
    let mut open = session.lock().await;
    session.begun(&mut open).await?.queue(record(value)).await?.await
}

#[tokio::test]
async fn a_transaction_is_stored_with_its_offsets_or_not_at_all() {
    let broker = Arc::new(Broker::default());
    let session = session(&broker, Duration::from_secs(10));
    let partition = Partition { topic: "in".into(), number: 0 };
    let member = broker.generation();
    for (value, offset) in [("a", 1), ("b", 2)] {
        send(&session, value).await.unwrap();
        broker.plan([if value == "a" { Commit::Done } else { Commit::Fenced }]);
        let offsets = BTreeMap::from([(partition.clone(), offset)]);
        let committed = session.commit(&offsets, Some(&member)).await;
        assert_eq!(committed.is_ok(), value == "a");
    }
    assert_eq!((broker.stored(), broker.offset(&partition)), (vec!["a".to_owned()], 1));
    session.renew().await.unwrap();
    assert_eq!((session.committed(), session.aborted()), (1, 1));
    // Offsets alone are a transaction as well, and nothing is none.
    let offsets = BTreeMap::from([(partition.clone(), 3)]);
    session.commit(&offsets, Some(&broker.generation())).await.unwrap();
    session.commit(&BTreeMap::new(), None).await.unwrap();
    assert_eq!((session.committed(), broker.offset(&partition)), (2, 3));
}

#[tokio::test]
async fn nothing_is_committed_while_the_session_is_broken() {
    let broker = Arc::new(Broker::default());
    let session = session(&broker, Duration::from_secs(10));
    send(&session, "a").await.unwrap();
    session.break_off("first");
    session.break_off("second");
    let Err(NotCommitted::Aborted(error)) = session.commit(&BTreeMap::new(), None).await else { panic!() };
    assert_eq!((error.full(), error.kind()), ("first".to_owned(), ErrorKind::Temporary));
    session.renew().await.unwrap();
    session.mend();
    send(&session, "b").await.unwrap();
    session.commit(&BTreeMap::new(), None).await.unwrap();
    assert_eq!(broker.stored(), ["b"]);
}

#[tokio::test]
async fn a_producer_that_is_fenced_early_is_fenced_by_another_one() {
    let broker = Arc::new(Broker::default());
    for (timeout, expected) in
        [(Duration::from_secs(10), ErrorKind::Permanent), (Duration::ZERO, ErrorKind::Temporary)]
    {
        let first = session(&broker, timeout);
        send(&first, "a").await.unwrap();
        session(&broker, timeout).renew().await.unwrap();
        let Err(NotCommitted::Aborted(error)) = first.commit(&BTreeMap::new(), None).await else { panic!() };
        assert_eq!(error.kind(), expected, "{}", error.full());
        let names_id = error.full().contains("another producer has taken the `transactional_id` `x`");
        assert_eq!(names_id, expected == ErrorKind::Permanent);
    }
    assert!(broker.stored().is_empty());
}

/// A minute ago: longer than the timeouts below.
fn long_ago() -> Moment {
    Moment { instant: Instant::now(), time: SystemTime::now() - Duration::from_secs(60) }
}

/// Returns the error of a session whose transaction was begun long ago, with these records, and whose id was
/// then taken by another producer.
async fn taken_late(values: &[&'static str]) -> thalweg_engine::Error {
    let broker = Arc::new(Broker::default());
    let first = session(&broker, Duration::from_secs(10));
    {
        let mut open = first.lock().await;
        let producer = first.begun(&mut open).await.unwrap();
        for &value in values {
            producer.queue(record(value)).await.unwrap().await.unwrap();
        }
        open.begun = Some(long_ago());
    }
    session(&broker, Duration::from_secs(10)).renew().await.unwrap();
    let mut open = first.lock().await;
    let failure = first.begun(&mut open).await.unwrap().queue(record("late")).await.unwrap_err();
    first.judged(failure, &open)
}

#[tokio::test]
async fn a_transaction_of_which_the_broker_knows_nothing_is_not_late() {
    assert_eq!(taken_late(&[]).await.kind(), ErrorKind::Permanent);
}

#[tokio::test]
async fn a_transaction_is_late_after_the_machine_was_suspended() {
    assert_eq!(taken_late(&["a"]).await.kind(), ErrorKind::Temporary);
}
