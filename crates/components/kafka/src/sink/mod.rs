//! `kafka`: sends messages to topics.
//!
//! A batch of the engine is queued as a whole, sent at once, and is durable when the broker has confirmed
//! each of its records. One batch is on its way at a time, so order is kept. The batch therefore bounds the
//! memory: a lease covers it, and a second one its copy in the queue.
//!
//! Queued records are numbered, and the broker drops repeated numbers. So a record stays queued while no
//! broker answers: the engine receives an error after `timeout`, calls again with the same batch, and the
//! sink continues to wait. Sending the record again at once was rejected, because it would be stored twice if
//! the broker had taken the first one.
//!
//! With transactions, another sink does all of this: see [`transactional`].
//!
//! A producer that fails, or gets no answer for minutes, is closed, and the next one sends what was not
//! confirmed, in order. Records that the broker had taken without confirming them are then stored twice.

mod pending;
mod records;
mod refusals;
#[cfg(test)]
mod tests;
mod transactional;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_codec::template::Template;
use thalweg_config::{ByteSize, TimeSpan};
use thalweg_engine::{
    Claim, Component, Context, Error, InFlight, Mistake, Rejects, Sink, SinkConfig, TransactionPlace,
    TransformConfig, WriteOutcome,
};
use thalweg_net::give_up::GiveUp;
use thalweg_net::net::long_time;
use thalweg_record::{Batch, Share};
use thalweg_stream::encode::EncodeConfig;

use crate::client::rust::{self, RustConnector, RustProducer, Sending};
use crate::client::{Failure, Producer};
use crate::options::ClusterOptions;
use crate::session::{KafkaSession, TransactionSettings};
use pending::Pending;
use records::{Records, TOPIC_RULE, is_topic};
use transactional::{Committer, Transactional};

/// The largest size of the client's queue. It is never reached: only one batch is queued.
const QUEUE: usize = 1 << 30;

/// The memory of a record in the client's queue, beside its bytes.
const RECORD: usize = 200;

/// Sends messages to topics of Kafka, or of a broker that speaks its protocol.
///
/// A message is acknowledged when the broker has confirmed it. While no broker answers, messages wait, and
/// their source with them when the memory is full. A message that the broker refuses, for example because it
/// is too large, leaves by `errors` with the broker's reason.
///
/// A message keeps its place in its partition. With `acks: all` the broker drops what is sent to it twice
/// after a lost connection or a restart of the broker. Messages may be stored twice after five minutes
/// without a broker, after an error that ends the session with the broker, and in a restarted run if no
/// checkpoint covers them.
///
/// With a `transactional_id`, records are sent in transactions, and readers with `read_committed` get each
/// transaction as a whole or not at all. If the messages come from a source `kafka` of the same cluster, the
/// offsets of its group are committed in the transactions too: each message is then there once, whatever is
/// killed. With other sources, each batch of the run is a transaction.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KafkaSink {
    #[serde(flatten)]
    cluster: ClusterOptions,
    /// The topic, for example `logs` or `logs-{service}`. Columns in braces are replaced for each message. If
    /// the topic does not exist, the broker creates it or does not, as it is configured. Messages for a topic
    /// that does not exist wait if all messages have that topic, and leave by `errors` otherwise.
    topic: Template,
    /// The field that is the key of the record. Records with the same key are in the same partition, in
    /// order. A message without the field has no key. By default no record has a key.
    #[serde(default)]
    key: Option<String>,
    /// The field with the number of the partition. Without it, the hash of the key decides, and records
    /// without a key go to any partition.
    #[serde(default)]
    partition: Option<String>,
    /// Headers of the record, for example `{host: '{meta.hostname}'}`. Columns in braces are replaced for
    /// each message.
    #[serde(default)]
    headers: BTreeMap<String, Template>,
    /// The field with the time of the record. By default it is the time of sending.
    #[serde(default)]
    timestamp: Option<String>,
    /// The format in which messages are sent, for example `json`. By default the payload is sent unchanged.
    #[serde(default)]
    encode: EncodeConfig,
    /// How records are compressed. The default is `none`.
    #[serde(default)]
    compression: Compression,
    /// Which replicas confirm a record. The default is `all`.
    #[serde(default)]
    acks: Acks,
    /// The largest size of the records that are sent together to one partition, before they are compressed.
    /// The broker's limit (`message.max.bytes`) must be larger. The default is 512 KiB.
    #[serde(default = "half_a_mebibyte")]
    batch_size: ByteSize,
    /// How long the broker may take to confirm. After that the sink reports it, and waits on. The default is
    /// 30 s.
    #[serde(default = "thalweg_net::net::defaults::half_a_minute")]
    timeout: TimeSpan,
    /// After the broker has been failing for this time, the messages of a batch leave by `errors`, although
    /// the broker may have stored some of them. The time counts from the first attempt that fails, and again
    /// from each record that the broker confirms or refuses. By default messages wait until they are stored.
    #[serde(default)]
    give_up: Option<TimeSpan>,
    /// The number of batches of the run that may be on their way at the same time. With more than 1, the
    /// order of messages is not kept. The default is 1.
    #[serde(default = "thalweg_net::net::defaults::one")]
    #[schemars(range(min = 1, max = 64))]
    concurrency: usize,
    /// Send records in transactions of this id, for example `orders-${HOSTNAME}`. Each running program needs
    /// an id of its own, which it keeps over restarts: a new program with the id ends the transaction of the
    /// last one, which then fails. A program with another id leaves it to `transaction_timeout`. By default
    /// there are no transactions.
    #[serde(default)]
    transactional_id: Option<String>,
    /// How long messages of a source `kafka` are collected before their transaction is committed. A longer
    /// time costs less work, a shorter one delivers sooner. A transaction also ends after 200000 records or
    /// 64 MiB, and lasts at least four times as long as it takes to commit one. The default is 100 ms.
    #[serde(default = "interval")]
    transaction_interval: TimeSpan,
    /// The time after which the broker aborts a transaction whose program is gone. Until then, other members
    /// of the source's group wait for its partitions, and readers for what comes behind its records. From 1 s
    /// to 40 s. The default is 10 s.
    #[serde(default = "thalweg_net::net::defaults::ten_seconds")]
    transaction_timeout: TimeSpan,
}

/// How records are compressed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Compression {
    /// Not compressed.
    #[default]
    None,
    /// With gzip.
    Gzip,
    /// With Snappy.
    Snappy,
    /// With LZ4.
    Lz4,
    /// With Zstandard.
    Zstd,
}

/// Which replicas confirm a record.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Acks {
    /// All that are in sync. The broker then also drops what is sent to it twice.
    #[default]
    All,
    /// The leader alone. Its records are lost if it fails before others have them.
    Leader,
}

fn half_a_mebibyte() -> ByteSize {
    ByteSize::kib(512)
}

fn interval() -> TimeSpan {
    TimeSpan(Duration::from_millis(100))
}

/// The times after which a broker may abort a transaction. A member of a group has a minute for a change of
/// partitions, and waits for the transactions of others in it. The broker looks for late transactions each 10
/// s.
const TRANSACTION_TIMEOUTS: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(40);

impl KafkaSink {
    fn sending(&self) -> Sending {
        Sending {
            acks: match self.acks {
                Acks::All => rust::Acks::All,
                Acks::Leader => rust::Acks::Leader,
            },
            compression: match self.compression {
                Compression::None => rust::Compression::None,
                Compression::Gzip => rust::Compression::Gzip,
                Compression::Snappy => rust::Compression::Snappy,
                Compression::Lz4 => rust::Compression::Lz4,
                Compression::Zstd => rust::Compression::Zstd,
            },
            batch_size: self.batch_size.as_usize().clamp(1, QUEUE),
            queue_size: QUEUE,
            timeout: self.timeout.duration(),
        }
    }
}

/// Options of transactions, and others that do not go with them.
impl KafkaSink {
    fn transaction_mistakes(&self) -> Vec<Mistake> {
        let Some(id) = &self.transactional_id else { return Vec::new() };
        let mut mistakes = Vec::new();
        let mut add = |option, message: &str, help: &str| {
            mistakes.push(Mistake::new(option, message).help(help));
        };
        if id.is_empty() || id.len() > 1000 {
            add("transactional_id", "The id has 1 to 1000 bytes.", "For example `orders-1`.");
        }
        if self.acks != Acks::All {
            add("acks", "In transactions, all replicas in sync confirm a record.", "Leave it out.");
        }
        if self.concurrency != 1 {
            let message = "Only one batch at a time is sent in transactions.";
            add("concurrency", message, "Leave it out, or give several sinks ids of their own.");
        }
        if self.give_up.is_some() {
            let message = "Records of transactions cannot be given up: their transaction is aborted.";
            add("give_up", message, "Leave it out.");
        }
        if !TRANSACTION_TIMEOUTS.contains(&self.transaction_timeout.duration()) {
            add("transaction_timeout", "It is from 1 s to 40 s.", "The default is `10s`.");
        }
        if self.transaction_interval.duration() > self.transaction_timeout.duration() / 2 {
            let message = "A transaction would last longer than half of `transaction_timeout`.";
            add("transaction_interval", message, "The default is `100ms`.");
        }
        mistakes
    }

    fn transactional(&self, id: &str, context: &Context) -> Box<dyn Sink> {
        let connector = RustConnector {
            cluster: self.cluster.clone(),
            sending: self.sending(),
            id: id.to_owned(),
            transaction_timeout: self.transaction_timeout.duration(),
        };
        let settings = TransactionSettings {
            id: id.to_owned(),
            interval: self.transaction_interval.duration(),
            timeout: self.transaction_timeout.duration(),
        };
        let session = Arc::new(KafkaSession::new(connector, settings));
        let shown = session.clone();
        context.details.show("transactions", move || shown.committed());
        let shown = session.clone();
        let help = "Transactions that were aborted, so that their messages were read again.";
        context.details.show_gauge("aborted_transactions", help, move || shown.aborted());
        let committer = match &context.link {
            Some(link) => {
                link.put(session.clone());
                Committer::Source
            }
            None => Committer::Sink,
        };
        let (memory, records) = (context.memory.clone(), Records::new(self));
        Box::new(Transactional::new(session, committer, memory, records, self.timeout.duration()))
    }
}

impl Component for KafkaSink {
    const NAME: &'static str = "kafka";
    const EXAMPLE: &'static str = r#"
sources:
  messages: { generate: { message: '{"id": %6d, "service": "shop"}', count: 100 } }
pipelines:
  main: { from: messages, transforms: [parse_json: {}], to: topic }
sinks:
  topic: { kafka: { brokers: "127.0.0.1:9092", topic: "events-{service}", key: id } }
"#;

    fn check(&self) -> Vec<Mistake> {
        let mut mistakes = self.cluster.check();
        mistakes.extend(self.encode.mistakes());
        if self.topic.is_constant() && !is_topic(self.topic.prefix()) {
            let mistake = Mistake::new("topic", format!("`{}` is no topic.", self.topic.prefix()));
            mistakes.push(mistake.help(format!("Its name has {TOPIC_RULE}.")));
        }
        if self.timeout.duration().is_zero() {
            let mistake = Mistake::new("timeout", "No broker can confirm a record in no time.");
            mistakes.push(mistake.help("For example `30s`."));
        }
        mistakes.extend(self.transaction_mistakes());
        mistakes
    }
}

impl SinkConfig for KafkaSink {
    fn encoder(&self) -> Option<Box<dyn TransformConfig>> {
        self.encode.encoder()
    }

    fn fields(&self) -> Vec<String> {
        let named = [&self.key, &self.partition, &self.timestamp].into_iter().flatten().cloned();
        let templates = std::iter::once(&self.topic).chain(self.headers.values());
        named.chain(templates.flat_map(Template::fields)).collect()
    }

    fn in_flight(&self) -> InFlight {
        InFlight::chosen(self.concurrency)
    }

    fn transaction_place(&self) -> Option<TransactionPlace> {
        self.transactional_id.as_ref().map(|_| self.cluster.place())
    }

    fn claims(&self) -> Vec<Claim> {
        let outcome = "each would end the transactions of the other";
        let help = "Give each sink an id of its own.";
        let claim =
            |id: &String| Claim::name("transactional_id", self.cluster.place(), id.as_str(), outcome, help);
        self.transactional_id.iter().map(claim).collect()
    }

    fn remarks(&self) -> Vec<Mistake> {
        long_time("timeout", self.timeout).into_iter().chain(self.topic.remark("topic")).collect()
    }

    fn needed_files(&self) -> Vec<(&'static str, PathBuf)> {
        self.cluster.needed_files()
    }

    fn build(&self, context: &Context) -> Result<Box<dyn Sink>, Error> {
        if let Some(id) = &self.transactional_id {
            return Ok(self.transactional(id, context));
        }
        Ok(Box::new(Kafka {
            sending: self.sending(),
            memory: context.memory.clone(),
            records: Records::new(self),
            give_up: GiveUp::after(self.give_up),
            config: self.clone(),
            producer: None,
            pending: Pending::default(),
        }))
    }
}

struct Kafka {
    config: KafkaSink,
    sending: Sending,
    memory: Share,
    records: Records,
    give_up: GiveUp,
    producer: Option<RustProducer>,
    pending: Pending<<RustProducer as Producer>::Delivery>,
}

impl Kafka {
    /// Connects to the cluster, unless that is done.
    async fn connect(&mut self) -> Result<(), Error> {
        if self.producer.is_none() {
            let connected = RustProducer::connect(&self.config.cluster, &self.sending).await;
            let brokers = self.config.cluster.shown();
            let failed =
                |failure: Failure| failure.error(format!("the brokers `{brokers}` cannot be reached"));
            self.producer = Some(connected.map_err(failed)?);
        }
        Ok(())
    }

    /// Sends the pending batch, and waits until each record has an outcome.
    async fn send(&mut self, batch: &Batch) -> Result<(), Error> {
        self.connect().await?;
        let Some(producer) = &self.producer else {
            return Err(Error::permanent("the sink `kafka` was not opened"));
        };
        let sent = self.pending.send(producer, &mut self.records, batch, self.sending.timeout).await;
        // After a partition had no leader, the client's task does not rest any more until it ends. Nothing is
        // queued between two batches, so another producer costs no more than its connection.
        let is_worn = sent.is_ok() && producer.has_retried();
        if self.pending.take_is_lost() || is_worn {
            self.end_producer().await;
        }
        sent
    }

    /// Closes the producer. The next one sends what this one did not confirm.
    async fn end_producer(&mut self) {
        if let Some(producer) = self.producer.take() {
            producer.close().await;
            self.pending.recall().await;
        }
    }
}

#[async_trait]
impl Sink for Kafka {
    async fn open(&mut self, _: Option<serde_json::Value>) -> Result<(), Error> {
        self.connect().await
    }

    async fn write(&mut self, batch: &Batch, rejects: &mut Rejects) -> Result<WriteOutcome, Error> {
        let bytes = batch.payload_bytes() + batch.rows() * RECORD;
        if self.pending.begin(batch, || self.memory.claim(bytes)) {
            self.give_up.end();
        }
        self.give_up.attempt();
        let before = self.pending.settled();
        if let Err(error) = self.send(batch).await {
            if self.pending.settled() > before {
                self.give_up.succeeded();
            }
            let reason = self.give_up.refusal(error)?;
            self.end_producer().await;
            self.pending.refuse_rest(&reason);
        }
        self.give_up.end();
        for (row, reason) in self.pending.finish() {
            rejects.reject(row, reason);
        }
        Ok(WriteOutcome::Durable)
    }

    fn drop_batch(&mut self) {
        // With the producer goes what it has queued: the batch takes another route.
        if self.pending.is_any()
            && let Some(producer) = self.producer.take()
        {
            tokio::spawn(async move { producer.close().await });
        }
        self.pending = Pending::default();
        self.give_up.end();
    }

    async fn flush(&mut self) -> Result<(), Error> {
        Ok(())
    }

    async fn finish(&mut self) -> Result<(), Error> {
        if let Some(producer) = self.producer.take() {
            producer.close().await;
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;
    use crate::client::Connector;
    use crate::session::Session;

    /// Returns a sink with transactions, which a source commits.
    pub(crate) fn transactional<C: Connector + 'static>(
        config: &KafkaSink,
        session: Arc<Session<C>>,
    ) -> impl Sink + use<C> {
        made(config, session, Committer::Source)
    }

    /// Returns a sink with transactions, which it commits by itself.
    pub(crate) fn alone<C: Connector + 'static>(
        config: &KafkaSink,
        session: Arc<Session<C>>,
    ) -> impl Sink + use<C> {
        made(config, session, Committer::Sink)
    }

    fn made<C: Connector>(
        config: &KafkaSink,
        session: Arc<Session<C>>,
        committer: Committer,
    ) -> Transactional<C> {
        let memory = thalweg_engine::testing::context().memory;
        Transactional::new(session, committer, memory, Records::new(config), Duration::from_secs(1))
    }
}
