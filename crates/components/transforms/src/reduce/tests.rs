use super::*;

use std::cell::Cell;
use std::sync::atomic::AtomicUsize;

use arrow_array::{ArrayRef, Int64Array, StringViewArray};
use proptest::prelude::*;
use serde_json::{Value, json};
use thalweg_codec::columns::FieldType;
use thalweg_engine::{Output, Outputs, testing};
use thalweg_record::{Batch, Budget, Outcome};

use crate::testing::{counted, killed, with_state, with_text};

/// A message: its payload, its key and its number.
type Line = (&'static str, Option<&'static str>, Option<i64>);

/// A merged message: its payload, its key and the sum of its numbers.
type Found = (String, Option<String>, Option<i64>);

fn batch(lines: &[Line]) -> Batch {
    let keys: StringViewArray = lines.iter().map(|(_, key, _)| *key).collect();
    let numbers: Int64Array = lines.iter().map(|(.., number)| *number).collect();
    testing::batch(lines.iter().map(|(payload, ..)| *payload))
        .set_fields([
            (FieldType::Text.field("k"), Arc::new(keys) as ArrayRef),
            (FieldType::Int.field("n"), Arc::new(numbers) as ArrayRef),
        ])
        .unwrap()
}

fn found(batch: &Batch) -> Vec<Found> {
    let rows = testing::rows(batch.fields());
    let field = |row: &Value| (row["k"].as_str().map(str::to_owned), row["n"].as_i64());
    testing::payloads(batch)
        .into_iter()
        .zip(rows)
        .map(|(payload, row)| {
            let (key, sum) = field(&row);
            (payload, key, sum)
        })
        .collect()
}

thread_local! {
    /// One for each test, since each test has a thread of its own.
    static CLOCK: Cell<i64> = const { Cell::new(0) };
}

/// Returns the time that a test has set, in microseconds.
fn clock() -> i64 {
    CLOCK.get()
}

const YAML: &str =
    "{ by: k, starts_when: \"payload LIKE 's%'\", ends_when: \"payload LIKE '%e'\", max_count: 4 }";

/// Merges as the documentation says, one message after the other.
fn model(lines: &[Line]) -> Vec<Found> {
    let mut open: Vec<(Found, usize)> = Vec::new();
    let mut ended = Vec::new();
    for (payload, key, number) in lines {
        let place = open.iter().position(|((_, known, _), _)| known.as_deref() == *key);
        if let Some(place) = place.filter(|_| payload.starts_with('s')) {
            ended.push(open.remove(place).0);
        }
        let place = open.iter().position(|((_, known, _), _)| known.as_deref() == *key);
        let place = place.unwrap_or_else(|| {
            open.push(((String::new(), key.map(str::to_owned), None), 0));
            open.len() - 1
        });
        let ((joined, _, sum), count) = &mut open[place];
        if *count > 0 {
            joined.push('\n');
        }
        joined.push_str(payload);
        if let Some(number) = number {
            *sum = Some(sum.unwrap_or_default() + number);
        }
        *count += 1;
        if payload.ends_with('e') || *count == 4 {
            ended.push(open.remove(place).0);
        }
    }
    ended.extend(open.into_iter().map(|(group, _)| group));
    ended
}

fn lines() -> impl proptest::strategy::Strategy<Value = Vec<Line>> {
    let payloads = prop::sample::select(vec!["s", "a", "", "e", "se", "s1"]);
    let keys = prop::sample::select(vec![None, Some("a"), Some("b"), Some("")]);
    prop::collection::vec((payloads, keys, prop::option::of(-5..5_i64)), 0..60)
}

proptest! {
    #[test]
    fn groups_are_those_of_a_model_however_messages_are_divided_into_batches(
        lines in lines(),
        size in 1..20_usize,
    ) {
        let given = testing::apply::<Reduce>(YAML, lines.chunks(size).map(batch));
        let all: Vec<Found> = given.outputs.get(&Output::Main).into_iter().flatten().flat_map(found).collect();
        prop_assert_eq!(all, model(&lines));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn runs_that_are_killed_merge_each_message_once(
        lines in lines(),
        size in 1..8_usize,
        kills in prop::collection::vec((0..4_usize, 0..8_usize), 0..4),
    ) {
        let batches: Vec<&[Line]> = lines.chunks(size).collect();
        prop_assert_eq!(killed::<Reduce, _, _>(YAML, &batches, &kills, batch, found), model(&lines));
    }

    /// A state is trusted, but one that is damaged must not end the program.
    #[test]
    fn a_damaged_state_of_groups_is_refused(
        at in any::<prop::sample::Index>(),
        with in "[0-9a-z\"{}\\[\\],]{0,3}",
        length in 0..9_usize,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let context = with_state(&folder);
        let journal = context.journal.clone().unwrap();
        let yaml = "{ by: k, merge: { n: distinct } }";
        let build = || testing::options::<Reduce>(yaml).build(&context).unwrap();
        let (mut first, mut out) = (build(), Outputs::new("test".into()));
        first.apply(batch(&[("x", Some("a"), Some(5)), ("y", None, None)]), &mut out).unwrap();
        first.pre_commit().unwrap();
        let saved = first.state().unwrap();
        let damaged = |text: String| {
            let at = at.index(text.len());
            let end = text.ceil_char_boundary((at + length).min(text.len()));
            let text = format!("{}{with}{}", &text[..text.floor_char_boundary(at)], &text[end..]);
            serde_json::from_str::<Value>(&text).ok()
        };
        let mut attempt = |saved: Value| {
            let mut second = build();
            if second.restore(saved).is_ok() {
                second.finish(&mut out).unwrap();
            }
            out.take().into_iter().for_each(|(_, batch)| batch.settle(Outcome::Delivered));
        };
        let notes = journal.entries("").unwrap();
        damaged(saved.to_string()).into_iter().for_each(&mut attempt);
        for (name, note) in notes {
            if let Some(note) = damaged(note.to_string()) {
                journal.note(&name, &note).unwrap();
                attempt(saved.clone());
            }
        }
        first.finish(&mut out).unwrap();
        out.take().into_iter().for_each(|(_, batch)| batch.settle(Outcome::Delivered));
    }
}

#[test]
fn it_conforms() {
    for yaml in [
        "{}",
        "{ by: payload }",
        "{ by: payload, max_groups: 1 }",
        "{ max_count: 2, merge: { payload: last } }",
        "{ starts_when: \"payload = 'a'\", ends_when: \"payload = ''\" }",
        "{ starts_when: \"CAST(payload AS BIGINT) = 1\" }",
        "{ max_bytes: 1B, merge: { payload: drop } }",
    ] {
        testing::transform_conforms::<Reduce>(yaml, &["1", "", "2", "a", "1"]);
    }
}

#[test]
fn lines_of_a_stack_trace_become_one_message() {
    let lines = ["  the end of another", "2026-11-25 failed", "  at a", "", "  at b", "2026-11-26 up"];
    let yaml = r"starts_when: regexp_like(payload, '^\d{4}-')";
    for size in 1..6 {
        let given = testing::apply::<Reduce>(
            yaml,
            lines.chunks(size).map(|lines| testing::batch(lines.iter().copied())),
        );
        assert_eq!(
            given.payloads(Output::Main),
            ["  the end of another", "2026-11-25 failed\n  at a\n\n  at b", "2026-11-26 up"]
        );
        assert!(given.main().iter().all(|row| row == &json!({})), "they have no fields");
    }
}

#[test]
fn fields_are_merged_by_their_strategies() {
    let yaml = "{ by: k, merge: { t: concat, u: list, v: drop, payload: first }, separator: ', ' }";
    let one = with_text(
        &["p", "q"],
        &[
            ("k", &[Some("a"), Some("a")]),
            ("t", &[Some("x"), None]),
            ("u", &[Some("x"), Some("y")]),
            ("v", &[Some("x"), Some("y")]),
        ],
    );
    let other = with_text(&["r", "s"], &[("k", &[Some("a"), Some("b")]), ("t", &[Some("z"), None])]);
    let given = testing::apply::<Reduce>(yaml, [one, other]);
    assert_eq!(given.payloads(Output::Main), ["p", "s"]);
    assert_eq!(given.main(), [json!({ "k": "a", "t": "x, z", "u": "[\"x\",\"y\"]" }), json!({ "k": "b" })]);
}

#[test]
fn messages_that_cannot_be_merged_are_rejected_and_the_others_are_merged() {
    let numbers = || with_text(&["x", "y", "z"], &[("n", &[Some("1"), Some("two"), Some("3")])]);
    let given = testing::apply::<Reduce>("merge: { n: sum }", [numbers()]);
    assert_eq!(given.main(), [json!({ "n": 4 })]);
    assert_eq!(given.payloads(Output::Main), ["x\nz"]);
    assert_eq!(given.errors(), [("y".to_owned(), "the value of `n` is not a number".to_owned())]);
    let given = testing::apply::<Reduce>("{ by: payload, max_groups: 2 }", [numbers()]);
    assert_eq!(given.payloads(Output::Main), ["x", "y"]);
    assert_eq!(given.reasons(), ["there are 2 groups already, as `max_groups` allows"]);
    let given = testing::apply::<Reduce>("ends_when: CAST(n AS BIGINT) = 3", [numbers()]);
    assert_eq!(given.payloads(Output::Main), ["x\nz"]);
    assert_eq!(given.payloads(Output::Errors), ["y"]);
}

#[test]
fn a_group_ends_before_it_is_too_large() {
    let given = testing::apply::<Reduce>(
        "max_bytes: 12B",
        [testing::batch(["aaa", "b", "a longer one than allowed", "c"])],
    );
    assert_eq!(given.payloads(Output::Main), ["aaa\nb", "a longer one than allowed", "c"]);
}

#[test]
fn a_group_that_is_full_does_not_wait_for_another_message() {
    for (yaml, lines, expected) in [
        ("max_bytes: 4B", &["four", "five5", "abc"][..], &["four", "five5"][..]),
        ("{ max_bytes: 4B, merge: { payload: concat }, separator: '--' }", &["abc", "a"], &["abc"]),
        ("{ max_bytes: 4B, merge: { payload: last } }", &["four", "more", "x"], &[]),
    ] {
        let mut transform = testing::options::<Reduce>(yaml).build(&testing::context()).unwrap();
        let mut out = Outputs::new("test".into());
        transform.apply(testing::batch(lines.iter().copied()), &mut out).unwrap();
        let sent: Vec<String> = out.take().iter().flat_map(|(_, batch)| testing::payloads(batch)).collect();
        assert_eq!(sent, expected, "{yaml}");
    }
}

#[test]
fn a_group_ends_before_it_has_too_many_fields() {
    let message = |name: &str| {
        let fields = (0..600).map(|number| {
            let field = FieldType::Int.field(&format!("{name}{number}"));
            (field, Arc::new(Int64Array::from(vec![1])) as ArrayRef)
        });
        testing::batch([name]).set_fields(fields).unwrap()
    };
    let given = testing::apply::<Reduce>("{}", [message("a"), message("a"), message("b")]);
    assert_eq!(given.payloads(Output::Main), ["a\na", "b"]);
    let widths: Vec<usize> =
        given.outputs[&Output::Main].iter().map(|batch| batch.fields().num_columns()).collect();
    assert_eq!(widths, [600, 600]);
}

#[test]
fn a_payload_that_is_the_key_stays_as_it_is() {
    let given = testing::apply::<Reduce>("by: payload", [testing::batch(["a", "b", "a"])]);
    assert_eq!(given.payloads(Output::Main), ["a", "b"]);
}

/// The clock of spans stands still while a computer sleeps.
#[test]
fn the_time_of_a_merged_message_is_not_by_the_clock_of_spans() {
    CLOCK.set(5);
    let mut transform = testing::options::<Reduce>("{}").reducer(&testing::context(), clock).unwrap();
    let mut out = Outputs::new("test".into());
    transform.apply(testing::batch(["a"]), &mut out).unwrap();
    transform.finish(&mut out).unwrap();
    let (_, batch) = out.take().remove(0);
    assert!(batch.meta().time_us > 5);
    batch.settle(Outcome::Delivered);
}

#[test]
fn groups_end_by_time_in_the_order_of_those_times() {
    let yaml = "{ by: k, idle_timeout: 10s, max_age: 15s }";
    let mut transform = testing::options::<Reduce>(yaml).reducer(&testing::context(), clock).unwrap();
    let mut out = Outputs::new("test".into());
    let left = |out: &mut Outputs| -> Vec<String> {
        let batches = out.take().into_iter().map(|(_, batch)| {
            let payloads = testing::payloads(&batch);
            batch.settle(Outcome::Delivered);
            payloads
        });
        batches.flatten().collect()
    };
    let mut at = |second: i64, lines: &[Line]| {
        CLOCK.set(second * 1_000_000);
        match lines.is_empty() {
            true => transform.tick(&mut out).unwrap(),
            false => transform.apply(batch(lines), &mut out).unwrap(),
        }
        assert_eq!(transform.due().is_some(), !transform.groups.is_empty());
        left(&mut out)
    };
    assert_eq!(at(0, &[("a", Some("a"), None), ("b", Some("b"), None)]), [""; 0]);
    assert_eq!(at(6, &[("c", Some("a"), None)]), [""; 0]);
    assert_eq!(at(9, &[]), [""; 0]);
    assert_eq!(at(10, &[]), ["b"]);
    assert_eq!(at(12, &[("d", Some("a"), None), ("e", Some("c"), None)]), [""; 0]);
    // The first message of the key is 15 seconds old.
    assert_eq!(at(15, &[("f", Some("a"), None)]), ["a\nc\nd"]);
    assert_eq!(at(100, &[]), ["e", "f"]);
}

/// A source that no run reads again, without or with a state: acks wait for the merged message.
#[test]
fn acks_wait_for_the_merged_message_unless_a_run_starts_over() {
    let folder = tempfile::tempdir().unwrap();
    for (context, is_settled) in [
        (testing::context(), true),
        (Context { starts_over: false, ..testing::context() }, false),
        (Context { rereads: false, ..with_state(&folder) }, false),
    ] {
        let settled = Arc::new(AtomicUsize::new(0));
        let mut transform = testing::options::<Reduce>("by: k").build(&context).unwrap();
        let mut out = Outputs::new("test".into());
        for key in ["a", "b", "a"] {
            transform.apply(counted(batch(&[("x", Some(key), None)]), &settled), &mut out).unwrap();
        }
        let before = if is_settled { 3 } else { 0 };
        assert_eq!(settled.load(Relaxed), before);
        transform.pre_commit().unwrap();
        assert_eq!(transform.state(), None);
        transform.stop(&mut out).unwrap();
        assert_eq!(settled.load(Relaxed), before);
        out.take().into_iter().for_each(|(_, batch)| batch.settle(Outcome::Delivered));
        assert_eq!(settled.load(Relaxed), 3);
    }
}

#[test]
fn a_run_that_is_stopped_leaves_open_groups_of_its_state_to_the_next_one() {
    let folder = tempfile::tempdir().unwrap();
    let context = with_state(&folder);
    let build = |yaml: &str| testing::options::<Reduce>(yaml).build(&context).unwrap();
    let (mut first, mut out) = (build("by: k"), Outputs::new("test".into()));
    first.apply(batch(&[("x", Some("a"), Some(2))]), &mut out).unwrap();
    first.stop(&mut out).unwrap();
    assert!(out.take().is_empty());
    first.pre_commit().unwrap();
    let saved = first.state().unwrap();
    let refused = build("merge: { n: max }").restore(saved.clone()).unwrap_err().to_string();
    assert!(refused.starts_with("an earlier run left open groups of other options: `by: [k], "), "{refused}");
    let mut second = build("by: k");
    second.restore(saved).unwrap();
    second.apply(batch(&[("y", Some("a"), Some(3))]), &mut out).unwrap();
    second.finish(&mut out).unwrap();
    let (_, batch) = out.take().remove(0);
    assert_eq!(found(&batch), [("x\ny".to_owned(), Some("a".to_owned()), Some(5))]);
    batch.settle(Outcome::Delivered);
}

/// The group that left and the next one of the same key are in one state.
#[test]
fn a_group_that_was_not_delivered_leaves_again_without_messages_of_the_next_one() {
    let folder = tempfile::tempdir().unwrap();
    let context = with_state(&folder);
    let build = || testing::options::<Reduce>("starts_when: payload = 's'").build(&context).unwrap();
    let (mut first, mut out) = (build(), Outputs::new("test".into()));
    let line = |payload| batch(&[(payload, None, None)]);
    first.apply(line("a"), &mut out).unwrap();
    first.pre_commit().unwrap();
    assert!(first.state().is_some() && !first.has_news());
    first.apply(line("s"), &mut out).unwrap();
    assert!(first.has_news());
    let (_, held) = out.take().remove(0);
    first.pre_commit().unwrap();
    let saved = first.state().unwrap();
    let mut second = build();
    second.restore(saved).unwrap();
    second.apply(line("b"), &mut out).unwrap();
    second.finish(&mut out).unwrap();
    let all = out.take().into_iter().flat_map(|(_, batch)| {
        let payloads = testing::payloads(&batch);
        batch.settle(Outcome::Delivered);
        payloads
    });
    assert_eq!(all.collect::<Vec<_>>(), ["a", "s\nb"]);
    held.settle(Outcome::Delivered);
    first.finish(&mut out).unwrap();
    out.take().into_iter().for_each(|(_, batch)| batch.settle(Outcome::Delivered));
}

#[test]
fn letters_of_a_replay_are_merged_apart_and_acks_wait_for_the_end() {
    let config = testing::options::<Reduce>("{ by: k, idle_timeout: 1ms, max_age: 1ms }");
    assert!(config.replays_apart());
    let context = Context { resumes: true, is_replay: true, ..testing::context() };
    let (mut transform, mut out) = (config.build(&context).unwrap(), Outputs::new("test".into()));
    let settled = Arc::new(AtomicUsize::new(0));
    for key in ["a", "b", "a"] {
        transform.apply(counted(batch(&[("x", Some(key), None)]), &settled), &mut out).unwrap();
    }
    transform.tick(&mut out).unwrap();
    assert!(transform.due().is_none());
    transform.pre_commit().unwrap();
    assert_eq!((transform.state(), settled.load(Relaxed), out.take().len()), (None, 0, 0));
    transform.finish(&mut out).unwrap();
    let payloads = out.take().into_iter().flat_map(|(_, batch)| {
        let payloads = testing::payloads(&batch);
        batch.settle(Outcome::Delivered);
        payloads
    });
    assert_eq!(payloads.collect::<Vec<_>>(), ["x\nx", "x"]);
    assert_eq!(settled.load(Relaxed), 3);
}

/// Under another secret, the groups of a state would get no more messages.
#[test]
fn each_new_state_of_groups_has_a_secret_of_its_own_and_a_later_run_has_that_of_the_state() {
    let folder = tempfile::tempdir().unwrap();
    let context = with_state(&folder);
    let build = || testing::options::<Reduce>("by: k").build(&context).unwrap();
    let (mut first, mut second, mut later, mut out) =
        (build(), build(), build(), Outputs::new("test".into()));
    let (first, second) = (first.state().unwrap(), second.state().unwrap());
    assert_ne!(first["secret"], second["secret"]);
    later.restore(first.clone()).unwrap();
    later.apply(batch(&[("x", Some("a"), None)]), &mut out).unwrap();
    later.pre_commit().unwrap();
    assert_eq!(later.state().unwrap()["secret"], first["secret"]);
    later.finish(&mut out).unwrap();
    out.take().into_iter().for_each(|(_, batch)| batch.settle(Outcome::Delivered));
}

/// With a mebibyte for the whole run, the acks and the messages of groups that wait left sources nothing.
#[test]
fn groups_that_wait_leave_memory_to_sources() {
    let memory = Budget::new(1 << 20).share();
    let context = Context { starts_over: false, memory, ..testing::context() };
    let budget = context.memory.budget().clone();
    let mut transform = testing::options::<Reduce>("by: k").build(&context).unwrap();
    let (settled, mut out) = (Arc::new(AtomicUsize::new(0)), Outputs::new("test".into()));
    for _ in 0..3000 {
        let lines = [("a line of some length", Some("a"), Some(1)), ("another line", Some("b"), None)];
        transform.apply(counted(batch(&lines), &settled), &mut out).unwrap();
        out.take().into_iter().for_each(|(_, batch)| batch.settle(Outcome::Delivered));
        assert!(budget.used() < 1 << 19, "{}", budget.used());
    }
    transform.finish(&mut out).unwrap();
    out.take().into_iter().for_each(|(_, batch)| batch.settle(Outcome::Delivered));
    assert_eq!(settled.load(Relaxed), 3000);
}

#[test]
fn options_that_have_no_effect_are_mistakes() {
    let mistakes = |yaml: &str| testing::messages(testing::options::<Reduce>(yaml).check());
    for (yaml, expected) in [
        ("{ starts_when: \"'yes'\" }", "`'yes'` is a value, and no condition."),
        ("{ idle_timeout: 0s }", "`idle_timeout` cannot be 0."),
        ("{ merge: { payload: sum } }", "Payloads are bytes, and have no such strategy."),
        ("{ merge: { meta.path: first } }", "`meta.path` is metadata, and no field to merge."),
        (
            "{ by: k, merge: { k: last } }",
            "`k` is in `by`: it has the same value in all messages of a group.",
        ),
        ("{ separator: x }", "`separator` has no effect without the strategy `concat`."),
    ] {
        assert_eq!(mistakes(yaml), [expected], "{yaml}");
    }
}
