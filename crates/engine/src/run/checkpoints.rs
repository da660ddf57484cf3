//! The saved state of a run: the checkpoints of its sources and the states of its sinks, together, twice a
//! second.
//!
//! See docs/decisions/019-a-checkpoint-covers-output-and-input-together.md.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::{Instant, Interval, MissedTickBehavior};

use super::saves::Saver;
use super::sink::CheckpointBarrier;
use crate::Error;
use crate::positions::Positions;
use crate::store::Store;

/// How often checkpoints are saved.
const SAVE_EVERY: Duration = Duration::from_millis(500);
/// How soon they are saved if someone waits for it. All who ask meanwhile share the save.
const SAVE_SOON: Duration = Duration::from_millis(5);

/// A sink's name, and where its task puts the sink's state for the next save.
pub(super) type SinkState = (Arc<str>, Arc<Mutex<Option<Value>>>);

/// The positions of components, in the order in which they are saved.
pub(super) type ComponentPositions = Vec<(Arc<str>, Arc<Positions>)>;

/// The state that a run saves, and its store.
pub(super) struct Checkpoints {
    pub(super) store: Arc<LazyStore>,
    /// False if the run keeps nothing: nothing is then ever due, and [`save`](Self::save) does nothing.
    pub(super) are_kept: bool,
    pub(super) positions: ComponentPositions,
    pub(super) states: Vec<SinkState>,
    pub(super) barrier: CheckpointBarrier,
    pub(super) saver: Saver,
}

impl Checkpoints {
    /// Saves what changed. Blocks its thread.
    ///
    /// # Errors
    /// If the store cannot be written. The changes are then saved by the next call.
    pub(super) fn save(&self) -> Result<(), Error> {
        if !self.are_kept {
            return Ok(());
        }
        thalweg_runtime::blocking(|| self.saver.save(|| self.save_changes()))
    }

    /// The positions are taken before the sinks' states. Messages that a position covers were written before
    /// they were settled, so the states are of the same moment or a later one, never of an earlier one.
    fn save_changes(&self) -> Result<(), Error> {
        let barrier = self.barrier.write();
        let mut moved = Vec::new();
        for (source, positions) in &self.positions {
            let changes = positions.take_changes().into_iter();
            moved.extend(changes.map(|(partition, offset)| (source.clone(), partition, offset)));
        }
        let states: Vec<(Arc<str>, Value)> = self
            .states
            .iter()
            .filter_map(|(sink, state)| Some((sink.clone(), state.lock().take()?)))
            .collect();
        drop(barrier);
        if moved.is_empty() && states.is_empty() {
            return Ok(());
        }
        if let Err(error) = self.store.get().and_then(|store| store.save(&moved, &states)) {
            self.put_back(moved, states);
            return Err(error);
        }
        for (source, partition, offset) in &moved {
            self.of(source).for_each(|positions| positions.note_stored(partition, offset.as_ref()));
        }
        Ok(())
    }

    /// Without this, a later save would put newer states of sinks beside older positions of sources, and what
    /// lies between would be written twice by the next run.
    fn put_back(&self, moved: Vec<(Arc<str>, Arc<str>, Option<Value>)>, states: Vec<(Arc<str>, Value)>) {
        for (source, partition, _) in moved {
            self.of(&source).for_each(|positions| positions.put_back(&partition));
        }
        for (sink, state) in states {
            if let Some((_, slot)) = self.states.iter().find(|(name, _)| *name == sink) {
                slot.lock().get_or_insert(state);
            }
        }
    }

    fn of(&self, source: &Arc<str>) -> impl Iterator<Item = &Arc<Positions>> {
        self.positions.iter().filter(move |(name, _)| name == source).map(|(_, positions)| positions)
    }

    /// For each component with unsettled batches: how many messages or files are in these.
    pub(super) fn unsettled(&self) -> Vec<(Arc<str>, u64)> {
        let counts = self.positions.iter().map(|(name, positions)| (name.clone(), positions.unsettled()));
        counts.filter(|(_, count)| *count > 0).collect()
    }
}

/// When the next save is due: by the clock, or soon after someone asked for it.
pub(super) struct SaveTimer {
    timer: Interval,
    asked: Option<Instant>,
}

impl SaveTimer {
    pub(super) fn new() -> Self {
        let mut timer = tokio::time::interval(SAVE_EVERY);
        timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { timer, asked: None }
    }

    /// Someone waits for a save.
    pub(super) fn ask(&mut self) {
        self.asked.get_or_insert_with(|| Instant::now() + SAVE_SOON);
    }

    /// Waits until a save is due.
    pub(super) async fn due(&mut self) {
        match self.asked {
            Some(at) => {
                tokio::time::sleep_until(at).await;
                self.asked = None;
            }
            None => {
                self.timer.tick().await;
            }
        }
    }
}

/// The store, opened when it is first needed: a run that has nothing to keep leaves no folder behind.
pub(super) struct LazyStore {
    folder: PathBuf,
    open: Mutex<Option<Arc<Store>>>,
}

impl LazyStore {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self { folder, open: Mutex::default() }
    }

    pub(super) fn get(&self) -> Result<Arc<Store>, Error> {
        let mut open = self.open.lock();
        if let Some(store) = &*open {
            return Ok(store.clone());
        }
        let store = Arc::new(Store::open(&self.folder)?);
        *open = Some(store.clone());
        Ok(store)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use thalweg_record::Outcome;

    use super::*;
    use crate::Role;
    use crate::positions::Checkpoint;

    #[test]
    fn what_could_not_be_saved_is_saved_by_the_next_save() {
        let folder = tempfile::tempdir().unwrap();
        let blocked = folder.path().join("state");
        std::fs::write(&blocked, "a file where the folder should be").unwrap();
        let (failures, _) = tokio::sync::mpsc::unbounded_channel();
        let positions = Positions::new("in".into(), Role::Source, BTreeMap::new(), failures);
        positions.keep();
        let state: Arc<Mutex<Option<Value>>> = Arc::new(Mutex::new(Some(10.into())));
        let checkpoints = Checkpoints {
            store: Arc::new(LazyStore::new(blocked.clone())),
            are_kept: true,
            positions: vec![("in".into(), positions.clone())],
            states: vec![("out".into(), state.clone())],
            barrier: CheckpointBarrier::default(),
            saver: Saver::new(),
        };
        let settle = |offset: u64| {
            let checkpoint = Checkpoint { partition: "l".into(), offset: offset.into() };
            positions.expect(Some(checkpoint), 1).settle(Outcome::Delivered);
        };
        settle(1);
        let error = checkpoints.save().unwrap_err().to_string();
        assert_eq!(
            error.replace(&folder.path().display().to_string(), "FOLDER"),
            "the state folder `FOLDER/state` cannot be made: File exists (os error 17)"
        );
        assert_eq!(*state.lock(), Some(10.into()));
        std::fs::remove_file(&blocked).unwrap();
        checkpoints.save().unwrap();
        let store = checkpoints.store.get().unwrap();
        assert_eq!(store.positions("in").unwrap(), BTreeMap::from([("l".to_owned(), 1.into())]));
        assert_eq!(store.sink_state("out").unwrap(), Some(10.into()));
        assert_eq!(positions.committed("l"), Some(1.into()));
    }
}
