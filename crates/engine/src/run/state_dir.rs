//! What a run keeps: positions and sinks' states, saved together, in a store that is opened when it is needed.

use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;

use crate::Error;
use crate::positions::Positions;
use crate::store::Store;

use super::sink::CheckpointBarrier;

/// A sink's name, and where its task puts the sink's state for the next save.
pub(super) type SinkState = (Arc<str>, Arc<Mutex<Option<Value>>>);

/// Saves what moved. The positions are taken before the sinks' states: what a position covers was written
/// before it was settled, so the states are of the same moment or a later one, never of an earlier.
pub(super) fn save(
    store: &LazyStore,
    positions: &[(Arc<str>, Arc<Positions>)],
    states: &[SinkState],
    barrier: &CheckpointBarrier,
) -> Result<(), Error> {
    let barrier = barrier.write();
    let mut moved = Vec::new();
    for (source, positions) in positions {
        let changes = positions.take_changes().into_iter();
        moved.extend(changes.map(|(partition, position)| (source.clone(), partition, position)));
    }
    let states: Vec<(Arc<str>, Value)> =
        states.iter().filter_map(|(sink, state)| Some((sink.clone(), state.lock().take()?))).collect();
    drop(barrier);
    if moved.is_empty() && states.is_empty() {
        return Ok(());
    }
    store.get()?.save(&moved, &states)?;
    for (source, partition, position) in &moved {
        let of_source = positions.iter().filter(|(name, _)| name == source);
        of_source.for_each(|(_, positions)| positions.note_stored(partition, position.as_ref()));
    }
    Ok(())
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
