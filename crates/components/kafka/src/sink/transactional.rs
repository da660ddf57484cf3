//! The sink with transactions.
//!
//! All records of a batch are sent, and have their outcomes, before the batch counts as written. Then either
//! the sink commits: each batch is a transaction. Or it leaves that to the source of its messages, which
//! commits its offsets with them, and many batches are one transaction.
//!
//! In the second case a batch counts as delivered although its transaction may be aborted. That is sound
//! because the source that counts on it is the only one, and reads the messages again: see
//! docs/decisions/093-offsets-are-committed-in-transactions.md. It is also why batches that come while the
//! session is broken are dropped: they belong to the aborted transaction, and come again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use thalweg_engine::{Error, Rejects, Sink, WriteOutcome};
use thalweg_record::{Batch, Share};

use super::RECORD;
use super::pending::Pending;
use super::records::{Records, Refused};
use crate::client::{Connector, Failure, Fault, Producer, Transactions};
use crate::session::{NotCommitted, Session};

/// The number of transactions that may be aborted in vain, one after another, because of refused records.
/// More of them find no end: none is recognised, because a transform makes several different messages of one
/// each time, for example.
///
/// If the source commits, each of them counts. It makes them smaller until they have one record, so one of
/// them is committed soon. If the sink commits, it has the same batch each time, and a transaction was not in
/// vain that showed which records are refused.
const MOST_ABORTED: u32 = 100;

/// The component that commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Committer {
    /// The sink, each batch.
    Sink,
    /// The source of the messages.
    Source,
}

/// Sends batches in transactions.
pub(super) struct Transactional<C: Connector> {
    session: Arc<Session<C>>,
    committer: Committer,
    memory: Share,
    records: Records,
    pending: Pending<<C::Producer as Producer>::Delivery>,
    /// How long the broker may take to confirm.
    timeout: Duration,
    /// The refused rows of a batch that was sent, and is to be committed.
    sent: Option<Vec<(u32, String)>>,
    /// The number of transactions that refused records aborted in vain, since this number was committed.
    aborted: (u32, u64),
}

impl<C: Connector> Transactional<C> {
    pub(super) fn new(
        session: Arc<Session<C>>,
        committer: Committer,
        memory: Share,
        records: Records,
        timeout: Duration,
    ) -> Self {
        let pending = Pending::default();
        Self { session, committer, memory, records, pending, timeout, sent: None, aborted: (0, 0) }
    }

    /// Drops what is known of the batch.
    fn forget(&mut self) {
        self.pending = Pending::default();
        self.sent = None;
    }

    /// Sends the batch, and returns the rows that are never stored.
    async fn send(&mut self, batch: &Batch) -> Result<Vec<(u32, String)>, Error> {
        let bytes = batch.payload_bytes() + batch.rows() * RECORD;
        self.pending.begin(batch, || self.memory.claim(bytes));
        let session = self.session.clone();
        let mut open = session.lock().await;
        if let Some(reason) = session.broken() {
            // Meanwhile: the producer may be that of the next transaction.
            return Err(Error::temporary(reason));
        }
        let failure = match session.begun(&mut open).await {
            Ok(producer) => {
                let sent = self.pending.send(producer, &mut self.records, batch, self.timeout).await;
                if sent.is_err() {
                    // The reason may be the outcome of an earlier record.
                    self.pending.note_outcomes().await;
                }
                let is_lost = self.pending.take_is_lost();
                match (producer.fault(), sent) {
                    (Some(Fault { reason, is_fenced: true }), _) => Failure::Fenced(reason),
                    (Some(Fault { reason, .. }), _) => Failure::Lost(reason),
                    (None, Err(error)) if is_lost && error.kind().is_temporary() => {
                        Failure::Lost(error.full())
                    }
                    (None, sent) => return sent.map(|()| self.pending.finish()),
                }
            }
            Err(failure @ (Failure::Fenced(_) | Failure::Lost(_))) => failure,
            Err(failure) => return Err(failure.error("the brokers cannot be reached")),
        };
        let error = session.judged(failure, &open);
        drop(open);
        Err(self.break_off(batch, error).await)
    }

    /// Ends the transaction with an error. Records that were refused are known when they come again.
    async fn break_off(&mut self, batch: &Batch, error: Error) -> Error {
        self.session.break_off(error.full());
        let refused = self.pending.refused().await;
        let refused = self.records.note_refused(batch, refused);
        self.forget();
        let is_in_vain = match self.committer {
            Committer::Sink => refused == Refused::Known,
            Committer::Source => refused != Refused::None,
        };
        let committed = self.session.committed();
        if self.aborted.1 != committed || !is_in_vain {
            self.aborted = (0, committed);
        }
        self.aborted.0 += u32::from(is_in_vain);
        match self.aborted.0 > MOST_ABORTED {
            true => Error::permanent(format!(
                "the broker refused records in each of {MOST_ABORTED} transactions one after another"
            ))
            .caused_by(error.full()),
            false => error,
        }
    }

    /// Commits the batch.
    async fn commit(&mut self) -> Result<(), Error> {
        match self.session.commit(&BTreeMap::new(), None).await {
            Ok(()) => Ok(()),
            // The next attempt asks again.
            Err(NotCommitted::Unknown(error)) => Err(error),
            Err(NotCommitted::Aborted(error)) => {
                self.session.break_off(error.full());
                self.forget();
                Err(error)
            }
        }
    }
}

/// Ends the last transaction, and lets the sink send again.
async fn renew<C: Connector>(session: &Session<C>) -> Result<(), Error> {
    session.renew().await.map_err(|failure| failure.error("the brokers cannot be reached"))?;
    session.mend();
    Ok(())
}

#[async_trait]
impl<C: Connector + 'static> Sink for Transactional<C> {
    async fn open(&mut self, _: Option<serde_json::Value>) -> Result<(), Error> {
        match self.committer {
            Committer::Sink => renew(&self.session).await,
            // It connects before it reads.
            Committer::Source => Ok(()),
        }
    }

    async fn write(&mut self, batch: &Batch, rejects: &mut Rejects) -> Result<WriteOutcome, Error> {
        if self.session.is_broken() {
            self.forget();
            match self.committer {
                Committer::Sink => renew(&self.session).await?,
                Committer::Source => return Ok(WriteOutcome::Durable),
            }
        }
        if self.sent.is_none() {
            self.sent = Some(self.send(batch).await?);
        }
        if self.committer == Committer::Sink {
            self.commit().await?;
        }
        for (row, reason) in self.sent.take().unwrap_or_default() {
            rejects.reject(row, reason);
        }
        Ok(WriteOutcome::Durable)
    }

    fn drop_batch(&mut self) {
        self.session.break_off("a batch has taken another route");
        self.forget();
    }

    async fn flush(&mut self) -> Result<(), Error> {
        Ok(())
    }

    async fn finish(&mut self) -> Result<(), Error> {
        match self.committer {
            Committer::Sink => self.session.close().await,
            // The source still commits what was sent.
            Committer::Source => {}
        }
        Ok(())
    }
}
