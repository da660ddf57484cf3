//! The order, files, acks and checkpoints.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow_array::{ArrayRef, Float64Array, Int64Array, StringViewArray};
use proptest::prelude::*;
use serde_json::{Value, json};
use thalweg_codec::columns::FieldType;
use thalweg_engine::{Output, Outputs, testing};
use thalweg_record::{Ack, Batch, Budget, Meta, Outcome, Settlement};

use super::*;
use crate::testing::{Killed, counted, with_state, with_text};

/// A message: its text, its number and its path.
type Message = (Option<String>, Option<i64>, u8);

/// Returns a batch whose payloads are the numbers of the messages, from `first` on. All have the path of the
/// first one. If none has a number, there is no such field; if `has_floats`, numbers are floats.
fn batch(first: usize, messages: &[Message], has_floats: bool) -> Batch {
    let texts: StringViewArray = messages.iter().map(|(text, ..)| text.as_deref()).collect();
    let mut fields = vec![(FieldType::Text.field("text"), Arc::new(texts) as ArrayRef)];
    let numbers = || messages.iter().map(|(_, number, _)| *number);
    if has_floats {
        let floats: Float64Array = numbers().map(|number| number.map(|number| number as f64)).collect();
        fields.push((FieldType::Float.field("number"), Arc::new(floats)));
    } else if numbers().any(|number| number.is_some()) {
        fields.push((FieldType::Int.field("number"), Arc::new(numbers().collect::<Int64Array>())));
    }
    let made = testing::batch((first..first + messages.len()).map(|number| number.to_string()));
    let path = messages.first().map(|(.., path)| format!("file-{path}").into());
    let meta = Meta { path, ..(**made.meta()).clone() };
    Batch::new(made.payload().clone(), Arc::new(meta), Ack::noop()).set_fields(fields).unwrap()
}

fn batches(messages: &[Message], size: usize) -> Vec<Batch> {
    let chunks = messages.chunks(size).enumerate();
    chunks.map(|(at, part)| batch(at * size, part, at % 3 == 1)).collect()
}

/// The payloads in the order `[{ text: desc }, number]`, with NULL last.
fn model(messages: &[Message]) -> Vec<String> {
    let mut order: Vec<usize> = (0..messages.len()).collect();
    order.sort_by(|one, other| {
        let ((text, number, _), (other_text, other_number, _)) = (&messages[*one], &messages[*other]);
        let texts = text.is_none().cmp(&other_text.is_none()).then(other_text.cmp(text));
        texts.then(number.is_none().cmp(&other_number.is_none())).then(number.cmp(other_number))
    });
    order.into_iter().map(|number| number.to_string()).collect()
}

const BY: &str = "by: [{ text: desc }, number]";

fn messages() -> impl Strategy<Value = Vec<Message>> {
    let message = (prop::option::of("[a-c\0]{0,2}"), prop::option::of(-2..3_i64), 0..2_u8);
    prop::collection::vec(message, 0..80)
}

/// Sends all that the transform holds back. Returns the payloads.
fn sent(transform: &mut dyn Transform, out: &mut Outputs) -> Vec<String> {
    let mut found = Vec::new();
    loop {
        for (output, batch) in out.take() {
            assert_eq!(output, Output::Main);
            assert!(batch.positions().is_none() && batch.meta().sequence.is_none());
            found.extend(testing::payloads(&batch));
            batch.settle(Outcome::Delivered);
        }
        if out.take_held().is_none() {
            return found;
        }
        transform.resume(out).unwrap();
    }
}

/// A transform with at most `most` bytes in memory.
fn sorting(yaml: &str, context: &Context, most: usize) -> Sorting {
    let mut sorting = testing::options::<Sort>(yaml).sorting(context).unwrap();
    sorting.sorter.shrink(most, most / 8 + 1);
    sorting
}

#[test]
fn it_conforms() {
    testing::transform_conforms::<Sort>("by: payload", &["b", "", "a", "", "c"]);
    testing::transform_conforms::<Sort>("by: [nothing, { meta.path: desc }]", &["a", "b"]);
}

#[test]
fn messages_leave_in_order_at_the_end() {
    let sorted = |yaml: &str, lines: &[&str]| {
        testing::apply::<Sort>(yaml, lines.chunks(2).map(testing::batch)).payloads(Output::Main)
    };
    assert_eq!(sorted("by: payload", &["b", "a", "", "ab", "B"]), ["", "B", "a", "ab", "b"]);
    assert_eq!(sorted("by: { payload: desc }", &["b", "a", "", "ab"]), ["b", "ab", "a", ""]);
    assert_eq!(sorted("by: nothing", &["b", "a", "c"]), ["b", "a", "c"]);
    assert_eq!(sorted("by: payload", &[]), [""; 0]);
}

#[test]
fn fields_of_different_batches_stay_what_they_were() {
    let with = with_text(&["1", "2"], &[("a", &[Some("x"), None])]);
    let without = with_text(&["3", "4"], &[("b", &[Some("y"), Some("z")])]);
    let given = testing::apply::<Sort>("by: { payload: desc }", [with, without]);
    assert_eq!(given.payloads(Output::Main), ["4", "3", "2", "1"]);
    assert_eq!(given.main(), [json!({"b": "z"}), json!({"b": "y"}), json!({}), json!({"a": "x"})]);
}

#[test]
fn texts_are_compared_by_their_first_16_kib() {
    let long = "x".repeat(order::LONGEST);
    let lines = [format!("{long}b"), format!("{long}a"), "w".to_owned()];
    let given = testing::apply::<Sort>("by: payload", [testing::batch(&lines)]);
    assert_eq!(given.payloads(Output::Main), [lines[2].clone(), lines[0].clone(), lines[1].clone()]);
}

#[test]
fn an_order_that_is_none_is_a_mistake() {
    assert_eq!(
        testing::messages(testing::options::<Sort>("by: [{ a: desc, b: asc }]").check()),
        ["An element of `by` has one field, perhaps with its direction."]
    );
    let said = |yaml: &str| testing::messages(testing::options::<Sort>(yaml).check());
    for text in ["amount desc", "amount ASC", "-amount", "- amount"] {
        assert_eq!(
            said(&format!("by: [date, '{text}']")),
            ["`by` has the direction of `amount` in the name of the field."],
            "{text}"
        );
    }
    let fine = "by: [desc, '-', 'a-b', 'in desc order', { '-amount': asc }, { 'amount desc': desc }]";
    assert_eq!(said(fine), [""; 0]);
    assert_eq!(testing::refused::<Sort>("by: []"), "`by` needs at least 1 element, but it is empty.");
}

#[test]
fn memory_is_given_back_and_bounded_by_the_budget() {
    let budget = Budget::new(1 << 20);
    let context = Context { memory: budget.share(), ..testing::context() };
    let mut transform = testing::options::<Sort>("by: payload").sorting(&context).unwrap();
    let mut out = Outputs::new("test".into());
    let text = "x".repeat(100);
    let mut expected: Vec<String> = Vec::new();
    for number in 0..300_u64 {
        let number = |row: u64| (number * 100 + row).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let lines: Vec<String> = (0..100).map(|row| format!("{:020} {text}", number(row))).collect();
        transform.apply(testing::batch(&lines), &mut out).unwrap();
        assert!(budget.used() < 400 << 10, "{}", budget.used());
        expected.extend(lines);
    }
    expected.sort();
    transform.finish(&mut out).unwrap();
    assert_eq!(sent(&mut transform, &mut out), expected);
    assert_eq!(budget.used(), 0);
}

#[test]
fn a_folder_that_cannot_be_written_ends_the_run_with_a_message() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let temporary = thalweg_engine::Temporaries::new(Some(&file));
    let context = Context { temporary, starts_over: false, ..testing::context() };
    let mut transform = sorting("by: payload", &context, 0);
    let outcomes: Arc<AtomicUsize> = Arc::default();
    let safe = outcomes.clone();
    let ack = Ack::new("test".into(), move |settlement: Settlement| {
        safe.fetch_add(usize::from(settlement.outcome.is_safe()), Ordering::Relaxed);
    });
    let mut out = Outputs::new("test".into());
    let error = transform.apply(testing::batch_with(["a"], ack), &mut out).unwrap_err().to_string();
    let start = "the messages that do not fit into memory cannot be kept in a file: ";
    assert!(error.starts_with(start) && error.contains("choose another one with `temporary`"), "{error}");
    drop(transform);
    assert_eq!(outcomes.load(Ordering::Relaxed), 0);
}

/// A source that no run reads again, without or with a state: acks wait for the output.
#[test]
fn acks_wait_for_the_output_unless_a_run_starts_over() {
    let folder = tempfile::tempdir().unwrap();
    for (context, is_settled) in [
        (testing::context(), true),
        (Context { starts_over: false, ..testing::context() }, false),
        (Context { rereads: false, ..with_state(&folder) }, false),
    ] {
        let settled: Arc<AtomicUsize> = Arc::default();
        let mut transform = sorting("by: payload", &context, 100);
        let mut out = Outputs::new("test".into());
        for line in ["c", "a", "b"] {
            let count = settled.clone();
            let ack = Ack::new("test".into(), move |settlement: Settlement| {
                count.fetch_add(usize::from(settlement.outcome == Outcome::Delivered), Ordering::Relaxed);
            });
            transform.apply(testing::batch_with([line], ack), &mut out).unwrap();
        }
        let so_far = || settled.load(Ordering::Relaxed);
        assert_eq!(so_far(), if is_settled { 3 } else { 0 });
        assert_eq!(transform.state(), None);
        transform.stop(&mut out).unwrap();
        assert_eq!(sent(&mut transform, &mut out), ["a", "b", "c"]);
        assert_eq!(so_far(), 3);
    }
}

#[test]
fn more_acks_than_fit_into_memory_end_the_run() {
    let memory = Budget::new(64 << 10).share();
    let context = Context { starts_over: false, memory, ..testing::context() };
    let mut transform = testing::options::<Sort>("by: payload").sorting(&context).unwrap();
    let mut out = Outputs::new("test".into());
    let mut failures = (0..65).filter_map(|_| transform.apply(testing::batch(["a"]), &mut out).err());
    let error = failures.next().unwrap().to_string();
    assert!(error.starts_with("64 batches wait for the end of the input"), "{error}");
}

/// Passes batches to runs with one state, of which the last one ends. Each other run takes `length` batches
/// from the last checkpoint on, with a checkpoint after every `between` of them.
fn killed(messages: &[Message], size: usize, most: usize, kills: &[Killed]) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let context = with_state(&folder);
    let (mut saved, mut covered) = (None, 0);
    for &(between, length) in kills.iter().chain([&(2, usize::MAX)]) {
        let (settled, begun) = (Arc::<AtomicUsize>::default(), covered);
        let mut transform = sorting(BY, &context, most);
        saved.iter().for_each(|saved: &Value| transform.restore(saved.clone()).unwrap());
        let mut out = Outputs::new("test".into());
        for (number, batch) in batches(messages, size).into_iter().enumerate().skip(begun).take(length) {
            transform.apply(counted(batch, &settled), &mut out).unwrap();
            if number % (between + 1) == 0 {
                transform.pre_commit().unwrap();
                saved = transform.state().or(saved);
                assert_eq!(transform.state(), None, "nothing has changed since");
                covered = number + 1;
                assert_eq!(settled.load(Ordering::Relaxed), covered - begun);
            }
        }
        if length == usize::MAX {
            transform.finish(&mut out).unwrap();
            let found = sent(&mut transform, &mut out);
            assert_eq!(transform.has_news(), !messages.is_empty());
            transform.pre_commit().unwrap();
            assert_eq!(transform.state().or(saved), Some(json!({"length": 0, "hash": 0})));
            transform.pre_commit().unwrap();
            let journal = context.journal.as_ref().unwrap();
            assert_eq!(journal.names("").unwrap(), Vec::<String>::new(), "an entry that no state needs");
            assert_eq!(journal.count_outputs().unwrap(), 0, "a file that no state needs");
            return found;
        }
    }
    Vec::new()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_batches_and_files_give_the_order(messages in messages(), size in 1..9_usize, most in 0..4000_usize) {
        let mut transform = sorting(BY, &testing::context(), most);
        let mut out = Outputs::new("test".into());
        for batch in batches(&messages, size) {
            transform.apply(batch, &mut out).unwrap();
        }
        transform.finish(&mut out).unwrap();
        prop_assert_eq!(sent(&mut transform, &mut out), model(&messages));
    }

    #[test]
    fn runs_that_are_killed_send_each_message_once(
        messages in messages(),
        size in 1..9_usize,
        most in 0..4000_usize,
        kills in prop::collection::vec((0..4_usize, 0..8_usize), 0..4),
    ) {
        prop_assert_eq!(killed(&messages, size, most, &kills), model(&messages));
    }
}

#[test]
fn a_run_that_is_stopped_leaves_the_messages_of_its_state_to_the_next_one() {
    let folder = tempfile::tempdir().unwrap();
    let context = with_state(&folder);
    let (mut first, mut out) = (sorting("by: payload", &context, 0), Outputs::new("test".into()));
    first.apply(testing::batch(["b", "c"]), &mut out).unwrap();
    first.stop(&mut out).unwrap();
    assert!(out.take().is_empty() && out.take_held().is_none());
    first.pre_commit().unwrap();
    let saved = first.state().unwrap();
    let without = Context { rereads: false, ..context.clone() };
    let refused = sorting("by: payload", &without, 0).restore(saved.clone()).unwrap_err().to_string();
    assert!(refused.starts_with("an earlier run left messages that are not sent yet"), "{refused}");
    // The order may change: the state has the messages, not their keys.
    let mut second = sorting("by: { payload: desc }", &context, 0);
    second.restore(saved).unwrap();
    second.apply(testing::batch(["a"]), &mut out).unwrap();
    second.finish(&mut out).unwrap();
    assert_eq!(sent(&mut second, &mut out), ["c", "b", "a"]);
}

#[test]
fn messages_that_are_not_delivered_stay_in_the_state() {
    let folder = tempfile::tempdir().unwrap();
    let context = with_state(&folder);
    let (mut transform, mut out) = (sorting("by: payload", &context, 0), Outputs::new("test".into()));
    transform.apply(testing::batch(["b", "a"]), &mut out).unwrap();
    transform.pre_commit().unwrap();
    let saved = transform.state().unwrap();
    assert!(!transform.is_delivering() && !transform.has_news());
    transform.finish(&mut out).unwrap();
    let (_, held) = out.take().remove(0);
    while out.take_held().is_some() {
        transform.resume(&mut out).unwrap();
    }
    assert!(transform.is_delivering() && transform.has_news() && !transform.has_failed());
    transform.pre_commit().unwrap();
    assert_eq!(transform.state(), None, "the last state has them");
    held.settle(Outcome::Failed);
    assert!(transform.has_failed() && !transform.is_delivering());
    let mut next = sorting("by: payload", &context, 0);
    next.restore(saved).unwrap();
    next.finish(&mut out).unwrap();
    assert_eq!(sent(&mut next, &mut out), ["a", "b"]);
}

#[test]
fn a_file_that_was_changed_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let context = with_state(&folder);
    let (mut transform, mut out) = (sorting("by: payload", &context, 0), Outputs::new("test".into()));
    transform.apply(testing::batch(["b", "a"]), &mut out).unwrap();
    transform.pre_commit().unwrap();
    let mut saved = transform.state().unwrap();
    saved["hash"] = json!(7);
    let refused = sorting("by: payload", &context, 0).restore(saved).unwrap_err().full();
    assert!(refused.contains("is damaged"), "{refused}");
}

/// A length that was changed would have collected the whole file in memory, and changed messages would have
/// been read.
#[test]
fn a_batch_that_was_changed_is_refused_before_it_is_read() {
    for at in [5, 12, 20, 24, 90] {
        let folder = tempfile::tempdir().unwrap();
        let context = with_state(&folder);
        let (mut transform, mut out) = (sorting("by: payload", &context, 0), Outputs::new("test".into()));
        transform.apply(testing::batch(["b", "a"]), &mut out).unwrap();
        transform.pre_commit().unwrap();
        let saved = transform.state().unwrap();
        let file = std::fs::read_dir(folder.path().join("unfinished")).unwrap().next().unwrap().unwrap();
        let mut bytes = std::fs::read(file.path()).unwrap();
        bytes[at] ^= 0x40;
        std::fs::write(file.path(), bytes).unwrap();
        let refused = sorting("by: payload", &context, 0).restore(saved).unwrap_err().full();
        assert!(refused.contains("is damaged"), "{at}: {refused}");
    }
}

/// By the average size of the messages that came together, the large ones would have been one batch.
#[test]
fn large_messages_that_are_neighbours_leave_in_batches_of_the_usual_size() {
    let context = Context { batch_bytes: 64 << 10, ..testing::context() };
    let mut transform = testing::options::<Sort>("by: payload").sorting(&context).unwrap();
    let mut out = Outputs::new("test".into());
    let large = "a".repeat(40 << 10);
    for _ in 0..8 {
        let small = std::iter::repeat_n("b".to_owned(), 999);
        transform.apply(testing::batch(small.chain([large.clone()])), &mut out).unwrap();
    }
    transform.finish(&mut out).unwrap();
    let mut found = 0;
    loop {
        for (_, batch) in out.take() {
            assert!(batch.payload_bytes() <= 64 << 10, "{}", batch.payload_bytes());
            found += batch.rows();
            batch.settle(Outcome::Delivered);
        }
        if out.take_held().is_none() {
            break;
        }
        transform.resume(&mut out).unwrap();
    }
    assert_eq!(found, 8000);
}

/// A failover would deliver messages of which the state says that they failed.
#[test]
fn messages_of_a_state_are_not_left_to_a_failover() {
    let folder = tempfile::tempdir().unwrap();
    let resuming = with_state(&folder);
    for (context, expected) in [(Context { rereads: false, ..resuming.clone() }, true), (resuming, false)] {
        let (mut transform, mut out) = (sorting("by: payload", &context, 100), Outputs::new("test".into()));
        let ack = Ack::with_failover("test".into(), |_| {});
        transform.apply(testing::batch_with(["a"], ack), &mut out).unwrap();
        transform.finish(&mut out).unwrap();
        let (_, batch) = out.take().remove(0);
        assert_eq!(batch.ack().has_failover(), expected);
        batch.settle(Outcome::Delivered);
        assert_eq!(sent(&mut transform, &mut out), [""; 0]);
    }
}

#[test]
fn letters_of_a_replay_are_sorted_apart_and_acks_wait_for_the_end() {
    assert!(testing::options::<Sort>("by: payload").replays_apart());
    let context = Context { resumes: true, is_replay: true, ..testing::context() };
    let (mut transform, mut out) = (sorting("by: payload", &context, 100), Outputs::new("test".into()));
    let settled: Arc<AtomicUsize> = Arc::default();
    for line in ["b", "a"] {
        let count = settled.clone();
        let ack = Ack::new("test".into(), move |settlement: Settlement| {
            count.fetch_add(usize::from(settlement.outcome == Outcome::Delivered), Ordering::Relaxed);
        });
        transform.apply(testing::batch_with([line], ack), &mut out).unwrap();
    }
    transform.pre_commit().unwrap();
    assert_eq!((transform.state(), settled.load(Ordering::Relaxed)), (None, 0));
    transform.finish(&mut out).unwrap();
    assert_eq!(sent(&mut transform, &mut out), ["a", "b"]);
    assert_eq!(settled.load(Ordering::Relaxed), 2);
}
