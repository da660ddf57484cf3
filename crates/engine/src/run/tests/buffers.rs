//! Runs with buffers on disk.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::control::{Collect, ended, hurrying, until};
use super::{Act, Numbers, Probe, nowhere, plan, probe, registry};
use crate::run::{Handle, Run, StateDir, Summary};
use crate::{Built, Error, Flow, Registry, Role, SinkConfig, find_buffers};

const BATCHES: u64 = 60;

/// As much as all channels together cannot hold.
fn source(batches: u64, waits_for_stop: bool) -> Numbers {
    Numbers { batches, rows: 1, payload: 256 << 10, waits_for_stop, saved: Arc::default() }
}

/// A run of one source that leads to the sinks `first`, which has a buffer, and `second`.
fn run(source: Numbers, first: Probe, second: Probe, state: &Path) -> Run {
    let text = "memory: 8MiB\nsources: { in: { numbers: 0 } }\n\
        pipelines: { main: { from: in, to: [first, second] } }\n\
        sinks: { first: { probe: 0, buffer: { disk: 1GiB } }, second: { probe: 1 } }\n";
    let plan = plan(text, &registry(source, vec![first, second]), 2);
    let state_dir = StateDir { folder: state.to_owned(), positions: true, owner: None };
    Run::new(plan, state_dir).unwrap().drain_timeout(Duration::from_secs(8))
}

fn written(summary: &Summary, name: &str) -> u64 {
    summary.components.iter().find(|counts| counts.name == name).unwrap().rows_out
}

async fn wait_for(handle: &Handle, name: &str, rows: u64) {
    while handle.counts().into_iter().find(|counts| counts.name == name).unwrap().rows_out < rows {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn well() -> Probe {
    probe(|_| Act::Write)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_sink_behind_a_buffer_holds_up_neither_its_neighbour_nor_the_end_of_the_run() {
    for dead in [probe(|_| Act::Wait), probe(|_| Act::Fail(Error::temporary("no answer")))] {
        let state = tempfile::tempdir().unwrap();
        let first = run(source(BATCHES, true), dead, well(), state.path());
        let handle = first.handle();
        let running = tokio::spawn(first.wait());
        wait_for(&handle, "second", BATCHES).await;
        handle.stop();
        let summary = tokio::time::timeout(Duration::from_secs(30), running).await.unwrap().unwrap();
        assert!(summary.failure.is_none() && summary.undrained.is_none() && summary.stopped, "{summary:?}");
        assert_eq!((written(&summary, "first"), written(&summary, "first.buffer")), (0, BATCHES));

        // The next run has no new input.
        let summary = run(source(0, false), well(), well(), state.path()).wait().await;
        assert!(summary.failure.is_none(), "{summary:?}");
        assert_eq!((written(&summary, "first"), written(&summary, "second")), (BATCHES, 0));
        assert!(find_buffers(state.path()).unwrap().iter().all(|buffer| buffer.segments.is_empty()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_ends_when_its_buffer_is_empty() {
    let state = tempfile::tempdir().unwrap();
    let slow = probe(|_| Act::Late(Duration::from_millis(5)));
    let summary = run(source(BATCHES, false), slow, well(), state.path()).wait().await;
    assert!(summary.failure.is_none() && !summary.stopped, "{summary:?}");
    assert_eq!((written(&summary, "first"), written(&summary, "second")), (BATCHES, BATCHES));
    assert!(find_buffers(state.path()).unwrap().iter().all(|buffer| buffer.segments.is_empty()));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_leads_to_a_pipeline_may_wait_too_and_the_input_is_not_counted_twice() {
    let text = "memory: 8MiB\nsources: { in: { numbers: 0 } }\n\
        pipelines:\n  main: { from: in, to: later }\n  later: { buffer: { disk: 16MiB }, to: first }\n\
        sinks: { first: { probe: 0 } }\n";
    let state = tempfile::tempdir().unwrap();
    let plan = plan(text, &registry(source(BATCHES, false), vec![well()]), 2);
    let state_dir = StateDir { folder: state.path().to_owned(), positions: true, owner: None };
    let summary = Run::new(plan, state_dir).unwrap().limited(BATCHES - 1).wait().await;
    assert!(summary.failure.is_none(), "{summary:?}");
    assert_eq!(written(&summary, "first"), BATCHES - 1);
    let sources = summary.components.iter().filter(|counts| counts.role == "source");
    assert_eq!(sources.map(|counts| counts.name.as_str()).collect::<Vec<_>>(), ["in"]);
}

/// A run of the numbers up to `last`, which wait in a small buffer before a pipeline to a sink.
fn small(last: u64, sink: Arc<dyn SinkConfig>, state: &Path) -> Run {
    let text = "memory: 8MiB\nsources: { in: { counting: 0 } }\n\
        pipelines:\n  main: { from: in, to: later }\n  later: { buffer: { disk: 16MiB }, to: out }\n\
        sinks: { out: { given: 0 } }\n";
    let registry = Registry::new()
        .with(Role::Source, None, "counting", move |_| Ok(Built::Source(Arc::new(hurrying(last)))))
        .with(Role::Sink, Some(Flow::Messages), "given", move |_| Ok(Built::Sink(sink.clone())));
    let state_dir = StateDir { folder: state.to_owned(), positions: true, owner: None };
    Run::new(plan(text, &registry, 2), state_dir).unwrap().drain_timeout(Duration::from_secs(2))
}

/// Messages that were appended before the buffer was full were not acknowledged until there was room, and the
/// next run appended them again. An `aggregate` behind the buffer counted them twice.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_ends_while_a_buffer_is_full_does_not_let_the_next_one_append_again() {
    let state = tempfile::tempdir().unwrap();
    let first = small(u64::MAX, Arc::new(probe(|_| Act::Wait)), state.path());
    let handle = first.handle();
    let running = tokio::spawn(first.wait());
    let is_full = || handle.counts().iter().any(|of| of.name == "later.buffer" && of.retrying.is_some());
    until(is_full).await;
    handle.stop();
    let summary = ended(running).await;
    assert!(summary.undrained.is_some(), "{summary:?}");
    let last = summary.positions["in"]["l"].as_u64().unwrap() + 100;
    // Its gauges are of the buffer, which the next run locks.
    drop(handle);

    let collected = Collect::default();
    let summary = small(last, Arc::new(collected.clone()), state.path()).wait().await;
    assert!(summary.failure.is_none(), "{summary:?}");
    assert_eq!(collected.of("in"), (1..=last).collect::<Vec<_>>());
}

#[test]
fn a_buffer_on_disk_without_a_state_directory_is_refused() {
    let text = "sources: { in: { numbers: 0 } }\npipelines: { main: { from: in, to: first } }\n\
        sinks: { first: { probe: 0, buffer: { disk: 1GiB } } }\n";
    let plan = plan(text, &registry(source(1, false), vec![well()]), 2);
    let error = Run::new(plan, nowhere()).map(drop).unwrap_err();
    assert_eq!(
        error.full(),
        "the buffer of `first` needs a state directory, in which its messages wait for the next run: add \
         `state: FOLDER` to the configuration, or run with `--state FOLDER`"
    );
}
