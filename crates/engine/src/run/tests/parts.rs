//! Runs whose configuration changes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use proptest::prelude::*;
use serde_json::Value;
use thalweg_config::Document;
use thalweg_record::Batch;
use tokio::task::JoinHandle;

use super::Unbuildable;
use super::control::{Collect, PATIENCE, counting, ended, kept, until};
use crate::run::{
    Changes, Difference, Handle, Parts, PartsOptions, Refused, SourceState, SourceStatus, StateDir, Summary,
    Written,
};
use crate::{
    Built, Context, Error, Flow, Outputs, Registry, Rejects, Role, Sink, SinkConfig, SourceConfig, Step,
    TapRequest, Tapped, Transform, TransformConfig, WriteOutcome,
};

/// The components of a test: endless sources of numbers, and one place for all that arrives.
#[derive(Clone, Default)]
struct World {
    collected: Collect,
    /// How often a source was built, by its option.
    built: Arc<Mutex<BTreeMap<u64, u64>>>,
    /// How many messages each transform `tally` has seen, by its option.
    tallies: Arc<Mutex<BTreeMap<u64, u64>>>,
    stuck: Stuck,
}

impl World {
    fn registry(&self) -> Registry {
        let (built, collected, stuck) = (self.built.clone(), self.collected.clone(), self.stuck.clone());
        let tallies = self.tallies.clone();
        Registry::new()
            .with(Role::Source, None, "counting", move |salt| {
                let built = built.clone();
                let note = move || *built.lock().entry(salt.as_u64().unwrap_or_default()).or_default() += 1;
                let source = Arc::new(counting(u64::MAX));
                Ok(Built::Source(Arc::new(Noted { source, note, is_stdin: false })))
            })
            .with(Role::Source, None, "standard_input", |_| {
                let source = Arc::new(counting(u64::MAX));
                Ok(Built::Source(Arc::new(Noted { source, note: || (), is_stdin: true })))
            })
            .with(Role::Source, None, "unbuildable", |_| Ok(Built::Source(Arc::new(Unbuildable))))
            .with(Role::Transform, Some(Flow::Messages), "tally", move |number| {
                let tally =
                    Tally { number: number.as_u64().unwrap_or_default(), seen: 0, all: tallies.clone() };
                Ok(Built::Transform(Step::Messages(Arc::new(tally))))
            })
            .with(Role::Sink, Some(Flow::Messages), "collect", move |_| {
                Ok(Built::Sink(Arc::new(collected.clone())))
            })
            .with(Role::Sink, Some(Flow::Messages), "stuck", move |_| {
                Ok(Built::Sink(Arc::new(stuck.clone())))
            })
    }

    fn written(&self, text: &str) -> Written {
        let document = Document::parse("test.yaml", text).unwrap();
        let graph = crate::read(&document, &self.registry()).map_err(|wrong| wrong.render(false)).unwrap();
        Written { graph, document }
    }

    fn begin(&self, text: &str, state_dir: StateDir) -> (Changes, Handle, JoinHandle<Summary>) {
        self.begin_with(text, state_dir, PATIENCE)
    }

    fn begin_with(
        &self,
        text: &str,
        state_dir: StateDir,
        drain_timeout: Duration,
    ) -> (Changes, Handle, JoinHandle<Summary>) {
        let options = PartsOptions { cores: 2, drain_timeout };
        let parts = Parts::new(&self.written(text), state_dir, options).unwrap();
        let (changes, handle) = (parts.changes(), parts.handle());
        (changes, handle, tokio::spawn(parts.wait()))
    }

    /// Waits until more has come from a source.
    async fn more_of(&self, source: &str) {
        let before = self.collected.of(source).len();
        until(|| self.collected.of(source).len() > before + 2).await;
    }

    /// A transform `tally` that follows a source has counted each of its messages once.
    fn check_tally(&self, number: u8) {
        let found = self.tallies.lock().get(&u64::from(number)).copied().unwrap_or_default();
        assert_eq!(found, self.collected.of(&format!("s{number}")).len() as u64, "of `s{number}`");
    }

    /// Each number of a source has arrived once, in order.
    fn check(&self, source: &str) {
        let found = self.collected.of(source);
        assert_eq!(found, (1..=found.len() as u64).collect::<Vec<_>>(), "of `{source}`");
    }
}

/// A source that notes how often it is built.
struct Noted<N> {
    source: Arc<dyn SourceConfig>,
    note: N,
    is_stdin: bool,
}

impl<N: Fn() + Send + Sync> SourceConfig for Noted<N> {
    fn blocks(&self) -> bool {
        self.source.blocks()
    }

    fn reads_stdin(&self) -> bool {
        self.is_stdin
    }

    fn build(&self, context: &crate::Context) -> Result<Box<dyn crate::Source>, crate::Error> {
        (self.note)();
        self.source.build(context)
    }
}

/// Counts messages. Its state is the count.
#[derive(Clone)]
struct Tally {
    number: u64,
    seen: u64,
    all: Arc<Mutex<BTreeMap<u64, u64>>>,
}

impl TransformConfig for Tally {
    fn is_sequential(&self) -> bool {
        true
    }

    fn build(&self, _: &Context) -> Result<Box<dyn Transform>, Error> {
        Ok(Box::new(self.clone()))
    }
}

impl Transform for Tally {
    fn apply(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
        self.seen += batch.rows() as u64;
        self.all.lock().insert(self.number, self.seen);
        out.send(batch);
        Ok(())
    }

    fn state(&mut self) -> Option<Value> {
        Some(self.seen.into())
    }

    fn restore(&mut self, saved: Value) -> Result<(), Error> {
        self.seen = saved.as_u64().unwrap_or_default();
        Ok(())
    }
}

/// A sink whose first write blocks its thread until the sender is dropped.
#[derive(Clone, Default)]
struct Stuck(Arc<Mutex<Option<Receiver<()>>>>);

#[async_trait]
impl Sink for Stuck {
    async fn write(&mut self, _: &Batch, _: &mut Rejects) -> Result<WriteOutcome, Error> {
        let held = self.0.lock().take();
        if let Some(held) = held {
            let _ = held.recv();
        }
        Ok(WriteOutcome::Durable)
    }

    async fn flush(&mut self) -> Result<(), Error> {
        Ok(())
    }
}

impl SinkConfig for Stuck {
    fn build(&self, _: &Context) -> Result<Box<dyn Sink>, Error> {
        Ok(Box::new(self.clone()))
    }
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

const FIRST: &str = "memory: 8MiB\n\
    sources: { a: { counting: 1 }, b: { counting: 2 }, c: { counting: 3 } }\n\
    pipelines: { one: { from: [a, b], to: x }, two: { from: c, to: y } }\n\
    sinks: { x: { collect: 0 }, y: { collect: 0 } }\n";

#[tokio::test(flavor = "multi_thread")]
async fn a_part_is_replaced_and_goes_on_where_it_was_while_another_one_is_untouched() {
    let (folder, world) = (tempfile::tempdir().unwrap(), World::default());
    let (changes, handle, running) = world.begin(FIRST, kept(&folder));
    let request = TapRequest { edges: names(&["x"]), rate: 1000, max_bytes: 100 };
    until(|| handle.is_started()).await;
    let mut tap = handle.tap(request).unwrap();
    world.more_of("b").await;
    let next = FIRST.replace("a: { counting: 1 }", "a: { counting: 7 }, d: { counting: 4 }");
    let next = next
        .replace("to: y }", "to: y }, three: { from: d, to: z }")
        .replace("y: {", "z: { collect: 0 }, y: {");
    let expected = Difference {
        kept: names(&["two", "y", "c"]),
        added: names(&["three", "z", "d"]),
        removed: Vec::new(),
        changed: names(&["a"]),
        restarted: names(&["one", "x", "b"]),
    };
    let sorted = |difference: Difference| {
        let Difference { kept, added, removed, changed, restarted } = difference;
        [kept, added, removed, changed, restarted].map(|names| names.into_iter().collect::<BTreeSet<_>>())
    };
    let next = world.written(&next);
    assert_eq!(sorted(changes.show(&next).unwrap()), sorted(expected.clone()));
    assert_eq!(sorted(changes.apply(next.clone()).await.unwrap()), sorted(expected));
    assert!(changes.show(&next).unwrap().is_empty());
    for source in ["a", "b", "c", "d"] {
        world.more_of(source).await;
    }
    // The tap sees the sink that is in place of the old one.
    let seen = world.collected.of("b").len();
    let is_new = |tapped: &Tapped| {
        let number = tapped.payload.as_deref().and_then(|payload| payload.strip_prefix("b "));
        number.and_then(|number| number.parse().ok()).is_some_and(|number: usize| number > seen)
    };
    let found = async { while !is_new(&tap.next().await.expect("the tap lasts as long as the run")) {} };
    tokio::time::timeout(PATIENCE, found).await.expect("the tap sees the new sink");
    assert_eq!(*world.built.lock(), BTreeMap::from([(1, 1), (2, 2), (3, 1), (4, 1), (7, 1)]));
    assert!(handle.is_started() && handle.graph()["sources"].as_array().unwrap().len() == 4);
    assert_eq!(handle.sources().len(), 4);
    handle.stop();
    let summary = ended(running).await;
    assert!(summary.failure.is_none() && summary.stopped, "{:?}", summary.failure);
    ["a", "b", "c", "d"].iter().for_each(|source| world.check(source));
    assert_eq!(summary.positions["b"]["l"], world.collected.of("b").len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_configuration_that_cannot_be_followed_changes_nothing() {
    let (folder, world) = (tempfile::tempdir().unwrap(), World::default());
    let (changes, handle, running) = world.begin(FIRST, kept(&folder));
    world.more_of("a").await;
    let settings = world.written(&FIRST.replace("8MiB", "9MiB"));
    let refused = changes.apply(settings).await.unwrap_err();
    assert_eq!(refused.to_string(), "`memory` changed: restart thalweg for this setting");
    // The components of the new part cannot be built: the old part begins again.
    let unbuildable = world.written(&FIRST.replace("b: { counting: 2 }", "b: { unbuildable: 0 }"));
    let refused = changes.apply(unbuildable).await.unwrap_err();
    assert_eq!(refused, Refused::NotStarted("the port is in use".to_owned()));
    assert!(changes.show(&world.written(FIRST)).unwrap().is_empty());
    world.more_of("a").await;
    world.more_of("c").await;
    assert_eq!(world.built.lock()[&3], 1);
    handle.stop();
    assert!(ended(running).await.failure.is_none());
    ["a", "b", "c"].iter().for_each(|source| world.check(source));
    assert_eq!(changes.apply(world.written(FIRST)).await.unwrap_err(), Refused::Ending);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_state_a_source_that_starts_over_is_not_replaced_and_parts_come_and_go() {
    let (folder, world) = (tempfile::tempdir().unwrap(), World::default());
    let state_dir = StateDir { positions: false, ..kept(&folder) };
    let (changes, handle, running) = world.begin(FIRST, state_dir);
    world.more_of("c").await;
    let changed = world.written(&FIRST.replace("b: { counting: 2 }", "b: { counting: 5 }"));
    let refused = changes.apply(changed).await.unwrap_err();
    assert_eq!(refused, Refused::WithoutState("a".to_owned()));
    let smaller = "memory: 8MiB\nsources: { a: { counting: 1 }, b: { counting: 2 } }\n\
        pipelines: { one: { from: [a, b], to: x } }\nsinks: { x: { collect: 0 } }\n";
    let difference = changes.apply(world.written(smaller)).await.unwrap();
    assert_eq!(difference.removed, ["c", "two", "y"]);
    let last = world.collected.of("c").len();
    world.more_of("a").await;
    assert_eq!(world.collected.of("c").len(), last);
    handle.stop();
    assert!(ended(running).await.failure.is_none());
    ["a", "b", "c"].iter().for_each(|source| world.check(source));
}

/// The thread may still write what the part in its place would write again.
#[tokio::test(flavor = "multi_thread")]
async fn a_part_with_a_thread_that_stays_blocked_is_not_replaced_and_the_run_ends() {
    let (folder, world) = (tempfile::tempdir().unwrap(), World::default());
    let (release, held) = channel();
    *world.stuck.0.lock() = Some(held);
    let first = FIRST.replace("x: { collect: 0 }", "x: { stuck: 0 }");
    let (changes, _, running) = world.begin_with(&first, kept(&folder), Duration::from_millis(100));
    until(|| world.stuck.0.lock().is_none()).await;
    assert_eq!(changes.apply(world.written(FIRST)).await.unwrap_err(), Refused::Ending);
    let summary = ended(running).await;
    assert!(summary.failure.is_some() && summary.undrained.is_some_and(|undrained| undrained.blocked > 0));
    assert!(world.collected.of("a").is_empty() && world.collected.of("b").is_empty());
    world.check("c");
    drop(release);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_source_stays_so_when_its_part_is_replaced() {
    let (folder, world) = (tempfile::tempdir().unwrap(), World::default());
    let (changes, handle, running) = world.begin(FIRST, kept(&folder));
    world.more_of("b").await;
    handle.pause("b").unwrap();
    let next = world.written(&FIRST.replace("a: { counting: 1 }", "a: { counting: 7 }"));
    changes.apply(next).await.unwrap();
    world.more_of("a").await;
    let is_paused = |source: &SourceStatus| source.state == SourceState::Paused;
    let paused: Vec<_> = handle.sources().into_iter().filter(is_paused).map(|source| source.name).collect();
    assert_eq!(paused, ["b"]);
    handle.resume("b").unwrap();
    world.more_of("b").await;
    handle.stop();
    assert!(ended(running).await.failure.is_none());
    ["a", "b", "c"].iter().for_each(|source| world.check(source));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_of_the_standard_input_may_be_removed_but_not_restarted() {
    let (folder, world) = (tempfile::tempdir().unwrap(), World::default());
    let first = FIRST.replace("c: { counting: 3 }", "c: { standard_input: 3 }");
    let (changes, handle, running) = world.begin(&first, kept(&folder));
    world.more_of("c").await;
    let restarted = world.written(&first.replace("y: { collect: 0 }", "y: { collect: 1 }"));
    assert_eq!(changes.apply(restarted).await.unwrap_err(), Refused::StandardInput("c".to_owned()));
    world.more_of("c").await;
    assert_eq!(changes.apply(world.written(FIRST)).await.unwrap().changed, ["c"]);
    world.more_of("c").await;
    handle.stop();
    assert!(ended(running).await.failure.is_none());
    ["a", "b", "c"].iter().for_each(|source| world.check(source));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_stopped_during_a_reload_says_how_its_parts_ended() {
    let (folder, world) = (tempfile::tempdir().unwrap(), World::default());
    let (release, held) = channel();
    *world.stuck.0.lock() = Some(held);
    let first = FIRST.replace("x: { collect: 0 }", "x: { stuck: 0 }");
    let (changes, handle, running) = world.begin(&first, kept(&folder));
    until(|| world.stuck.0.lock().is_none()).await;
    let next = world.written(FIRST);
    let applied = tokio::spawn(async move { changes.apply(next).await });
    let is_leaving = |source: &SourceStatus| {
        source.name == "a" && [SourceState::Draining, SourceState::Ended].contains(&source.state)
    };
    until(|| handle.sources().iter().any(is_leaving)).await;
    handle.stop();
    drop(release);
    assert_eq!(applied.await.unwrap().unwrap_err(), Refused::Ending);
    let summary = ended(running).await;
    assert!(summary.failure.is_none() && summary.stopped, "{:?}", summary.failure);
    assert!(["a", "b", "c"].iter().all(|source| summary.positions.contains_key(*source)));
    world.check("c");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_state_a_removed_source_stays_so_if_the_new_configuration_cannot_start() {
    let (folder, world) = (tempfile::tempdir().unwrap(), World::default());
    let state_dir = StateDir { positions: false, ..kept(&folder) };
    let (changes, handle, running) = world.begin(FIRST, state_dir);
    world.more_of("c").await;
    let broken = FIRST.replace("c: { counting: 3 }", "u: { unbuildable: 0 }").replace("from: c", "from: u");
    let refused = changes.apply(world.written(&broken)).await.unwrap_err().to_string();
    assert!(refused.contains("the port is in use; `c` stays removed"), "{refused}");
    world.more_of("a").await;
    assert_eq!(changes.show(&world.written(FIRST)).unwrap().added, ["two", "y", "c"]);
    handle.stop();
    assert!(ended(running).await.failure.is_none());
    ["a", "b", "c"].iter().for_each(|source| world.check(source));
}

#[tokio::test(flavor = "multi_thread")]
async fn removed_components_hold_nothing_of_the_budget_and_are_not_shown() {
    let (folder, world) = (tempfile::tempdir().unwrap(), World::default());
    let (changes, handle, running) = world.begin(FIRST, kept(&folder));
    world.more_of("c").await;
    let renamed = FIRST.replace("c: {", "d: {").replace("from: c", "from: d");
    changes.apply(world.written(&renamed)).await.unwrap();
    world.more_of("d").await;
    let holders = handle.budget().holders();
    let names: Vec<&str> = holders.iter().map(|held| &*held.name).collect();
    assert!(names.contains(&"d") && !names.contains(&"c"), "{names:?}");
    handle.stop();
    assert!(ended(running).await.failure.is_none());
    until(|| handle.budget().used() == 0).await;
}

/// For each source that is there: the number of its sink, and an option without effect.
type Edges = BTreeMap<u8, (u8, u8)>;

fn edges() -> impl Strategy<Value = Edges> {
    prop::collection::btree_map(0..5_u8, (0..3_u8, 0..2_u8), 1..=5)
}

/// True if a buffer on disk and a transform that counts are behind a source.
fn is_buffered(source: u8) -> bool {
    source.is_multiple_of(2)
}

fn text(edges: &Edges) -> String {
    let mut text = "memory: 8MiB\nsources:\n".to_owned();
    for (source, (_, salt)) in edges {
        let _ = writeln!(text, "  s{source}: {{ counting: {} }}", 10 * source + salt);
    }
    text += "pipelines:\n";
    for (source, (sink, _)) in edges {
        if is_buffered(*source) {
            let _ = writeln!(text, "  p{source}: {{ from: s{source}, to: b{source} }}");
            let rest = format!("transforms: [{{ tally: {source} }}], to: k{sink}");
            let _ = writeln!(text, "  b{source}: {{ buffer: {{ disk: 16MiB }}, {rest} }}");
        } else {
            let _ = writeln!(text, "  p{source}: {{ from: s{source}, to: k{sink} }}");
        }
    }
    text += "sinks:\n";
    for sink in edges.values().map(|(sink, _)| sink).collect::<BTreeSet<_>>() {
        let _ = writeln!(text, "  k{sink}: {{ collect: 0 }}");
    }
    text
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn random_edits_lose_no_record_and_repeat_none(first in edges(), edits in prop::collection::vec(edges(), 1..5)) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            let (folder, world) = (tempfile::tempdir().unwrap(), World::default());
            let (changes, handle, running) = world.begin(&text(&first), kept(&folder));
            let mut now = first;
            for edit in edits {
                for source in now.keys() {
                    world.more_of(&format!("s{source}")).await;
                }
                let built = world.built.lock().clone();
                let difference = changes.apply(world.written(&text(&edit))).await.unwrap();
                for (source, (_, salt)) in &edit {
                    let key = 10 * u64::from(*source) + u64::from(*salt);
                    let is_kept = difference.kept.contains(&format!("s{source}"));
                    let again = world.built.lock()[&key] - built.get(&key).copied().unwrap_or_default();
                    assert_eq!(again, u64::from(!is_kept), "`s{source}` in {difference}");
                }
                now = edit;
            }
            for source in now.keys() {
                world.more_of(&format!("s{source}")).await;
            }
            handle.stop();
            let summary = ended(running).await;
            assert!(summary.failure.is_none(), "{:?}", summary.failure);
            (0..5).for_each(|source| world.check(&format!("s{source}")));
            (0..5).filter(|source| is_buffered(*source)).for_each(|source| world.check_tally(source));
        });
    }
}
