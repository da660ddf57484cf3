//! Runs that are watched and controlled from outside.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use serde_json::{Value, json};
use thalweg_record::{Batch, Budget, Share};

use super::{Act, few, nowhere, plan, probe, registry};
use crate::run::control::SourceControl;
use crate::run::{Handle, Run, SourceState, StateDir, Summary, TapError, TapRequest};
use crate::source_output::Limit;
use crate::{
    Built, Checkpoint, Context, Error, Flow, Outputs, Reading, Registry, Rejects, Role, Sink, SinkConfig,
    Source, SourceConfig, SourceOutput, Step, Transform, TransformConfig, WriteOutcome, testing,
};

/// Longer than everything that ends.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// Sends `NAME NUMBER`, a message a batch, from where a former run got to. It reserves memory for each.
#[derive(Clone, Default)]
pub(super) struct Counting {
    last: u64,
    /// How often it asked for memory.
    asked: Arc<AtomicU64>,
    /// The number up to which all is known to be saved.
    committed: Arc<AtomicU64>,
    /// True if the memory is that of its context.
    is_of_context: bool,
    /// True if it sends without pauses.
    hurries: bool,
    memory: Option<Share>,
}

#[async_trait]
impl Source for Counting {
    async fn run(&mut self, out: &mut SourceOutput) -> Result<(), Error> {
        let begin = out.saved("l").and_then(|saved| saved.as_u64()).unwrap_or(0);
        for number in begin + 1..=self.last {
            if out.is_stopping() {
                return Ok(());
            }
            if let Some(committed) = out.committed("l").and_then(|saved| saved.as_u64()) {
                self.committed.store(committed, SeqCst);
            }
            self.asked.fetch_add(1, SeqCst);
            let _arena = self.memory.as_ref().unwrap_or(out.share()).arena(64).await;
            let payload = testing::batch([format!("{} {number}", out.name())]).payload().clone();
            let checkpoint = Some(Checkpoint { partition: "l".into(), offset: number.into() });
            out.send(Reading { payload, path: None, positions: None, checkpoint }).await?;
            if !self.hurries {
                // Not so many that a test collects them in vain.
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        Ok(())
    }
}

impl SourceConfig for Counting {
    fn blocks(&self) -> bool {
        false
    }

    fn build(&self, context: &Context) -> Result<Box<dyn Source>, Error> {
        let memory = self.is_of_context.then(|| context.memory.clone());
        Ok(Box::new(Self { memory, ..self.clone() }))
    }
}

/// Rejects the messages that end with an odd digit.
struct Even;

impl TransformConfig for Even {
    fn build(&self, _: &Context) -> Result<Box<dyn Transform>, Error> {
        Ok(Box::new(Even))
    }
}

impl Transform for Even {
    fn apply(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
        let is_odd = |payload: &String| payload.ends_with(['1', '3', '5', '7', '9']);
        let payloads = testing::payloads(&batch);
        let odd = (0..).zip(&payloads).filter(|(_, payload)| is_odd(payload));
        let odd = odd.map(|(row, payload)| (row, format!("`{payload}` is odd"))).collect();
        let rest = out.reject(batch, odd)?;
        out.send(rest);
        Ok(())
    }
}

/// Keeps what it gets.
#[derive(Clone, Default)]
pub(super) struct Collect(Arc<Mutex<Vec<String>>>);

#[async_trait]
impl Sink for Collect {
    async fn write(&mut self, batch: &Batch, _: &mut Rejects) -> Result<WriteOutcome, Error> {
        self.0.lock().extend(testing::payloads(batch));
        Ok(WriteOutcome::Durable)
    }

    async fn flush(&mut self) -> Result<(), Error> {
        Ok(())
    }
}

impl SinkConfig for Collect {
    fn build(&self, _: &Context) -> Result<Box<dyn Sink>, Error> {
        Ok(Box::new(self.clone()))
    }
}

impl Collect {
    /// The numbers of the messages of a source, in their order.
    pub(super) fn of(&self, source: &str) -> Vec<u64> {
        let collected = self.0.lock();
        let own = collected.iter().filter_map(|message| message.strip_prefix(source));
        own.map(|number| number.trim().parse().unwrap()).collect()
    }
}

/// Prepares a run of the sources `a` and `b` that lead through `even` to one sink, and its rejects to
/// another.
fn two(sources: [&Counting; 2], sinks: [&Collect; 2], state_dir: &StateDir) -> Run {
    let text = "memory: 8MiB\n\
        sources: { a: { counting: 0 }, b: { counting: 1 } }\n\
        pipelines:\n  main: { from: [a, b], transforms: [{ even: 0 }], to: out }\n  \
        rejects: { from: main.errors, to: odd }\n\
        sinks: { out: { collect: 0 }, odd: { collect: 1 } }\n";
    let (sources, sinks) = (sources.map(Clone::clone), sinks.map(Clone::clone));
    let at = |number: &Value| number.as_u64().unwrap_or_default() as usize;
    let registry = Registry::new()
        .with(Role::Source, None, "counting", move |number| {
            Ok(Built::Source(Arc::new(sources[at(&number)].clone())))
        })
        .with(Role::Transform, Some(Flow::Messages), "even", |_| {
            Ok(Built::Transform(Step::Messages(Arc::new(Even))))
        })
        .with(Role::Sink, Some(Flow::Messages), "collect", move |number| {
            Ok(Built::Sink(Arc::new(sinks[at(&number)].clone())))
        });
    Run::new(plan(text, &registry, 2), state_dir.clone()).unwrap()
}

pub(super) fn counting(last: u64) -> Counting {
    Counting { last, ..Counting::default() }
}

/// As [`counting`], without pauses.
pub(super) fn hurrying(last: u64) -> Counting {
    Counting { hurries: true, ..counting(last) }
}

pub(super) fn kept(folder: &tempfile::TempDir) -> StateDir {
    StateDir { folder: folder.path().to_owned(), positions: true, owner: None }
}

fn state(handle: &Handle, source: &str) -> SourceState {
    handle.sources().into_iter().find(|status| status.name == source).unwrap().state
}

/// Waits until something holds.
pub(super) async fn until(mut holds: impl FnMut() -> bool) {
    let waited = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waited).await.expect("it holds in time");
}

pub(super) async fn ended(running: tokio::task::JoinHandle<Summary>) -> Summary {
    tokio::time::timeout(PATIENCE, running).await.expect("the run ends").unwrap()
}

fn all_of(source: &str, sinks: &[&Collect]) -> Vec<u64> {
    let mut all: Vec<u64> = sinks.iter().flat_map(|sink| sink.of(source)).collect();
    all.sort_unstable();
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_counts_for_the_component_that_has_it() {
    let (a, b) = (counting(u64::MAX), Counting { is_of_context: true, ..counting(u64::MAX) });
    let (out, odd) = (Collect::default(), Collect::default());
    let run = two([&a, &b], [&out, &odd], &nowhere());
    let handle = run.handle();
    let running = tokio::spawn(run.wait());
    let held = |name: &str| {
        let holders = handle.budget().holders();
        holders.iter().find(|held| &*held.name == name).map(|held| held.bytes)
    };
    // Each has an arena nearly all the time.
    for source in ["a", "b"] {
        until(|| held(source) >= Some(64)).await;
    }
    for other in ["main.even", "out", "odd", "dead letters", "other work"] {
        assert!(held(other).is_some(), "{other}");
    }
    handle.stop();
    let summary = ended(running).await;
    assert!(summary.failure.is_none(), "{:?}", summary.failure);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_source_sends_nothing_while_others_do_and_goes_on_where_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (counting(u64::MAX), counting(u64::MAX));
    let (out, odd) = (Collect::default(), Collect::default());
    let run = two([&a, &b], [&out, &odd], &kept(&folder));
    let handle = run.handle();
    assert_eq!(state(&handle, "a"), SourceState::Starting);
    let running = tokio::spawn(run.wait());
    until(|| out.of("a").len() > 5 && state(&handle, "a") == SourceState::Running).await;
    handle.pause("a").unwrap();
    handle.pause("a").unwrap();
    let asked = a.asked.load(SeqCst);
    // Checkpoints that began after the pause cover what the other source sent since.
    let begun = b.asked.load(SeqCst);
    until(|| b.committed.load(SeqCst) > begun + 100).await;
    let sent = all_of("a", &[&out, &odd]);
    assert!(sent.len() as u64 <= asked, "{} of {asked}", sent.len());
    assert!(a.asked.load(SeqCst) <= asked + 1);
    assert_eq!((state(&handle, "a"), state(&handle, "b")), (SourceState::Paused, SourceState::Running));
    handle.resume("a").unwrap();
    handle.resume("a").unwrap();
    until(|| a.committed.load(SeqCst) > asked + 10).await;
    handle.stop();
    let summary = ended(running).await;
    assert!(summary.failure.is_none(), "{:?}", summary.failure);
    let sent = all_of("a", &[&out, &odd]);
    assert_eq!(sent, (1..=sent.len() as u64).collect::<Vec<_>>());
    assert_eq!(summary.positions["a"]["l"], sent.len());
}

/// It was not held back: `http_upload` is such a source.
#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_reads_into_memory_of_its_context_is_paused_too() {
    let (a, b) = (Counting { is_of_context: true, ..counting(u64::MAX) }, counting(u64::MAX));
    let (out, odd) = (Collect::default(), Collect::default());
    let run = two([&a, &b], [&out, &odd], &nowhere());
    let handle = run.handle();
    let running = tokio::spawn(run.wait());
    until(|| out.of("a").len() > 5).await;
    handle.pause("a").unwrap();
    let (asked, begun) = (a.asked.load(SeqCst), b.asked.load(SeqCst));
    until(|| b.asked.load(SeqCst) > begun + 100).await;
    assert!(a.asked.load(SeqCst) <= asked + 1);
    handle.resume("a").unwrap();
    until(|| a.asked.load(SeqCst) > asked + 10).await;
    handle.abort();
    ended(running).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_with_a_paused_source_ends_when_it_is_asked_to_and_the_next_one_reads_the_rest() {
    let folder = tempfile::tempdir().unwrap();
    let (out, odd) = (Collect::default(), Collect::default());
    let (a, b) = (counting(u64::MAX), counting(0));
    let run = two([&a, &b], [&out, &odd], &kept(&folder));
    let handle = run.handle();
    // Also before it begins.
    handle.pause("a").unwrap();
    let running = tokio::spawn(run.wait());
    until(|| a.asked.load(SeqCst) == 1 && state(&handle, "b") == SourceState::Ended).await;
    handle.resume("a").unwrap();
    until(|| out.of("a").len() > 5).await;
    handle.pause("a").unwrap();
    handle.stop();
    let summary = ended(running).await;
    assert!(summary.failure.is_none() && summary.stopped, "{:?}", summary.failure);
    assert_eq!(state(&handle, "a"), SourceState::Ended);
    let sent = all_of("a", &[&out, &odd]);
    assert_eq!(summary.positions["a"]["l"], sent.len());
    let last = sent.len() as u64 + 20;
    let summary = two([&counting(last), &b], [&out, &odd], &kept(&folder)).wait().await;
    assert!(summary.failure.is_none(), "{:?}", summary.failure);
    assert_eq!(all_of("a", &[&out, &odd]), (1..=last).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drained_source_ends_alone_and_its_positions_are_saved() {
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (counting(u64::MAX), counting(u64::MAX));
    let (out, odd) = (Collect::default(), Collect::default());
    let run = two([&a, &b], [&out, &odd], &kept(&folder));
    let handle = run.handle();
    let running = tokio::spawn(run.wait());
    until(|| out.of("a").len() > 5 && out.of("b").len() > 5).await;
    // Draining is stronger than a pause.
    handle.pause("a").unwrap();
    handle.drain("a").unwrap();
    until(|| state(&handle, "a") == SourceState::Ended).await;
    handle.drain("a").unwrap();
    until(|| handle.latencies()[0].oldest_unsettled_ms.is_none()).await;
    let begun = b.asked.load(SeqCst);
    // Its messages are covered by a checkpoint while the other source continues.
    until(|| b.committed.load(SeqCst) > begun + 50).await;
    assert_eq!(state(&handle, "b"), SourceState::Running);
    assert!(!handle.is_stopping());
    let sent = all_of("a", &[&out, &odd]);
    handle.abort();
    let summary = ended(running).await;
    assert_eq!(sent, (1..=sent.len() as u64).collect::<Vec<_>>());
    assert_eq!(summary.positions["a"]["l"], sent.len());
    let store = crate::Store::open(folder.path()).unwrap();
    assert_eq!(store.positions("a").unwrap()["l"], sent.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_of_which_all_sources_were_drained_ends_as_one_that_was_stopped() {
    let (a, b) = (counting(u64::MAX), counting(3));
    let run = two([&a, &b], [&Collect::default(), &Collect::default()], &nowhere());
    let handle = run.handle();
    let running = tokio::spawn(run.wait());
    until(|| state(&handle, "b") == SourceState::Ended).await;
    handle.drain("a").unwrap();
    let summary = ended(running).await;
    assert!(summary.stopped && summary.failure.is_none());
}

/// Notes whether it is finished or suspended.
#[derive(Clone, Default)]
struct Ends {
    name: String,
    seen: Arc<Mutex<BTreeSet<String>>>,
}

#[async_trait]
impl Sink for Ends {
    async fn write(&mut self, _: &Batch, _: &mut Rejects) -> Result<WriteOutcome, Error> {
        Ok(WriteOutcome::Durable)
    }

    async fn flush(&mut self) -> Result<(), Error> {
        Ok(())
    }

    async fn finish(&mut self) -> Result<(), Error> {
        self.seen.lock().insert(format!("{} finished", self.name));
        Ok(())
    }

    async fn suspend(&mut self) -> Result<(), Error> {
        self.seen.lock().insert(format!("{} suspended", self.name));
        Ok(())
    }
}

impl SinkConfig for Ends {
    fn build(&self, context: &Context) -> Result<Box<dyn Sink>, Error> {
        Ok(Box::new(Self { name: context.name.clone(), ..self.clone() }))
    }
}

/// The sink `y` was suspended: whatever heeded a request to one source heeded that to the run.
#[tokio::test(flavor = "multi_thread")]
async fn a_drained_source_suspends_the_sinks_behind_it_and_no_others() {
    let (folder, ends) = (tempfile::tempdir().unwrap(), Ends::default());
    let text = "memory: 8MiB\nsources: { a: { counting: endless }, b: { counting: 50 } }\n\
        pipelines: { one: { from: a, to: x }, two: { from: b, to: y } }\nsinks: { x: { ends: 0 }, y: { ends: 0 } }\n";
    let sink = ends.clone();
    let registry = Registry::new()
        .with(Role::Source, None, "counting", |last| {
            Ok(Built::Source(Arc::new(counting(last.as_u64().unwrap_or(u64::MAX)))))
        })
        .with(Role::Sink, Some(Flow::Messages), "ends", move |_| Ok(Built::Sink(Arc::new(sink.clone()))));
    let run = Run::new(plan(text, &registry, 2), kept(&folder)).unwrap();
    let handle = run.handle();
    handle.pause("b").unwrap();
    let running = tokio::spawn(run.wait());
    until(|| state(&handle, "a") == SourceState::Running).await;
    handle.drain("a").unwrap();
    until(|| state(&handle, "a") == SourceState::Ended).await;
    handle.resume("b").unwrap();
    let summary = ended(running).await;
    assert!(summary.stopped && summary.failure.is_none(), "{:?}", summary.failure);
    let expected = ["x suspended", "y finished"].map(str::to_owned);
    assert_eq!(*ends.seen.lock(), BTreeSet::from(expected));
}

#[tokio::test(start_paused = true)]
async fn a_paused_source_gets_memory_again_when_it_is_resumed_and_when_it_is_to_end() {
    let text = "memory: 8MiB\nsources: { in: { numbers: 0 } }\npipelines: { main: { from: in, to: out } }\n\
        sinks: { out: { probe: 0 } }\n";
    let plan = plan(text, &registry(few(false), vec![probe(|_| Act::Write)]), 2);
    let opened: [fn(&SourceControl); 3] = [
        SourceControl::resume,
        |control| control.stop.request(),
        |control| assert_eq!(control.limit.get().map(|limit| limit.take(1)), Some(1)),
    ];
    for open in opened {
        let control = Handle::new(&plan).sources[0].clone();
        control.limit.set(Limit::new(1)).unwrap();
        control.pause();
        let share = Budget::new(1 << 20).share().behind(control.clone());
        let mut reserved = std::pin::pin!(share.reserve(1));
        assert!(tokio::time::timeout(PATIENCE, &mut reserved).await.is_err());
        open(&control);
        assert_eq!(tokio::time::timeout(PATIENCE, reserved).await.unwrap().bytes(), 1);
        assert_eq!(tokio::time::timeout(PATIENCE, share.reserve(2)).await.unwrap().bytes(), 2);
    }
}

#[test]
fn a_source_that_there_is_not_is_refused_with_those_that_there_are() {
    let sinks = [Collect::default(), Collect::default()];
    let run = two([&counting(0), &counting(0)], [&sinks[0], &sinks[1]], &nowhere());
    let handle = run.handle();
    for refused in [handle.pause("c"), handle.resume("c"), handle.drain("c")] {
        assert_eq!(refused.unwrap_err().to_string(), "no source has this name; there are: a, b");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tap_sees_messages_and_rejects_with_their_reasons_and_ends_with_the_run() {
    let (a, b) = (counting(20), counting(0));
    let (out, odd) = (Collect::default(), Collect::default());
    let run = two([&a, &b], [&out, &odd], &nowhere());
    let handle = run.handle();
    let tap = |names: &[&str]| {
        let edges = names.iter().map(|name| (*name).to_owned()).collect();
        handle.tap(TapRequest { edges, rate: 1000, max_bytes: 100 })
    };
    let refused = tap(&["main.odd"]).unwrap_err();
    assert!(matches!(refused, TapError::Unknown { .. }));
    let guessed = tap(&["a-guess"]).unwrap_err().to_string();
    assert!(guessed.starts_with("nothing has such a name; there are: "), "{guessed}");
    assert!(!guessed.contains("a-guess"), "{guessed}");
    let (mut rejects, mut received) = (tap(&["main.even.errors"]).unwrap(), tap(&["out", "b"]).unwrap());
    let dropped = tap(&["*"]).unwrap();
    drop(dropped);
    let summary = ended(tokio::spawn(run.wait())).await;
    assert!(summary.failure.is_none(), "{:?}", summary.failure);
    let (mut reasons, mut payloads) = (BTreeSet::new(), BTreeSet::new());
    while let Some(tapped) = rejects.next().await {
        assert_eq!((tapped.edge.as_str(), tapped.output.as_str()), ("main.even", "errors"));
        assert_eq!(tapped.fields.get("error_component"), Some(&json!("main.even")));
        reasons.extend(tapped.reason);
    }
    while let Some(tapped) = received.next().await {
        assert_eq!((tapped.edge.as_str(), tapped.output.as_str()), ("out", "input"));
        payloads.extend(tapped.payload);
    }
    let odd = (1..=20).filter(|number| number % 2 == 1).map(|number| format!("`a {number}` is odd"));
    assert_eq!(reasons, odd.collect::<BTreeSet<_>>());
    let even = (1..=20).filter(|number| number % 2 == 0).map(|number| format!("a {number}"));
    assert_eq!(payloads, even.collect::<BTreeSet<_>>());
    assert_eq!((rejects.left_out(), received.left_out()), (0, 0));
    drop((rejects, received));
    assert!(handle.taps.are_closed());
}

#[tokio::test(flavor = "multi_thread")]
async fn edges_queues_and_latencies_are_those_of_the_run() {
    let (a, b) = (counting(20), counting(0));
    let run = two([&a, &b], [&Collect::default(), &Collect::default()], &nowhere());
    let handle = run.handle();
    assert!(handle.queues().is_empty());
    let summary = ended(tokio::spawn(run.wait())).await;
    assert!(summary.failure.is_none(), "{:?}", summary.failure);
    let counts: Vec<_> = handle
        .edges()
        .into_iter()
        .map(|edge| (format!("{}.{} {}", edge.from, edge.output, edge.to), edge.messages, edge.batches))
        .collect();
    let expected = [
        ("a.errors dead letters", 0),
        ("a.main main.even", 20),
        ("b.errors dead letters", 0),
        ("b.main main.even", 0),
        ("main.even.errors odd", 10),
        ("main.even.main out", 10),
        ("odd.errors dead letters", 0),
        ("out.errors dead letters", 0),
    ];
    assert_eq!(counts, expected.map(|(edge, count)| (edge.to_owned(), count, count)));
    let queues: Vec<_> = handle.queues().into_iter().map(|queue| (queue.to, queue.bytes)).collect();
    let empty = ["dead letters", "main.even", "odd", "out"].map(|to| (to.to_owned(), 0));
    assert_eq!(queues, empty);
    let latencies: Vec<_> = handle
        .latencies()
        .into_iter()
        .map(|of| (of.source, of.total, of.oldest_unsettled_ms, of.sum_s > 0.0))
        .collect();
    assert_eq!(latencies, [("a".to_owned(), 20, None, true), ("b".to_owned(), 0, None, false)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_is_not_settled_has_an_age() {
    let sinks = [("out".to_owned(), probe(|_| Act::Wait))];
    let run = Run::new(super::broadcast(few(true), &sinks), nowhere()).unwrap();
    let handle = run.handle();
    let running = tokio::spawn(run.wait());
    until(|| handle.latencies()[0].oldest_unsettled_ms.is_some_and(|age| age > 0)).await;
    assert_eq!(handle.latencies()[0].total, 0);
    handle.abort();
    ended(running).await;
}

#[test]
fn the_graph_names_components_and_where_they_lead() {
    let text = "memory: 8MiB\nsources: { in: { numbers: 0 } }\n\
        pipelines: { main: { from: in, transforms: [{ pass: 0 }], to: { failover: [out, other] } } }\n\
        sinks: { out: { probe: 0 }, other: { probe: 0 } }\n";
    let plan = plan(text, &registry(few(false), vec![probe(|_| Act::Write)]), 2);
    let run = Run::new(plan, nowhere()).unwrap();
    let dead = json!(["dead letters"]);
    let sink = |name: &str| json!({ "name": name, "kind": "probe", "errors": dead });
    let expected = json!({
        "sources": [
            { "name": "in", "kind": "numbers", "gives": "messages", "to": ["main.pass"], "errors": dead },
        ],
        "segments": [{
            "pipeline": "main",
            "takes": "messages",
            "workers": 2,
            "is_ordered": true,
            "operators": [{
                "name": "main.pass",
                "kind": "pass",
                "is_sink": false,
                "outputs": { "main": ["main.failover"], "errors": dead },
            }],
        }],
        "failovers": [{
            "name": "main.failover",
            "ways": [{ "name": "out", "to": ["out"] }, { "name": "other", "to": ["other"] }],
        }],
        "sinks": [sink("out"), sink("other")],
        "memory": 8 << 20,
        "cores": 2,
    });
    assert_eq!(*run.handle().graph(), expected);
}
