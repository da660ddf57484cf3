//! Whole runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::{Act, Numbers, Probe, broadcast, few, nowhere, probe};
use crate::run::{Handle, Run, StateDir, Summary};
use crate::{Error, ErrorKind, Role, Store};

fn run(source: Numbers, sinks: &[(String, Probe)], state_dir: StateDir) -> Run {
    Run::new(broadcast(source, sinks), state_dir).unwrap()
}

/// As much as all channels together cannot hold: a sink that never runs is noticed.
fn much(batches: u64) -> Numbers {
    Numbers { batches, rows: 1, payload: 256 << 10, waits_for_stop: false, saved: Arc::default() }
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
    // Long enough for the source to end on a busy machine.
    let run = run.drain_timeout(Duration::from_secs(1));
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
        let state_dir = StateDir { folder: folder.path().to_owned(), positions: true, owner: None };
        let summary = stuck(act, state_dir.clone()).await;
        let expected = "the drain timeout of 1 s expired; unsettled: `in` 9 messages; still running: `dead letters`, \
                        `out`";
        assert_eq!(summary.failure.unwrap().to_string(), expected);
        let undrained = summary.undrained.unwrap();
        assert_eq!(undrained.unsettled, [("in".into(), 9)]);
        assert!(!summary.stopped);
        assert_eq!(summary.positions["in"]["l"], 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_checkpoint_stays_when_the_drain_timeout_expires() {
    let folder = tempfile::tempdir().unwrap();
    let state_dir = StateDir { folder: folder.path().to_owned(), positions: true, owner: None };
    stuck(|| Act::Wait, state_dir).await;
    let store = Store::open(folder.path()).unwrap();
    // The sink may have a part of a batch, so what was settled since is not saved.
    let position = store.positions("in").unwrap().remove("l").unwrap_or(0.into());
    assert_eq!(store.sink_state("out").unwrap().unwrap_or(0.into()), position);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_checkpoint_stays_if_two_sinks_had_different_messages_when_one_failed() {
    let folder = tempfile::tempdir().unwrap();
    let state_dir = StateDir { folder: folder.path().to_owned(), positions: true, owner: None };
    let failing = probe(|number| match number {
        3 => Act::Fail(Error::permanent("no")),
        _ => Act::Write,
    });
    let sinks = [("well".to_owned(), probe(|_| Act::Write)), ("failing".to_owned(), failing)];
    assert!(run(few(false), &sinks, state_dir).wait().await.failure.is_some());
    let store = Store::open(folder.path()).unwrap();
    // A checkpoint that was saved before has one moment.
    let position = store.positions("in").unwrap().remove("l").unwrap_or(0.into());
    let state = |sink: &str| store.sink_state(sink).unwrap().unwrap_or(0.into());
    assert_eq!((state("well"), state("failing")), (position.clone(), position));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_has_the_same_messages_in_all_sinks() {
    let folder = tempfile::tempdir().unwrap();
    let state_dir = StateDir { folder: folder.path().to_owned(), positions: true, owner: None };
    let slow = probe(|_| Act::Late(Duration::from_millis(10)));
    let sinks = [("fast".to_owned(), probe(|_| Act::Write)), ("slow".to_owned(), slow)];
    let saved = Arc::new(AtomicU64::new(0));
    let source =
        Numbers { batches: 10_000, rows: 1, payload: 16 << 10, waits_for_stop: false, saved: saved.clone() };
    let run = run(source, &sinks, state_dir);
    let handle = run.handle();
    let running = tokio::spawn(run.wait());
    while saved.load(Ordering::Relaxed) == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // The sinks continue after the checkpoint.
    tokio::time::sleep(Duration::from_millis(50)).await;
    handle.abort();
    running.await.unwrap();
    let store = Store::open(folder.path()).unwrap();
    let position = store.positions("in").unwrap().remove("l").unwrap();
    assert!(position.as_u64().unwrap() > 0);
    assert_eq!(store.sink_state("fast").unwrap().as_ref(), Some(&position));
    assert_eq!(store.sink_state("slow").unwrap().as_ref(), Some(&position));
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
async fn a_run_that_is_asked_to_stop_after_its_sources_have_ended_is_complete() {
    let handle = Arc::new(std::sync::OnceLock::<Handle>::new());
    let stopping = handle.clone();
    let late = probe(move |number| {
        if number == 5 {
            // The source has sent its last batch, and ends meanwhile.
            std::thread::sleep(Duration::from_millis(100));
            stopping.get().unwrap().stop();
        }
        Act::Write
    });
    let run = run(few(false), &[("out".to_owned(), late)], nowhere());
    assert!(handle.set(run.handle()).is_ok());
    let summary = run.wait().await;
    assert!(!summary.stopped && summary.failure.is_none());
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
