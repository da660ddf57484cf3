//! Whole runs, of components made for the purpose.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;
use thalweg_config::Document;
use thalweg_record::Batch;

use super::*;
use crate::{
    Built, Checkpoint, ErrorKind, Flow, Reading, Registry, Rejects, Role, Sink, SinkConfig, Source,
    SourceConfig, SourceOutput, Store, WriteOutcome, testing,
};

/// Sends batches with a checkpoint each; if it is endless, until it is stopped.
#[derive(Clone)]
struct Numbers {
    batches: u64,
    rows: usize,
    payload: usize,
    waits_for_stop: bool,
}

#[async_trait]
impl Source for Numbers {
    async fn run(&mut self, out: &mut SourceOutput) -> Result<(), Error> {
        let payload = testing::batch(vec![vec![b'x'; self.payload]; self.rows]).payload().clone();
        for number in 1..=self.batches {
            if out.is_stopping() {
                return Ok(());
            }
            let checkpoint = Some(Checkpoint { partition: "l".into(), offset: number.into() });
            let payload = payload.clone();
            out.send(Reading { payload, path: None, positions: None, checkpoint }).await?;
        }
        if self.waits_for_stop {
            out.stopping().await;
        }
        Ok(())
    }
}

impl SourceConfig for Numbers {
    fn blocks(&self) -> bool {
        false
    }

    fn build(&self, _: &crate::Context) -> Result<Box<dyn Source>, Error> {
        Ok(Box::new(self.clone()))
    }
}

/// The behaviour of a sink: its act for each batch, by the batch's number from 1.
#[derive(Clone)]
struct Probe(Arc<dyn Fn(u64) -> Act + Send + Sync>);

enum Act {
    Write,
    Wait,
    Block,
    Panic,
    Fail(Error),
}

struct Probing {
    act: Probe,
    written: u64,
}

#[async_trait]
impl Sink for Probing {
    async fn write(&mut self, _: &Batch, _: &mut Rejects) -> Result<WriteOutcome, Error> {
        match self.act.0(self.written + 1) {
            Act::Write => self.written += 1,
            Act::Wait => std::future::pending().await,
            Act::Block => loop {
                std::thread::park();
            },
            Act::Panic => panic!("on purpose"),
            Act::Fail(error) => return Err(error),
        }
        Ok(WriteOutcome::Durable)
    }

    async fn flush(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn state(&self) -> Option<Value> {
        Some(self.written.into())
    }
}

impl SinkConfig for Probe {
    fn build(&self, _: &crate::Context) -> Result<Box<dyn Sink>, Error> {
        Ok(Box::new(Probing { act: self.clone(), written: 0 }))
    }
}

fn probe(act: impl Fn(u64) -> Act + Send + Sync + 'static) -> Probe {
    Probe(Arc::new(act))
}

/// A run of one source that leads to each of these sinks, which are called by their names.
fn run(source: Numbers, sinks: &[(String, Probe)], state_dir: StateDir) -> Run {
    let names: Vec<&str> = sinks.iter().map(|(name, _)| &**name).collect();
    let options: Vec<String> =
        names.iter().enumerate().map(|(number, name)| format!("  {name}: {{ probe: {number} }}")).collect();
    let text = format!(
        "memory: 8MiB\nsources: {{ in: {{ numbers: 0 }} }}\npipelines: {{ main: {{ from: in, to: [{}] }} }}\nsinks:\n{}\n",
        names.join(", "),
        options.join("\n")
    );
    let probes: Vec<Probe> = sinks.iter().map(|(_, probe)| probe.clone()).collect();
    let registry = Registry::new()
        .with(Role::Source, None, "numbers", move |_| Ok(Built::Source(Arc::new(source.clone()))))
        .with(Role::Sink, Some(Flow::Messages), "probe", move |number| {
            let probe = number.as_u64().and_then(|number| probes.get(number as usize)).cloned();
            probe.map(|probe| Built::Sink(Arc::new(probe))).ok_or_else(|| "no such probe".to_owned())
        });
    let document = Document::parse("test.yaml", &text).unwrap();
    let graph = crate::read(&document, &registry).map_err(|wrong| wrong.render(false)).unwrap();
    Run::new(Plan::new(&graph, 2), state_dir).unwrap()
}

fn nowhere() -> StateDir {
    StateDir { folder: std::env::temp_dir().join("thalweg-nowhere"), positions: false }
}

fn few(waits_for_stop: bool) -> Numbers {
    Numbers { batches: 5, rows: 3, payload: 10, waits_for_stop }
}

/// As much as all channels together cannot hold: a sink that never runs is noticed.
fn much(batches: u64) -> Numbers {
    Numbers { batches, rows: 1, payload: 256 << 10, waits_for_stop: false }
}

fn many(count: usize, probe: &Probe) -> Vec<(String, Probe)> {
    (0..count).map(|number| (format!("s{number}"), probe.clone())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn more_sinks_than_the_runtime_has_blocking_threads_all_get_everything() {
    for count in [700, 2_000] {
        let written = Arc::new(AtomicU64::new(0));
        let counter = written.clone();
        let counting = probe(move |_| {
            counter.fetch_add(1, Ordering::Relaxed);
            Act::Write
        });
        let run = run(much(10), &many(count, &counting), nowhere());
        let summary = tokio::time::timeout(Duration::from_secs(120), run.wait()).await.unwrap();
        assert!(summary.failure.is_none(), "{:?}", summary.failure);
        assert_eq!(written.load(Ordering::Relaxed), 10 * count as u64);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_of_many_sinks_ends_when_it_is_asked_to_stop() {
    let run = run(much(u64::MAX), &many(2_000, &probe(|_| Act::Write)), nowhere());
    let handle = run.handle();
    let running = tokio::spawn(run.wait());
    while handle.counts()[0].rows_in < 5 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    handle.stop();
    let summary = tokio::time::timeout(Duration::from_secs(60), running).await.unwrap().unwrap();
    assert!(summary.stopped && summary.undrained.is_none());
}

/// Runs until the second batch is stuck in the sink `out`, asks for the end, and waits for it.
async fn stuck(act: fn() -> Act, state_dir: StateDir) -> Summary {
    let probe = probe(move |number| if number < 3 { Act::Write } else { act() });
    let run = run(few(true), &[("out".to_owned(), probe)], state_dir);
    let run = run.drain_timeout(Duration::from_millis(200));
    let handle = run.handle();
    let running = tokio::spawn(run.wait());
    let of_sink = || handle.counts().into_iter().find(|counts| counts.name == "out").unwrap();
    while of_sink().rows_in < 9 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    handle.stop();
    tokio::time::timeout(Duration::from_secs(30), running).await.unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sink_that_never_returns_is_given_up_after_the_drain_timeout() {
    for act in [|| Act::Wait, || Act::Block] {
        let folder = tempfile::tempdir().unwrap();
        let state_dir = StateDir { folder: folder.path().to_owned(), positions: true };
        let summary = stuck(act, state_dir.clone()).await;
        let expected = "the drain timeout of 0.2 s expired; unsettled: `in` 9 messages; still running: `dead letters`, `out`";
        assert_eq!(summary.failure.unwrap().to_string(), expected);
        let undrained = summary.undrained.unwrap();
        assert_eq!(undrained.unsettled, [("in".into(), 9)]);
        assert!(!summary.stopped);
        assert_eq!(summary.positions["in"]["l"], 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_settled_when_the_drain_timeout_expires_is_saved_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let state_dir = StateDir { folder: folder.path().to_owned(), positions: true };
    stuck(|| Act::Wait, state_dir).await;
    let store = Store::open(folder.path()).unwrap();
    assert_eq!(store.positions("in").unwrap(), BTreeMap::from([("l".to_owned(), 2.into())]));
    assert_eq!(store.sink_state("out").unwrap(), Some(2.into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_comes_before_the_drain_timeout_that_it_leads_to() {
    let broken = probe(|_| Act::Fail(Error::permanent("`other` said no")));
    let sinks = [("out".to_owned(), broken), ("other".to_owned(), probe(|_| Act::Wait))];
    let run = run(few(false), &sinks, nowhere()).drain_timeout(Duration::from_millis(200));
    let summary = tokio::time::timeout(Duration::from_secs(30), run.wait()).await.unwrap();
    let failure = summary.failure.unwrap();
    assert_eq!(failure.to_string(), "the sink `out` failed: `other` said no");
    assert_eq!((failure.component.as_deref(), failure.role), (Some("out"), Some(Role::Sink)));
    assert_eq!(failure.error.kind(), ErrorKind::Permanent);
    assert!(summary.undrained.unwrap().running.contains(&"other".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_drains_in_time_is_not_given_up() {
    let run = run(few(true), &[("out".to_owned(), probe(|_| Act::Write))], nowhere());
    let run = run.drain_timeout(Duration::from_secs(20));
    let handle = run.handle();
    let running = tokio::spawn(run.wait());
    tokio::time::sleep(Duration::from_millis(50)).await;
    handle.stop();
    let summary = running.await.unwrap();
    assert!(summary.stopped && summary.failure.is_none() && summary.undrained.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_kind_of_an_error_is_that_of_the_failure() {
    let gone = probe(|_| Act::Fail(Error::reader_gone("nobody reads")));
    let summary = run(few(false), &[("out".to_owned(), gone)], nowhere()).wait().await;
    assert_eq!(summary.failure.unwrap().error.kind(), ErrorKind::ReaderGone);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sink_that_panics_is_a_failure_of_the_run() {
    let panics = probe(|_| Act::Panic);
    let summary = run(few(false), &[("out".to_owned(), panics)], nowhere()).wait().await;
    assert_eq!(summary.failure.unwrap().to_string(), "a component panicked; this is a bug of thalweg");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_aborted_leaves_a_blocked_thread_behind() {
    let run = run(few(true), &[("out".to_owned(), probe(|_| Act::Block))], nowhere());
    let handle = run.handle();
    let running = tokio::spawn(run.wait());
    tokio::time::sleep(Duration::from_millis(50)).await;
    handle.abort();
    let summary = tokio::time::timeout(Duration::from_secs(30), running).await.unwrap().unwrap();
    let text = "stopped at once; what was in flight is not acknowledged";
    assert_eq!(summary.failure.unwrap().to_string(), text);
}
