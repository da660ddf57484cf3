//! Asks for records, passes them on, and commits what is settled.
//!
//! The membership has a task of its own: a member that does not ask for records in time loses its partitions.
//! So records are passed on by a second task, which waits for memory and for the pipelines, while the first
//! goes on asking for none. Between the two is one answer of the brokers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use regex::Regex;
use thalweg_engine::{Error, Link, Source, SourceOutput};
use tokio::sync::mpsc;

use super::KafkaSource;
use super::forward::{Answer, Forward};
use super::ledger::Ledger;
use super::membership::Membership;
use crate::client::rust::{Receiving, RustConnector, RustConsumer};
use crate::client::{Consumer, Failure, Incoming};
use crate::session::KafkaSession;

/// How long the source waits for records, and how often it looks whether it can pass records on.
const POLL: Duration = Duration::from_millis(100);
/// How often offsets are committed.
const COMMIT_EVERY: Duration = Duration::from_secs(1);
/// How often the source looks for new topics that match a pattern.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// How long it waits for nothing but to keep the membership.
const KEEP: Duration = Duration::from_millis(20);
/// How long requests may fail before the source says so, and connects again.
const PATIENCE: Duration = Duration::from_secs(15);
/// How long a member without partitions waits for some before it ends. The broker keeps those of a member
/// that was killed until its session ends, by default for 45 s.
const UNASSIGNED: Duration = Duration::from_mins(1);
/// How long a partition that is taken away waits for its records on their way.
const SETTLE_WAIT: Duration = Duration::from_secs(30);
/// How long the source waits at its end until all is committed: the first value if the run is being stopped.
/// Both count from the last progress.
const COMMIT_WAIT: [Duration; 2] = [Duration::from_secs(3), Duration::from_secs(60)];
/// The number of answers that are in memory at the same time.
const ANSWERS: usize = 4;

/// A member of the group.
pub(super) struct Kafka {
    pub(super) config: KafkaSource,
    pub(super) receiving: Receiving,
    pub(super) patterns: Vec<Regex>,
    /// The records of this member's partitions that were not read yet.
    pub(super) lag: Arc<AtomicU64>,
    /// Also of what earlier calls of [`Source::run`] sent.
    pub(super) membership: Option<Arc<Membership>>,
    /// Leads to the session of the sink whose transactions have the offsets.
    pub(super) link: Option<Link>,
}

#[async_trait]
impl Source for Kafka {
    async fn run(&mut self, out: &mut SourceOutput) -> Result<(), Error> {
        let start = self.config.start;
        let link = self.link.as_ref();
        let membership = self.membership.get_or_insert_with(|| {
            let session = link.and_then(Link::get::<KafkaSession>);
            let ledger = session.map(|session| Arc::new(Ledger::new(session, out)));
            Arc::new(Membership::new(out, start, SETTLE_WAIT, ledger))
        });
        let membership = membership.clone();
        if let Some(ledger) = membership.ledger() {
            // It ends the transaction of an earlier call, or of a killed run.
            ledger.break_off("the source begins");
            ledger.set_generation(None);
            ledger.clone().renew().await?;
            ledger.mend();
        }
        let brokers = self.config.cluster.shown();
        let connected =
            RustConsumer::connect(&self.config.cluster, &self.receiving, membership.clone()).await;
        let consumer = connected
            .map_err(|failure| failure.error(format!("the brokers `{brokers}` cannot be reached")))?;
        // Answers of the brokers: in the client, in the queue, and being passed on.
        let _answers = out.claim(self.receiving.fetch_size * ANSWERS);
        let read = self.read(&*consumer, &membership, out).await;
        self.lag.store(0, Relaxed);
        membership.end();
        if let Some(ledger) = membership.ledger() {
            // Nothing is committed any more, and what is left of it in the run is dropped.
            ledger.break_off("the source has ended");
            ledger.close().await;
        }
        consumer.close().await;
        read
    }
}

impl Kafka {
    /// Reads until the source is to end, and waits until what it sent is committed.
    async fn read(
        &self,
        consumer: &dyn Consumer,
        membership: &Arc<Membership>,
        out: &mut SourceOutput,
    ) -> Result<(), Error> {
        membership.begin();
        let (queue, records) = mpsc::channel(1);
        let ledger = membership.ledger();
        let limit = self.config.max_message_bytes;
        let forward = Forward::new(out.clone(), &self.config.fields, limit, membership.clone());
        let mut forwarding = tokio::spawn(forward.run(records));
        let received = self.receive(consumer, membership, out, queue).await;
        let forwarded = loop {
            match tokio::time::timeout(POLL, &mut forwarding).await {
                Ok(ended) => break ended,
                Err(_) => {
                    let _ = keep(consumer, ledger).await;
                }
            }
        };
        received?;
        forwarded
            .map_err(|error| Error::permanent("the passing on of records panicked").caused_by(error))??;
        if let Some(ledger) = ledger {
            return Self::ended(ledger, out);
        }
        out.end();
        self.settle(consumer, membership, out).await;
        Ok(())
    }

    /// Ends the source, if its last transaction is committed. Otherwise it reads again, unless the run stops:
    /// a later one does.
    fn ended(ledger: &Ledger<RustConnector>, out: &mut SourceOutput) -> Result<(), Error> {
        if let Some(error) = ledger.take_fatal() {
            return Err(error);
        }
        if ledger.is_broken() && !out.is_stopping() {
            return Err(Error::temporary("the last transaction was aborted").caused_by(ledger.reason()));
        }
        out.end();
        Ok(())
    }

    /// Reads again from the committed offsets, after a transaction was broken off.
    async fn recover(&self, consumer: &dyn Consumer, membership: &Membership) -> Result<(), Error> {
        let Some(ledger) = membership.ledger().filter(|ledger| ledger.is_broken()) else { return Ok(()) };
        if let Some(error) = ledger.take_fatal() {
            return Err(error);
        }
        let aborted = Error::temporary("a transaction was aborted").caused_by(ledger.reason());
        if ledger.has_failed() {
            return Err(aborted);
        }
        tracing::warn!("{}; its messages are read again", aborted.full());
        let mut renewing = tokio::spawn(ledger.clone().renew());
        let renewed = loop {
            match tokio::time::timeout(POLL, &mut renewing).await {
                Ok(ended) => break ended,
                Err(_) => {
                    let _ = keep(consumer, Some(ledger)).await;
                }
            }
        };
        renewed.map_err(|error| Error::permanent("the end of a transaction panicked").caused_by(error))??;
        membership
            .rewind(consumer)
            .await
            .map_err(|failure| failure.error("the committed offsets cannot be read"))?;
        ledger.mend();
        Ok(())
    }

    /// Asks for records and queues them, until the source is to end or nothing takes them.
    async fn receive(
        &self,
        consumer: &dyn Consumer,
        membership: &Membership,
        out: &SourceOutput,
        queue: mpsc::Sender<Answer>,
    ) -> Result<(), Error> {
        let mut times = Times::default();
        let ledger = membership.ledger();
        while !out.is_stopping() {
            self.recover(consumer, membership).await?;
            self.look(consumer, &mut times).await?;
            if !times.topics.is_empty() && ledger.is_some_and(|ledger| !ledger.is_member()) {
                // Offsets of records that it would get now could not be committed.
                match keep(consumer, ledger).await {
                    Ok(()) => times.failing = None,
                    Err(failure) => self.failed(failure, &mut times).await?,
                }
                continue;
            }
            let permit = match tokio::time::timeout(POLL, queue.reserve()).await {
                Ok(Ok(permit)) => permit,
                // The other task has ended, and says why.
                Ok(Err(_)) => return Ok(()),
                Err(_) => {
                    // The queue is full. A failure that stays is one of the next request too.
                    let _ = keep(consumer, ledger).await;
                    self.commit(consumer, membership, &mut times).await;
                    continue;
                }
            };
            consumer.pause(false).await;
            let polled = poll(consumer, ledger, POLL).await;
            if let Some(failure) = membership.take_unplaced() {
                if out.is_stopping() {
                    return Ok(());
                }
                return Err(failure.error("the committed offsets cannot be read"));
            }
            match polled {
                Ok(records) if records.is_empty() => times.failing = None,
                Ok(records) => {
                    (times.failing, times.active) = (None, Instant::now());
                    let changes = membership.note(&records);
                    permit.send(Answer { records, changes });
                }
                Err(failure) => self.failed(failure, &mut times).await?,
            }
            if self.is_read(consumer, membership, &times).await {
                return Ok(());
            }
            self.commit(consumer, membership, &mut times).await;
        }
        Ok(())
    }

    /// True if the source is to end at the ends of its partitions, and is there.
    async fn is_read(&self, consumer: &dyn Consumer, membership: &Membership, times: &Times) -> bool {
        let Some(idle) = self.config.end_after_idle else { return false };
        let idle = match times.topics.is_empty() || membership.has_partitions() {
            true => idle.duration(),
            false => idle.duration().max(UNASSIGNED),
        };
        times.active.elapsed() >= idle
            && (membership.has_begun() || times.topics.is_empty())
            && consumer.lag().await == Some(0)
    }

    /// Subscribes to the topics: at the start, and later when patterns may match new ones.
    async fn look(&self, consumer: &dyn Consumer, times: &mut Times) -> Result<(), Error> {
        let is_due =
            times.looked.is_none_or(|last| !self.patterns.is_empty() && last.elapsed() >= LOOK_EVERY);
        if !is_due {
            return Ok(());
        }
        let mut topics: BTreeSet<String> =
            self.config.topics.iter().filter(|topic| !topic.starts_with('^')).cloned().collect();
        if !self.patterns.is_empty() {
            let all =
                consumer.topics().await.map_err(|failure| failure.error("the topics cannot be listed"))?;
            topics.extend(all.into_iter().filter(|name| self.patterns.iter().any(|p| p.is_match(name))));
        }
        if !topics.is_empty() && topics != times.topics {
            let names: Vec<String> = topics.iter().cloned().collect();
            consumer
                .subscribe(&names)
                .await
                .map_err(|failure| failure.error("the topics cannot be subscribed to"))?;
            times.topics = topics;
        }
        times.looked = Some(Instant::now());
        Ok(())
    }

    /// Waits a little after a failed request. The membership may outlast a broker that restarts, so the
    /// source reports the failure only if it stays.
    async fn failed(&self, failure: Failure, times: &mut Times) -> Result<(), Error> {
        let since = *times.failing.get_or_insert_with(Instant::now);
        let stays = since.elapsed() >= PATIENCE;
        match failure {
            Failure::Temporary(_) | Failure::NoTopic(_) if !stays => {
                tokio::time::sleep(POLL).await;
                Ok(())
            }
            failure => {
                Err(failure.error(format!("the brokers `{}` cannot be read", self.config.cluster.shown())))
            }
        }
    }

    async fn commit(&self, consumer: &dyn Consumer, membership: &Membership, times: &mut Times) {
        if times.committed.elapsed() >= COMMIT_EVERY {
            membership.commit(consumer).await;
            // Unknown after a change of partitions, until records of each were asked for.
            if let Some(lag) = consumer.lag().await {
                self.lag.store(lag, Relaxed);
            }
            times.committed = Instant::now();
        }
    }

    /// Waits until all that was sent is committed, or nothing has moved for some time.
    async fn settle(&self, consumer: &dyn Consumer, membership: &Membership, out: &SourceOutput) {
        let mut progress = (Instant::now(), membership.settled());
        while !membership.is_settled() {
            let wait = COMMIT_WAIT[usize::from(!out.is_stopping())];
            if progress.0.elapsed() >= wait {
                break;
            }
            out.save_soon();
            let _ = keep(consumer, None).await;
            membership.commit(consumer).await;
            let settled = membership.settled();
            if settled != progress.1 {
                progress = (Instant::now(), settled);
            }
        }
        membership.commit(consumer).await;
    }
}

/// When the source did what, and what it reads.
struct Times {
    looked: Option<Instant>,
    topics: BTreeSet<String>,
    committed: Instant,
    /// When records last came.
    active: Instant,
    /// Since when requests fail.
    failing: Option<Instant>,
}

impl Default for Times {
    fn default() -> Self {
        let now = Instant::now();
        Self { looked: None, topics: BTreeSet::new(), committed: now, active: now, failing: None }
    }
}

/// Asks for records. Tells the ledger of a membership that was the same all the time.
async fn poll(
    consumer: &dyn Consumer,
    ledger: Option<&Arc<Ledger<RustConnector>>>,
    timeout: Duration,
) -> Result<Vec<Incoming>, Failure> {
    let Some(ledger) = ledger else { return consumer.poll(timeout).await };
    let before = consumer.generation().await;
    let polled = consumer.poll(timeout).await;
    if before == consumer.generation().await {
        ledger.set_generation(before);
    }
    polled
}

/// Keeps the membership while no records are wanted. Those of partitions that were just assigned, and are not
/// paused yet, are read again later. Holding them was rejected: their partition may be taken away meanwhile.
async fn keep(consumer: &dyn Consumer, ledger: Option<&Arc<Ledger<RustConnector>>>) -> Result<(), Failure> {
    consumer.pause(true).await;
    let records = poll(consumer, ledger, KEEP).await?;
    let mut first = BTreeMap::new();
    for record in &records {
        first.entry(&record.partition).or_insert(record.offset);
    }
    for (partition, offset) in first {
        // A partition that is taken away already has no place.
        let _ = consumer.seek(partition, offset).await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use thalweg_engine::Reading;
    use thalweg_engine::testing::{self, Arrived, Bounds, options};
    use thalweg_record::Outcome;

    use super::*;
    use crate::client::Partition;
    use crate::source::Start;
    use crate::source::tests::{Idle, bounded_output, lent_output, unconnected_ledger};

    /// Receives with transactions, as a member that does not get into its group.
    async fn received(yaml: &str, consumer: &Idle) -> Result<(), Error> {
        let (out, _source) = lent_output().await;
        let ledger = unconnected_ledger(&out);
        let membership = Membership::new(&out, Start::Earliest, SETTLE_WAIT, Some(ledger));
        let config = options::<KafkaSource>(yaml);
        let source = Kafka {
            receiving: config.receiving(&testing::context()),
            patterns: config.patterns().unwrap(),
            config,
            lag: Arc::default(),
            membership: None,
            link: None,
        };
        let (queue, _records) = mpsc::channel(1);
        let received = source.receive(consumer, &membership, &out, queue);
        tokio::time::timeout(Duration::from_secs(60), received).await.expect("it ends")
    }

    #[tokio::test]
    async fn a_member_that_may_not_join_says_so() {
        let refused = || Failure::Permanent("the user may not join".to_owned());
        let consumer = Idle { failure: Some(refused), ..Idle::default() };
        let error = received("{ brokers: 'a:1', topics: t, group: g }", &consumer).await.unwrap_err();
        assert_eq!(error.full(), "the brokers `a:1` cannot be read: the user may not join");
    }

    #[tokio::test]
    async fn a_limited_source_reads_again_what_an_aborted_transaction_had() {
        let (mut out, source) = bounded_output(Bounds { limit: Some(1), ..Bounds::default() }).await;
        let ledger = unconnected_ledger(&out);
        let partition = Partition { topic: "t".into(), number: 0 };
        let value = Some("a".into());
        let record = Incoming { partition, offset: 0, timestamp: 0, key: None, value, headers: Vec::new() };
        let mut owed = ledger.admit(&record.partition, ledger.count()).await.unwrap();
        owed.note(std::slice::from_ref(&record));
        let payload = testing::batch(["a"]).payload().clone();
        out.send(Reading { payload, path: None, positions: None, checkpoint: None }).await.unwrap();
        drop(owed);
        let Some((_, Arrived::Messages(batch))) = source.main.take().await else { panic!() };
        batch.settle(Outcome::Delivered);
        assert!(out.is_stopping());
        ledger.break_off("partitions were lost");
        ledger.end_now().await;
        assert!(!out.is_stopping());
        let error = Kafka::ended(&ledger, &mut out).unwrap_err();
        assert_eq!(error.full(), "the last transaction was aborted: partitions were lost");
    }

    #[tokio::test]
    async fn a_job_without_a_topic_ends() {
        let yaml = "{ brokers: 'a:1', topics: '^t$', group: g, end_after_idle: 1ms }";
        received(yaml, &Idle::default()).await.unwrap();
    }
}
