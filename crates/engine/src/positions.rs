//! How far a source has got, counted from what is safe.
//!
//! A source puts a mark on each batch that it sends: "once this and all before it in its lane are safe, begin
//! here". A lane is a sequence that is read in order, such as one file. Batches are settled in any order; a
//! lane's position moves only when all batches up to a mark are settled, and never past one that failed.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use parking_lot::Mutex;
use serde_json::Value;
use thalweg_record::{Ack, Outcome, Settlement};
use tokio::sync::mpsc;

use crate::{Error, Role, RunFailure};

/// A message of a source that must be answered: where it leaves off.
#[derive(Debug, Clone)]
pub struct Checkpoint {
    /// What is read in order: a file's identity, say.
    pub partition: Arc<str>,
    /// What the source needs to know to go on after this batch.
    pub offset: Value,
}

impl Checkpoint {
    /// A place in the file at hand, of what reads messages out of it: each file is a lane of its own.
    pub fn in_file(position: Value) -> Self {
        Self { partition: "".into(), offset: position }
    }
}

/// The positions of one source.
#[derive(Debug)]
pub struct Positions {
    source: Arc<str>,
    role: Role,
    partitions: Mutex<BTreeMap<Arc<str>, Partition>>,
    failures: mpsc::UnboundedSender<RunFailure>,
    /// Whether positions are saved, so that a later run goes on where the last save was.
    keeps: AtomicBool,
    /// Held by the source and by each of its batches that is not settled.
    guard: Mutex<Option<LiveGuard>>,
}

/// As long as there is one, something is still to come: its receiver ends with the last.
pub(crate) type LiveGuard = mpsc::Sender<Never>;

/// Nothing is ever sent.
#[derive(Debug)]
pub(crate) enum Never {}

#[derive(Debug, Default)]
struct Partition {
    /// The number of the first batch in `sent`.
    first: u64,
    /// Batches sent whose turn has not come: their marks, and how they were settled.
    sent: VecDeque<(Option<Value>, Option<Outcome>)>,
    /// Where all before is safe.
    safe: Option<Value>,
    /// Where a run that begins anew would go on: what was saved last.
    stored: Option<Value>,
    /// A batch failed: the lane stays where it is.
    stuck: bool,
    changed: bool,
}

impl Positions {
    /// For a source, beginning with what a former run saved. What fails is told to `failures`.
    pub fn new(
        source: Arc<str>,
        role: Role,
        saved: BTreeMap<String, Value>,
        failures: mpsc::UnboundedSender<RunFailure>,
    ) -> Arc<Self> {
        let partitions = saved
            .into_iter()
            .map(|(partition, value)| {
                (
                    partition.into(),
                    Partition { safe: Some(value.clone()), stored: Some(value), ..Partition::default() },
                )
            })
            .collect();
        Arc::new(Self {
            source,
            role,
            partitions: Mutex::new(partitions),
            failures,
            keeps: AtomicBool::new(false),
            guard: Mutex::default(),
        })
    }

    /// They are saved: see [`committed`](Self::committed).
    pub(crate) fn keep(&self) {
        self.keeps.store(true, Relaxed);
    }

    /// Notes what was saved.
    pub(crate) fn note_stored(&self, partition: &str, position: Option<&Value>) {
        if let Some(partition) = self.partitions.lock().get_mut(partition) {
            partition.stored = position.cloned();
        }
    }

    /// Up to where nothing will be asked for again in a lane, even if the process is killed now. Where positions are
    /// saved that is what was saved last: a run that continues from there cuts back what its sinks wrote since.
    pub fn committed(&self, partition: &str) -> Option<Value> {
        if !self.keeps.load(Relaxed) {
            return self.saved(partition);
        }
        self.partitions.lock().get(partition).and_then(|partition| partition.stored.clone())
    }

    /// Lets `guard` know when the source has ended and all that it sent is settled; see [`leave`](Self::leave).
    pub(crate) fn attend(&self, guard: LiveGuard) {
        *self.guard.lock() = Some(guard);
    }

    /// The source has ended.
    pub(crate) fn leave(&self) {
        *self.guard.lock() = None;
    }

    /// Where to begin in a lane, if a former run was there.
    pub fn saved(&self, partition: &str) -> Option<Value> {
        self.partitions.lock().get(partition).and_then(|partition| partition.safe.clone())
    }

    /// The lanes that are known.
    pub fn partitions(&self) -> Vec<Arc<str>> {
        self.partitions.lock().keys().cloned().collect()
    }

    /// The acknowledgement of the next batch of a lane; of a batch without a mark, just failure is noted.
    pub fn expect(self: &Arc<Self>, checkpoint: Option<Checkpoint>) -> Ack {
        let this = self.clone();
        let guard = self.guard.lock().clone();
        let Some(Checkpoint { partition, offset: position }) = checkpoint else {
            return Ack::new(self.source.clone(), move |settlement| {
                this.note_failure(&settlement);
                drop(guard);
            });
        };
        let number = {
            let mut partitions = self.partitions.lock();
            let partition = partitions.entry(partition.clone()).or_default();
            partition.sent.push_back((Some(position), None));
            partition.first + partition.sent.len() as u64 - 1
        };
        Ack::new(self.source.clone(), move |settlement| {
            this.settle(&partition, number, settlement.outcome);
            this.note_failure(&settlement);
            drop(guard);
        })
    }

    fn note_failure(&self, settlement: &Settlement) {
        if settlement.outcome == Outcome::Failed {
            let reason = settlement.reason.as_deref().unwrap_or("for a reason that was not given");
            // Nobody listens any more when the run is over.
            let error = Error::permanent(format!("messages of `{}` failed: {reason}", self.source));
            let _ = self.failures.send(RunFailure::new(self.source.clone(), self.role, error));
        }
    }

    fn settle(&self, partition: &str, number: u64, outcome: Outcome) {
        let mut partitions = self.partitions.lock();
        let Some(partition) = partitions.get_mut(partition) else { return };
        let at = number.checked_sub(partition.first).and_then(|at| usize::try_from(at).ok());
        if let Some(sent) = at.and_then(|at| partition.sent.get_mut(at)) {
            sent.1 = Some(outcome);
        }
        while let Some((_, Some(outcome))) = partition.sent.front() {
            partition.stuck |= !outcome.is_safe();
            let Some((position, _)) = partition.sent.pop_front() else { break };
            partition.first += 1;
            if !partition.stuck {
                partition.safe = position;
                partition.changed = true;
            }
        }
    }

    /// Forgets a lane that will never be read again.
    pub fn forget(&self, partition: &str) {
        let mut partitions = self.partitions.lock();
        if let Some(partition) = partitions.get_mut(partition) {
            partition.safe = None;
            partition.changed = true;
        }
    }

    /// The lanes whose position moved since the last call: where to begin there, or nothing if it was forgotten.
    pub fn take_changes(&self) -> Vec<(Arc<str>, Option<Value>)> {
        let mut partitions = self.partitions.lock();
        let mut changed = Vec::new();
        for (name, partition) in partitions.iter_mut() {
            if std::mem::take(&mut partition.changed) {
                changed.push((name.clone(), partition.safe.clone()));
            }
        }
        partitions.retain(|_, partition| partition.safe.is_some() || !partition.sent.is_empty());
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_lasts_is_what_was_saved_where_positions_are_saved() {
        let (failures, _failed) = mpsc::unbounded_channel();
        let positions = Positions::new("s".into(), Role::Source, BTreeMap::new(), failures);
        let checkpoint = || Some(Checkpoint { partition: "l".into(), offset: 1.into() });
        positions.expect(checkpoint()).settle(Outcome::Delivered);
        assert_eq!(positions.committed("l"), Some(1.into()));
        positions.keep();
        assert_eq!(positions.committed("l"), None);
        for (partition, position) in positions.take_changes() {
            positions.note_stored(&partition, position.as_ref());
        }
        assert_eq!(positions.committed("l"), Some(1.into()));
    }

    proptest! {
        #[test]
        fn a_lane_moves_to_the_last_mark_before_which_all_is_safe(
            outcomes in prop::collection::vec(0..8u8, 1..40),
            order in any::<u64>(),
        ) {
            let (failures, mut failed) = mpsc::unbounded_channel();
            let positions = Positions::new("s".into(), Role::Source, BTreeMap::new(), failures);
            let mut acks: Vec<_> = (0..outcomes.len())
                .map(|n| (n, positions.expect(Some(Checkpoint { partition: "l".into(), offset: n.into() }))))
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
            prop_assert_eq!(failures, outcomes.iter().filter(|o| **o == 0).count());
        }
    }
}
