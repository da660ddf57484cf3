//! Tests of checkpoints while messages are stuck.

use super::super::stuck::LONGEST_STUCK;
use super::*;

/// The checkpoints of a group with two sinks. The sink `well` has written one message, and a checkpoint has
/// it.
async fn with_two_sinks(folder: &Path) -> (Checkpoints, StateSlot) {
    let states = ["well", "failing"].map(|name| (name.into(), Arc::new(Mutex::new(Some(Value::from(1))))));
    let well = states[0].1.clone();
    let checkpoints = checkpoints(folder, states.to_vec());
    settle(&checkpoints, 1);
    checkpoints.checkpoint(true).await.unwrap();
    assert_eq!(saved(&checkpoints), (Some(1.into()), Some(1.into())));
    (checkpoints, well)
}

/// The saved position, and the saved state of the sink `well`.
fn saved(checkpoints: &Checkpoints) -> (Option<Value>, Option<Value>) {
    let store = checkpoints.store.get().unwrap();
    (store.positions("in").unwrap().remove("l"), store.sink_state("well").unwrap())
}

/// A run that was stopped then wrote messages 3 to 9 to the sink `well` again.
#[tokio::test(start_paused = true)]
async fn the_last_checkpoint_stays_while_a_sink_delivers_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (checkpoints, well) = with_two_sinks(folder.path()).await;
    settle(&checkpoints, 2);
    let (moves, stuck) = (checkpoints.traffic.pass(), sent(&checkpoints, "l", 3));
    *well.lock() = Some(9.into());
    let waiting = tokio::spawn(checkpoints.saver.saves().next());
    for may_hold in [true, false, true, false] {
        let held = checkpoints.checkpoint(may_hold).await.unwrap();
        assert_eq!(held, if may_hold { LONGEST_EXACT_HOLD } else { Duration::ZERO });
        assert_eq!(saved(&checkpoints), (Some(1.into()), Some(1.into())));
    }
    // Steps of a sink that wait for a checkpoint with its state are not taken.
    assert!(!waiting.is_finished());
    checkpoints.save_last(true).unwrap();
    assert_eq!(saved(&checkpoints), (Some(1.into()), Some(1.into())));
    stuck.settle(Outcome::Delivered);
    drop(moves);
    assert_eq!(checkpoints.checkpoint(true).await.unwrap(), Duration::ZERO);
    assert_eq!(saved(&checkpoints), (Some(3.into()), Some(9.into())));
    assert!(waiting.await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn states_are_not_saved_without_the_positions_of_what_they_have() {
    let folder = tempfile::tempdir().unwrap();
    let (checkpoints, well) = with_two_sinks(folder.path()).await;
    // A part of a batch is slow, and another one is settled.
    let _stuck = sent(&checkpoints, "l", 2);
    *well.lock() = Some(2.into());
    for _ in 0..2 {
        checkpoints.save().unwrap();
        assert_eq!(saved(&checkpoints), (Some(1.into()), Some(1.into())));
        assert_eq!(*well.lock(), Some(2.into()));
        // Nothing waits for a checkpoint.
        tokio::time::sleep(LONGEST_STUCK * 2).await;
    }
    settle(&checkpoints, 3);
    checkpoints.save().unwrap();
    assert_eq!(saved(&checkpoints), (Some(1.into()), Some(1.into())));
}

#[tokio::test(start_paused = true)]
async fn input_that_goes_another_way_is_saved_after_minutes_in_which_a_sink_delivers_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (checkpoints, well) = with_two_sinks(folder.path()).await;
    let (_moves, _stuck) = (checkpoints.traffic.pass(), sent(&checkpoints, "stuck", 1));
    checkpoints.checkpoint(true).await.unwrap();
    let mut saves = 0;
    for number in 2..8 {
        *well.lock() = Some(number.into());
        settle(&checkpoints, number);
        checkpoints.save().unwrap();
        let now = saved(&checkpoints);
        saves += u64::from(now == (Some(number.into()), Some(number.into())));
        assert!(saves > 0 || now == (Some(1.into()), Some(1.into())));
        tokio::time::sleep(LONGEST_STUCK / 4).await;
    }
    assert_eq!(saves, 2);
}

/// A broker delivered nothing more: none of its messages was acknowledged, since an older one of its only
/// partition was stuck.
#[tokio::test(start_paused = true)]
async fn a_broker_is_answered_after_minutes_although_an_older_message_is_stuck() {
    let folder = tempfile::tempdir().unwrap();
    let (checkpoints, well) = with_two_sinks(folder.path()).await;
    let (_moves, _stuck) = (checkpoints.traffic.pass(), sent(&checkpoints, "l", 2));
    *well.lock() = Some(3.into());
    checkpoints.checkpoint(true).await.unwrap();
    settle(&checkpoints, 3);
    let waiting = tokio::spawn(checkpoints.saver.saves().next());
    tokio::task::yield_now().await;
    checkpoints.save().unwrap();
    assert_eq!(saved(&checkpoints), (Some(1.into()), Some(1.into())));
    assert!(!waiting.is_finished());
    tokio::time::sleep(LONGEST_STUCK).await;
    for number in [3, 4] {
        checkpoints.save().unwrap();
        assert_eq!(saved(&checkpoints), (Some(1.into()), Some(number.into())));
        *well.lock() = Some(4.into());
        settle(&checkpoints, 4);
    }
    assert!(waiting.await.unwrap());
}

/// It was settled after a save had begun, and is in that save. Nothing else was settled, so no other save
/// came.
#[tokio::test(start_paused = true)]
async fn a_broker_is_answered_for_a_message_that_was_settled_during_a_save() {
    let folder = tempfile::tempdir().unwrap();
    let (checkpoints, well) = with_two_sinks(folder.path()).await;
    let (_moves, _stuck) = (checkpoints.traffic.pass(), sent(&checkpoints, "l", 2));
    settle(&checkpoints, 3);
    let snapshot = checkpoints.snapshot(Moment::Moving).unwrap().unwrap();
    let waiting = tokio::spawn(checkpoints.saver.saves().next());
    tokio::task::yield_now().await;
    checkpoints.write_blocking(snapshot).unwrap();
    *well.lock() = Some(2.into());
    checkpoints.save().unwrap();
    tokio::time::sleep(LONGEST_STUCK).await;
    assert!(!waiting.is_finished());
    checkpoints.save().unwrap();
    assert_eq!(saved(&checkpoints), (Some(1.into()), Some(2.into())));
    assert!(waiting.await.unwrap());
}

/// The messages that were stuck before were settled, and others were stuck meanwhile.
#[tokio::test(start_paused = true)]
async fn the_last_checkpoint_stays_while_other_messages_are_stuck_than_before() {
    let folder = tempfile::tempdir().unwrap();
    let (checkpoints, well) = with_two_sinks(folder.path()).await;
    let (_moves, stuck) = (checkpoints.traffic.pass(), sent(&checkpoints, "stuck", 1));
    settle(&checkpoints, 2);
    *well.lock() = Some(3.into());
    checkpoints.checkpoint(true).await.unwrap();
    stuck.settle(Outcome::Delivered);
    let other = sent(&checkpoints, "stuck", 2);
    checkpoints.checkpoint(true).await.unwrap();
    assert_eq!(saved(&checkpoints), (Some(1.into()), Some(1.into())));
    other.settle(Outcome::Delivered);
    checkpoints.save().unwrap();
    assert_eq!(saved(&checkpoints), (Some(2.into()), Some(3.into())));
}

/// Another sink had its part of the message that failed, and the next run wrote it again.
#[tokio::test(start_paused = true)]
async fn a_failed_message_ends_the_checkpoints_of_its_group_also_while_others_move() {
    let folder = tempfile::tempdir().unwrap();
    let (checkpoints, well) = with_two_sinks(folder.path()).await;
    let (_moves, failed) = (checkpoints.traffic.pass(), sent(&checkpoints, "other", 1));
    settle(&checkpoints, 2);
    *well.lock() = Some(3.into());
    failed.settle(Outcome::Failed);
    checkpoints.checkpoint(true).await.unwrap();
    checkpoints.save().unwrap();
    assert_eq!(saved(&checkpoints), (Some(1.into()), Some(1.into())));
}

/// The messages of dead letters were acknowledged to a broker, and the letters removed after a kill.
#[tokio::test(start_paused = true)]
async fn dead_letters_are_covered_before_their_messages_are_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = checkpoints(folder.path(), Vec::new());
    let (store, source): (_, Arc<str>) = (checkpoints.store.get().unwrap(), "in".into());
    store.cover_letters(std::iter::once(&source)).unwrap();
    let (_moves, _stuck) = (checkpoints.traffic.pass(), sent(&checkpoints, "l", 1));
    store.add_letters(&[letter()], &DeadLetterLimits::default()).unwrap();
    settle(&checkpoints, 2);
    let waiting = tokio::spawn(checkpoints.saver.saves().next());
    checkpoints.checkpoint(true).await.unwrap();
    assert!(!waiting.is_finished() && !store.uncovered_letters().unwrap().is_empty());
    tokio::time::sleep(LONGEST_STUCK).await;
    checkpoints.save().unwrap();
    assert!(waiting.await.unwrap() && store.uncovered_letters().unwrap().is_empty());
}

/// One save was reported complete without them, since no position had moved.
#[tokio::test(start_paused = true)]
async fn dead_letters_are_covered_although_nothing_moves_any_more() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = checkpoints(folder.path(), Vec::new());
    let (store, source): (_, Arc<str>) = (checkpoints.store.get().unwrap(), "in".into());
    store.cover_letters(std::iter::once(&source)).unwrap();
    store.add_letters(&[letter()], &DeadLetterLimits::default()).unwrap();
    checkpoints.positions[0].1.expect(None, 1).settle(Outcome::Rejected);
    checkpoints.checkpoint(true).await.unwrap();
    assert!(store.uncovered_letters().unwrap().is_empty() && checkpoints.is_idle());
}

/// While some of its messages were stuck, a group waited five minutes because another one rejected messages.
#[tokio::test(start_paused = true)]
async fn dead_letters_of_other_groups_hold_up_no_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = checkpoints(folder.path(), Vec::new());
    let store = checkpoints.store.get().unwrap();
    let (_moves, _stuck) = (checkpoints.traffic.pass(), sent(&checkpoints, "stuck", 1));
    store.add_letters(&[letter_of("other")], &DeadLetterLimits::default()).unwrap();
    settle(&checkpoints, 1);
    checkpoints.checkpoint(true).await.unwrap();
    assert_eq!(store.positions("in").unwrap(), BTreeMap::from([("l".to_owned(), 1.into())]));
}

/// A run that was stopped then had the dead letters of messages that were stuck twice.
#[tokio::test(start_paused = true)]
async fn dead_letters_of_what_is_stuck_are_not_covered_with_the_positions_of_others() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = checkpoints(folder.path(), Vec::new());
    let (store, source): (_, Arc<str>) = (checkpoints.store.get().unwrap(), "in".into());
    store.cover_letters(std::iter::once(&source)).unwrap();
    let (_moves, _stuck) = (checkpoints.traffic.pass(), sent(&checkpoints, "stuck", 1));
    store.add_letters(&[letter()], &DeadLetterLimits::default()).unwrap();
    settle(&checkpoints, 1);
    checkpoints.checkpoint(true).await.unwrap();
    assert_eq!(store.uncovered_letters().unwrap().len(), 1);
    assert!(store.positions("in").unwrap().is_empty());
    settle(&checkpoints, 2);
    tokio::time::sleep(LONGEST_STUCK).await;
    checkpoints.save().unwrap();
    assert!(store.uncovered_letters().unwrap().is_empty());
    assert_eq!(store.positions("in").unwrap(), BTreeMap::from([("l".to_owned(), 2.into())]));
}

#[tokio::test(start_paused = true)]
async fn a_sink_with_thousands_of_steps_does_not_wait_for_what_is_stuck() {
    let folder = tempfile::tempdir().unwrap();
    let (checkpoints, well) = with_two_sinks(folder.path()).await;
    let (_moves, _stuck) = (checkpoints.traffic.pass(), sent(&checkpoints, "stuck", 1));
    *well.lock() = Some(2.into());
    settle(&checkpoints, 2);
    checkpoints.checkpoint(true).await.unwrap();
    assert_eq!(saved(&checkpoints), (Some(1.into()), Some(1.into())));
    checkpoints.stuck.hurry();
    checkpoints.save().unwrap();
    assert_eq!(saved(&checkpoints), (Some(2.into()), Some(2.into())));
}

#[tokio::test(start_paused = true)]
async fn what_a_slow_sink_delivers_is_saved_although_it_has_never_rest() {
    let folder = tempfile::tempdir().unwrap();
    let (checkpoints, well) = with_two_sinks(folder.path()).await;
    let (_moves, slow) = (checkpoints.traffic.pass(), sent(&checkpoints, "l", 2));
    let _next = sent(&checkpoints, "l", 3);
    *well.lock() = Some(3.into());
    let delivered = async {
        tokio::time::sleep(LONGEST_EXACT_HOLD * 3 / 4).await;
        slow.settle(Outcome::Delivered);
    };
    let (held, ()) = tokio::join!(checkpoints.checkpoint(true), delivered);
    assert_eq!(held.unwrap(), LONGEST_EXACT_HOLD);
    assert_eq!(saved(&checkpoints), (Some(2.into()), Some(3.into())));
}
