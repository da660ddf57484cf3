//! The positions of a source, moved by settled batches.
//!
//! A source puts a checkpoint on each batch that it sends: "once this batch and all before it in its
//! partition are settled, resume here". A partition is read in order; it is one file, for example. Batches
//! are settled in any order. A partition's position moves only when all batches up to a checkpoint are
//! settled, and never past a failed one.
//!
//! See docs/decisions/018-committed-is-more-than-settled.md and
//! docs/decisions/020-file-readers-checkpoint-within-a-file.md.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use serde_json::Value;
use thalweg_record::{Ack, Outcome, Passage, Settlement};
use tokio::sync::mpsc;

use crate::run::latency::Latency;
use crate::run::traces::Traces;
use crate::{Error, Role, RunFailure};

/// Where a source resumes once everything before it is settled.
#[derive(Debug, Clone)]
pub struct Checkpoint {
    /// The sequence that the source reads in order: a file's identity, for example.
    pub partition: Arc<str>,
    /// The source's own description of its position after this batch.
    pub offset: Value,
}

impl Checkpoint {
    /// Returns an offset in the open file, for file readers: each file is a partition of its own.
    pub fn in_file(offset: Value) -> Self {
        Self { partition: "".into(), offset }
    }
}

/// The positions of one source.
#[derive(Debug)]
pub struct Positions {
    source: Arc<str>,
    role: Role,
    partitions: Mutex<BTreeMap<Arc<str>, Partition>>,
    failures: mpsc::UnboundedSender<RunFailure>,
    /// True if positions are saved, so that a later run resumes at the last save.
    keeps: AtomicBool,
    /// True if positions are not saved, so that nothing takes their changes.
    is_unsaved: AtomicBool,
    /// True in a dry run: no position moves, so nothing is removed at its origin or acknowledged.
    is_frozen: AtomicBool,
    /// The messages or files in batches that are not settled.
    unsettled: AtomicU64,
    /// Those in batches that were settled.
    settled: AtomicU64,
    /// True if a batch failed.
    has_failed: AtomicBool,
    /// True if batches that fail are no failure of the run: see [`leave`](Self::leave).
    is_left: AtomicBool,
    /// Held by the source and by each of its batches that is not settled.
    guard: Mutex<Option<LiveGuard>>,
    /// Measures the time until batches are settled, and traces some of them.
    measures: OnceLock<Measures>,
}

/// The measurements of the batches of a source.
#[derive(Debug)]
struct Measures {
    latency: Arc<Latency>,
    traces: Arc<Traces>,
}

/// Keeps its receiver waiting: the receiver ends when the last guard is dropped.
pub(crate) type LiveGuard = mpsc::Sender<Never>;

/// The message type of a channel that never carries one.
#[derive(Debug)]
pub(crate) enum Never {}

#[derive(Debug, Default)]
struct Partition {
    /// The number of the first batch in `sent`.
    first: u64,
    /// The batches that are not settled, or wait for an earlier one.
    sent: VecDeque<Sent>,
    /// The offset before which all is settled.
    settled: Option<Value>,
    /// The offset of the last saved checkpoint: a restarted run resumes here.
    stored: Option<Value>,
    /// True if a batch failed: the position no longer moves.
    stuck: bool,
    changed: bool,
}

/// A batch of a partition.
#[derive(Debug, Default)]
struct Sent {
    /// Where to resume after it. None if it only holds the position back.
    offset: Option<Value>,
    outcome: Option<Outcome>,
    /// Completed when the position moves past the batch.
    passage: Passage,
}

impl Partition {
    /// Notes how a batch ended, and moves the position as far as it goes. Adds the passages of the batches
    /// that it moves past.
    fn settle(&mut self, number: u64, outcome: Outcome, passed: &mut Vec<Passage>) {
        let at = number.checked_sub(self.first).and_then(|at| usize::try_from(at).ok());
        if let Some(sent) = at.and_then(|at| self.sent.get_mut(at)) {
            sent.outcome = Some(outcome);
        }
        while let Some(Some(outcome)) = self.sent.front().map(|sent| sent.outcome) {
            self.stuck |= !outcome.is_safe();
            let Some(sent) = self.sent.pop_front() else { break };
            self.first += 1;
            if self.stuck {
                continue;
            }
            if let Some(offset) = sent.offset {
                self.settled = Some(offset);
                self.changed = true;
            }
            passed.push(sent.passage);
        }
    }
}

impl Positions {
    /// Creates the positions of a component, beginning with those that an earlier run saved. `failures`
    /// receives the failures of its batches.
    pub fn new(
        source: Arc<str>,
        role: Role,
        saved: BTreeMap<String, Value>,
        failures: mpsc::UnboundedSender<RunFailure>,
    ) -> Arc<Self> {
        let known = |offset: Value| Partition {
            settled: Some(offset.clone()),
            stored: Some(offset),
            ..Partition::default()
        };
        let partitions = saved.into_iter().map(|(partition, offset)| (partition.into(), known(offset)));
        Arc::new(Self {
            source,
            role,
            partitions: Mutex::new(partitions.collect()),
            failures,
            keeps: AtomicBool::new(false),
            is_unsaved: AtomicBool::new(false),
            is_frozen: AtomicBool::new(false),
            unsettled: AtomicU64::new(0),
            settled: AtomicU64::new(0),
            has_failed: AtomicBool::new(false),
            is_left: AtomicBool::new(false),
            guard: Mutex::default(),
            measures: OnceLock::new(),
        })
    }

    /// Notes that positions are saved: see [`committed`](Self::committed).
    pub(crate) fn keep(&self) {
        self.keeps.store(true, Relaxed);
    }

    /// Notes that positions are not saved: one that is forgotten is gone.
    pub(crate) fn save_none(&self) {
        self.is_unsaved.store(true, Relaxed);
    }

    /// Measures how long batches take until they are settled, and traces those that are chosen.
    pub(crate) fn measure(&self, latency: Arc<Latency>, traces: Arc<Traces>) {
        // A source is wired once.
        let _ = self.measures.set(Measures { latency, traces });
    }

    /// Lets no position move from here on.
    pub(crate) fn freeze(&self) {
        self.is_frozen.store(true, Relaxed);
    }

    pub(crate) fn is_frozen(&self) -> bool {
        self.is_frozen.load(Relaxed)
    }

    /// Notes that batches may be dropped from here on, because the run is stopping: a later run sends them
    /// again, and the run does not fail.
    pub(crate) fn leave(&self) {
        self.is_left.store(true, Relaxed);
    }

    /// Notes that this offset was saved.
    pub(crate) fn note_stored(&self, partition: &str, offset: Option<&Value>) {
        if let Some(partition) = self.partitions.lock().get_mut(partition) {
            partition.stored = offset.cloned();
        }
    }

    /// Returns the committed offset of a partition: input before it is not needed again, even after `kill
    /// -9`. If positions are saved, it is the last saved offset: a run that resumes there truncates what its
    /// sinks wrote since.
    pub fn committed(&self, partition: &str) -> Option<Value> {
        if !self.keeps.load(Relaxed) {
            return self.saved(partition);
        }
        self.partitions.lock().get(partition).and_then(|partition| partition.stored.clone())
    }

    /// Holds `guard` until the source has ended and all that it sent is settled; see
    /// [`drop_guard`](Self::drop_guard).
    pub(crate) fn set_guard(&self, guard: LiveGuard) {
        *self.guard.lock() = Some(guard);
    }

    /// Drops the guard, when the source has ended.
    pub(crate) fn drop_guard(&self) {
        *self.guard.lock() = None;
    }

    /// Returns the offset to resume at in a partition, if it is known.
    pub fn saved(&self, partition: &str) -> Option<Value> {
        self.partitions.lock().get(partition).and_then(|partition| partition.settled.clone())
    }

    /// Returns the known partitions.
    pub fn partitions(&self) -> Vec<Arc<str>> {
        self.partitions.lock().keys().cloned().collect()
    }

    /// Returns the number of messages or files in unsettled batches. A batch counts as a whole until its last
    /// message is settled.
    pub(crate) fn unsettled(&self) -> u64 {
        self.unsettled.load(Acquire)
    }

    /// Returns the number of messages or files in batches that were settled.
    pub(crate) fn settled(&self) -> u64 {
        self.settled.load(Relaxed)
    }

    /// True if nothing was sent that is not settled, and no position moved since
    /// [`take_changes`](Self::take_changes).
    pub(crate) fn is_idle(&self) -> bool {
        let partitions = self.partitions.lock();
        self.unsettled() == 0
            && partitions.values().all(|partition| !partition.changed && partition.sent.is_empty())
    }

    /// For each partition with a batch that is not settled: the number of the first one.
    pub(crate) fn oldest_unsettled(&self) -> Vec<(Arc<str>, u64)> {
        let partitions = self.partitions.lock();
        let waiting = partitions.iter().filter(|(_, partition)| !partition.sent.is_empty());
        waiting.map(|(name, partition)| (name.clone(), partition.first)).collect()
    }

    /// True if the batch with this number is the first one of a partition that is not settled.
    pub(crate) fn is_oldest_unsettled(&self, partition: &str, number: u64) -> bool {
        let partitions = self.partitions.lock();
        let found = partitions.get(partition);
        found.is_some_and(|partition| partition.first == number && !partition.sent.is_empty())
    }

    /// True if a batch failed. Sinks may have its other parts, so their states must not be saved.
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed.load(Relaxed)
    }

    /// Returns the ack of the next batch of a partition, which has `items` messages or files. Without a
    /// checkpoint, the ack only reports a failure of the batch.
    pub fn expect(self: &Arc<Self>, checkpoint: Option<Checkpoint>, items: usize) -> Ack {
        match checkpoint {
            Some(Checkpoint { partition, offset }) => self.expect_in(partition, Some(offset), items).0,
            None => self.ack(items, |_| {}),
        }
    }

    /// As [`expect`](Self::expect), in a partition. Without an offset, the batch only holds the position back
    /// until it is settled. Also returns when the position moves past it.
    pub(crate) fn expect_in(
        self: &Arc<Self>,
        partition: Arc<str>,
        offset: Option<Value>,
        items: usize,
    ) -> (Ack, Passage) {
        let passage = Passage::default();
        let number = {
            let mut partitions = self.partitions.lock();
            let partition = partitions.entry(partition.clone()).or_default();
            partition.sent.push_back(Sent { offset, outcome: None, passage: passage.clone() });
            partition.first + partition.sent.len() as u64 - 1
        };
        let this = self.clone();
        (self.ack(items, move |outcome| this.settle(&partition, number, outcome)), passage)
    }

    /// An ack that counts as unsettled, and calls `settle` with its outcome.
    fn ack(self: &Arc<Self>, items: usize, settle: impl FnOnce(Outcome) + Send + 'static) -> Ack {
        let this = self.clone();
        let guard = self.guard.lock().clone();
        // Without items, it is a checkpoint alone.
        let measures = self.measures.get().filter(|_| items > 0);
        let timing = measures.map(|measures| measures.latency.begin());
        let items = items as u64;
        let trace = measures.and_then(|measures| measures.traces.begin(&self.source, items));
        let traced = trace.clone();
        self.unsettled.fetch_add(items, Relaxed);
        let ack = Ack::new(self.source.clone(), move |settlement| {
            settle(settlement.outcome);
            this.note_settled(&settlement, items);
            if let Some(trace) = traced {
                trace.end(&settlement);
            }
            drop(timing);
            drop(guard);
        });
        match trace {
            Some(trace) => ack.observed(trace),
            None => ack,
        }
    }

    fn note_settled(&self, settlement: &Settlement, items: u64) {
        let has_failed = settlement.outcome == Outcome::Failed;
        if has_failed {
            self.has_failed.store(true, Relaxed);
        }
        self.settled.fetch_add(items, Relaxed);
        // Last, and published: a source that sees nothing unsettled sees the failure.
        self.unsettled.fetch_sub(items, Release);
        if has_failed {
            if self.is_left.load(Relaxed) {
                return;
            }
            let reason = settlement.reason.as_deref().unwrap_or("for a reason that was not given");
            let error = Error::permanent(format!("messages of `{}` failed: {reason}", self.source));
            // The receiver is gone when the run is over.
            let _ = self.failures.send(RunFailure::new(self.source.clone(), self.role, error));
        }
    }

    fn settle(&self, partition: &str, number: u64, outcome: Outcome) {
        let mut passed = Vec::new();
        if let Some(partition) = self.partitions.lock().get_mut(partition) {
            partition.stuck |= self.is_frozen();
            partition.settle(number, outcome, &mut passed);
        }
        // Not under the lock: the positions that are notified may be those of another component, or these.
        passed.iter().for_each(Passage::complete);
    }

    /// Deletes the position of a partition that will never be read again.
    pub fn forget(&self, partition: &str) {
        let mut partitions = self.partitions.lock();
        let Some(known) = partitions.get_mut(partition) else { return };
        known.settled = None;
        known.changed = true;
        // Nothing takes the change, and a source may have a partition for each batch.
        if self.is_unsaved.load(Relaxed) && !known.stuck && known.sent.is_empty() {
            partitions.remove(partition);
        }
    }

    /// Takes the partitions whose position changed since the last call: the offset to resume at, or None if
    /// the position was deleted.
    pub fn take_changes(&self) -> Vec<(Arc<str>, Option<Value>)> {
        let mut partitions = self.partitions.lock();
        let mut changed = Vec::new();
        for (name, partition) in partitions.iter_mut() {
            if std::mem::take(&mut partition.changed) {
                changed.push((name.clone(), partition.settled.clone()));
            }
        }
        // A stuck partition stays: a later batch must not move its position past the failed one.
        partitions.retain(|_, partition| {
            partition.stuck || partition.settled.is_some() || !partition.sent.is_empty()
        });
        changed
    }

    /// Notes that a taken change could not be saved. The next call of [`take_changes`](Self::take_changes)
    /// returns it again, or a later change of that partition.
    pub(crate) fn put_back(&self, partition: &Arc<str>) {
        self.partitions.lock().entry(partition.clone()).or_default().changed = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn committed_is_what_was_saved_where_positions_are_saved() {
        let (failures, _failed) = mpsc::unbounded_channel();
        let positions = Positions::new("s".into(), Role::Source, BTreeMap::new(), failures);
        let checkpoint = || Some(Checkpoint { partition: "l".into(), offset: 1.into() });
        positions.expect(checkpoint(), 1).settle(Outcome::Delivered);
        assert_eq!(positions.committed("l"), Some(1.into()));
        positions.keep();
        assert_eq!(positions.committed("l"), None);
        for (partition, position) in positions.take_changes() {
            positions.note_stored(&partition, position.as_ref());
        }
        assert_eq!(positions.committed("l"), Some(1.into()));
    }

    #[test]
    fn nothing_moves_frozen_positions() {
        let (failures, _failed) = mpsc::unbounded_channel();
        let positions = Positions::new("s".into(), Role::Source, BTreeMap::new(), failures);
        positions.freeze();
        let checkpoint = Checkpoint { partition: "l".into(), offset: 1.into() };
        let (ack, passage) = positions.expect_in(checkpoint.partition, Some(checkpoint.offset), 1);
        let has_passed = Arc::new(AtomicBool::new(false));
        let noted = has_passed.clone();
        passage.then(move || noted.store(true, Relaxed));
        ack.settle(Outcome::Delivered);
        assert_eq!((positions.committed("l"), positions.saved("l")), (None, None));
        assert!(!has_passed.load(Relaxed));
    }

    #[test]
    fn a_stuck_partition_stays_stuck_over_a_save() {
        let (failures, _failed) = mpsc::unbounded_channel();
        let positions = Positions::new("s".into(), Role::Source, BTreeMap::new(), failures);
        let settle = |offset: u64, outcome| {
            let checkpoint = Checkpoint { partition: "l".into(), offset: offset.into() };
            positions.expect(Some(checkpoint), 1).settle(outcome);
        };
        settle(1, Outcome::Failed);
        assert_eq!(positions.take_changes(), []);
        settle(2, Outcome::Delivered);
        assert_eq!((positions.saved("l"), positions.take_changes()), (None, Vec::new()));
    }

    #[test]
    fn a_forgotten_partition_takes_no_memory_whether_positions_are_saved_or_not() {
        for keeps in [false, true] {
            let (failures, _failed) = mpsc::unbounded_channel();
            let positions = Positions::new("s".into(), Role::Source, BTreeMap::new(), failures);
            if !keeps {
                positions.save_none();
            }
            for number in 0..10 {
                let checkpoint = Checkpoint { partition: number.to_string().into(), offset: 1.into() };
                positions.expect(Some(checkpoint), 1).settle(Outcome::Delivered);
                positions.forget(&number.to_string());
            }
            assert_eq!(positions.take_changes().len(), if keeps { 10 } else { 0 });
            assert!(positions.partitions().is_empty());
        }
    }

    #[test]
    fn a_change_that_was_put_back_is_taken_again_in_its_newest_form() {
        let (failures, _failed) = mpsc::unbounded_channel();
        let positions = Positions::new("s".into(), Role::Source, BTreeMap::new(), failures);
        let settle = |offset: u64| {
            let checkpoint = Checkpoint { partition: "l".into(), offset: offset.into() };
            positions.expect(Some(checkpoint), 1).settle(Outcome::Delivered);
        };
        settle(1);
        let [(partition, _)] = &positions.take_changes()[..] else { panic!() };
        positions.put_back(partition);
        assert_eq!(positions.take_changes(), [(partition.clone(), Some(1.into()))]);
        positions.put_back(partition);
        settle(2);
        assert_eq!(positions.take_changes(), [(partition.clone(), Some(2.into()))]);
        positions.forget("l");
        let _ = positions.take_changes();
        positions.put_back(partition);
        assert_eq!(positions.take_changes(), [(partition.clone(), None)]);
    }

    proptest! {
        #[test]
        fn a_partition_moves_to_the_last_checkpoint_before_which_all_is_settled(
            outcomes in prop::collection::vec(0..8u8, 1..40),
            order in any::<u64>(),
        ) {
            let (failures, mut failed) = mpsc::unbounded_channel();
            let positions = Positions::new("s".into(), Role::Source, BTreeMap::new(), failures);
            let mut acks: Vec<_> = (0..outcomes.len())
                .map(|n| (n, positions.expect(Some(Checkpoint { partition: "l".into(), offset: n.into() }), 1)))
                .collect();
            let mut settled = vec![false; outcomes.len()];
            let mut seed = order;
            while !acks.is_empty() {
                seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let (n, ack) = acks.remove((seed >> 33) as usize % acks.len());
                match outcomes[n] {
                    0 => drop(ack),
                    1 => ack.settle(Outcome::Filtered),
                    2 => ack.settle(Outcome::Rejected),
                    _ => ack.settle(Outcome::Delivered),
                }
                settled[n] = true;
                let safe = settled.iter().zip(&outcomes).take_while(|(s, o)| **s && **o != 0).count();
                let expected = safe.checked_sub(1).map(Value::from);
                prop_assert_eq!(positions.saved("l"), expected);
            }
            let failures = std::iter::from_fn(|| failed.try_recv().ok()).count();
            prop_assert_eq!(positions.unsettled(), 0);
            prop_assert_eq!(failures, outcomes.iter().filter(|o| **o == 0).count());
        }
    }
}
