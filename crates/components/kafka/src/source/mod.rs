//! `kafka`: reads topics as a member of a group.
//!
//! The broker gives each partition to one member of the group, and keeps how far it got. The source commits
//! only what is settled, so a record that was not delivered is read again, by this member or by another. A
//! partition is a partition of the engine's checkpoint too: with `--state`, the source commits only what a
//! saved checkpoint covers.
//!
//! The membership has a task of its own: a member that does not ask for records in time loses its partitions.
//! So records are passed on by a second task, which waits for memory and for the pipelines, while the first
//! goes on asking for none. Between the two is one answer of the brokers.
//!
//! A partition that is taken away is given up in four steps: no record of it is read any more, those on their
//! way are waited for, their offset is committed, and the partition is released.

mod forward;
mod membership;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use regex::Regex;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::{ByteSize, List, TimeSpan};
use thalweg_engine::{Component, Context, Error, KnownFields, Mistake, Source, SourceConfig, SourceOutput};
use tokio::sync::mpsc;

use crate::client::rust::{AutoOffsetReset, GroupProtocol, IsolationLevel, Receiving, RustConsumer};
use crate::client::{Consumer, Failure, Incoming};
use crate::options::ClusterOptions;
use forward::{Field, Forward};
use membership::Membership;

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
/// The time that a member has to give up partitions, and how long it waits for records on their way.
const REBALANCE_TIMEOUT: Duration = Duration::from_secs(60);
const SETTLE_WAIT: Duration = Duration::from_secs(30);
/// How long the source waits at its end until all is committed: the first value if the run is being stopped.
/// Both count from the last progress.
const COMMIT_WAIT: [Duration; 2] = [Duration::from_secs(3), Duration::from_secs(60)];
/// The largest number of records in one answer.
const RECORDS: usize = 10_000;
/// The number of answers that are in memory at the same time.
const ANSWERS: usize = 4;

/// Reads topics of Kafka, or of a broker that speaks its protocol, as a member of a group.
///
/// Run the same configuration several times, and the broker divides the partitions among the runs. A record
/// is committed when its messages are delivered, or rejected and kept with their reasons. So none is lost: a
/// member that ends without committing leaves its records to another one, which may deliver some of them
/// again.
///
/// The order of records within a partition is kept. The payload of a message is the value of the record; that
/// of a record without a value (a tombstone) is empty. `meta.path` is the topic, `meta.position` the offset.
///
/// With `--state`, a partition is resumed where the checkpoint is, or where the group is if that is further.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KafkaSource {
    #[serde(flatten)]
    cluster: ClusterOptions,
    /// The topics to read. A topic that begins with `^` is a regular expression: all topics are read whose
    /// names match, also those that are created later.
    #[schemars(example = &"^logs-.*$")]
    topics: List<String>,
    /// The name of the group. Members of a group share the partitions.
    group: String,
    /// The name of this member. The broker keeps its partitions for it while it restarts, for at most
    /// `session_timeout`. By default a restarted member gets partitions as a new one.
    #[serde(default)]
    instance: Option<String>,
    /// Where to begin in a partition for which the group has committed no offset: `earliest`, `latest`, or a
    /// point in time such as `2026-11-25T08:00:00Z`. The default is `earliest`.
    #[serde(default)]
    start: Start,
    /// Which records of transactions are read. The default is `read_committed`.
    #[serde(default)]
    isolation: Isolation,
    /// How members divide the partitions. The default is `classic`.
    #[serde(default)]
    protocol: Protocol,
    /// Parts of the record that become fields of its message, under the same names: `topic`, `partition`,
    /// `offset`, `timestamp`, `key`, `tombstone` (true for a record without a value) and headers as
    /// `header.trace-id`. Bytes of keys and headers that are not UTF-8 are replaced by U+FFFD.
    #[serde(default)]
    fields: List<String>,
    /// The largest message, in bytes. Of a larger one, the first 4 KiB leave by the `errors` output.
    #[serde(default = "thalweg_net::net::defaults::limit")]
    max_message_bytes: ByteSize,
    /// The size of an answer of a broker. A record that is larger is still read. The default is 1/32 of the
    /// memory, at most 2 MiB. Four of them may be in memory at the same time.
    #[serde(default)]
    fetch_size: Option<ByteSize>,
    /// With `protocol: classic`: after this time without a sign of life, the partitions of a member go to
    /// others. The default is 10 s.
    #[serde(default = "thalweg_net::net::defaults::ten_seconds")]
    session_timeout: TimeSpan,
    /// End the source after this time without records, when its partitions are read to their ends. A member
    /// that gets no partition ends after a minute at the earliest. By default it reads until the run is
    /// stopped.
    #[serde(default)]
    end_after_idle: Option<TimeSpan>,
}

/// Where to begin in a partition.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
enum Start {
    /// At the first record.
    #[default]
    Earliest,
    /// At the next record.
    Latest,
    /// At the first record that is not older, in milliseconds since 1970.
    Time(i64),
}

impl TryFrom<String> for Start {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.as_str() {
            "earliest" => Ok(Self::Earliest),
            "latest" => Ok(Self::Latest),
            time => match chrono::DateTime::parse_from_rfc3339(time) {
                Ok(time) => Ok(Self::Time(time.timestamp_millis())),
                Err(_) => Err(format!(
                    "`{time}` is neither `earliest` nor `latest` nor a time such as `2026-11-25T08:00:00Z`."
                )),
            },
        }
    }
}

impl JsonSchema for Start {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Start".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string" })
    }
}

/// Which records of transactions are read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Isolation {
    /// Those of committed transactions, and all records without a transaction.
    #[default]
    ReadCommitted,
    /// All records, also those of transactions that fail later.
    ReadUncommitted,
}

/// How members of a group divide the partitions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Protocol {
    /// One of the members divides them. All members stop for a moment.
    #[default]
    Classic,
    /// The broker divides them, from Kafka 4.0 on (KIP-848). Only members stop that lose partitions.
    Consumer,
}

impl KafkaSource {
    fn patterns(&self) -> Result<Vec<Regex>, Mistake> {
        let patterns = self.topics.iter().filter(|topic| topic.starts_with('^'));
        let mistake =
            |error: regex::Error| Mistake::new("topics", format!("It is not a regular expression: {error}."));
        patterns.map(|pattern| Regex::new(pattern).map_err(mistake)).collect()
    }

    fn receiving(&self, context: &Context) -> Receiving {
        let default = (context.memory.budget().limit() / 32).min(2 << 20);
        Receiving {
            group: self.group.clone(),
            instance: self.instance.clone(),
            protocol: match self.protocol {
                Protocol::Classic => GroupProtocol::Classic,
                Protocol::Consumer => GroupProtocol::Consumer,
            },
            isolation: match self.isolation {
                Isolation::ReadCommitted => IsolationLevel::ReadCommitted,
                Isolation::ReadUncommitted => IsolationLevel::ReadUncommitted,
            },
            reset: match self.start {
                Start::Latest => AutoOffsetReset::Latest,
                Start::Earliest | Start::Time(_) => AutoOffsetReset::Earliest,
            },
            session_timeout: self.session_timeout.duration(),
            rebalance_timeout: REBALANCE_TIMEOUT,
            fetch_size: self.fetch_size.map_or(default, ByteSize::as_usize).max(1 << 10),
            records: RECORDS,
        }
    }
}

impl Component for KafkaSource {
    const NAME: &'static str = "kafka";
    const EXAMPLE: &'static str = r#"
sources:
  events:
    kafka:
      brokers: "127.0.0.1:9092"
      topics: events
      group: archive
      fields: [partition, key]
      end_after_idle: 2s
pipelines:
  main: { from: events, to: all }
sinks:
  all: { file: { path: out/events.jsonl, encode: json } }
"#;

    fn check(&self) -> Vec<Mistake> {
        let mut mistakes = self.cluster.check();
        mistakes.extend(self.patterns().err());
        if self.topics.is_empty() || self.topics.iter().any(String::is_empty) {
            let mistake = Mistake::new("topics", "There is no topic to read.");
            mistakes.push(mistake.help("For example `topics: logs`."));
        }
        if self.group.is_empty() {
            let mistake = Mistake::new("group", "The group has no name.");
            mistakes.push(mistake.help("For example `group: archive`."));
        }
        if let Some(name) = self.fields.iter().find(|name| Field::new(name).is_none()) {
            let mistake = Mistake::new("fields", format!("A record has no `{name}`."));
            mistakes.push(mistake.help(
                "There are `topic`, `partition`, `offset`, `timestamp`, `key`, `tombstone` and headers such as \
                 `header.trace-id`.",
            ));
        }
        if self.session_timeout.duration() < Duration::from_secs(1) {
            let mistake = Mistake::new("session_timeout", "A member must have at least a second.");
            mistakes.push(mistake.help("The default is `10s`."));
        }
        mistakes
    }
}

impl SourceConfig for KafkaSource {
    fn fields(&self) -> KnownFields {
        let named = self.fields.iter().filter_map(|name| Some((name, Field::new(name)?)));
        named.fold(KnownFields::none(), |known, (name, field)| known.with(name, Some(field.described(name))))
    }

    fn blocks(&self) -> bool {
        false
    }

    // The group goes on where it is.
    fn starts_over(&self) -> bool {
        false
    }

    // It commits only what a saved checkpoint covers.
    fn rereads(&self) -> bool {
        true
    }

    fn build(&self, context: &Context) -> Result<Box<dyn Source>, Error> {
        let lag = Arc::new(AtomicU64::new(0));
        let shown = lag.clone();
        let help = "Records of its partitions that it has not read yet.";
        context.details.show_gauge("lag", help, move || shown.load(Relaxed));
        let patterns = self.patterns().map_err(|mistake| Error::permanent(mistake.message))?;
        Ok(Box::new(Kafka {
            receiving: self.receiving(context),
            config: self.clone(),
            patterns,
            lag,
            membership: None,
        }))
    }
}

struct Kafka {
    config: KafkaSource,
    receiving: Receiving,
    patterns: Vec<Regex>,
    /// The records of this member's partitions that were not read yet.
    lag: Arc<AtomicU64>,
    /// Also of what earlier calls of [`Source::run`] sent.
    membership: Option<Arc<Membership>>,
}

#[async_trait]
impl Source for Kafka {
    async fn run(&mut self, out: &mut SourceOutput) -> Result<(), Error> {
        let start = match self.config.start {
            Start::Time(time) => Some(time),
            Start::Earliest | Start::Latest => None,
        };
        let membership =
            self.membership.get_or_insert_with(|| Arc::new(Membership::new(out, start, SETTLE_WAIT))).clone();
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
        consumer.close().await;
        read
    }
}

impl Kafka {
    /// Reads until the source is to end, and waits until what it sent is committed.
    async fn read(
        &self,
        consumer: &dyn Consumer,
        membership: &Membership,
        out: &mut SourceOutput,
    ) -> Result<(), Error> {
        membership.begin();
        let (queue, records) = mpsc::channel(1);
        let forward = Forward::new(out.clone(), &self.config.fields, self.config.max_message_bytes);
        let mut forwarding = tokio::spawn(forward.run(records));
        let received = self.receive(consumer, membership, out, queue).await;
        let forwarded = loop {
            match tokio::time::timeout(POLL, &mut forwarding).await {
                Ok(ended) => break ended,
                Err(_) => keep(consumer).await,
            }
        };
        received?;
        forwarded
            .map_err(|error| Error::permanent("the passing on of records panicked").caused_by(error))??;
        out.end();
        self.settle(consumer, membership, out).await;
        Ok(())
    }

    /// Asks for records and queues them, until the source is to end or nothing takes them.
    async fn receive(
        &self,
        consumer: &dyn Consumer,
        membership: &Membership,
        out: &SourceOutput,
        queue: mpsc::Sender<Vec<Incoming>>,
    ) -> Result<(), Error> {
        let mut times = Times::default();
        while !out.is_stopping() {
            self.look(consumer, &mut times).await?;
            let permit = match tokio::time::timeout(POLL, queue.reserve()).await {
                Ok(Ok(permit)) => permit,
                // The other task has ended, and says why.
                Ok(Err(_)) => return Ok(()),
                Err(_) => {
                    // The queue is full.
                    keep(consumer).await;
                    self.commit(consumer, membership, &mut times).await;
                    continue;
                }
            };
            consumer.pause(false).await;
            match consumer.poll(POLL).await {
                Ok(records) if records.is_empty() => times.failing = None,
                Ok(records) => {
                    (times.failing, times.active) = (None, Instant::now());
                    membership.note(&records);
                    permit.send(records);
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
            keep(consumer).await;
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

/// Keeps the membership while no records are wanted. Those of partitions that were just assigned, and are not
/// paused yet, are read again later. Holding them was rejected: their partition may be taken away meanwhile.
async fn keep(consumer: &dyn Consumer) {
    consumer.pause(true).await;
    let records = consumer.poll(KEEP).await.unwrap_or_default();
    let mut first = BTreeMap::new();
    for record in &records {
        first.entry(&record.partition).or_insert(record.offset);
    }
    for (partition, offset) in first {
        // A partition that is taken away already has no place.
        let _ = consumer.seek(partition, offset).await;
    }
}
