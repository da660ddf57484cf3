//! The partitions that this member of the group reads, and how far they are settled.

mod placing;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use parking_lot::Mutex;
use thalweg_engine::SourceOutput;

use super::Start;
use super::gone::Gone;
use super::ledger::Ledger;
use crate::client::rust::RustConnector;
use crate::client::{Changes, Consumer, Failure, Incoming, Partition, Place, TopicId};

/// How often a member that gives up partitions looks whether their records are settled.
const LOOK: Duration = Duration::from_millis(20);

/// The partitions of a member, over all its connections.
pub(super) struct Membership {
    /// Only for positions: its routes are ended.
    positions: SourceOutput,
    /// Where to begin in a partition without an offset.
    start: Start,
    /// How long records on their way are waited for when their partition is taken away.
    wait: Duration,
    /// If offsets are committed in the transactions of a sink. Nothing else commits them then, and nothing
    /// else says where to begin: a position of this run may be that of an aborted transaction.
    ledger: Option<Arc<Ledger<RustConnector>>>,
    state: Mutex<State>,
    /// Why it is not known where to begin in partitions that were assigned.
    unplaced: Mutex<Option<Failure>>,
    /// True from the first assignment of a connection on, which may be one of no partitions.
    has_begun: AtomicBool,
    /// True while the member leaves the group: what could be waited for was.
    is_ending: AtomicBool,
}

#[derive(Default)]
struct State {
    /// The offset that the group has committed, of each partition that the member reads.
    owned: BTreeMap<Partition, Option<i64>>,
    /// The offset after the last record that was sent, also of partitions that others read now: if such a
    /// partition comes back, its records on their way must not be read again. Unused with a ledger.
    passed: BTreeMap<Partition, i64>,
    /// The offset of the first record that was read since the partition was assigned.
    first: BTreeMap<Partition, i64>,
    /// The offset of the first record that was ever read. It may be given up before it is sent.
    begun: BTreeMap<Partition, i64>,
    /// The offsets up to which records of former logs may be settled, if nothing of the present log is yet.
    foreign: BTreeMap<Partition, RangeInclusive<i64>>,
    /// The topics of the partitions when they were last assigned, if brokers tell their ids.
    topics: BTreeMap<Partition, TopicId>,
    /// The partitions that were given up. Unused with a ledger, which has its own.
    gone: Gone,
}

impl State {
    fn give_up(&mut self, partitions: &[Partition]) {
        self.owned.retain(|partition, _| !partitions.contains(partition));
        self.first.retain(|partition, _| !partitions.contains(partition));
    }

    /// Returns a saved place, unless it is one of a former log. If the id of a topic is not known, the
    /// offsets of the former log tell.
    fn of_present_log(&self, partition: &Partition, saved: Place) -> Option<Place> {
        let is_present = match (self.topics.get(partition), &saved.topic) {
            (Some(now), Some(then)) => now == then,
            _ => !self.foreign.get(partition).is_some_and(|former| former.contains(&saved.offset)),
        };
        is_present.then_some(saved)
    }
}

impl Membership {
    pub(super) fn new(
        out: &SourceOutput,
        start: Start,
        wait: Duration,
        ledger: Option<Arc<Ledger<RustConnector>>>,
    ) -> Self {
        let mut positions = out.clone();
        positions.end();
        Self {
            positions,
            start,
            wait,
            ledger,
            state: Mutex::default(),
            unplaced: Mutex::default(),
            has_begun: AtomicBool::new(false),
            is_ending: AtomicBool::new(false),
        }
    }

    /// Begins with a new connection, which has no partitions yet.
    pub(super) fn begin(&self) {
        self.is_ending.store(false, Relaxed);
        self.has_begun.store(false, Relaxed);
        *self.unplaced.lock() = None;
        let mut state = self.state.lock();
        state.owned.clear();
        state.first.clear();
    }

    pub(super) fn ledger(&self) -> Option<&Arc<Ledger<RustConnector>>> {
        self.ledger.as_ref()
    }

    /// Ends a connection: what its partitions still owe is not waited for.
    pub(super) fn end(&self) {
        self.is_ending.store(true, Relaxed);
    }

    /// Returns why it is not known where to begin in partitions that were assigned, if that is so. Nothing
    /// that was read may be passed on then.
    pub(super) fn take_unplaced(&self) -> Option<Failure> {
        self.unplaced.lock().take()
    }

    /// True if the broker has said which partitions the member reads.
    pub(super) fn has_begun(&self) -> bool {
        self.has_begun.load(Relaxed)
    }

    /// True if the member reads at least one partition.
    pub(super) fn has_partitions(&self) -> bool {
        !self.state.lock().owned.is_empty()
    }

    /// Notes records that were read. Returns the number of changes of partitions until then, by which
    /// [`admit`](Self::admit) and the ledger know whether they may be sent.
    pub(super) fn note(&self, records: &[Incoming]) -> u64 {
        let mut state = self.state.lock();
        for run in records.chunk_by(|a, b| a.partition == b.partition) {
            if let [first, ..] = run {
                state.first.entry(first.partition.clone()).or_insert(first.offset);
                state.begun.entry(first.partition.clone()).or_insert(first.offset);
            }
        }
        match &self.ledger {
            Some(ledger) => ledger.count(),
            None => state.gone.count(),
        }
    }

    /// Notes records of one partition that are about to be sent, and that were read when there had been
    /// `changes` changes. False if they must be dropped: their partition was given up since then.
    pub(super) fn admit(&self, records: &[Incoming], changes: u64) -> bool {
        let Some(last) = records.last() else { return false };
        let mut state = self.state.lock();
        if state.gone.has_since(&last.partition, changes) {
            return false;
        }
        state.passed.insert(last.partition.clone(), last.offset + 1);
        true
    }

    /// Returns the offset before which all records of a partition are settled, and covered by a checkpoint if
    /// checkpoints are saved. None if none of its present log is.
    fn settled_in(&self, partition: &Partition) -> Option<Place> {
        let settled = self.committed_in(partition)?;
        let mut state = self.state.lock();
        let present = state.of_present_log(partition, settled);
        if present.is_some() {
            // Offsets of the former log do not come after one of the present log.
            state.foreign.remove(partition);
        }
        present
    }

    /// Returns a place in a partition that is read.
    pub(super) fn place_of(&self, partition: &Partition, offset: i64) -> Place {
        Place { offset, topic: self.state.lock().topics.get(partition).cloned() }
    }

    /// Returns the name of the sequence of a partition's offsets. A topic that was created again has others.
    pub(super) fn sequence(&self, partition: &Partition) -> Arc<str> {
        match self.state.lock().topics.get(partition) {
            Some(topic) => format!("{} {topic}", partition.name()).into(),
            None => partition.name().into(),
        }
    }

    /// Returns these places for the partitions that the member reads.
    pub(super) fn settled(&self) -> BTreeMap<Partition, Place> {
        let owned: Vec<Partition> = self.state.lock().owned.keys().cloned().collect();
        owned.into_iter().filter_map(|known| Some((known.clone(), self.settled_in(&known)?))).collect()
    }

    /// True if all records are settled that were sent of the partitions that the member reads.
    pub(super) fn is_settled(&self) -> bool {
        let owned: Vec<Partition> = self.state.lock().owned.keys().cloned().collect();
        self.are_settled(&owned)
    }

    fn are_settled(&self, partitions: &[Partition]) -> bool {
        let passed = self.state.lock().passed.clone();
        partitions.iter().all(|partition| match passed.get(partition) {
            Some(passed) => self.settled_in(partition).is_some_and(|settled| settled.offset >= *passed),
            None => true,
        })
    }

    /// Commits what is settled. If that fails, a later call commits it.
    pub(super) async fn commit(&self, consumer: &dyn Consumer) {
        if self.ledger.is_some() {
            return;
        }
        let settled = self.settled();
        let due: BTreeMap<Partition, Place> = {
            let state = self.state.lock();
            let is_new = |(partition, place): &(Partition, Place)| match state.owned.get(partition) {
                Some(committed) => committed.is_none_or(|committed| committed < place.offset),
                None => false,
            };
            settled.into_iter().filter(is_new).collect()
        };
        if due.is_empty() {
            return;
        }
        match consumer.commit(&due).await {
            Ok(()) => {
                let mut state = self.state.lock();
                for (partition, place) in due {
                    if let Some(committed) = state.owned.get_mut(&partition) {
                        *committed = Some(place.offset);
                    }
                }
            }
            Err(failure) => tracing::warn!(
                "`{}`: offsets cannot be committed yet: {}",
                self.positions.name(),
                failure.reason()
            ),
        }
    }

    /// Continues all partitions where the group is, after a transaction was aborted.
    pub(super) async fn rewind(&self, consumer: &dyn Consumer) -> Result<(), Failure> {
        let owned: Vec<Partition> = self.state.lock().owned.keys().cloned().collect();
        let mut committed = consumer.committed(&owned).await;
        while matches!(committed, Err(Failure::Temporary(_))) && !self.positions.is_stopping() {
            tokio::time::sleep(LOOK * 10).await;
            committed = consumer.committed(&owned).await;
        }
        let committed = committed?;
        for partition in &owned {
            let (first, known, topic) = {
                let state = self.state.lock();
                let is_known = state.owned.get(partition).copied().flatten().is_some();
                (state.first.get(partition).copied(), is_known, state.topics.get(partition).cloned())
            };
            let known = known || self.ledger.as_ref().is_some_and(|ledger| ledger.has_committed(partition));
            let is_former = |offset: i64| self.is_of_former_topic(partition, offset, topic.as_ref());
            let offset = match committed.get(partition).filter(|offset| !is_former(**offset)) {
                Some(offset) => Some(*offset),
                // The client leaves partitions out for which the broker has an error.
                None if known => {
                    let name = partition.name();
                    return Err(Failure::Temporary(format!("the offset of `{name}` is missing")));
                }
                None => first,
            };
            // Of a partition without either, nothing was read.
            if let Some(offset) = offset {
                consumer.seek(partition, offset).await?;
            }
        }
        if let Some(ledger) = &self.ledger {
            ledger.forget(&owned);
        }
        Ok(())
    }
}

#[async_trait]
impl Changes for Arc<Membership> {
    async fn assigned(&self, consumer: &dyn Consumer, partitions: Vec<Partition>) {
        self.has_begun.store(true, Relaxed);
        if partitions.is_empty() {
            return;
        }
        let mut committed = consumer.committed(&partitions).await;
        // Without an answer, records could be read again that were read already.
        while matches!(committed, Err(Failure::Temporary(_))) && !self.positions.is_stopping() {
            tokio::time::sleep(LOOK * 10).await;
            committed = consumer.committed(&partitions).await;
        }
        let committed = match committed {
            Ok(committed) => committed,
            // Not as if the group had committed nothing: it would begin at `start` again.
            Err(failure) => {
                self.unplaced.lock().get_or_insert(failure);
                return;
            }
        };
        let topics = self.topic_ids(consumer, &partitions).await;
        for partition in partitions {
            let (committed, topic) = (committed.get(&partition).copied(), topics.get(&partition.topic));
            let committed = match self.place(consumer, &partition, committed, topic).await {
                Ok(committed) => committed,
                Err(failure) => {
                    self.unplaced.lock().get_or_insert(failure);
                    return;
                }
            };
            if let Some(ledger) = &self.ledger {
                ledger.set_topic(&partition, topic);
            }
            let mut state = self.state.lock();
            match topic {
                Some(topic) => state.topics.insert(partition.clone(), topic.clone()),
                None => state.topics.remove(&partition),
            };
            state.owned.insert(partition, committed);
        }
    }

    async fn revoked(&self, consumer: &dyn Consumer, partitions: Vec<Partition>) {
        if let Some(ledger) = &self.ledger {
            let wait = if self.is_ending.load(Relaxed) { Duration::ZERO } else { self.wait };
            ledger.release(&partitions, wait).await;
            self.state.lock().give_up(&partitions);
            return;
        }
        // First: what is sent of them after this is not waited for.
        self.state.lock().gone.add(&partitions);
        let begun = Instant::now();
        while !self.is_ending.load(Relaxed) && !self.are_settled(&partitions) && begun.elapsed() < self.wait {
            self.positions.save_soon();
            tokio::time::sleep(LOOK).await;
        }
        self.commit(consumer).await;
        self.state.lock().give_up(&partitions);
    }

    async fn lost(&self, partitions: Vec<Partition>) {
        match &self.ledger {
            Some(ledger) => ledger.lose(&partitions),
            None if partitions.is_empty() || self.is_ending.load(Relaxed) => {}
            None => tracing::warn!(
                "`{}`: the broker took the member for dead and gave its partitions to others, which read again \
                 what was not committed",
                self.positions.name()
            ),
        }
        let mut state = self.state.lock();
        state.gone.add(&partitions);
        state.give_up(&partitions);
    }
}
