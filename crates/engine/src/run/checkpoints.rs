//! The saved state of a run: the checkpoints of its sources and the states of its sinks and transforms,
//! together, twice a second.
//!
//! Each [group](super::groups) of connected components has checkpoints of its own. If its sources read their
//! input again after a crash, a checkpoint is taken while nothing moves: the sources are held back, what is
//! in flight is settled, the sinks flush, and the state is copied. So it has exactly what the positions
//! cover, in every sink. The state is written after the sources continue.
//!
//! See docs/decisions/019-a-checkpoint-covers-output-and-input-together.md and
//! docs/decisions/074-a-checkpoint-is-taken-while-nothing-moves.md.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use thalweg_runtime::{Failpoint, Traffic};
use tokio::sync::mpsc;
use tokio::time::{Instant, Interval, MissedTickBehavior};

use super::RunFailure;
use super::flushes::Flushes;
use super::saves::{Haste, Saver};
use super::sink::{CheckpointBarrier, Uncommitted};
use crate::Error;
use crate::component::Transform;
use crate::positions::Positions;
use crate::replay::Replayed;
#[cfg(target_os = "linux")]
use crate::store::LettersServer;
use crate::store::{DeadLetterId, Owner, Store};

/// How often checkpoints are saved: see [`save_every`].
const SAVE_EVERY: Duration = Duration::from_millis(500);
/// How soon they are saved if someone waits for it. All who ask meanwhile share the save.
const SAVE_SOON: Duration = Duration::from_millis(5);
/// The time between checkpoints is at least this many times as long as the sources were held back.
const HOLD_SHARE: u32 = 20;
/// But not longer than this.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// How long the sources are held back at most: a sink that retries would hold them back without end. Then the
/// settled messages are saved while others move, as often as usual, until the longest pause is over. A run
/// that resumes there may write those twice.
const LONGEST_HOLD: Duration = Duration::from_secs(5);
/// The time in which the process certainly ran, of the time that the sources are held back.
const HOLD_STEP: Duration = Duration::from_millis(100);
/// The same as [`LONGEST_HOLD`] if more depends on it: a transform has an exact state (see
/// [`Transform::is_exact`]), or one of several sinks is slow, and the others would write messages twice.
const LONGEST_EXACT_HOLD: Duration = Duration::from_mins(1);

/// A component's name, and where its task puts its state for the next save.
pub(super) type SavedState = (Arc<str>, StateSlot);

/// Where a task puts the state of a component for the next save.
pub(super) type StateSlot = Arc<Mutex<Option<Value>>>;

/// A transform whose state is saved. Its worker locks it while it is called, so a checkpoint has its state
/// between two batches.
pub(super) type SharedTransform = Arc<Mutex<Box<dyn Transform>>>;

/// The positions of components, in the order in which they are saved.
pub(super) type ComponentPositions = Vec<(Arc<str>, Arc<Positions>)>;

/// The state that a group of components saves, and its store.
pub(super) struct Checkpoints {
    pub(super) store: Arc<LazyStore>,
    /// False if the run keeps no checkpoints. Then [`save`](Self::save) only removes dead letters that are
    /// processed again.
    pub(super) are_kept: bool,
    pub(super) positions: ComponentPositions,
    pub(super) states: Vec<SavedState>,
    pub(super) transforms: Vec<(StateSlot, SharedTransform)>,
    pub(super) barrier: CheckpointBarrier,
    pub(super) saver: Saver,
    pub(super) traffic: Arc<Traffic>,
    pub(super) flushes: Arc<Flushes>,
    pub(super) uncommitted: Uncommitted,
    /// True if all sources of the group read their input again from their positions.
    pub(super) rereads: bool,
    /// True if a checkpoint covers the dead letters before it. Not so with buffers on disk: after a kill, a
    /// letter whose message comes again is there twice.
    pub(super) covers_letters: bool,
    /// True once there is state that must be saved while nothing moves: see
    /// [`must_be_still`](Self::must_be_still).
    pub(super) has_state: AtomicBool,
    /// True once a transform has an exact state: then a checkpoint is taken while nothing moves, or after a
    /// minute in which something always moved. (Rejected: only while nothing moves. Behind a slow `limit`
    /// there would never be one.)
    pub(super) is_exact: AtomicBool,
    /// True from `pre_commit` of transforms until a checkpoint with their states is saved.
    pub(super) is_behind: AtomicBool,
}

/// When a snapshot is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    /// Nothing moves, and all sinks have flushed.
    Still,
    /// Messages move.
    Moving,
    /// Messages have moved for the longest hold: the state of transforms that count need not be exact.
    TooLong,
}

/// The data of one save, copied at one moment.
struct Snapshot {
    /// The number of the save.
    number: u64,
    moved: Vec<(Arc<str>, Arc<str>, Option<Value>)>,
    states: Vec<(Arc<str>, Value)>,
    /// The dead letters that are covered: see [`Store::save`].
    letters: Vec<(Arc<str>, Option<DeadLetterId>)>,
}

impl Checkpoints {
    /// Takes checkpoints until it is dropped, or one cannot be saved: the failure goes to `failed`.
    pub(super) async fn keep(self: Arc<Self>, failed: mpsc::UnboundedSender<RunFailure>) {
        let mut timer = SaveTimer::new();
        // No checkpoint holds the sources back before.
        let mut moving_until = Instant::now();
        loop {
            tokio::select! {
                haste = self.saver.asked() => {
                    timer.ask(haste);
                    continue;
                }
                () = timer.due() => {}
            }
            let may_hold = Instant::now() >= moving_until;
            match self.checkpoint(may_hold).await {
                Ok(held) if held >= self.longest_hold() => moving_until = Instant::now() + LONGEST_PAUSE,
                Ok(held) => timer.rest_after(held),
                Err(error) => {
                    // The supervisor is gone when the run is over.
                    let _ = failed.send(error.into());
                    return;
                }
            }
        }
    }

    /// Takes a checkpoint. Returns how long it held the sources back.
    async fn checkpoint(&self, may_hold: bool) -> Result<Duration, Error> {
        if !may_hold {
            return self.save().map(|()| Duration::ZERO);
        }
        if !self.must_be_still() && self.save_without_state()? {
            return Ok(Duration::ZERO);
        }
        let number = self.saver.begin();
        if self.is_idle() {
            self.saver.complete(number);
            return Ok(Duration::ZERO);
        }
        let start = Instant::now();
        self.find_exact();
        match self.patiently(self.still_snapshot()).await.map(Result::transpose) {
            Some(Some(snapshot)) => {
                let held = start.elapsed();
                self.write_blocking(snapshot?)?;
                return Ok(held);
            }
            // The run is failing, and the state of what failed must not be saved.
            Some(None) => {}
            None => {
                tracing::debug!("a checkpoint was taken while messages move: a component takes long");
                if let Some(snapshot) = self.snapshot(Moment::TooLong)? {
                    self.write_blocking(snapshot)?;
                }
            }
        }
        Ok(start.elapsed())
    }

    /// Waits for a snapshot, as long as the sources may be held back. Only time in which the process runs
    /// counts: after a pause of the machine, what is in flight has had no time to arrive.
    async fn patiently<T>(&self, snapshot: impl Future<Output = T>) -> Option<T> {
        let mut snapshot = std::pin::pin!(snapshot);
        let mut held = Duration::ZERO;
        while held < self.longest_hold() {
            tokio::select! {
                biased;
                snapshot = &mut snapshot => return Some(snapshot),
                () = tokio::time::sleep(HOLD_STEP) => held += HOLD_STEP,
            }
        }
        None
    }

    /// Finds out whether a transform has an exact state.
    fn find_exact(&self) {
        for (slot, transform) in &self.transforms {
            if let Some(mut transform) = transform.try_lock() {
                self.take_state(slot, &mut **transform);
            }
        }
    }

    /// Takes the state of a transform, which returns it once. The slot has one that could not be saved.
    fn take_state(&self, slot: &StateSlot, transform: &mut dyn Transform) {
        let mut slot = slot.lock();
        *slot = transform.state().or(slot.take());
        if self.rereads && slot.is_some() && transform.is_exact() {
            self.is_exact.store(true, Relaxed);
        }
    }

    fn longest_hold(&self) -> Duration {
        let has_several_sinks = self.states.len() > self.transforms.len() + 1;
        match self.is_exact.load(Relaxed) || has_several_sinks {
            true => LONGEST_EXACT_HOLD,
            false => LONGEST_HOLD,
        }
    }

    /// Holds the sources back, lets what is in flight be settled, and copies the state. Returns None if a
    /// batch has failed.
    async fn still_snapshot(&self) -> Result<Option<Snapshot>, Error> {
        let hold = self.traffic.hold().await;
        self.flushes.flush().await;
        // A sink whose flush fails sends its messages to the other sinks of a failover.
        while !self.traffic.is_still() {
            hold.still().await;
            self.flushes.flush().await;
        }
        if self.has_failed() {
            return Ok(None);
        }
        thalweg_runtime::blocking(|| self.snapshot(Moment::Still))
    }

    /// True if a checkpoint is consistent only while nothing moves: messages come again, and a component or
    /// the dead letters would have some of them twice.
    fn must_be_still(&self) -> bool {
        let has_state = || self.states.iter().any(|(_, state)| state.lock().is_some());
        let has_letters = || self.store.opened().is_some_and(|store| store.last_letter().is_some());
        if self.rereads && (!self.transforms.is_empty() || has_state() || has_letters()) {
            self.has_state.store(true, Relaxed);
        }
        self.are_kept && self.has_state.load(Relaxed)
    }

    /// True if there is something to do when a checkpoint is due.
    pub(super) fn is_due(&self) -> bool {
        self.are_kept || self.store.replays()
    }

    fn has_failed(&self) -> bool {
        self.positions.iter().any(|(_, positions)| positions.has_failed())
    }

    /// True if nothing was sent or settled since the last checkpoint.
    fn is_idle(&self) -> bool {
        let has_news =
            |transform: &SharedTransform| transform.try_lock().is_some_and(|transform| transform.has_news());
        self.positions.iter().all(|(_, positions)| positions.is_idle())
            && self.states.iter().all(|(_, state)| state.lock().is_none())
            && !self.transforms.iter().any(|(_, transform)| has_news(transform))
    }

    /// Saves what is settled, last of all, when the tasks of the run have ended. State with messages in
    /// flight when a component failed, or when the run gave them up, is not consistent: the last checkpoint
    /// stays.
    ///
    /// # Errors
    /// As [`save`](Self::save).
    pub(super) fn save_last(&self, gave_up: bool) -> Result<(), Error> {
        if !self.is_due() {
            return Ok(());
        }
        let is_still = self.must_be_still();
        // Also if one sink alone has a state: it may have a part of a batch that a transform divided.
        if is_still && (gave_up || self.has_failed() || !self.traffic.is_still()) {
            return Ok(());
        }
        if is_still && self.is_behind.load(Relaxed) {
            // A checkpoint failed. With the next `pre_commit`, a transform forgets what the last saved one
            // needs.
            let Some(snapshot) = self.snapshot(Moment::TooLong)? else { return Ok(()) };
            self.write_blocking(snapshot)?;
        }
        let moment = if is_still { Moment::Still } else { Moment::Moving };
        let Some(mut snapshot) = self.snapshot(moment)? else { return Ok(()) };
        // Nothing comes again of what the dead letters have.
        snapshot.letters.iter_mut().for_each(|(_, covered)| *covered = None);
        self.write_blocking(snapshot)?;
        if is_still {
            // Now the transforms know that this checkpoint is saved, and forget what only earlier ones need.
            for (_, transform) in &self.transforms {
                transform.try_lock().map_or(Ok(()), |mut transform| transform.pre_commit())?;
            }
        }
        Ok(())
    }

    /// Saves what changed, while messages may move. Blocks its thread.
    ///
    /// # Errors
    /// If the store cannot be written. The changes are then saved by the next call.
    pub(super) fn save(&self) -> Result<(), Error> {
        if !self.is_due() {
            return Ok(());
        }
        self.snapshot(Moment::Moving)?.map_or(Ok(()), |snapshot| self.write_blocking(snapshot))
    }

    /// As [`save`](Self::save), unless a component has a state that must be saved while nothing moves.
    /// Returns false then.
    fn save_without_state(&self) -> Result<bool, Error> {
        let Some(snapshot) = self.snapshot(Moment::Moving)? else { return Ok(true) };
        if self.are_kept && self.rereads && !snapshot.states.is_empty() {
            self.put_back(snapshot.moved, snapshot.states);
            return Ok(false);
        }
        self.write_blocking(snapshot).map(|()| true)
    }

    /// True if sinks have ended with steps that wait for the last checkpoint.
    pub(super) fn has_uncommitted(&self) -> bool {
        !self.uncommitted.lock().is_empty()
    }

    /// Lets the sinks make visible what the last checkpoint covers, at the end of the run.
    ///
    /// # Errors
    /// The first permanent error of a sink.
    pub(super) async fn commit(&self) -> Result<(), RunFailure> {
        let ended = std::mem::take(&mut *self.uncommitted.lock());
        for sink in ended {
            sink.commit().await?;
        }
        Ok(())
    }

    /// Copies the state. Returns None if a transform is at work for longer than [`LONGEST_HOLD`], if its
    /// state must be exact and messages move, or if what it kept has failed or moves.
    ///
    /// The positions are taken before the states. Messages that a position covers were written before they
    /// were settled, so the states are of the same moment or a later one, never of an earlier one. A
    /// transform that writes to its journal blocks the thread.
    fn snapshot(&self, moment: Moment) -> Result<Option<Snapshot>, Error> {
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
        let _barrier = self.barrier.write();
        let mut moved = Vec::new();
        for (source, positions) in &self.positions {
            let changes = positions.take_changes().into_iter();
            moved.extend(changes.map(|(partition, offset)| (source.clone(), partition, offset)));
        }
        let states = self.states.iter();
        let states = states.filter_map(|(name, state)| Some((name.clone(), state.lock().take()?))).collect();
        Ok(Some(Snapshot { number, moved, states, letters: self.covered_letters() }))
    }

    /// The last dead letter, for each source whose messages come again after it.
    fn covered_letters(&self) -> Vec<(Arc<str>, Option<DeadLetterId>)> {
        let Some(store) = self.store.opened().filter(|_| self.covers_letters) else { return Vec::new() };
        let last = store.last_letter().unwrap_or_default();
        self.positions.iter().map(|(source, _)| (source.clone(), Some(last))).collect()
    }

    fn write_blocking(&self, snapshot: Snapshot) -> Result<(), Error> {
        thalweg_runtime::blocking(|| self.write(snapshot))
    }

    fn write(&self, snapshot: Snapshot) -> Result<(), Error> {
        let Snapshot { number, moved, states, letters } = snapshot;
        // With the mark of a run that has ended, the next one would remove the letters of a replay.
        let clears_marks = letters.iter().any(|(_, covered)| covered.is_none());
        if !moved.is_empty() || !states.is_empty() || clears_marks {
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
        self.saver.complete(number);
        Ok(())
    }

    /// Without this, a later save would put newer states of sinks beside older positions of sources, and what
    /// lies between would be written twice by the next run.
    fn put_back(&self, moved: Vec<(Arc<str>, Arc<str>, Option<Value>)>, states: Vec<(Arc<str>, Value)>) {
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

    /// For each component with unsettled batches: how many messages or files are in these.
    pub(super) fn unsettled(&self) -> Vec<(Arc<str>, u64)> {
        let counts = self.positions.iter().map(|(name, positions)| (name.clone(), positions.unsettled()));
        counts.filter(|(_, count)| *count > 0).collect()
    }
}

/// Removes the dead letters of a run that was killed, of messages that come again, and notes which ones are
/// there before this run.
///
/// # Errors
/// If the store cannot be used.
pub(super) fn begin(store: &Store, groups: &[Arc<Checkpoints>]) -> Result<(), Error> {
    remove_uncovered(store, &store.uncovered_letters()?)?;
    store.cover_letters(rereading(groups))
}

/// As [`begin`], for a part that begins while others run: their letters are their own. There are uncovered
/// ones if the part before this one could not deliver all that was in flight.
///
/// # Errors
/// If the store cannot be used.
pub(super) fn begin_beside(store: &Store, groups: &[Arc<Checkpoints>]) -> Result<(), Error> {
    let again = store.uncovered_letters_of(|source| rereading(groups).any(|own| **own == *source))?;
    remove_uncovered(store, &again)?;
    store.cover_letters_beside(rereading(groups))
}

/// As [`begin`], before the first part of several begins.
///
/// # Errors
/// If the store cannot be used.
pub(super) fn begin_parts(store: &Store) -> Result<(), Error> {
    remove_uncovered(store, &store.uncovered_letters()?)?;
    store.cover_letters(std::iter::empty())
}

/// The sources whose messages come again if the run is killed.
fn rereading(groups: &[Arc<Checkpoints>]) -> impl Iterator<Item = &Arc<str>> {
    let groups = groups.iter().filter(|group| group.covers_letters);
    groups.flat_map(|group| group.positions.iter().map(|(source, _)| source))
}

fn remove_uncovered(store: &Store, again: &[DeadLetterId]) -> Result<(), Error> {
    if !again.is_empty() {
        tracing::info!(
            "{} dead letters of a run that was killed are removed: their messages are processed again",
            again.len()
        );
        store.remove_letters(again)?;
    }
    Ok(())
}

fn unwritable(error: std::io::Error) -> Error {
    Error::permanent("the state cannot be written").caused_by(error)
}

/// How often checkpoints are saved. Tests set `THALWEG_CHECKPOINT_MS`, so that a run of moments has several.
fn save_every() -> Duration {
    static EVERY: OnceLock<Duration> = OnceLock::new();
    *EVERY.get_or_init(|| {
        let wanted = std::env::var("THALWEG_CHECKPOINT_MS").ok();
        let wanted = wanted.and_then(|text| text.parse::<u64>().ok()).filter(|ms| *ms > 0);
        wanted.map_or(SAVE_EVERY, Duration::from_millis)
    })
}

/// When the next save is due: by the clock, or soon after someone asked for it.
pub(super) struct SaveTimer {
    timer: Interval,
    asked: Option<Instant>,
    /// No save is due before.
    earliest: Instant,
}

impl SaveTimer {
    pub(super) fn new() -> Self {
        let mut timer = tokio::time::interval_at(Instant::now() + save_every(), save_every());
        timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { timer, asked: None, earliest: Instant::now() }
    }

    /// Someone waits for a save.
    pub(super) fn ask(&mut self, haste: Haste) {
        self.asked.get_or_insert_with(|| Instant::now() + SAVE_SOON);
        if haste == Haste::AtOnce {
            self.earliest = Instant::now();
        }
    }

    /// A checkpoint held the sources back for this time: the next one is not due soon.
    pub(super) fn rest_after(&mut self, held: Duration) {
        self.earliest = Instant::now() + (held * HOLD_SHARE).min(LONGEST_PAUSE);
    }

    /// Waits until a save is due.
    pub(super) async fn due(&mut self) {
        tokio::time::sleep_until(self.earliest).await;
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
    owner: Option<Owner>,
    /// Shows the dead letters to other processes. It ends before the store is closed.
    #[cfg(target_os = "linux")]
    server: Mutex<Option<LettersServer>>,
    open: Mutex<Option<Arc<Store>>>,
    /// The dead letters that the run processes again.
    replayed: Option<Arc<Replayed>>,
}

impl LazyStore {
    pub(super) fn new(folder: PathBuf, owner: Option<Owner>) -> Self {
        Self {
            folder,
            owner,
            #[cfg(target_os = "linux")]
            server: Mutex::default(),
            open: Mutex::default(),
            replayed: None,
        }
    }

    /// Lets the run remove dead letters as they are settled.
    pub(super) fn replaying(&self, replayed: Arc<Replayed>) -> Self {
        let open = Mutex::new(self.opened());
        Self {
            folder: self.folder.clone(),
            owner: self.owner.clone(),
            #[cfg(target_os = "linux")]
            server: Mutex::new(self.server.lock().take()),
            open,
            replayed: Some(replayed),
        }
    }

    /// True if the run removes dead letters as they are settled.
    pub(super) fn replays(&self) -> bool {
        self.replayed.is_some()
    }

    /// Removes the dead letters that positions cover.
    fn remove_replayed(&self, moved: &[(Arc<str>, Arc<str>, Option<Value>)]) -> Result<(), Error> {
        let Some(replayed) = &self.replayed else { return Ok(()) };
        for (source, _, offset) in moved {
            if let Some(offset) = offset {
                replayed.remove(&*self.get()?, source, offset)?;
            }
        }
        Ok(())
    }

    /// The store, if it is open.
    pub(super) fn opened(&self) -> Option<Arc<Store>> {
        self.open.lock().clone()
    }

    pub(super) fn get(&self) -> Result<Arc<Store>, Error> {
        let mut open = self.open.lock();
        if let Some(store) = &*open {
            return Ok(store.clone());
        }
        let store = Arc::new(Store::open_for(&self.folder, self.owner.as_ref())?);
        #[cfg(target_os = "linux")]
        match LettersServer::start(&store, &self.folder) {
            Ok(server) => *self.server.lock() = Some(server),
            Err(error) => tracing::debug!("dead letters cannot be listed during this run: {error}"),
        }
        *open = Some(store.clone());
        Ok(store)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;
    use std::sync::atomic::AtomicUsize;

    use serde_json::json;
    use thalweg_record::{Batch, Outcome, Outputs};

    use super::*;
    use crate::positions::Checkpoint;
    use crate::store::DeadLetter;
    use crate::{DeadLetterLimits, Role};

    /// The checkpoints of a group with the source `in`.
    fn checkpoints(folder: &Path, states: Vec<SavedState>) -> Checkpoints {
        let (failures, _) = tokio::sync::mpsc::unbounded_channel();
        let positions = Positions::new("in".into(), Role::Source, BTreeMap::new(), failures);
        positions.keep();
        Checkpoints {
            store: Arc::new(LazyStore::new(folder.to_owned(), None)),
            are_kept: true,
            positions: vec![("in".into(), positions)],
            states,
            transforms: Vec::new(),
            barrier: CheckpointBarrier::default(),
            saver: Saver::new(),
            traffic: Arc::default(),
            flushes: Arc::new(Flushes::new(Arc::default())),
            uncommitted: Uncommitted::default(),
            rereads: true,
            covers_letters: true,
            has_state: AtomicBool::default(),
            is_exact: AtomicBool::default(),
            is_behind: AtomicBool::default(),
        }
    }

    fn settle(checkpoints: &Checkpoints, offset: u64) {
        let checkpoint = Checkpoint { partition: "l".into(), offset: offset.into() };
        checkpoints.positions[0].1.expect(Some(checkpoint), 1).settle(Outcome::Delivered);
    }

    #[test]
    fn what_could_not_be_saved_is_saved_by_the_next_save() {
        let folder = tempfile::tempdir().unwrap();
        let blocked = folder.path().join("state");
        std::fs::write(&blocked, "a file where the folder should be").unwrap();
        let state: StateSlot = Arc::new(Mutex::new(Some(10.into())));
        let checkpoints = checkpoints(&blocked, vec![("out".into(), state.clone())]);
        settle(&checkpoints, 1);
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
        assert_eq!(checkpoints.positions[0].1.committed("l"), Some(1.into()));
    }

    /// A transform whose state has changed, if true.
    struct Counting(bool);

    impl Transform for Counting {
        fn apply(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
            out.send(batch);
            Ok(())
        }

        fn state(&mut self) -> Option<Value> {
            std::mem::take(&mut self.0).then(|| 7.into())
        }
    }

    #[test]
    fn the_last_save_has_what_a_transform_learned_since_the_save_before() {
        let folder = tempfile::tempdir().unwrap();
        let slots = [StateSlot::default(), StateSlot::default()];
        let states = vec![("main.count".into(), slots[0].clone()), ("out".into(), slots[1].clone())];
        let mut checkpoints = checkpoints(folder.path(), states);
        let transform: Box<dyn Transform> = Box::new(Counting(true));
        checkpoints.transforms.push((slots[0].clone(), Arc::new(Mutex::new(transform))));
        settle(&checkpoints, 1);
        checkpoints.save_last(false).unwrap();
        let store = checkpoints.store.get().unwrap();
        assert_eq!(store.positions("in").unwrap(), BTreeMap::from([("l".to_owned(), 1.into())]));
        assert_eq!(store.sink_state("main.count").unwrap(), Some(7.into()));
    }

    /// A transform that counts how often it prepared a checkpoint.
    struct Preparing(Arc<AtomicUsize>);

    impl Transform for Preparing {
        fn apply(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
            out.send(batch);
            Ok(())
        }

        fn pre_commit(&mut self) -> Result<(), Error> {
            self.0.fetch_add(1, Relaxed);
            Ok(())
        }

        fn state(&mut self) -> Option<Value> {
            Some(self.0.load(Relaxed).into())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_transform_prepares_no_other_checkpoint_before_one_with_its_state_is_saved() {
        let folder = tempfile::tempdir().unwrap();
        let blocked = folder.path().join("state");
        std::fs::write(&blocked, "a file where the folder should be").unwrap();
        let (slot, prepared) = (StateSlot::default(), Arc::new(AtomicUsize::new(0)));
        let mut checkpoints = checkpoints(&blocked, vec![("main.pack".into(), slot.clone())]);
        let transform: Box<dyn Transform> = Box::new(Preparing(prepared.clone()));
        checkpoints.transforms.push((slot, Arc::new(Mutex::new(transform))));
        settle(&checkpoints, 1);
        checkpoints.checkpoint(true).await.unwrap_err();
        checkpoints.save_last(false).unwrap_err();
        assert_eq!(prepared.load(Relaxed), 1);
        std::fs::remove_file(&blocked).unwrap();
        checkpoints.save_last(false).unwrap();
        // Once for the last checkpoint, and once after it.
        assert_eq!(prepared.load(Relaxed), 3);
        let store = checkpoints.store.get().unwrap();
        assert_eq!(store.sink_state("main.pack").unwrap(), Some(2.into()));
    }

    /// A transform that has sent a message, if true, although none came.
    struct Ticked(bool);

    impl Transform for Ticked {
        fn apply(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
            out.send(batch);
            Ok(())
        }

        fn pre_commit(&mut self) -> Result<(), Error> {
            self.0 = false;
            Ok(())
        }

        fn state(&mut self) -> Option<Value> {
            Some(7.into())
        }

        fn has_news(&self) -> bool {
            self.0
        }
    }

    /// While no message came, a kill let the next run send the results again.
    #[tokio::test(start_paused = true)]
    async fn what_a_transform_sent_while_no_message_came_is_saved() {
        let folder = tempfile::tempdir().unwrap();
        let slot = StateSlot::default();
        let mut checkpoints = checkpoints(folder.path(), vec![("main.count".into(), slot.clone())]);
        assert!(checkpoints.is_idle());
        let transform: Box<dyn Transform> = Box::new(Ticked(true));
        checkpoints.transforms.push((slot, Arc::new(Mutex::new(transform))));
        assert!(!checkpoints.is_idle());
        checkpoints.checkpoint(true).await.unwrap();
        assert!(checkpoints.is_idle());
        assert_eq!(checkpoints.store.get().unwrap().sink_state("main.count").unwrap(), Some(7.into()));
    }

    /// A transform whose messages are on their way, or fail, after a checkpoint has them.
    #[derive(Default)]
    struct Kept {
        is_delivering: AtomicBool,
        has_failed: AtomicBool,
    }

    impl Transform for Arc<Kept> {
        fn apply(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
            out.send(batch);
            Ok(())
        }

        fn state(&mut self) -> Option<Value> {
            Some(self.is_delivering.load(Relaxed).into())
        }

        fn has_failed(&self) -> bool {
            self.has_failed.load(Relaxed)
        }

        fn is_delivering(&self) -> bool {
            self.is_delivering.load(Relaxed)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_checkpoint_stays_if_messages_fail_or_move_that_a_transform_kept() {
        let folder = tempfile::tempdir().unwrap();
        let (slot, kept) = (StateSlot::default(), Arc::new(Kept::default()));
        let mut checkpoints = checkpoints(folder.path(), vec![("main.pack".into(), slot.clone())]);
        let transform: Box<dyn Transform> = Box::new(kept.clone());
        checkpoints.transforms.push((slot, Arc::new(Mutex::new(transform))));
        settle(&checkpoints, 1);
        checkpoints.checkpoint(true).await.unwrap();
        kept.is_delivering.store(true, Relaxed);
        settle(&checkpoints, 2);
        assert!(checkpoints.snapshot(Moment::TooLong).unwrap().is_none());
        assert!(checkpoints.snapshot(Moment::Moving).unwrap().is_none());
        kept.has_failed.store(true, Relaxed);
        checkpoints.checkpoint(true).await.unwrap();
        for is_behind in [false, true] {
            checkpoints.is_behind.store(is_behind, Relaxed);
            checkpoints.save_last(false).unwrap();
            let store = checkpoints.store.get().unwrap();
            assert_eq!(store.sink_state("main.pack").unwrap(), Some(false.into()));
            assert_eq!(store.positions("in").unwrap(), BTreeMap::from([("l".to_owned(), 1.into())]));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_exact_state_is_not_saved_while_something_moves() {
        let folder = tempfile::tempdir().unwrap();
        let slot = StateSlot::default();
        let mut checkpoints = checkpoints(folder.path(), vec![("main.count".into(), slot.clone())]);
        let transform: Box<dyn Transform> = Box::new(Counting(true));
        checkpoints.transforms.push((slot, Arc::new(Mutex::new(transform))));
        let committed = || checkpoints.positions[0].1.committed("l");
        settle(&checkpoints, 1);
        let moves = checkpoints.traffic.pass();
        for _ in 0..2 {
            checkpoints.save().unwrap();
            assert_eq!(committed(), None);
            let waiting = tokio::time::timeout(LONGEST_EXACT_HOLD / 2, checkpoints.checkpoint(true)).await;
            assert!(waiting.is_err() && committed().is_none());
        }
        drop(moves);
        let held = checkpoints.checkpoint(true).await.unwrap();
        assert_eq!((held, committed()), (Duration::ZERO, Some(1.into())));
        let saved = checkpoints.store.get().unwrap().sink_state("main.count").unwrap();
        assert_eq!(saved, Some(7.into()));
        // In a minute, there must be a checkpoint.
        let _moves = checkpoints.traffic.pass();
        settle(&checkpoints, 2);
        assert_eq!(checkpoints.checkpoint(true).await.unwrap(), LONGEST_EXACT_HOLD);
        assert_eq!(committed(), Some(2.into()));
    }

    fn letter() -> DeadLetter {
        let letter = json!({ "time_us": 1, "component": "main.c", "reason": "none", "source": "in" });
        serde_json::from_value(letter).unwrap()
    }

    #[test]
    fn dead_letters_are_a_state_that_is_saved_while_nothing_moves() {
        let folder = tempfile::tempdir().unwrap();
        let checkpoints = checkpoints(folder.path(), Vec::new());
        let store = checkpoints.store.get().unwrap();
        assert!(!checkpoints.must_be_still());
        store.add_letters(&[letter()], &DeadLetterLimits::default()).unwrap();
        assert!(checkpoints.must_be_still());
    }

    #[test]
    fn dead_letters_that_follow_a_run_which_ended_stay_even_if_it_had_nothing_left_to_save() {
        let folder = tempfile::tempdir().unwrap();
        let checkpoints = checkpoints(folder.path(), Vec::new());
        let (store, source): (_, Arc<str>) = (checkpoints.store.get().unwrap(), "in".into());
        store.cover_letters(std::iter::once(&source)).unwrap();
        checkpoints.save_last(false).unwrap();
        store.add_letters(&[letter()], &DeadLetterLimits::default()).unwrap();
        assert!(store.uncovered_letters().unwrap().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_checkpoint_is_due_twice_a_second_and_later_after_one_that_took_long() {
        let (mut timer, start) = (SaveTimer::new(), Instant::now());
        let mut times = Vec::new();
        for held in [0, 0, 100, 5000, 0] {
            timer.rest_after(Duration::from_millis(held));
            timer.due().await;
            times.push(start.elapsed().as_millis());
        }
        for (held, haste) in [(0, Haste::Soon), (100, Haste::AtOnce), (100, Haste::Soon)] {
            timer.rest_after(Duration::from_millis(held));
            timer.ask(haste);
            timer.due().await;
            times.push(start.elapsed().as_millis());
        }
        assert_eq!(times, [500, 1000, 3000, 13_000, 13_500, 13_505, 13_510, 15_510]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_settled_is_saved_after_five_seconds_in_which_something_moved() {
        let folder = tempfile::tempdir().unwrap();
        let state: StateSlot = Arc::new(Mutex::new(Some(10.into())));
        let checkpoints = checkpoints(folder.path(), vec![("out".into(), state)]);
        let committed = || checkpoints.positions[0].1.committed("l");
        settle(&checkpoints, 1);
        let moves = checkpoints.traffic.pass();
        let held = checkpoints.checkpoint(true).await.unwrap();
        assert_eq!((held.as_millis(), committed()), (LONGEST_HOLD.as_millis(), Some(1.into())));
        drop(moves);
        settle(&checkpoints, 2);
        let held = checkpoints.checkpoint(true).await.unwrap();
        assert_eq!((held, committed()), (Duration::ZERO, Some(2.into())));
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_sink_is_waited_for_if_others_would_write_twice() {
        let folder = tempfile::tempdir().unwrap();
        let states = ["fast", "slow"].map(|name| (name.into(), Arc::new(Mutex::new(Some(10.into())))));
        let checkpoints = checkpoints(folder.path(), states.to_vec());
        settle(&checkpoints, 1);
        let moves = checkpoints.traffic.pass();
        let slow = async {
            tokio::time::sleep(LONGEST_HOLD * 3).await;
            drop(moves);
        };
        let (held, ()) = tokio::join!(checkpoints.checkpoint(true), slow);
        assert_eq!(held.unwrap().as_millis(), (LONGEST_HOLD * 3).as_millis());
        let _moves = checkpoints.traffic.pass();
        settle(&checkpoints, 2);
        *checkpoints.states[0].1.lock() = Some(20.into());
        let held = checkpoints.checkpoint(true).await.unwrap();
        assert_eq!(held.as_millis(), LONGEST_EXACT_HOLD.as_millis());
    }
}
