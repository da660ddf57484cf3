//! The client of Kafka, as far as the components need one.
//!
//! A trait for each use, so that another client can take the place of the present one, and so that no type of
//! a library whose interface still changes is spread over the components. [`rust`] is the only
//! implementation: see the decision for what it was compared with.

pub(crate) mod rust;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use thalweg_engine::Error;

/// The reason why a call, or the delivery of a record, failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// This record is never taken.
    Refused(String),
    /// This record was in one request with others, of which at least one is never taken.
    RefusedTogether(String),
    /// The topic of the record does not exist, or the user may not use it.
    NoTopic(String),
    /// A retry may succeed.
    Temporary(String),
    /// A retry may succeed with another connection, or in another transaction: this one is of no use any
    /// more.
    Lost(String),
    /// The broker takes nothing from this transaction any more: another producer took its id, or it took
    /// longer than it may.
    Fenced(String),
    /// Whether the transaction is committed is not known. A second commit tells it.
    Unknown(String),
    /// No retry succeeds: a wrong password, for example.
    Permanent(String),
}

impl Failure {
    /// Returns the reason.
    pub(crate) fn reason(&self) -> &str {
        match self {
            Failure::Refused(reason)
            | Failure::RefusedTogether(reason)
            | Failure::NoTopic(reason)
            | Failure::Temporary(reason)
            | Failure::Lost(reason)
            | Failure::Fenced(reason)
            | Failure::Unknown(reason)
            | Failure::Permanent(reason) => reason,
        }
    }

    /// Returns the error of a call, which `what` names: "the brokers `a:9092` cannot be reached".
    pub(crate) fn error(self, what: impl Into<String>) -> Error {
        let error = match self {
            Failure::Permanent(_) | Failure::Refused(_) | Failure::RefusedTogether(_) => Error::permanent,
            Failure::NoTopic(_)
            | Failure::Temporary(_)
            | Failure::Lost(_)
            | Failure::Fenced(_)
            | Failure::Unknown(_) => Error::temporary,
        };
        error(what.into()).caused_by(self.reason().to_owned())
    }
}

/// The headers of a record: names and values, in order.
pub(crate) type Headers = Vec<(String, Option<Bytes>)>;

/// A record to send.
#[derive(Debug, Clone)]
pub(crate) struct Outgoing {
    pub(crate) topic: String,
    /// By default the client chooses: by the hash of the key, or any partition for a record without a key.
    pub(crate) partition: Option<i32>,
    pub(crate) key: Option<Bytes>,
    pub(crate) value: Bytes,
    /// In milliseconds since 1970. By default it is the time of sending.
    pub(crate) timestamp: Option<i64>,
    pub(crate) headers: Headers,
}

/// Sends records. Records of a partition are stored in the order in which they are queued.
pub(crate) trait Producer: Send + Sync {
    /// The outcome of a queued record, once the broker has confirmed or refused it.
    type Delivery: Future<Output = Result<(), Failure>> + Send + Unpin;

    /// Queues a record. Waits for what must be known of its topic.
    fn queue(&self, record: Outgoing) -> impl Future<Output = Result<Self::Delivery, Failure>> + Send;

    /// Sends what is queued at once, and waits for all outcomes. It may be dropped: the records stay queued.
    fn flush(&self) -> impl Future<Output = ()> + Send;

    /// True if requests were repeated.
    fn has_retried(&self) -> bool;

    /// Takes no more records. Those that are queued get an outcome soon, at the latest that the producer is
    /// closed.
    fn close(&self) -> impl Future<Output = ()> + Send;
}

/// Why records of a transaction were not stored: the transaction cannot be committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) reason: String,
    /// True for [`Failure::Fenced`].
    pub(crate) is_fenced: bool,
}

/// Sends records in transactions: those of a transaction can be read when it is committed.
pub(crate) trait Transactions: Producer {
    /// Begins a transaction. There must be none.
    fn begin(&self) -> Result<(), Failure>;

    /// True if nothing was queued in the transaction. The broker does not know of it then, and refuses to
    /// commit it without offsets.
    fn is_empty(&self) -> bool;

    /// Returns why the transaction cannot be committed, if that is known.
    fn fault(&self) -> Option<Fault>;

    /// Commits the transaction, and with it the offsets of a group. The broker refuses these if the member is
    /// not of the group any more. After [`Failure::Unknown`], another call asks only for the outcome.
    fn commit(
        &self,
        offsets: &BTreeMap<Partition, i64>,
        member: Option<&Generation>,
    ) -> impl Future<Output = Result<(), Failure>> + Send;
}

/// Makes producers with transactions of one id. A new one ends the transaction of the last one.
pub(crate) trait Connector: Send + Sync {
    type Producer: Transactions;

    /// Connects. When it returns, no transaction of an earlier producer is left: each was committed or
    /// aborted.
    fn connect(&self) -> impl Future<Output = Result<Self::Producer, Failure>> + Send;
}

/// The proof that a member is of its group. The broker refuses one that is older than the last change of the
/// group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Generation {
    pub(crate) group: String,
    pub(crate) number: i32,
    pub(crate) member: String,
    pub(crate) instance: Option<String>,
}

/// A partition of a topic.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Partition {
    pub(crate) topic: Arc<str>,
    pub(crate) number: i32,
}

impl Partition {
    /// Returns the name of the partition in checkpoints. A topic has no slash in its name.
    pub(crate) fn name(&self) -> String {
        format!("{}/{}", self.topic, self.number)
    }
}

/// The id of a topic, in hexadecimal. A topic that is deleted and created again has another one.
pub(crate) type TopicId = Arc<str>;

/// An offset in a partition, and the topic that it is of, if brokers tell its id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) offset: i64,
    pub(crate) topic: Option<TopicId>,
}

/// A record that was read.
#[derive(Debug, Clone)]
pub(crate) struct Incoming {
    pub(crate) partition: Partition,
    pub(crate) offset: i64,
    /// In milliseconds since 1970.
    pub(crate) timestamp: i64,
    pub(crate) key: Option<Bytes>,
    /// None for a tombstone.
    pub(crate) value: Option<Bytes>,
    pub(crate) headers: Headers,
}

/// A member of a group that reads partitions.
#[async_trait]
pub(crate) trait Consumer: Send + Sync {
    /// Reads these topics from now on.
    async fn subscribe(&self, topics: &[String]) -> Result<(), Failure>;

    /// Returns the names of all topics.
    async fn topics(&self) -> Result<Vec<String>, Failure>;

    /// Returns the next records, none after `timeout`. Keeps the membership, and calls [`Changes`]. It must
    /// not be dropped before it returns.
    async fn poll(&self, timeout: Duration) -> Result<Vec<Incoming>, Failure>;

    /// While it is paused, [`poll`](Self::poll) returns nothing and only keeps the membership.
    async fn pause(&self, is_paused: bool);

    /// Commits these places: those of the first records that are not settled.
    async fn commit(&self, places: &BTreeMap<Partition, Place>) -> Result<(), Failure>;

    /// Returns the offsets that the group committed, without the partitions for which it never did.
    async fn committed(&self, partitions: &[Partition]) -> Result<BTreeMap<Partition, i64>, Failure>;

    /// Returns the id of the topic with which the offset of a partition was committed, if it is known.
    async fn committed_topic(&self, partition: &Partition) -> Result<Option<TopicId>, Failure>;

    /// Returns the ids of topics, without those that have none, or that are not there.
    async fn topic_ids(&self, topics: &BTreeSet<Arc<str>>) -> Result<BTreeMap<Arc<str>, TopicId>, Failure>;

    /// Returns the present proof of the membership, if the member has one.
    async fn generation(&self) -> Option<Generation>;

    /// Continues a partition at an offset.
    async fn seek(&self, partition: &Partition, offset: i64) -> Result<(), Failure>;

    /// Continues a partition at the first record that is not older than `timestamp`, or else at its end.
    async fn seek_to_time(&self, partition: &Partition, timestamp: i64) -> Result<(), Failure>;

    /// Returns the offset of the first record of a partition's log, and that behind the last one.
    async fn bounds(&self, partition: &Partition) -> Result<(i64, i64), Failure>;

    /// Returns how many records of its partitions were not read yet. None if it is not known of all.
    async fn lag(&self) -> Option<u64>;

    /// Leaves the group.
    async fn close(&self);
}

/// Changes of the partitions that a member of a group reads, in the course of [`Consumer::poll`].
#[async_trait]
pub(crate) trait Changes: Send + Sync {
    /// These were added, and nothing of them was read.
    async fn assigned(&self, consumer: &dyn Consumer, partitions: Vec<Partition>);

    /// These are taken away when the call returns.
    async fn revoked(&self, consumer: &dyn Consumer, partitions: Vec<Partition>);

    /// These were taken away: another member may have them.
    async fn lost(&self, partitions: Vec<Partition>);
}
