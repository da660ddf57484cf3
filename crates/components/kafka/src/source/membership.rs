//! The partitions that this member of the group reads, and how far they are settled.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use parking_lot::Mutex;
use serde_json::Value;
use thalweg_engine::SourceOutput;

use super::gone::Gone;
use super::ledger::Ledger;
use crate::client::rust::RustConnector;
use crate::client::{Changes, Consumer, Failure, Incoming, Partition};

/// How often a member that gives up partitions looks whether their records are settled.
const LOOK: Duration = Duration::from_millis(20);

/// The partitions of a member, over all its connections.
pub(super) struct Membership {
    /// Only for positions: its routes are ended.
    positions: SourceOutput,
    /// Where to begin in a partition without an offset, in milliseconds since 1970.
    start: Option<i64>,
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
    /// The partitions that were given up. Unused with a ledger, which has its own.
    gone: Gone,
}

impl State {
    fn give_up(&mut self, partitions: &[Partition]) {
        self.owned.retain(|partition, _| !partitions.contains(partition));
        self.first.retain(|partition, _| !partitions.contains(partition));
    }

    /// Returns a saved offset, unless it is one of a former log.
    fn of_present_log(&self, partition: &Partition, offset: i64) -> Option<i64> {
        let is_foreign = self.foreign.get(partition).is_some_and(|former| former.contains(&offset));
        (!is_foreign).then_some(offset)
    }
}

impl Membership {
    pub(super) fn new(
        out: &SourceOutput,
        start: Option<i64>,
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
    fn settled_in(&self, partition: &Partition) -> Option<i64> {
        let settled = self.committed_in(partition)?;
        let mut state = self.state.lock();
        let present = state.of_present_log(partition, settled);
        if present.is_some() {
            // Offsets of the former log do not come after one of the present log.
            state.foreign.remove(partition);
        }
        present
    }

    /// Returns these offsets for the partitions that the member reads.
    pub(super) fn settled(&self) -> BTreeMap<Partition, i64> {
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
            Some(passed) => self.settled_in(partition).is_some_and(|settled| settled >= *passed),
            None => true,
        })
    }

    /// Commits what is settled. If that fails, a later call commits it.
    pub(super) async fn commit(&self, consumer: &dyn Consumer) {
        if self.ledger.is_some() {
            return;
        }
        let settled = self.settled();
        let due: BTreeMap<Partition, i64> = {
            let state = self.state.lock();
            let is_new = |(partition, offset): &(Partition, i64)| match state.owned.get(partition) {
                Some(committed) => committed.is_none_or(|committed| committed < *offset),
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
                for (partition, offset) in due {
                    if let Some(committed) = state.owned.get_mut(&partition) {
                        *committed = Some(offset);
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
            let (first, known) = {
                let state = self.state.lock();
                let is_known = state.owned.get(partition).copied().flatten().is_some();
                (state.first.get(partition).copied(), is_known)
            };
            let known = known || self.ledger.as_ref().is_some_and(|ledger| ledger.has_committed(partition));
            let offset = match committed.get(partition) {
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

    fn saved_in(&self, partition: &Partition) -> Option<i64> {
        self.positions.saved(&partition.name()).as_ref().and_then(Value::as_i64)
    }

    fn committed_in(&self, partition: &Partition) -> Option<i64> {
        self.positions.committed(&partition.name()).as_ref().and_then(Value::as_i64)
    }

    /// Forgets where this run would continue a partition: it is the place in another log. Records of that log
    /// may still be on their way.
    fn disown(&self, partition: &Partition) {
        let (saved, committed) = (self.saved_in(partition), self.committed_in(partition));
        let mut state = self.state.lock();
        let (passed, begun) = (state.passed.remove(partition), state.begun.remove(partition));
        let first = saved.into_iter().chain(committed).min().or(begun);
        if let (Some(first), Some(last)) = (first, saved.max(passed)) {
            state.foreign.insert(partition.clone(), first..=last);
        }
    }

    /// Returns where this run continues a partition, if it knows: behind what it sent. Not with a ledger.
    fn known(&self, partition: &Partition) -> Option<i64> {
        if self.ledger.is_some() {
            return None;
        }
        let saved = self.saved_in(partition);
        let state = self.state.lock();
        let saved = saved.and_then(|saved| state.of_present_log(partition, saved));
        let sent = saved.max(state.passed.get(partition).copied());
        // With `start: latest`, records that were read and not sent would be left out.
        sent.or_else(|| state.begun.get(partition).copied())
    }

    /// Returns where this run continues a partition, and the offset that the group committed, as far as the
    /// partition's log has these offsets. It has not if records were deleted, or the topic was made again.
    async fn places(
        &self,
        consumer: &dyn Consumer,
        partition: &Partition,
        committed: Option<i64>,
    ) -> (Option<i64>, Option<i64>) {
        let known = self.known(partition);
        let Some(offset) = known.filter(|known| committed.is_none_or(|committed| committed <= *known)) else {
            return (known, committed);
        };
        let Ok((first, end)) = consumer.bounds(partition).await else { return (known, committed) };
        if (first..=end).contains(&offset) {
            return (known, committed);
        }
        let committed = committed.filter(|committed| (first..=end).contains(committed));
        let (name, shown) = (self.positions.name(), partition.name());
        if offset < first {
            tracing::warn!(
                "`{name}`: the records {offset} to {} of the partition `{shown}` were deleted before they were read",
                first - 1
            );
            return (Some(first), committed);
        }
        tracing::warn!(
            "`{name}`: the partition `{shown}` has the offsets {first} to {end}, but {offset} is saved: its topic was \
             made again. It is read from where the group is, or else from its first record, or from the time that \
             `start` has"
        );
        self.disown(partition);
        // Nothing of the new log was read. `start: latest` would leave out what is in it.
        (self.start.is_none().then_some(first), committed)
    }

    /// Continues a new partition where it is to be continued. Returns the offset that the group committed, if
    /// it is one of the partition's log.
    async fn place(
        &self,
        consumer: &dyn Consumer,
        partition: &Partition,
        committed: Option<i64>,
    ) -> Option<i64> {
        let (known, committed) = self.places(consumer, partition, committed).await;
        let sought = match (known, committed, self.start) {
            (Some(known), committed, _) if committed.is_none_or(|committed| committed < known) => {
                consumer.seek(partition, known).await
            }
            (None, None, Some(time)) => consumer.seek_to_time(partition, time).await,
            // The client continues where the group is, or as its own option says.
            _ => Ok(()),
        };
        if let Err(failure) = sought {
            let (name, partition) = (self.positions.name(), partition.name());
            tracing::warn!("`{name}`: no place in the partition `{partition}`: {}", failure.reason());
        }
        committed
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
        for partition in partitions {
            let committed = committed.get(&partition).copied();
            let committed = self.place(consumer, &partition, committed).await;
            self.state.lock().owned.insert(partition, committed);
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
        if let Some(ledger) = &self.ledger {
            ledger.lose(&partitions);
        }
        let mut state = self.state.lock();
        state.gone.add(&partitions);
        state.give_up(&partitions);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::tests::{Idle, lent_output};

    #[tokio::test]
    async fn a_partition_that_comes_back_is_continued_behind_what_was_sent_of_it() {
        let (out, _source) = lent_output().await;
        let partition = Partition { topic: "t".into(), number: 0 };
        let record = |offset: i64| {
            let partition = partition.clone();
            Incoming { partition, offset, timestamp: 0, key: None, value: None, headers: Vec::new() }
        };
        let membership = Arc::new(Membership::new(&out, None, Duration::ZERO, None));
        let consumer = Idle::default();
        membership.assigned(&consumer, vec![partition.clone()]).await;
        let read = [record(5), record(6)];
        for sent in [0, 1] {
            let changes = membership.note(&read);
            assert_eq!(membership.admit(&read[..sent], changes), sent > 0);
            membership.revoked(&consumer, vec![partition.clone()]).await;
            assert!(!membership.admit(&read, changes));
            membership.assigned(&consumer, vec![partition.clone()]).await;
        }
        assert_eq!(*consumer.places.lock(), [5, 6]);
    }

    #[tokio::test]
    async fn an_offset_behind_the_end_of_the_log_is_not_continued() {
        let (out, _source) = lent_output().await;
        let partition = Partition { topic: "t".into(), number: 0 };
        let record = Incoming {
            partition: partition.clone(),
            offset: 6,
            timestamp: 0,
            key: None,
            value: None,
            headers: Vec::new(),
        };
        for (start, first, end, sought, places) in [
            (Some(9), 0, 6, vec![9], vec![]),
            (None, 2, 6, vec![], vec![2]),
            (Some(9), 0, 7, vec![], vec![7]),
            // The first records of the log were deleted.
            (Some(9), 8, 20, vec![], vec![8]),
        ] {
            let membership = Arc::new(Membership::new(&out, start, Duration::ZERO, None));
            let read = [record.clone()];
            membership.assigned(&Idle::default(), vec![partition.clone()]).await;
            assert!(membership.admit(&read, membership.note(&read)));
            membership.revoked(&Idle::default(), vec![partition.clone()]).await;
            let consumer = Idle { first, end: Some(end), ..Idle::default() };
            membership.assigned(&consumer, vec![partition.clone()]).await;
            assert_eq!((&*consumer.sought.lock(), &*consumer.places.lock()), (&sought, &places));
        }
    }

    #[tokio::test]
    async fn a_partition_begins_at_start_only_if_the_group_is_known_to_have_committed_nothing() {
        let (out, _source) = lent_output().await;
        let partition = Partition { topic: "t".into(), number: 0 };
        let lost = || Failure::Lost("the member is unknown".to_owned());
        let failing = Idle { failure: Some(lost), ..Idle::default() };
        for (consumer, sought) in [(failing, vec![]), (Idle::default(), vec![7])] {
            let membership = Arc::new(Membership::new(&out, Some(7), Duration::ZERO, None));
            membership.assigned(&consumer, vec![partition.clone()]).await;
            assert_eq!(*consumer.sought.lock(), sought);
            assert_eq!(membership.has_partitions(), membership.take_unplaced().is_none());
        }
    }
}
