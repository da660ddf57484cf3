//! One save: the state is copied at one moment, and written or put back.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use serde_json::Value;
use thalweg_runtime::Failpoint;

use super::stuck::Extent;
use super::{Checkpoints, LONGEST_HOLD, StateSlot};
use crate::Error;
use crate::component::Transform;
use crate::positions::Positions;
use crate::store::DeadLetterId;

/// When a snapshot is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Moment {
    /// Nothing moves, and all sinks have flushed.
    Still,
    /// Messages move.
    Moving,
    /// Messages have moved for the longest hold: the state of transforms that count need not be exact.
    TooLong,
}

/// The data of one save, copied at one moment.
pub(super) struct Snapshot {
    /// The number of the save.
    pub(super) number: u64,
    pub(super) extent: Extent,
    pub(super) moved: Vec<(Arc<str>, Arc<str>, Option<Value>)>,
    pub(super) states: Vec<(Arc<str>, Value)>,
    /// The dead letters that are covered: see [`Store::save`].
    pub(super) letters: Vec<(Arc<str>, Option<DeadLetterId>)>,
}

impl Checkpoints {
    /// Takes the state of a transform, which returns it once. The slot has one that could not be saved.
    pub(super) fn take_state(&self, slot: &StateSlot, transform: &mut dyn Transform) {
        let mut slot = slot.lock();
        *slot = transform.state().or(slot.take());
        if self.rereads && slot.is_some() && transform.is_exact() {
            self.is_exact.store(true, Relaxed);
        }
    }

    /// Copies the state. Returns None if a transform is at work for longer than [`LONGEST_HOLD`], if its
    /// state must be exact and messages move, or if what it kept has failed or moves.
    ///
    /// The positions are taken before the states. Messages that a position covers were written before they
    /// were settled, so the states are of the same moment or a later one, never of an earlier one. A
    /// transform that writes to its journal blocks the thread.
    pub(super) fn snapshot(&self, moment: Moment) -> Result<Option<Snapshot>, Error> {
        let number = self.saver.begin();
        // Before the barrier: a transform that is at work must not hold up the sinks.
        let locked = self.transforms.iter().map(|(_, transform)| transform.try_lock_for(LONGEST_HOLD));
        let Some(mut transforms) = locked.collect::<Option<Vec<_>>>() else { return Ok(None) };
        let is_moving = moment != Moment::Still;
        // In this order: what fails meanwhile has failed before it is no longer on its way.
        let is_owed =
            |transform: &dyn Transform| is_moving && transform.is_delivering() || transform.has_failed();
        if transforms.iter().any(|transform| is_owed(&***transform)) {
            return Ok(None);
        }
        if moment == Moment::Still {
            self.is_behind.store(true, Relaxed);
            Failpoint::PreCommitBefore.pass();
            transforms.iter_mut().try_for_each(|transform| transform.pre_commit())?;
            Failpoint::PreCommitAfter.pass();
        }
        for ((slot, _), transform) in self.transforms.iter().zip(&mut transforms) {
            self.take_state(slot, &mut ***transform);
        }
        if moment == Moment::Moving && self.is_exact.load(Relaxed) {
            return Ok(None);
        }
        // First: what is settled or rejected meanwhile counts as that of the next checkpoint.
        let extent = Extent { settled: self.settled(), letter: self.last_letter() };
        let _barrier = self.barrier.write();
        let mut moved = Vec::new();
        for (source, positions) in &self.positions {
            let changes = positions.take_changes().into_iter();
            moved.extend(changes.map(|(partition, offset)| (source.clone(), partition, offset)));
        }
        let states = self.states.iter();
        let states = states.filter_map(|(name, state)| Some((name.clone(), state.lock().take()?))).collect();
        Ok(Some(Snapshot { number, extent, moved, states, letters: self.covered_letters() }))
    }

    /// The last dead letter, for each source whose messages come again after it.
    fn covered_letters(&self) -> Vec<(Arc<str>, Option<DeadLetterId>)> {
        let Some(store) = self.store.opened().filter(|_| self.covers_letters) else { return Vec::new() };
        let last = store.last_letter().unwrap_or_default();
        self.positions.iter().map(|(source, _)| (source.clone(), Some(last))).collect()
    }

    pub(super) fn write_blocking(&self, snapshot: Snapshot) -> Result<(), Error> {
        thalweg_runtime::blocking(|| self.write(snapshot))
    }

    fn write(&self, snapshot: Snapshot) -> Result<(), Error> {
        // Those who wait for this save acknowledge messages that became dead letters.
        let has_letters = self.has_letters(&snapshot);
        let Snapshot { number, extent, moved, states, letters } = snapshot;
        // With the mark of a run that has ended, the next one would remove the letters of a replay.
        let clears_marks = letters.iter().any(|(_, covered)| covered.is_none());
        if !moved.is_empty() || !states.is_empty() || clears_marks || has_letters {
            let saved = Failpoint::CheckpointBefore.check().map_err(unwritable);
            let saved = saved.and_then(|()| match self.are_kept {
                true => self.store.get()?.save(&moved, &states, &letters),
                false => Ok(()),
            });
            let saved = saved.and_then(|()| self.store.remove_replayed(&moved));
            if let Err(error) = saved {
                self.put_back(moved, states);
                return Err(error);
            }
            Failpoint::CheckpointAfter.pass();
            for (source, partition, offset) in &moved {
                self.of(source).for_each(|positions| positions.note_stored(partition, offset.as_ref()));
            }
        }
        self.is_behind.store(false, Relaxed);
        self.stuck.note_saved(extent);
        self.saver.complete(number);
        Ok(())
    }

    /// Without this, a later save would put newer states of sinks beside older positions of sources, and what
    /// lies between would be written twice by the next run.
    pub(super) fn put_back(
        &self,
        moved: Vec<(Arc<str>, Arc<str>, Option<Value>)>,
        states: Vec<(Arc<str>, Value)>,
    ) {
        for (source, partition, _) in moved {
            self.of(&source).for_each(|positions| positions.put_back(&partition));
        }
        for (component, state) in states {
            if let Some((_, slot)) = self.states.iter().find(|(name, _)| *name == component) {
                slot.lock().get_or_insert(state);
            }
        }
    }

    fn of(&self, source: &Arc<str>) -> impl Iterator<Item = &Arc<Positions>> {
        self.positions.iter().filter(move |(name, _)| name == source).map(|(_, positions)| positions)
    }
}

fn unwritable(error: std::io::Error) -> Error {
    Error::permanent("the state cannot be written").caused_by(error)
}
