use std::collections::BTreeMap;

use arrow_array::{ArrayRef, BooleanArray, Float64Array, Int64Array, StringArray};
use arrow_schema::{DataType, Field};
use serde_json::{Value, json};
use thalweg_record::{Ack, Batch, Output, Outputs};

use super::*;
use crate::plan::Plan;
use crate::run::edges::Place;
use crate::run::tests::{Act, few, plan, probe, registry};
use crate::testing;

/// The plan of a source, a transform, and two sinks, one of which gets what the transform rejects.
fn planned() -> Plan {
    let text = "memory: 8MiB\n\
        sources: { in: { numbers: 0 } }\n\
        pipelines:\n  main: { from: in, transforms: [{ pass: 0 }], to: out }\n  \
        rejects: { from: main.errors, to: bad }\n\
        sinks: { out: { probe: 0 }, bad: { probe: 0 } }\n";
    plan(text, &registry(few(false), vec![probe(|_| Act::Write)]), 2)
}

fn taps() -> (Arc<Taps>, Budget) {
    (Arc::new(Taps::new(Ports::of(&planned()))), Budget::new(8 << 20))
}

fn request(names: &[&str], rate: u32, max_bytes: usize) -> TapRequest {
    TapRequest { edges: names.iter().map(|name| (*name).to_owned()).collect(), rate, max_bytes }
}

fn port(taps: &Taps, component: &str, place: Place) -> Arc<Port> {
    taps.port(&component.into(), place).unwrap()
}

fn pass(port: &Port, batch: &Batch) {
    port.pass(batch, batch.rows(), batch.payload_bytes());
}

/// Returns what waits, as payloads.
fn waiting(tap: &mut Tap) -> Vec<String> {
    std::iter::from_fn(|| tap.waiting.try_recv().ok()).filter_map(|waiting| waiting.tapped.payload).collect()
}

const MAIN: Place = Place::Output(Output::Main);
const ERRORS: Place = Place::Output(Output::Errors);

#[test]
fn names_mean_outputs_inputs_of_sinks_and_rejects() {
    let (taps, _) = taps();
    let all = [
        ("in", MAIN, "in"),
        ("in", ERRORS, "in.errors"),
        ("main.pass", MAIN, "main.pass"),
        ("main.pass", ERRORS, "main.pass.errors"),
        ("out", Place::Input, "out"),
        ("out", ERRORS, "out.errors"),
        ("bad", Place::Input, "bad"),
    ];
    let met = |name: &str| -> Vec<&str> {
        let meant = |(component, place, _): &&(&'static str, Place, &'static str)| {
            port(&taps, component, *place).is_meant(name)
        };
        all.iter().filter(meant).map(|(.., name)| *name).collect()
    };
    assert!(all.iter().all(|(.., name)| met(name) == [*name]));
    assert_eq!(met("*"), ["in", "main.pass", "out", "bad"]);
    assert_eq!(met("*.errors"), ["in.errors", "main.pass.errors", "out.errors"]);
    assert_eq!((met("main.*"), met("main.pass.main")), (vec!["main.pass"], vec!["main.pass"]));
    assert_eq!((met("main*.errors"), met("errors").len()), (vec!["main.pass.errors"], 0));
}

#[test]
fn a_name_that_nothing_has_is_refused_with_those_that_there_are() {
    let (taps, budget) = taps();
    let refused = taps.open(request(&["in", "inn"], 1, 10), &budget).unwrap_err();
    let known = "bad, bad.errors, in, in.errors, main.pass, main.pass.errors, out, out.errors";
    assert_eq!(refused.to_string(), format!("nothing has such a name; there are: {known}"));
    assert!(taps.are_closed());
}

#[test]
fn a_port_without_taps_counts_and_shows_nothing() {
    let (taps, budget) = taps();
    let main = port(&taps, "in", MAIN);
    pass(&main, &testing::batch(["one", "two"]));
    let mut tap = taps.open(request(&["in"], 100, 100), &budget).unwrap();
    assert!(main.viewers.are_any() && !port(&taps, "out", Place::Input).viewers.are_any());
    pass(&main, &testing::batch(["three"]));
    assert_eq!((waiting(&mut tap), tap.left_out()), (vec!["three".to_owned()], 0));
    drop(tap);
    pass(&main, &testing::batch(["four"]));
    assert!(taps.are_closed() && !main.viewers.are_any());
    let counts: Vec<_> = taps.counts().into_iter().filter(|edge| edge.from == "in").collect();
    let edge = |output: &str, to: &str, [messages, bytes, batches]: [u64; 3]| super::super::EdgeCounts {
        from: "in".to_owned(),
        output: output.to_owned(),
        to: to.to_owned(),
        messages,
        bytes,
        batches,
    };
    assert_eq!(counts, [edge("errors", "dead letters", [0, 0, 0]), edge("main", "main.pass", [4, 15, 3])]);
}

#[test]
fn there_are_at_most_so_many_taps_at_once() {
    let (taps, budget) = taps();
    let mut open: Vec<Tap> =
        (0..MOST_TAPS).map(|_| taps.open(request(&["*"], 1, 10), &budget).unwrap()).collect();
    let refused = taps.open(request(&["in"], 1, 10), &budget).unwrap_err();
    assert_eq!(refused, TapError::TooMany);
    assert_eq!(refused.to_string(), "16 taps are open already; close one of them");
    open.pop();
    open.push(taps.open(request(&["in"], 1, 10), &budget).unwrap());
    open.clear();
    assert!(taps.are_closed());
}

#[test]
fn what_a_client_is_too_slow_for_is_left_out_and_its_memory_is_limited() {
    let (taps, budget) = taps();
    let mut tap = taps.open(request(&["in"], u32::MAX, usize::MAX), &budget).unwrap();
    let main = port(&taps, "in", MAIN);
    pass(&main, &testing::batch(vec!["x"; 300]));
    assert_eq!((waiting(&mut tap).len(), tap.left_out()), (WAITING, 44));
    let others: Vec<Tap> =
        (0..3).map(|_| taps.open(request(&["in"], 1000, usize::MAX), &budget).unwrap()).collect();
    pass(&main, &testing::batch(vec![vec![b'x'; 70 << 10]; 100]));
    let (held, most) = (budget.used(), budget.limit() / 8);
    assert!((most - 2 * LONGEST_TEXT..most + 2 * LONGEST_TEXT).contains(&held), "{held} of {most}");
    assert_eq!(
        tap.left_out() + others.iter().map(Tap::left_out).sum::<u64>() + held as u64 / (64 << 10),
        444
    );
    drop((tap, others));
    assert_eq!(budget.used(), 0);
    assert!(taps.are_closed());
}

#[test]
fn a_tap_shows_no_more_than_its_rate() {
    let (taps, budget) = taps();
    let mut tap = taps.open(request(&["in"], 3, 10), &budget).unwrap();
    pass(&port(&taps, "in", MAIN), &testing::batch(["1", "2", "3", "4", "5"]));
    // A second may have passed on a slow machine.
    let shown = waiting(&mut tap).len();
    assert!(shown >= 3);
    assert_eq!(tap.left_out(), 5 - shown as u64);
}

#[tokio::test]
async fn a_tap_holds_no_ack_and_ends_with_the_run() {
    let (taps, budget) = taps();
    let mut tap = taps.open(request(&["in"], 10, 100), &budget).unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    let ack = Ack::new("in".into(), move |settlement| tell.send(settlement.outcome).unwrap());
    let batch = testing::batch_with(["one"], ack);
    pass(&port(&taps, "in", MAIN), &batch);
    batch.settle(thalweg_record::Outcome::Delivered);
    assert_eq!(told.try_recv(), Ok(thalweg_record::Outcome::Delivered));
    taps.end();
    assert_eq!(tap.next().await.and_then(|tapped| tapped.payload).as_deref(), Some("one"));
    assert!(tap.next().await.is_none());
    let mut late = taps.open(request(&["in"], 10, 100), &budget).unwrap();
    assert!(late.next().await.is_none());
    drop((tap, late));
    assert!(taps.are_closed());
}

fn with_fields(batch: Batch) -> Batch {
    let columns: Vec<(&str, DataType, ArrayRef)> = vec![
        ("n", DataType::Int64, Arc::new(Int64Array::from(vec![12]))),
        ("none", DataType::Int64, Arc::new(Int64Array::from(vec![None::<i64>]))),
        ("x", DataType::Float64, Arc::new(Float64Array::from(vec![1.5]))),
        ("nan", DataType::Float64, Arc::new(Float64Array::from(vec![f64::NAN]))),
        ("is", DataType::Boolean, Arc::new(BooleanArray::from(vec![true]))),
        ("text", DataType::Utf8, Arc::new(StringArray::from(vec!["a text of some length"]))),
        ("last", DataType::Int64, Arc::new(Int64Array::from(vec![1]))),
    ];
    let fields = columns.into_iter().map(|(name, kind, column)| (Field::new(name, kind, true), column));
    batch.set_fields(fields).unwrap()
}

#[test]
fn a_message_is_shown_with_its_fields_as_far_as_there_is_room() {
    let (taps, _) = taps();
    let batch = with_fields(testing::batch(["payload of one message"]));
    let shown = batch.shown(0, &port(&taps, "in", MAIN), 110);
    let expected = json!({
        "n": 12, "none": null, "x": 1.5, "nan": "NaN", "is": true, "text": "a text of so", "…": 1,
    });
    assert_eq!(Value::Object(shown.fields.clone()), expected);
    assert_eq!((shown.edge.as_str(), shown.output.as_str()), ("in", "main"));
    assert_eq!((shown.payload.as_deref(), shown.payload_is_cut), (Some("payload of one message"), false));
    assert_eq!((shown.reason, shown.files), (None, false));
    let shown = batch.shown(0, &port(&taps, "in", MAIN), 7);
    assert_eq!((shown.payload.as_deref(), shown.payload_is_cut), (Some("payload"), true));
    assert_eq!(Value::Object(shown.fields), json!({ "…": 7 }));
}

#[test]
fn a_reject_is_shown_with_its_reason() {
    let (taps, _) = taps();
    let mut out = Outputs::new("main.pass".into());
    out.reject_all(testing::batch(["bad"]), "it is no number").unwrap();
    let rejected: BTreeMap<Output, Batch> = out.take().into_iter().collect();
    let shown = rejected[&Output::Errors].shown(0, &port(&taps, "main.pass", ERRORS), 100);
    assert_eq!(shown.reason.as_deref(), Some("it is no number"));
    assert_eq!(Value::Object(shown.fields), json!({ "error_component": "main.pass" }));
    assert_eq!((shown.edge.as_str(), shown.output.as_str()), ("main.pass", "errors"));
}

#[test]
fn a_file_is_shown_with_its_path_and_its_size() {
    let (taps, _) = taps();
    let mut file = testing::file_of("a-long-name.txt", b"content");
    file.set_problem(thalweg_record::Problem::new("it is too short"));
    let shown = vec![file].shown(0, &port(&taps, "in", ERRORS), 6);
    assert_eq!(Value::Object(shown.fields), json!({ "path": "a-long", "size": 7 }));
    assert_eq!((shown.reason.as_deref(), shown.files, shown.payload), (Some("it is too short"), true, None));
}
