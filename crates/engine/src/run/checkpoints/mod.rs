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

mod lazy_store;
mod snapshot;
mod stuck;
mod timer;
mod uncovered;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use thalweg_runtime::Traffic;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::RunFailure;
use super::flushes::Flushes;
use super::saves::{Haste, Saver};
use super::sink::{CheckpointBarrier, Uncommitted};
use crate::Error;
use crate::component::Transform;
use crate::positions::Positions;
use crate::store::DeadLetterId;
use snapshot::{Moment, Snapshot};
use timer::{LONGEST_PAUSE, SaveTimer};

pub(super) use lazy_store::LazyStore;
pub(super) use stuck::Stuck;
pub(super) use uncovered::{begin, begin_beside, begin_parts};

/// How long the sources are held back at most: a sink that retries would hold them back without end. Then the
/// settled messages are saved while others move, as often as usual, until the longest pause is over. A run
/// that resumes there may write those twice. So nothing is saved while those that move are [stuck](Stuck).
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
    pub(super) stuck: Stuck,
}

#[cfg(test)]
impl Checkpoints {
    /// Those of a group with one source, called `in`, for tests.
    pub(super) fn of_source(folder: std::path::PathBuf, positions: Arc<Positions>) -> Self {
        Self {
            store: Arc::new(LazyStore::new(folder, None)),
            are_kept: true,
            positions: vec![("in".into(), positions)],
            states: Vec::new(),
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
            stuck: Stuck::default(),
        }
    }
}

/// Why messages still move after the longest hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Busy {
    /// Some of them were settled meanwhile.
    Slow,
    /// Of those of the sources, none was settled in the last half of the time.
    Stuck,
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
                    if haste == Haste::AtOnce {
                        self.stuck.hurry();
                    }
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
            self.stuck.clear();
            self.saver.complete(number);
            return Ok(Duration::ZERO);
        }
        let start = Instant::now();
        self.find_exact();
        match self.patiently(self.still_snapshot()).await.map(Result::transpose) {
            Ok(Some(snapshot)) => {
                let held = start.elapsed();
                self.write_blocking(snapshot?)?;
                self.stuck.clear();
                return Ok(held);
            }
            // The run is failing, and the state of what failed must not be saved.
            Ok(None) => {}
            Err(busy) => {
                tracing::debug!("messages move although the sources are held back: a component takes long");
                if let Some(snapshot) = self.snapshot(Moment::TooLong)? {
                    self.write_moving(snapshot, busy == Busy::Stuck)?;
                }
            }
        }
        Ok(start.elapsed())
    }

    /// Waits for a snapshot, as long as the sources may be held back. Only time in which the process runs
    /// counts: after a pause of the machine, what is in flight has had no time to arrive.
    async fn patiently<T>(&self, snapshot: impl Future<Output = T>) -> Result<T, Busy> {
        let mut snapshot = std::pin::pin!(snapshot);
        let mut held = Duration::ZERO;
        let (mut settled, mut settled_at) = (self.settled(), Duration::ZERO);
        while held < self.longest_hold() {
            tokio::select! {
                biased;
                snapshot = &mut snapshot => return Ok(snapshot),
                () = tokio::time::sleep(HOLD_STEP) => held += HOLD_STEP,
            }
            let now = self.settled();
            if now != settled {
                (settled, settled_at) = (now, held);
            }
        }
        let is_stuck = !self.unsettled().is_empty() && held - settled_at >= held / 2;
        Err(if is_stuck { Busy::Stuck } else { Busy::Slow })
    }

    /// Finds out whether a transform has an exact state.
    fn find_exact(&self) {
        for (slot, transform) in &self.transforms {
            if let Some(mut transform) = transform.try_lock() {
                self.take_state(slot, &mut **transform);
            }
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

    /// True if nothing was sent, settled or rejected since the last checkpoint.
    fn is_idle(&self) -> bool {
        let has_news =
            |transform: &SharedTransform| transform.try_lock().is_some_and(|transform| transform.has_news());
        self.positions.iter().all(|(_, positions)| positions.is_idle())
            && self.states.iter().all(|(_, state)| state.lock().is_none())
            && !self.transforms.iter().any(|(_, transform)| has_news(transform))
            && self.last_letter() <= self.stuck.last().letter
    }

    /// Saves what is settled, last of all, when the tasks of the run have ended. State with messages in
    /// flight when a component failed, or when the run gave them up, is not consistent: the last checkpoint
    /// stays. Not so if only other groups had messages in flight.
    ///
    /// # Errors
    /// As [`save`](Self::save).
    pub(super) fn save_last(&self, gave_up: bool) -> Result<(), Error> {
        if !self.is_due() {
            return Ok(());
        }
        let is_still = self.must_be_still();
        // Also if one sink alone has a state: it may have a part of a batch that a transform divided.
        let gave_up = gave_up && !self.is_settled();
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
        self.snapshot(Moment::Moving)?.map_or(Ok(()), |snapshot| self.write_moving(snapshot, false))
    }

    /// Writes a snapshot that was made while messages move. If the last checkpoint is to stay, puts it back:
    /// those who wait for a save wait for a later one.
    fn write_moving(&self, snapshot: Snapshot, is_stuck: bool) -> Result<(), Error> {
        self.stuck.look(&self.positions, is_stuck);
        if self.are_kept && self.rereads && self.stays(&snapshot) {
            self.put_back(snapshot.moved, snapshot.states);
            return Ok(());
        }
        self.write_blocking(snapshot)
    }

    /// True if the last checkpoint is to stay, in place of a snapshot that was made while messages move: see
    /// [`Stuck`]. So it is if a batch has failed, and the run ends: sinks may have its other parts.
    fn stays(&self, snapshot: &Snapshot) -> bool {
        let has_moved = snapshot.moved.iter().any(|(_, _, offset)| offset.is_some());
        let has_settled = snapshot.extent.settled != self.stuck.last().settled;
        let stays = self.stuck.stays(has_moved, has_settled || self.saver.is_awaited());
        (stays || self.has_failed()) && (self.has_letters(snapshot) || self.is_repeated(&snapshot.states))
    }

    /// True if a run that resumes with these states may write or count messages twice, which it would not
    /// with those of the last checkpoint: a sink has one, or a transform has an exact one.
    fn is_repeated(&self, states: &[(Arc<str>, Value)]) -> bool {
        let is_of_transform =
            |slot: &StateSlot| self.transforms.iter().any(|(own, _)| Arc::ptr_eq(own, slot));
        let mut sinks = self.states.iter().filter(|(_, slot)| !is_of_transform(slot));
        !states.is_empty() && self.is_exact.load(Relaxed)
            || sinks.any(|(sink, _)| states.iter().any(|(name, _)| name == sink))
    }

    /// True if a snapshot covers dead letters of the group that the last checkpoint does not cover.
    fn has_letters(&self, snapshot: &Snapshot) -> bool {
        snapshot.extent.letter > self.stuck.last().letter
    }

    /// The last dead letter of the group, or 0 if there are none to cover. Those of other groups do not
    /// count: if one rejects all the time, it must not hold up the checkpoints of the others.
    fn last_letter(&self) -> DeadLetterId {
        let Some(store) = self.store.opened().filter(|_| self.are_kept && self.covers_letters) else {
            return 0;
        };
        self.positions.iter().filter_map(|(source, _)| store.last_letter_of(source)).max().unwrap_or_default()
    }

    /// As [`save`](Self::save), unless a component has a state that must be saved while nothing moves.
    /// Returns false then.
    fn save_without_state(&self) -> Result<bool, Error> {
        let Some(snapshot) = self.snapshot(Moment::Moving)? else { return Ok(true) };
        let has_state = !snapshot.states.is_empty() || self.has_letters(&snapshot);
        if self.are_kept && self.rereads && has_state {
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

    /// True if everything that was sent is settled.
    fn is_settled(&self) -> bool {
        let mut all = self.positions.iter().map(|(_, positions)| positions);
        all.all(|positions| positions.unsettled() == 0 && positions.oldest_unsettled().is_empty())
    }

    /// The number of messages and files that were settled.
    fn settled(&self) -> u64 {
        self.positions.iter().map(|(_, positions)| positions.settled()).sum()
    }

    /// For each component with unsettled batches: how many messages or files are in these.
    pub(super) fn unsettled(&self) -> Vec<(Arc<str>, u64)> {
        let counts = self.positions.iter().map(|(name, positions)| (name.clone(), positions.unsettled()));
        counts.filter(|(_, count)| *count > 0).collect()
    }
}

#[cfg(test)]
mod tests;
