mod kept;
mod sessions;

use super::*;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, ArrayRef, Int64Array, StringViewArray, TimestampMicrosecondArray};
use proptest::prelude::*;
use serde_json::{Value, json};
use thalweg_engine::{Journal, Output, Outputs, Store, testing};
use thalweg_record::{Ack, Batch, Budget, Outcome, Settlement};

use crate::testing::{Killed, with_state, with_text};

/// A message: its time in seconds, its key and its number.
type Message = (i64, Option<&'static str>, Option<i64>);

fn batch(messages: &[Message]) -> Batch {
    let times =
        TimestampMicrosecondArray::from_iter_values(messages.iter().map(|(time, ..)| time * 1_000_000));
    let keys: StringViewArray = messages.iter().map(|(_, key, _)| *key).collect();
    let numbers: Int64Array = messages.iter().map(|(.., number)| *number).collect();
    testing::batch(messages.iter().map(|(time, ..)| time.to_string()))
        .set_fields([
            (FieldType::Timestamp.field("t"), Arc::new(times.with_timezone("UTC")) as ArrayRef),
            (FieldType::Text.field("k"), Arc::new(keys) as ArrayRef),
            (FieldType::Int.field("n"), Arc::new(numbers) as ArrayRef),
        ])
        .unwrap()
}

/// A result: the start of its window in seconds, its key, its count and its sum.
type Found = (i64, Option<String>, i64, Option<i64>);

fn results(batch: &Batch) -> Vec<Found> {
    let column = |name: &str| batch.fields().column_by_name(name).unwrap().clone();
    let (starts, keys) = (batch.fields().column_by_name(START).cloned(), column("k"));
    let (counts, sums) = (column("count"), column("sum"));
    let start = |row: usize| {
        starts
            .as_ref()
            .map_or(0, |column| column.as_primitive::<TimestampMicrosecondType>().value(row) / 1_000_000)
    };
    let key = |row: usize| {
        let keys = keys.as_string_view();
        keys.is_valid(row).then(|| keys.value(row).to_owned())
    };
    let sum = |row: usize| {
        let sums = sums.as_primitive::<Int64Type>();
        sums.is_valid(row).then(|| sums.value(row))
    };
    let count = |row: usize| counts.as_primitive::<Int64Type>().value(row);
    (0..batch.rows()).map(|row| (start(row), key(row), count(row), sum(row))).collect()
}

const VALUES: &str = "by: k, values: { count: count(*), sum: sum(n) }";

/// Counts as the documentation says, one message after the other. Returns the results and the late messages.
fn model(messages: &[Message], windows: Option<(i64, i64, i64)>) -> (Vec<Found>, Vec<String>) {
    let mut open: BTreeMap<i64, Vec<Found>> = BTreeMap::new();
    let (mut watermark, mut late) = (i64::MIN, Vec::new());
    for (time, key, number) in messages {
        let mut is_late = true;
        let starts: Vec<i64> = match windows {
            None => vec![0],
            Some((every, length, delay)) => {
                watermark = watermark.max(time - delay);
                let starts = (-300..300).map(|number| number * every);
                starts
                    .filter(|start| start <= time && *time < start + length && start + length > watermark)
                    .collect()
            }
        };
        for start in starts {
            is_late = false;
            let groups = open.entry(start).or_default();
            let found = groups.iter().position(|(_, known, ..)| known.as_deref() == *key);
            let place = found.unwrap_or_else(|| {
                groups.push((start, key.map(str::to_owned), 0, None));
                groups.len() - 1
            });
            groups[place].2 += 1;
            if let Some(number) = number {
                groups[place].3 = Some(groups[place].3.unwrap_or_default() + number);
            }
        }
        if is_late {
            late.push(time.to_string());
        }
    }
    (open.into_values().flatten().collect(), late)
}

fn message() -> impl Strategy<Value = Message> {
    let keys = prop::sample::select(vec![None, Some("a"), Some("b"), Some("c"), Some("")]);
    (0..100_i64, keys, prop::option::of(-5..5_i64))
}

/// Messages whose times grow, but for some that are late.
fn messages() -> impl Strategy<Value = Vec<Message>> {
    prop::collection::vec(message(), 0..60).prop_map(|mut messages| {
        for (place, (time, ..)) in messages.iter_mut().enumerate() {
            *time = *time / 4 + place as i64;
        }
        messages
    })
}

proptest! {
    #[test]
    fn windows_are_those_of_a_model_however_messages_are_divided_into_batches(
        messages in messages(),
        size in 1..20_usize,
        (every, times, delay) in (1..20_i64, 1..4_i64, 0..10_i64),
    ) {
        let length = every * times - (times - 1) / 2;
        let yaml = format!(
            "{{ {VALUES}, every: {every}s, window_interval: {length}s, time: t, max_delay: {delay}s, on_late: route }}"
        );
        let given = testing::apply::<Aggregate>(&yaml, messages.chunks(size).map(batch));
        let found: Vec<Found> = given.outputs.get(&Output::Main).into_iter().flatten().flat_map(results).collect();
        let (expected, late) = model(&messages, Some((every, length, delay)));
        prop_assert_eq!(found, expected);
        prop_assert_eq!(given.payloads(Output::Named(0)), late.clone());
        let given = testing::apply::<Aggregate>(&yaml.replace("route", "error"), messages.chunks(size).map(batch));
        let errors: Vec<String> = given.errors().into_iter().map(|(payload, _)| payload).collect();
        prop_assert_eq!(errors, late);
    }

    #[test]
    fn without_windows_all_messages_are_one(messages in messages(), size in 1..20_usize) {
        let given = testing::apply::<Aggregate>(&format!("{{ {VALUES} }}"), messages.chunks(size).map(batch));
        let found: Vec<Found> = given.outputs.get(&Output::Main).into_iter().flatten().flat_map(results).collect();
        prop_assert_eq!(found, model(&messages, None).0);
    }

    #[test]
    fn windows_of_a_number_of_messages_have_that_number(
        messages in messages(),
        size in 1..20_usize,
        most in 1..30_usize,
    ) {
        let yaml = format!("{{ {VALUES}, max_count: {most} }}");
        let given = testing::apply::<Aggregate>(&yaml, messages.chunks(size).map(batch));
        let found: Vec<Found> = given.outputs.get(&Output::Main).into_iter().flatten().flat_map(results).collect();
        let expected: Vec<Found> = messages.chunks(most).flat_map(|part| model(part, None).0).collect();
        prop_assert_eq!(found, expected);
    }
}

#[test]
fn it_conforms() {
    for yaml in [
        "{ values: { n: count(*) } }",
        "{ by: payload, values: { n: count(*) }, max_count: 2 }",
        "{ values: { n: sum(payload) } }",
        "{ by: payload, values: { n: count(*) }, every: 1s, window_interval: 3s }",
        "{ values: { n: count(*) }, every: 1s, time: meta.time, idle_timeout: 1s, on_late: drop }",
        "{ values: { n: count(*) }, every: 1s, time: nothing }",
        "{ by: payload, values: { n: count(*) }, max_groups: 1 }",
        "{ by: payload, values: { n: \"list(payload, 2)\", t: \"top_k(payload, 2)\" }, session_timeout: 1s }",
        "{ values: { n: any(payload > '1'), v: variance(payload) }, session_timeout: 1s, time: meta.time, every: 1h }",
    ] {
        testing::transform_conforms::<Aggregate>(yaml, &["1", "", "2", "a", "1"]);
    }
}

#[test]
fn every_function_has_its_result() {
    let given = testing::apply::<Aggregate>(
        "{ by: [k], values: { all: count, some: count(n), big: count_if(n > 2), sum: \"sum(n * 2)\", mean: mean(n), \
         min: min(n), max: max(k), kinds: distinct(n), half: \"quantile(n, 0.5)\", first: first(n), last: last(n) } }",
        [batch(&[(0, Some("x"), Some(3)), (0, Some("x"), None), (0, Some("x"), Some(1)), (0, None, None)])],
    );
    let main = given.main();
    let half = main[0]["half"].as_f64().unwrap();
    assert!((half - 1.0).abs() <= 0.01, "{half}");
    let mut first = main[0].clone();
    first.as_object_mut().unwrap().remove("half");
    assert_eq!(
        first,
        json!({ "k": "x", "all": 3, "some": 2, "big": 1, "sum": 8, "mean": 2.0, "min": 1, "max": "x", "kinds": 2,
                "first": 3, "last": 1 })
    );
    assert_eq!(main[1], json!({ "all": 1, "some": 0, "big": 0, "kinds": 0 }));
}

#[test]
fn functions_that_keep_values_have_json_and_the_values_left_out_are_counted() {
    let context = testing::context();
    let yaml = "{ values: { l: \"list(n, 2)\", t: \"top_k(k, 1)\", a: any(n > 4), b: any(n > 9), v: variance(n), s: stddev(n) } }";
    let mut transform = testing::options::<Aggregate>(yaml).build(&context).unwrap();
    let mut out = Outputs::new("test".into());
    let messages =
        [(0, Some("x"), Some(1)), (0, Some("y"), Some(3)), (0, Some("y"), None), (0, None, Some(5))];
    transform.apply(batch(&messages), &mut out).unwrap();
    assert_eq!(context.details.now().get("list_omitted"), Some(&1));
    transform.finish(&mut out).unwrap();
    let (_, batch) = out.take().remove(0);
    assert_eq!(
        testing::rows(batch.fields()),
        [json!({ "l": "[1,3]", "t": "[{\"value\":\"y\",\"count\":2,\"error\":0}]", "a": true, "b": false,
                 "v": 4.0, "s": 2.0 })]
    );
}

#[test]
fn messages_that_cannot_be_counted_are_rejected_and_the_others_are_counted() {
    let reasons = |yaml: &str, batch: Batch| {
        let given = testing::apply::<Aggregate>(yaml, [batch]);
        (given.main(), given.errors().into_iter().map(|(_, reason)| reason).collect::<Vec<_>>())
    };
    let text = |value: Option<&str>| with_text(&["x", "y"], &[("n", &[Some("5"), value])]);
    assert_eq!(
        reasons("{ values: { s: sum(n) } }", text(Some("q"))),
        (vec![json!({ "s": 5 })], vec!["the value of `sum(n)` is not a number".to_owned()])
    );
    assert_eq!(reasons("{ values: { s: sum(n) } }", text(None)), (vec![json!({ "s": 5 })], vec![]));
    let (main, errors) = reasons("{ values: { s: \"sum(4 / (CAST(n AS BIGINT) - 5))\" } }", text(Some("6")));
    assert_eq!(main, [json!({ "s": 4 })]);
    assert!(errors[0].starts_with("`sum(4 / (CAST(n AS BIGINT) - 5))` cannot be computed: "), "{errors:?}");
    let yaml = "{ values: { s: count(*) }, every: 1m, time: n }";
    let (_, errors) = reasons(yaml, text(None));
    assert_eq!(errors, ["`n` is not a time: give it the type `timestamp`", "the time `n` is missing"]);
    let (main, errors) = reasons("{ by: n, values: { s: count(*) }, max_groups: 1 }", text(Some("6")));
    assert_eq!(main, [json!({ "n": "5", "s": 1 })]);
    assert_eq!(errors, ["there are 1 groups already, as `max_groups` allows"]);
    let long = "x".repeat(20_000);
    let (_, errors) = reasons("{ by: n, values: { s: count(*) } }", text(Some(&long)));
    assert_eq!(errors, ["the key `n` has more than 16 KiB"]);
    let (_, errors) = reasons("{ values: { s: max(n) } }", text(Some(&long)));
    assert_eq!(errors, ["the value of `max(n)` has more than 16 KiB"]);
}

#[test]
fn late_and_wrong_messages_of_one_batch_leave_by_their_outputs() {
    let messages = [(0, Some("a"), None), (9, Some("b"), None), (1, Some("c"), None), (9, Some("d"), None)];
    let numbers: StringViewArray = ["1", "x", "2", "x"].map(Some).into_iter().collect();
    let batch =
        batch(&messages).set_fields([(FieldType::Text.field("n"), Arc::new(numbers) as ArrayRef)]).unwrap();
    let yaml = "{ values: { s: sum(n) }, every: 1s, time: t, on_late: route }";
    let first = self::batch(&[(5, None, Some(7))]);
    let given = testing::apply::<Aggregate>(yaml, [first, batch]);
    assert_eq!(given.payloads(Output::Named(0)), ["0", "1"]);
    let errors: Vec<String> = given.errors().into_iter().map(|(payload, _)| payload).collect();
    assert_eq!(errors, ["9", "9"]);
}

thread_local! {
    /// One for each test, since each test has a thread of its own.
    static NOW: Cell<i64> = const { Cell::new(0) };
}

/// Returns the time that a test has set, in microseconds.
fn set_now() -> i64 {
    NOW.get()
}

/// Sets the time, in seconds, and passes this number of messages, or none at a time of the transform. Returns
/// the numbers `n` of the results.
fn counts_at(transform: &mut Aggregator, second: i64, messages: usize) -> Vec<i64> {
    NOW.set(second * 1_000_000);
    let mut out = Outputs::new("test".into());
    match messages {
        0 => transform.tick(&mut out).unwrap(),
        _ => transform.apply(testing::batch(vec!["m"; messages]), &mut out).unwrap(),
    }
    let rows = out.take().into_iter().flat_map(|(_, batch)| testing::rows(batch.fields()));
    rows.map(|row| row["n"].as_i64().unwrap()).collect()
}

#[test]
fn windows_by_arrival_end_although_no_message_comes() {
    let config = testing::options::<Aggregate>("{ values: { n: count(*) }, every: 10s }");
    assert!(config.ticks());
    let mut transform = config.aggregator(&testing::context(), set_now).unwrap();
    assert!(transform.due().is_none());
    assert_eq!(counts_at(&mut transform, 1, 2), [0; 0]);
    assert_eq!(counts_at(&mut transform, 9, 0), [0; 0]);
    let due = transform.due().unwrap().saturating_duration_since(Instant::now());
    assert!(due <= std::time::Duration::from_secs(1), "{due:?}");
    assert_eq!(counts_at(&mut transform, 10, 0), [2]);
    assert_eq!(counts_at(&mut transform, 15, 3), [0; 0]);
    assert_eq!(counts_at(&mut transform, 31, 1), [3]);
    assert_eq!(counts_at(&mut transform, 90, 0), [1]);
    assert!(transform.due().is_none());
}

#[test]
fn windows_by_event_time_leave_after_a_time_without_messages() {
    let yaml = "{ values: { n: count(*) }, every: 10s, time: t, idle_timeout: 1ms }";
    let config = testing::options::<Aggregate>(yaml);
    assert!(config.ticks());
    let mut transform = config.build(&testing::context()).unwrap();
    let mut out = Outputs::new("test".into());
    transform.apply(batch(&[(1, None, None)]), &mut out).unwrap();
    assert!(transform.due().is_some());
    transform.tick(&mut out).unwrap();
    assert!(transform.due().is_none());
    assert_eq!(out.take().len(), 1);
    transform.apply(batch(&[(2, None, None)]), &mut out).unwrap();
    let (output, late) = out.take().remove(0);
    assert_eq!((output, late.rows()), (Output::Errors, 1));
}

/// A broker that waits for acks sends no further message.
#[test]
fn windows_that_are_not_by_time_leave_after_a_time_without_messages() {
    for windows in ["", "max_count: 100, "] {
        let yaml = format!("{{ values: {{ n: count(*) }}, {windows}idle_timeout: 1ms }}");
        let config = testing::options::<Aggregate>(&yaml);
        assert!(config.ticks() && config.check().is_empty());
        let mut transform = config.build(&testing::context()).unwrap();
        let mut out = Outputs::new("test".into());
        for count in [3, 2] {
            assert!(transform.due().is_none());
            transform.apply(testing::batch(vec!["m"; count]), &mut out).unwrap();
            assert!(out.take().is_empty() && transform.due().is_some());
            transform.tick(&mut out).unwrap();
            let (_, batch) = out.take().remove(0);
            assert_eq!(testing::rows(batch.fields()), [json!({ "n": count })]);
        }
    }
}

#[test]
fn the_memory_of_groups_is_bounded_and_given_back() {
    let context = Context { memory: Budget::new(8 << 20).share(), ..testing::context() };
    let budget = context.memory.budget().clone();
    let yaml = "{ by: payload, values: { n: count(*), d: distinct(payload) }, max_groups: 10000000 }";
    let mut transform = testing::options::<Aggregate>(yaml).build(&context).unwrap();
    let (mut out, mut rejected) = (Outputs::new("test".into()), 0);
    for start in 0..20 {
        let lines: Vec<String> = (0..1000).map(|n| (start * 1000 + n).to_string()).collect();
        transform.apply(testing::batch(lines), &mut out).unwrap();
        rejected += out.take().into_iter().map(|(_, batch)| batch.rows()).sum::<usize>();
        assert!(budget.used() < 2 << 20, "{}", budget.used());
    }
    assert!(rejected > 0 && budget.used() > 1 << 19, "{rejected} {}", budget.used());
    assert_eq!(context.details.gauges()[0].value, 20_000 - rejected as u64);
    transform.finish(&mut out).unwrap();
    assert_eq!(context.details.gauges()[0].value, 0);
    let counted: usize = out.take().into_iter().map(|(_, batch)| batch.rows()).sum();
    assert_eq!(counted + rejected, 20_000);
    drop((transform, out));
    assert_eq!(budget.used(), 0);
}

/// The memory of a value that became shorter was never given back.
#[test]
fn the_memory_of_groups_is_that_of_their_present_values() {
    let context = testing::context();
    let yaml = "{ values: { l: last(payload), d: distinct(payload) } }";
    let mut transform = testing::options::<Aggregate>(yaml).aggregator(&context, now).unwrap();
    let mut out = Outputs::new("test".into());
    for number in 0..1100 {
        let lines = [number.to_string().repeat(500), number.to_string()];
        transform.apply(testing::batch(lines), &mut out).unwrap();
    }
    assert!(out.take().is_empty());
    assert_eq!(transform.bytes, transform.windows.values().map(window::Window::bytes).sum::<usize>());
}

#[test]
fn options_that_make_no_sense_are_mistakes() {
    let count = |yaml: &str| testing::messages(testing::options::<Aggregate>(yaml).check());
    assert_eq!(count("{ values: { n: count(*) } }"), [""; 0]);
    assert_eq!(count("{ values: {} }"), ["`values` has no function."]);
    assert_eq!(count("{ by: n, values: { n: count(*) } }"), ["A result has two fields called `n`."]);
    assert_eq!(
        count("{ values: { window_end: count(*) }, every: 1m }"),
        ["A result has two fields called `window_end`."]
    );
    assert_eq!(
        count("{ values: { meta.time: count(*) } }"),
        ["A field needs a name that does not mean metadata."]
    );
    assert_eq!(count("{ values: { n: count(*) }, every: 0s }"), ["`every` cannot be 0."]);
    assert_eq!(
        count("{ values: { n: count(*) }, every: 1s, window_interval: 101s }"),
        ["`window_interval` must be at least `every`, and at most 100 times as long."]
    );
    assert_eq!(
        count("{ values: { n: count(*) }, time: t, max_count: 5 }"),
        ["`time` has no effect without `every` or `session_timeout`."]
    );
    assert_eq!(
        count("{ values: { n: count(*) }, every: 1s, idle_timeout: 5s }"),
        ["`idle_timeout` has no effect on windows by arrival: they end by the clock."]
    );
    assert_eq!(
        count("{ values: { n: count(*) }, every: 1s, max_count: 5, max_delay: 1s }"),
        [
            "`max_delay` has no effect without `time`.",
            "A window ends by time (`every`) or by number (`max_count`), not by both."
        ]
    );
    assert_eq!(count("{ values: { n: count(*) }, session_timeout: 0s }"), ["`session_timeout` cannot be 0."]);
    assert_eq!(
        count("{ values: { n: count(*) }, session_timeout: 1s, every: 1m, window_interval: 5m }"),
        ["`window_interval` has no effect on sessions: they do not overlap."]
    );
    assert_eq!(
        count("{ values: { window_start: count(*) }, session_timeout: 1s, max_count: 5 }"),
        [
            "A result has two fields called `window_start`.",
            "A session ends by time (`session_timeout`), not by number (`max_count`)."
        ]
    );
    assert_eq!(
        count("{ values: { n: count(*) }, session_timeout: 1s, idle_timeout: 5s }"),
        ["`idle_timeout` has no effect on windows by arrival: they end by the clock."]
    );
    assert_eq!(
        testing::refused::<Aggregate>("{ values: { n: summ(a) } }"),
        "`summ(a)` is not a function of `aggregate`. Did you mean `sum`?"
    );
}
