//! Supervision alone: tasks made for the purpose, without components.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use thalweg_record::{Ack, Outcome};
use tokio::sync::mpsc;

use super::{Act, broadcast, few, probe};
use crate::positions::{Checkpoint, Positions};
use crate::run::checkpoints::Checkpoints;
use crate::run::summary::Ended;
use crate::run::supervisor::Supervisor;
use crate::run::threads::{Placement, Task, Tasks};
use crate::run::{Handle, RunFailure};
use crate::{Error, Role, Store};

/// A run without components, and what its tasks need.
struct Supervised {
    folder: tempfile::TempDir,
    handle: Handle,
    positions: Arc<Positions>,
    failures: mpsc::UnboundedSender<RunFailure>,
    failed: mpsc::UnboundedReceiver<RunFailure>,
}

impl Supervised {
    fn new() -> Self {
        let (failures, failed) = mpsc::unbounded_channel();
        let positions = Positions::new("in".into(), Role::Source, BTreeMap::new(), failures.clone());
        positions.keep();
        let handle = Handle::new(&broadcast(few(false), &[("out".to_owned(), probe(|_| Act::Write))]));
        Self { folder: tempfile::tempdir().unwrap(), handle, positions, failures, failed }
    }

    /// Returns the ack of a batch of three messages.
    fn batch(&self, offset: u64) -> Ack {
        self.positions.expect(Some(Checkpoint { partition: "p".into(), offset: offset.into() }), 3)
    }

    /// Watches over tasks until they have ended. Returns the folder of the store too.
    async fn watch(self, tasks: Vec<Task>, drain_timeout: Duration) -> (Ended, tempfile::TempDir) {
        let checkpoints = Checkpoints::of_source(self.folder.path().join("state"), self.positions);
        let supervisor =
            Supervisor::new(self.handle, vec![Arc::new(checkpoints)], self.failed, drain_timeout);
        let ended = supervisor.run(Tasks::start(tasks).await.unwrap()).await;
        (ended, self.folder)
    }
}

fn task(name: &str, future: impl Future<Output = Result<(), RunFailure>> + Send + 'static) -> Task {
    Task::new(name.into(), Placement::Runtime, future)
}

fn failure(name: &str) -> RunFailure {
    RunFailure::new(name.into(), Role::Sink, Error::permanent("the disk is full"))
}

/// The saved offset of the partition `p`.
fn saved(folder: &tempfile::TempDir) -> Option<serde_json::Value> {
    Store::open(&folder.path().join("state")).unwrap().positions("in").unwrap().remove("p")
}

#[tokio::test]
async fn a_failed_task_stops_the_sources_and_what_they_still_settle_is_saved() {
    let supervised = Supervised::new();
    let (stop, ack) = (supervised.handle.stop.clone(), supervised.batch(7));
    let source = task("in", async move {
        stop.requested().await;
        ack.settle(Outcome::Delivered);
        Ok(())
    });
    let sink = task("out", async { Err(failure("out")) });
    let (ended, folder) = supervised.watch(vec![source, sink], Duration::MAX).await;
    assert_eq!(ended.failure.unwrap().to_string(), "the disk is full");
    assert!(ended.undrained.is_none());
    assert_eq!(saved(&folder), Some(7.into()));
}

#[tokio::test]
async fn the_failure_of_a_component_comes_before_that_of_a_batch() {
    let supervised = Supervised::new();
    let (stop, failures) = (supervised.handle.stop.clone(), supervised.failures.clone());
    failures.send(Error::permanent("a batch was not delivered").into()).unwrap();
    let sink = task("out", async move {
        stop.requested().await;
        Err(failure("out"))
    });
    let (ended, _) = supervised.watch(vec![sink], Duration::MAX).await;
    assert_eq!(ended.failure.unwrap().to_string(), "the disk is full");

    let supervised = Supervised::new();
    // The last of the tasks fails a batch just before it ends.
    let failures = supervised.failures.clone();
    let sink = task("out", async move {
        failures.send(Error::permanent("a batch was not delivered").into()).unwrap();
        Ok(())
    });
    let (ended, _) = supervised.watch(vec![sink], Duration::MAX).await;
    assert_eq!(ended.failure.unwrap().to_string(), "a batch was not delivered");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_does_not_drain_names_what_is_left() {
    let supervised = Supervised::new();
    supervised.batch(1).settle(Outcome::Delivered);
    let stuck = supervised.batch(2);
    supervised.handle.stop();
    let sink = task("out", async move {
        let _stuck = stuck;
        std::future::pending().await
    });
    let source = task("in", async { Ok(()) });
    let (ended, folder) = supervised.watch(vec![source, sink], Duration::from_secs(60)).await;
    let left = "the drain timeout of 60 s expired; unsettled: `in` 3 messages; still running: `out`";
    assert_eq!(ended.failure.unwrap().to_string(), left);
    assert_eq!(ended.undrained.unwrap().unsettled, [("in".into(), 3)]);
    assert_eq!(saved(&folder), Some(1.into()));
}

#[tokio::test(start_paused = true)]
async fn the_drain_timeout_counts_from_the_request_to_stop() {
    let supervised = Supervised::new();
    let handle = supervised.handle.clone();
    let sink = task("out", async move {
        tokio::time::sleep(Duration::from_secs(600)).await;
        handle.stop();
        tokio::time::sleep(Duration::from_secs(59)).await;
        Ok(())
    });
    let (ended, _) = supervised.watch(vec![sink], Duration::from_secs(60)).await;
    assert!(ended.failure.is_none() && ended.undrained.is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_run_whose_only_worker_computes_without_end_is_given_up() {
    let supervised = Supervised::new();
    supervised.handle.stop();
    let (_release, held) = std::sync::mpsc::channel::<()>();
    let sink = task("out", async move {
        let _ = held.recv();
        Ok(())
    });
    let (ended, _) = supervised.watch(vec![sink], Duration::from_millis(100)).await;
    let left = "the drain timeout of 0.1 s expired; still running: `out`";
    assert_eq!(ended.failure.unwrap().to_string(), left);
}

#[tokio::test]
async fn an_aborted_run_ends_without_draining() {
    let supervised = Supervised::new();
    let ack = supervised.batch(1);
    supervised.handle.abort();
    let sink = task("out", async move {
        let _ack = ack;
        std::future::pending().await
    });
    let (ended, folder) = supervised.watch(vec![sink], Duration::MAX).await;
    let text = "stopped at once; what was in flight is not acknowledged";
    assert_eq!(ended.failure.unwrap().to_string(), text);
    assert_eq!(saved(&folder), None);
}

#[tokio::test]
async fn checkpoints_that_cannot_be_saved_fail_the_run() {
    let supervised = Supervised::new();
    std::fs::write(supervised.folder.path().join("state"), "a file where the folder should be").unwrap();
    supervised.batch(1).settle(Outcome::Delivered);
    let stop = supervised.handle.stop.clone();
    let source = task("in", async move {
        stop.requested().await;
        Ok(())
    });
    let (ended, folder) = supervised.watch(vec![source], Duration::MAX).await;
    assert_eq!(
        ended.failure.unwrap().to_string().replace(&folder.path().display().to_string(), "FOLDER"),
        "the state folder `FOLDER/state` cannot be made: File exists (os error 17)"
    );
}
