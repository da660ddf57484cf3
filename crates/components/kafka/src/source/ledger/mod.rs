//! The offsets that are committed with the open transaction.
//!
//! A sink fills the transaction with what becomes of the messages of this source. The offsets may only be
//! committed with all of that, and nothing else may be in it. So the source ends a transaction while nothing
//! moves: it sends no more, waits until each message that it sent is settled, and commits. A settled message
//! is written into the transaction, filtered, or kept as a dead letter. To let the sink count which messages
//! are settled was rejected: filters, divided batches and rejected messages would each need a part in it, and
//! the acks of the engine count all of these already.
//!
//! Each error breaks the transaction off. Then records that were read are dropped, until the source reads
//! again from the committed offsets. The next transactions have fewer records: if the reason comes again, as
//! a record that the broker refuses or a transform that takes long for each message, it concerns fewer of
//! them each time, and the others are committed. So there is progress that a restart keeps.
//!
//! See docs/decisions/093-offsets-are-committed-in-transactions.md.

mod committed;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use thalweg_engine::{Error, SourceOutput};

use super::gone::Gone;
use crate::client::{Connector, Generation, Incoming, Partition, TopicId};
use crate::session::Session;
use committed::Committed;

/// A transaction ends when it has this many records or bytes.
const MOST_RECORDS: usize = 200_000;
const MOST_BYTES: usize = 64 << 20;
/// How much longer than its commit a transaction lasts.
const SHARE: u32 = 4;
/// The part of the records of an aborted transaction that the next one may have.
const NARROWED: usize = 4;
/// How often the source looks whether all is settled.
const LOOK: Duration = Duration::from_millis(1);
/// How long messages of a broken transaction may stay in the run. They are dropped where they would be
/// written, so only a component that never gives them back keeps them for long.
const STUCK: Duration = Duration::from_secs(180);

/// The open transaction, from the side of the source.
pub(super) struct Ledger<C: Connector> {
    session: Arc<Session<C>>,
    /// Only for what is settled: its routes are ended.
    output: SourceOutput,
    /// Locked while records are sent, and while the transaction is ended.
    owed: tokio::sync::Mutex<Owed>,
    gone: Mutex<Gone>,
    /// The membership, as it was during a whole poll.
    generation: Mutex<Option<Generation>>,
    /// The offsets that were committed.
    committed: Mutex<Committed>,
    /// A failure after which no transaction can be committed.
    fatal: Mutex<Option<Error>>,
    /// A transaction ends when it has this many records.
    most: AtomicUsize,
}

/// The records that were sent since the last commit.
#[derive(Default)]
pub(super) struct Owed {
    /// The offset after the last record that was sent, of each partition.
    offsets: BTreeMap<Partition, i64>,
    /// When the first record was sent. None if nothing was.
    begun: Option<Instant>,
    records: usize,
    bytes: usize,
    /// How long the last commit took.
    commit: Duration,
}

impl Owed {
    /// Notes records of one partition that are about to be sent.
    pub(super) fn note(&mut self, records: &[Incoming]) {
        let Some(last) = records.last() else { return };
        let sizes = records.iter().map(|record| record.value.as_ref().map_or(0, |value| value.len()));
        self.begun.get_or_insert_with(Instant::now);
        self.offsets.insert(last.partition.clone(), last.offset + 1);
        self.records += records.len();
        self.bytes += sizes.sum::<usize>();
    }

    /// Takes what was sent. The next records are of another transaction.
    fn take(&mut self) -> Self {
        let next = Self { commit: self.commit, ..Self::default() };
        std::mem::replace(self, next)
    }
}

impl<C: Connector> Ledger<C> {
    pub(super) fn new(session: Arc<Session<C>>, output: &SourceOutput) -> Self {
        let mut output = output.clone();
        output.end();
        // Before a slow transform, it grows as far as its messages pass in time.
        let most = if output.batch_rows().is_some() { 1 } else { MOST_RECORDS };
        Self {
            session,
            output,
            owed: tokio::sync::Mutex::default(),
            gone: Mutex::default(),
            generation: Mutex::default(),
            committed: Mutex::default(),
            fatal: Mutex::default(),
            most: AtomicUsize::new(most),
        }
    }

    /// Returns the number of events so far, to be noted with records that were just read.
    pub(super) fn count(&self) -> u64 {
        self.gone.lock().count()
    }

    /// The most records that a batch should have: a transaction ends when it has as many.
    pub(super) fn most_records(&self) -> usize {
        self.most.load(Relaxed)
    }

    /// Notes the membership. It must have been the same before and after a poll, which has then said
    /// everything that was lost before.
    ///
    /// Breaks the transaction off if it is another member than before. Its partitions may have been those of
    /// others in between, without a word of the client: if it was forgotten in the middle of a cooperative
    /// rebalance, for example, it joins again and keeps them.
    pub(super) fn set_generation(&self, generation: Option<Generation>) {
        let mut known = self.generation.lock();
        let member = generation.as_ref().map(|generation| &generation.member);
        if known.as_ref().is_some_and(|known| Some(&known.member) != member) {
            // Before a commit can see the new one.
            self.break_off("the broker does not know the member any more");
        }
        *known = generation;
    }

    /// True if the member is of its group, as far as it knows.
    pub(super) fn is_member(&self) -> bool {
        self.generation.lock().is_some()
    }

    /// True if messages of the source failed, and the run ends.
    pub(super) fn has_failed(&self) -> bool {
        self.output.has_failed()
    }

    /// True if records must be read again.
    pub(super) fn is_broken(&self) -> bool {
        self.session.is_broken()
    }

    /// Breaks the transaction off.
    pub(super) fn break_off(&self, reason: &str) {
        self.session.break_off(reason);
    }

    /// True if offsets of a partition were committed, and not of a former topic.
    pub(super) fn has_committed(&self, partition: &Partition) -> bool {
        self.committed.lock().has(partition)
    }

    /// Notes the topic of a partition that was assigned, if its id is known.
    pub(super) fn set_topic(&self, partition: &Partition, topic: Option<&TopicId>) {
        self.committed.lock().set_topic(partition, topic);
    }

    /// True if this run has committed this offset of a partition, of another topic with the same name.
    pub(super) fn is_of_former_topic(
        &self,
        partition: &Partition,
        offset: i64,
        topic: Option<&TopicId>,
    ) -> bool {
        self.committed.lock().is_of_former(partition, offset, topic)
    }

    /// Returns why the transaction is broken.
    pub(super) fn reason(&self) -> String {
        self.session.broken().unwrap_or_default()
    }

    /// Returns the failure after which the source must end.
    pub(super) fn take_fatal(&self) -> Option<Error> {
        self.fatal.lock().take()
    }

    /// Locks the transaction, to send records of a partition that were read when `count` events had been.
    /// None if they must be dropped: they are read again, by this member or another.
    pub(super) async fn admit(
        &self,
        partition: &Partition,
        count: u64,
    ) -> Option<tokio::sync::MutexGuard<'_, Owed>> {
        let owed = self.owed.lock().await;
        let is_gone = self.gone.lock().has_since(partition, count);
        (!is_gone && !self.is_broken()).then_some(owed)
    }

    /// Returns when the transaction is to be ended. None if there is none.
    pub(super) async fn due(&self) -> Option<Instant> {
        let owed = self.owed.lock().await;
        self.end_of(&owed)
    }

    fn end_of(&self, owed: &Owed) -> Option<Instant> {
        let settings = self.session.settings();
        let longest = settings.timeout / 4;
        let lasts = settings.interval.max((owed.commit * SHARE).min(longest));
        owed.begun.map(|begun| begun + lasts)
    }

    /// Ends the transaction if it is large or old enough.
    pub(super) async fn end_if_due(&self, owed: &mut Owed) {
        let is_large = owed.records >= self.most_records() || owed.bytes >= MOST_BYTES;
        if is_large || self.end_of(owed).is_some_and(|end| end <= Instant::now()) {
            self.end(owed).await;
        }
    }

    /// Ends the transaction, if there is one.
    pub(super) async fn end_now(&self) {
        let mut owed = self.owed.lock().await;
        self.end(&mut owed).await;
    }

    /// Waits until all is settled, and commits. If that fails, the transaction is broken off.
    async fn end(&self, owed: &mut Owed) {
        let Some(begun) = owed.begun else { return };
        let started = Instant::now();
        let is_settled = self.settle(begun + self.session.settings().timeout).await;
        let committed = self.commit(&owed.offsets, is_settled).await;
        let sent = owed.take();
        match committed {
            Ok(()) => {
                owed.commit = started.elapsed();
                self.widen(begun.elapsed());
                self.committed.lock().add(sent.offsets);
            }
            Err(reason) => {
                self.break_off(&reason);
                self.withdraw(&sent);
            }
        }
    }

    /// Commits what is settled.
    ///
    /// # Errors
    /// The reason why it must be sent again.
    async fn commit(&self, offsets: &BTreeMap<Partition, i64>, is_settled: bool) -> Result<(), String> {
        if self.is_broken() {
            return Err(self.reason());
        }
        if self.output.has_failed() {
            // The run ends, and says why.
            return Err("messages failed".to_owned());
        }
        if !is_settled {
            return Err(format!(
                "{} messages were not delivered within `transaction_timeout` ({} s)",
                self.output.unsettled(),
                self.session.settings().timeout.as_secs_f64()
            ));
        }
        let Some(generation) = self.generation.lock().clone() else {
            return Err("the member is not of its group any more".to_owned());
        };
        self.session.commit(offsets, Some(&generation)).await.map_err(|error| {
            let error = error.error();
            let reason = error.full();
            if !error.kind().is_temporary() {
                self.fatal.lock().get_or_insert(error);
            }
            reason
        })
    }

    /// Notes that what was sent is sent again. The limit of the run does not count it twice, and the next
    /// transactions are smaller.
    fn withdraw(&self, sent: &Owed) {
        if sent.records > 0 {
            self.output.give_back(sent.records);
            self.most.store((sent.records / NARROWED).max(1), Relaxed);
        }
    }

    /// Lets the next transaction have twice as many records, if one that lasts twice as long ends in time.
    fn widen(&self, lasted: Duration) {
        if lasted <= self.session.settings().timeout / 4 {
            self.most.store((self.most_records() * 2).min(MOST_RECORDS), Relaxed);
        }
    }

    /// Waits until all that was sent is settled, or the transaction is broken. False at the deadline.
    async fn settle(&self, deadline: Instant) -> bool {
        while self.output.unsettled() > 0 && !self.is_broken() {
            if Instant::now() >= deadline {
                return false;
            }
            tokio::time::sleep(LOOK).await;
        }
        true
    }

    /// Gives up partitions: commits what was sent of them, or else leaves it to the next member that reads
    /// them. Waits for that no longer than `wait`.
    pub(super) async fn release(&self, partitions: &[Partition], wait: Duration) {
        // First: what is sent of them after the commit would be committed with the next membership.
        self.forget(partitions);
        match tokio::time::timeout(wait, self.end_now()).await {
            Ok(()) => {}
            Err(_) => self.break_off("partitions were taken away before their messages were delivered"),
        }
    }

    /// Notes that partitions were lost: another member may read them.
    pub(super) fn lose(&self, partitions: &[Partition]) {
        if !partitions.is_empty() {
            self.break_off("the member was taken for dead, and its partitions were given to others");
            self.forget(partitions);
        }
    }

    /// Notes that all records of these partitions that were read so far must be dropped.
    pub(super) fn forget(&self, partitions: &[Partition]) {
        self.gone.lock().add(partitions);
    }

    /// After a transaction was broken off: waits until nothing of it is left in the run, and ends it at the
    /// broker. Then the committed offsets say from where to read.
    pub(super) async fn renew(self: Arc<Self>) -> Result<(), Error> {
        // The last batch has been sent.
        let sent = self.owed.lock().await.take();
        self.withdraw(&sent);
        let begun = Instant::now();
        while self.output.unsettled() > 0 {
            if begun.elapsed() >= STUCK {
                return Err(Error::permanent(format!(
                    "{} messages of an aborted transaction are still held by a component after {} s",
                    self.output.unsettled(),
                    STUCK.as_secs()
                )));
            }
            tokio::time::sleep(LOOK).await;
        }
        self.session.renew().await.map_err(|failure| failure.error("no transaction can be begun"))
    }

    /// Notes that nothing is left of the broken transaction, here or at the broker.
    pub(super) fn mend(&self) {
        self.session.mend();
    }

    /// Aborts what is not committed, and closes the producer.
    pub(super) async fn close(&self) {
        self.session.close().await;
    }
}
