use super::*;
use arrow_array::UInt64Array;
use proptest::prelude::*;
use thalweg_engine::testing::batch;
use thalweg_record::{Ack, Meta};

fn positions() -> Positions {
    Positions::of("00ff00000000000000000000000000ab".to_owned(), "p")
}

/// Returns messages of a file with these positions.
fn of(path: &str, sequence: Option<&str>, positions: &[u64]) -> Batch {
    let messages = batch(positions.iter().map(u64::to_string));
    let meta =
        Meta { path: Some(path.into()), sequence: sequence.map(Into::into), ..(**messages.meta()).clone() };
    let messages = Batch::new(messages.payload().clone(), Arc::new(meta), Ack::noop());
    messages.with_positions(UInt64Array::from(positions.to_vec())).unwrap()
}

fn at(positions: &[u64]) -> Batch {
    of("a.log", Some("one"), positions)
}

fn refused(rows: &[u32]) -> Vec<(u32, String)> {
    rows.iter().map(|row| (*row, String::new())).collect()
}

/// Stores a batch, except for these rows. Returns the rows that were not stored before.
fn store(positions: &mut Positions, places: &[u64], bad: &[u32]) -> Vec<usize> {
    let plan = positions.plan(&at(places)).unwrap();
    positions.stored(&plan, &refused(bad));
    plan.unstored().collect()
}

/// Returns the positions as a later run reads them.
fn restarted(before: &Positions) -> Positions {
    let mut after = positions();
    for (partition, known) in &before.known {
        let known = Known { last: known.last, refused: known.refused.clone(), ..Known::default() };
        after.known.insert(partition.clone(), known);
    }
    after
}

#[test]
fn a_later_run_skips_what_is_stored_and_cuts_batches_differently() {
    let mut first = positions();
    assert_eq!(store(&mut first, &[0, 5, 5, 9], &[]), [0, 1, 2, 3]);
    let mut second = restarted(&first);
    assert_eq!(store(&mut second, &[5, 5, 9, 9], &[]), [3]);
    assert_eq!(store(&mut second, &[12], &[]), [0]);
    let mut third = restarted(&second);
    assert_eq!(store(&mut third, &[9], &[]), [0; 0]);
    assert_eq!(store(&mut third, &[9, 12, 13], &[]), [2]);
}

#[test]
fn refused_messages_are_tried_again_until_a_checkpoint_covers_them() {
    let mut first = positions();
    store(&mut first, &[1, 2, 3], &[1]);
    assert_eq!(first.uncommitted(), 1);
    let mut second = restarted(&first);
    assert_eq!(store(&mut second, &[1, 2, 3], &[]), [1]);
    assert_eq!(store(&mut restarted(&second), &[1, 2, 3], &[]), [0; 0]);
    first.commit(1);
    assert_eq!(first.uncommitted(), 0);
    assert_eq!(store(&mut restarted(&first), &[1, 2, 3], &[]), [0; 0]);
}

#[test]
fn messages_that_ended_elsewhere_are_tried_again_as_well() {
    let mut first = positions();
    let plan = first.plan(&at(&[1, 2])).unwrap();
    first.left(&plan);
    store(&mut first, &[3], &[]);
    assert_eq!(store(&mut restarted(&first), &[1, 2, 3], &[]), [0, 1]);
}

#[test]
fn a_file_that_was_replaced_is_another_and_a_renamed_one_is_not() {
    let mut first = positions();
    let plan = first.plan(&at(&[0, 5, 9])).unwrap();
    first.stored(&plan, &[]);
    let second = restarted(&first);
    let unstored = |batch: &Batch| second.plan(batch).unwrap().unstored().collect::<Vec<_>>();
    assert_eq!(unstored(&of("a.log", Some("two"), &[0, 5])), [0, 1]);
    assert_eq!(unstored(&of("a.log.1", Some("one"), &[5, 9, 12])), [2]);
}

#[test]
fn files_that_a_checkpoint_covers_are_forgotten_if_there_are_many() {
    let mut positions = positions();
    for number in 0..=MOST {
        let plan = positions.plan(&of("a.log", Some(&number.to_string()), &[1])).unwrap();
        positions.stored(&plan, &refused(&[0][..usize::from(number == 0)]));
        // All but the last transaction.
        positions.commit(positions.uncommitted() - 1);
    }
    assert!(positions.known.len() <= READ + 1, "{}", positions.known.len());
    let last = MOST.to_string();
    assert!(positions.known.keys().any(|partition| *partition.sequence == *last));
}

#[test]
fn what_a_lost_confirmation_stored_does_not_count_as_left() {
    let mut known = Known { left: BTreeSet::from([(1, 0), (3, 0)]), ..Known::default() };
    known.load((2, 0), BTreeSet::new());
    assert_eq!(known.left, BTreeSet::from([(3, 0)]));
    known.load((4, 0), [(3, 0)].into());
    assert_eq!((known.left, known.last), (BTreeSet::from([(3, 0)]), Some((4, 0))));
}

#[test]
fn positions_that_go_back_and_missing_ones_are_errors() {
    let mut positions = positions();
    store(&mut positions, &[5], &[]);
    let error = positions.plan(&at(&[4])).unwrap_err().to_string();
    assert!(error.starts_with("the positions of `test` in `a.log` went back to 4: "), "{error}");
    // The positions of a stream of bytes begin again with each run.
    for messages in [batch(["a"]), of("peer", None, &[0])] {
        assert_eq!(
            positions.plan(&messages).unwrap_err().to_string(),
            "messages of `test` have no positions that grow, which `exactly_once` needs: see its sources"
        );
    }
    let long = of("a.log", Some(&"s".repeat(2000)), &[6]);
    let error = positions.plan(&long).unwrap_err().to_string();
    assert!(error.starts_with("messages of `test` have more than 2000 bytes for the names"), "{error}");
}

#[test]
fn the_statement_has_what_changes() {
    let mut positions = positions();
    let plan = positions.plan(&at(&[7, 8])).unwrap();
    let statement = positions.statement(&plan, &refused(&[0])).unwrap();
    let values = "VALUES (E'00ff00000000000000000000000000ab', E'test', E'one', 8, 0, E'[[7,0]]', now())";
    assert!(statement.contains(values), "{statement}");
    assert_eq!(positions.lock(), 0x00ff_0000_0000_0000);
    positions.stored(&plan, &refused(&[0]));
    let again = restarted(&positions);
    let plan = again.plan(&at(&[8])).unwrap();
    // The refused place is before the first message of the run: a checkpoint covers it.
    assert!(again.statement(&plan, &[]).unwrap().contains("E'[]'"));
}

proptest! {
    /// Runs end anywhere, after a transaction that no checkpoint covers, and the next one begins at any
    /// checkpoint before. Each message is stored once or refused, and a refused one is not forgotten before a
    /// checkpoint covers it.
    #[test]
    fn each_message_is_stored_once(
        steps in prop::collection::vec((1..4usize, any::<bool>(), any::<bool>(), 0..5u32), 1..30),
    ) {
        // Two messages have each position.
        let place = |number: usize| number as u64 / 2;
        let mut sink = positions();
        let (mut stored, mut letters) = (vec![0u32; 200], BTreeSet::new());
        // Where the checkpoint is, and the dead letters that it covers.
        let (mut next, mut checkpoint, mut kept) = (0, 0, BTreeSet::new());
        for (count, saves, dies, bad) in steps {
            // A batch of a source begins with a position.
            let numbers: Vec<usize> = (next..next + 2 * count).collect();
            let places: Vec<u64> = numbers.iter().map(|number| place(*number)).collect();
            let plan = sink.plan(&at(&places)).unwrap();
            let unstored: Vec<usize> = plan.unstored().collect();
            let bad: Vec<u32> = unstored.iter().map(|row| *row as u32).filter(|row| row % 5 == bad).collect();
            sink.stored(&plan, &refused(&bad));
            for row in unstored {
                match bad.contains(&(row as u32)) {
                    true => _ = letters.insert(numbers[row]),
                    false => stored[numbers[row]] += 1,
                }
            }
            next += 2 * count;
            if saves {
                checkpoint = next;
                kept = letters.clone();
                sink.commit(sink.uncommitted());
            }
            if dies {
                sink = restarted(&sink);
                next = checkpoint;
                letters = kept.clone();
            }
        }
        for (number, &times) in stored.iter().enumerate().take(next) {
            let is_letter = letters.contains(&number);
            prop_assert!(times <= 1, "{} is stored {} times", number, times);
            prop_assert!(times == 1 || is_letter, "{} is lost", number);
        }
    }
}
