//! Tests of checkpoints.

mod stuck;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::AtomicUsize;

use serde_json::json;
use thalweg_record::{Ack, Batch, Outcome, Outputs};

use super::*;
use crate::positions::Checkpoint;
use crate::store::DeadLetter;
use crate::{DeadLetterLimits, Role};

/// The checkpoints of a group with the source `in`.
fn checkpoints(folder: &Path, states: Vec<SavedState>) -> Checkpoints {
    let (failures, _) = tokio::sync::mpsc::unbounded_channel();
    let positions = Positions::new("in".into(), Role::Source, BTreeMap::new(), failures);
    positions.keep();
    Checkpoints { states, ..Checkpoints::of_source(folder.to_owned(), positions) }
}

/// The milliseconds of a hold. No time is measured: the clock of these tests stands, and is moved on to the
/// next timer when all tasks wait for one. A hold ends within the millisecond of its timer.
fn whole(held: Duration) -> u128 {
    held.as_millis()
}

fn settle(checkpoints: &Checkpoints, offset: u64) {
    sent(checkpoints, "l", offset).settle(Outcome::Delivered);
}

/// A message that is not settled.
fn sent(checkpoints: &Checkpoints, partition: &str, offset: u64) -> Ack {
    let checkpoint = Checkpoint { partition: partition.into(), offset: offset.into() };
    checkpoints.positions[0].1.expect(Some(checkpoint), 1)
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

/// Its input came again, although only another group had something in flight. Behind a buffer on disk, an
/// `aggregate` then counted it twice.
#[test]
fn a_group_that_has_delivered_everything_is_saved_although_the_run_gave_up_others() {
    let folder = tempfile::tempdir().unwrap();
    let slot = StateSlot::default();
    let mut checkpoints = checkpoints(folder.path(), vec![("main.count".into(), slot.clone())]);
    let transform: Box<dyn Transform> = Box::new(Counting(true));
    checkpoints.transforms.push((slot, Arc::new(Mutex::new(transform))));
    let saved = || checkpoints.store.get().unwrap().positions("in").unwrap().remove("l");
    let given_up = sent(&checkpoints, "l", 1);
    checkpoints.save_last(true).unwrap();
    assert_eq!(saved(), None);
    given_up.settle(Outcome::Delivered);
    checkpoints.save_last(true).unwrap();
    assert_eq!(saved(), Some(1.into()));
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
    letter_of("in")
}

fn letter_of(source: &str) -> DeadLetter {
    let letter = json!({ "time_us": 1, "component": "main.c", "reason": "none", "source": source });
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
async fn what_is_settled_is_saved_after_five_seconds_in_which_something_moved() {
    let folder = tempfile::tempdir().unwrap();
    let state: StateSlot = Arc::new(Mutex::new(Some(10.into())));
    let checkpoints = checkpoints(folder.path(), vec![("out".into(), state)]);
    let committed = || checkpoints.positions[0].1.committed("l");
    settle(&checkpoints, 1);
    let moves = checkpoints.traffic.pass();
    let held = checkpoints.checkpoint(true).await.unwrap();
    assert_eq!((whole(held), committed()), (whole(LONGEST_HOLD), Some(1.into())));
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
    assert_eq!(whole(held.unwrap()), whole(LONGEST_HOLD * 3));
    let _moves = checkpoints.traffic.pass();
    settle(&checkpoints, 2);
    *checkpoints.states[0].1.lock() = Some(20.into());
    let held = checkpoints.checkpoint(true).await.unwrap();
    assert_eq!(whole(held), whole(LONGEST_EXACT_HOLD));
}
