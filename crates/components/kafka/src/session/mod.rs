//! The transactions of one id: a sink fills them, and the sink or a source commits them.
//!
//! A session has one producer, and at most one open transaction. It is *broken* when its transaction cannot
//! be committed. From then on nothing more is sent, until [`Session::renew`] has ended the transaction by a
//! new producer of the same id, and [`Session::mend`] has said that what belonged to it is gone from the run.
//! So a transaction has all messages of the time in which it was open, or none.
//!
//! See docs/decisions/093-offsets-are-committed-in-transactions.md.

#[cfg(test)]
pub(crate) mod tests;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use thalweg_engine::Error;
use tokio::sync::MutexGuard;

use crate::client::rust::RustConnector;
use crate::client::{Connector, Failure, Generation, Partition, Producer, Transactions};

/// The session of a real cluster.
pub(crate) type KafkaSession = Session<RustConnector>;

/// The transactions of one id.
pub(crate) struct Session<C: Connector> {
    connector: C,
    settings: TransactionSettings,
    open: tokio::sync::Mutex<Open<C::Producer>>,
    /// Why the open transaction cannot be committed.
    broken: Mutex<Option<String>>,
    committed: AtomicU64,
    aborted: AtomicU64,
}

/// How long transactions last.
#[derive(Debug, Clone)]
pub(crate) struct TransactionSettings {
    /// The id, for messages.
    pub(crate) id: String,
    /// The time after which a source commits.
    pub(crate) interval: Duration,
    /// The time after which the broker aborts a transaction.
    pub(crate) timeout: Duration,
}

/// The producer, and its transaction.
pub(crate) struct Open<P> {
    producer: Option<P>,
    /// When the transaction was begun, if one is open.
    begun: Option<Moment>,
}

/// A moment by two clocks: the first stands still while the machine is suspended, the second may be set.
#[derive(Debug, Clone, Copy)]
struct Moment {
    instant: Instant,
    time: SystemTime,
}

impl Moment {
    fn now() -> Self {
        Self { instant: Instant::now(), time: SystemTime::now() }
    }

    /// True if this much time has passed since then, by one of the clocks.
    fn is_older_than(self, age: Duration) -> bool {
        self.instant.elapsed() >= age || self.time.elapsed().is_ok_and(|elapsed| elapsed >= age)
    }
}

/// Why a transaction is not committed.
#[derive(Debug)]
pub(crate) enum NotCommitted {
    /// It never will be.
    Aborted(Error),
    /// Another attempt tells.
    Unknown(Error),
}

impl NotCommitted {
    /// Returns the reason.
    pub(crate) fn error(self) -> Error {
        match self {
            NotCommitted::Aborted(error) | NotCommitted::Unknown(error) => error,
        }
    }
}

impl<C: Connector> Session<C> {
    pub(crate) fn new(connector: C, settings: TransactionSettings) -> Self {
        let open = tokio::sync::Mutex::new(Open { producer: None, begun: None });
        Self {
            connector,
            settings,
            open,
            broken: Mutex::default(),
            committed: AtomicU64::new(0),
            aborted: AtomicU64::new(0),
        }
    }

    pub(crate) fn settings(&self) -> &TransactionSettings {
        &self.settings
    }

    /// The number of committed transactions.
    pub(crate) fn committed(&self) -> u64 {
        self.committed.load(Relaxed)
    }

    /// The number of aborted transactions.
    pub(crate) fn aborted(&self) -> u64 {
        self.aborted.load(Relaxed)
    }

    /// Returns why the transaction cannot be committed, if it cannot.
    pub(crate) fn broken(&self) -> Option<String> {
        self.broken.lock().clone()
    }

    /// True if nothing more is to be sent in this transaction.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken.lock().is_some()
    }

    /// Notes that the transaction must not be committed. The first reason stays.
    pub(crate) fn break_off(&self, reason: impl Into<String>) {
        self.broken.lock().get_or_insert_with(|| reason.into());
    }

    /// Notes that nothing of the broken transaction is left in the run. The session must be
    /// [renewed](Self::renew).
    pub(crate) fn mend(&self) {
        *self.broken.lock() = None;
    }

    /// Locks the producer, to send in a transaction.
    pub(crate) async fn lock(&self) -> MutexGuard<'_, Open<C::Producer>> {
        self.open.lock().await
    }

    /// Returns the producer with an open transaction. Connects and begins one, if need be.
    pub(crate) async fn begun<'o>(
        &self,
        open: &'o mut Open<C::Producer>,
    ) -> Result<&'o C::Producer, Failure> {
        let Open { producer, begun } = open;
        let connected = match producer.take() {
            Some(connected) => connected,
            None => {
                *begun = None;
                self.connector.connect().await?
            }
        };
        let producer = producer.insert(connected);
        if begun.is_none() {
            producer.begin()?;
        }
        if begun.is_none() || producer.is_empty() {
            // The broker knows of the transaction from its first record on, and counts from there.
            *begun = Some(Moment::now());
        }
        Ok(producer)
    }

    /// Commits the transaction, with the offsets of a group if there are any. One without records and offsets
    /// stays open.
    pub(crate) async fn commit(
        &self,
        offsets: &BTreeMap<Partition, i64>,
        member: Option<&Generation>,
    ) -> Result<(), NotCommitted> {
        let mut open = self.open.lock().await;
        if let Some(reason) = self.broken() {
            return Err(NotCommitted::Aborted(Error::temporary(reason)));
        }
        let has_records =
            open.begun.is_some() && open.producer.as_ref().is_some_and(|known| !known.is_empty());
        if !has_records && offsets.is_empty() {
            return Ok(());
        }
        let committed = match self.begun(&mut open).await {
            Ok(producer) => producer.commit(offsets, member).await,
            Err(failure) => Err(failure),
        };
        match committed {
            Ok(()) => {
                open.begun = None;
                self.committed.fetch_add(1, Relaxed);
                Self::end_worn(&mut open).await;
                Ok(())
            }
            Err(Failure::Unknown(reason)) => {
                let error = Error::temporary("the broker did not say whether a transaction is committed");
                Err(NotCommitted::Unknown(error.caused_by(reason)))
            }
            Err(failure) => Err(NotCommitted::Aborted(self.judged(failure, &open))),
        }
    }

    /// Closes a producer that has repeated requests: its task would not rest any more. See
    /// docs/decisions/084-kafka-is-spoken-in-rust.md.
    async fn end_worn(open: &mut Open<C::Producer>) {
        if open.producer.as_ref().is_some_and(Producer::has_retried)
            && let Some(producer) = open.producer.take()
        {
            producer.close().await;
        }
    }

    /// Returns the error of a failure in the open transaction. A producer is fenced by the next one of its
    /// id, or by the broker after the timeout: the broker does not say which.
    pub(crate) fn judged(&self, failure: Failure, open: &Open<C::Producer>) -> Error {
        let TransactionSettings { id, timeout, .. } = &self.settings;
        let is_late = open.begun.is_some_and(|begun| begun.is_older_than(*timeout));
        match failure {
            Failure::Fenced(reason) if is_late => Error::temporary(format!(
                "a transaction took longer than `transaction_timeout` ({} s)",
                timeout.as_secs_f64()
            ))
            .caused_by(reason),
            Failure::Fenced(reason) => Error::permanent(format!(
                "another producer has taken the `transactional_id` `{id}`: give each running program an id of its own"
            ))
            .caused_by(reason),
            failure => failure.error("a transaction cannot be committed"),
        }
    }

    /// Ends the open transaction, if there is one, by a new producer. When it returns, the transaction is
    /// aborted, or it was committed before.
    pub(crate) async fn renew(&self) -> Result<(), Failure> {
        let mut open = self.open.lock().await;
        self.end(&mut open).await;
        open.producer = Some(self.connector.connect().await?);
        Ok(())
    }

    /// Aborts the open transaction, and closes the producer.
    pub(crate) async fn close(&self) {
        let mut open = self.open.lock().await;
        self.end(&mut open).await;
    }

    async fn end(&self, open: &mut Open<C::Producer>) {
        let is_open = open.begun.take().is_some();
        if let Some(producer) = open.producer.take() {
            self.aborted.fetch_add(u64::from(is_open && !producer.is_empty()), Relaxed);
            producer.close().await;
        }
    }
}
