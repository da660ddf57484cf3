//! Wiring alone: the tasks of a plan, and where each runs. Nothing is started.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::{Act, few, nowhere, plan, probe, registry};
use crate::run::checkpoints::{ComponentPositions, LazyStore};
use crate::run::environment::{Environment, RunSettings};
use crate::run::threads::Placement::{self, OwnThread, Runtime, Thread};
use crate::run::wiring::{Wired, Wiring};
use crate::run::{Handle, RunFailure, StateDir};
use crate::{Role, Store};

/// Wires a configuration for two cores.
fn wired(text: &str, state_dir: &StateDir) -> Result<Wired, RunFailure> {
    wired_over(text, state_dir, LazyStore::new(state_dir.folder.clone(), None))
}

/// As [`wired`], with this store.
fn wired_over(text: &str, state_dir: &StateDir, store: LazyStore) -> Result<Wired, RunFailure> {
    let plan = plan(text, &registry(few(false), vec![probe(|_| Act::Write)]), 2);
    let settings = RunSettings {
        batch_bytes: plan.batch_bytes,
        temporary: crate::Temporaries::new(None),
        keeps_checkpoints: state_dir.positions,
        resumes: state_dir.positions,
        watcher: None,
        drain_timeout: Duration::MAX,
        limit: None,
        has_many_sources: false,
        rehearsal: None,
    };
    let (failures, _) = mpsc::unbounded_channel();
    let environment = Environment::new(Handle::new(&plan), Arc::new(store), settings, failures)?;
    let mut positions = ComponentPositions::new();
    for source in &plan.sources {
        positions.push((source.node.name.clone(), environment.positions(&source.node.name, Role::Source)?));
    }
    Wiring::build(&plan, &environment, &positions)
}

/// The tasks of a configuration, in the order in which they start.
fn tasks(text: &str) -> Vec<(String, Placement)> {
    let wired = wired(text, &nowhere()).unwrap_or_else(|failure| panic!("{failure}"));
    wired.tasks.iter().map(|task| (task.component().to_string(), task.placement())).collect()
}

fn expected(tasks: &[(&str, Placement)]) -> Vec<(String, Placement)> {
    tasks.iter().map(|&(component, placement)| (component.to_owned(), placement)).collect()
}

#[tokio::test]
async fn a_segment_has_a_task_for_each_core_and_a_sink_one() {
    let text = "sources: { in: { numbers: 0 } }\n\
        pipelines: { main: { from: in, transforms: [{ pass: 0 }, { pass: 0 }], to: out } }\n\
        sinks: { out: { probe: 0 } }\n";
    // The two transforms are one segment, which is named after the first.
    let two = [("in", OwnThread), ("main.pass", Runtime), ("main.pass", Runtime), ("out", Thread)];
    assert_eq!(tasks(text), [expected(&two), expected(&[("dead letters", OwnThread)])].concat());
}

#[tokio::test]
async fn as_many_sources_as_cores_share_the_runtime_unless_they_block() {
    let text = "sources: { a: { numbers: 0 }, b: { numbers: 0 }, f: { files: 0 } }\n\
        pipelines: { main: { from: [a, b], to: out }, read: { from: f, transforms: [{ reader: 0 }], to: out } }\n\
        sinks: { out: { probe: 0 } }\n";
    let placements: Vec<_> = tasks(text).into_iter().filter(|(name, _)| name.len() == 1).collect();
    assert_eq!(placements, expected(&[("a", Runtime), ("b", Runtime), ("f", OwnThread)]));
}

#[tokio::test]
async fn transforms_of_files_have_threads_unless_they_wait_for_something_else() {
    let of = |transform: &str| {
        let text = format!(
            "sources: {{ in: {{ files: 0 }} }}\n\
             pipelines: {{ main: {{ from: in, transforms: [{{ {transform}: 0 }}, {{ reader: 0 }}], to: out }} }}\n\
             sinks: {{ out: {{ probe: 0 }} }}\n"
        );
        let name = format!("main.{transform}");
        let tasks: Vec<_> = tasks(&text).into_iter().filter(|(task, _)| *task == name).collect();
        (tasks.len(), tasks[0].1)
    };
    assert_eq!(of("small"), (2, Thread));
    assert_eq!(of("waiting"), (16, Runtime));
}

#[tokio::test]
async fn a_failover_is_a_task_of_its_own() {
    let text = "sources: { in: { numbers: 0 } }\n\
        pipelines: { main: { from: in, to: { failover: [a, b] } } }\n\
        sinks: { a: { probe: 0 }, b: { probe: 0 } }\n";
    let all = [("in", OwnThread), ("main.failover", Runtime), ("a", Thread), ("b", Thread)];
    assert_eq!(tasks(text), [expected(&all), expected(&[("dead letters", OwnThread)])].concat());
}

#[tokio::test]
async fn positions_in_files_are_saved_before_those_of_the_sources_of_the_files() {
    let text = "sources: { in: { files: 0 } }\n\
        pipelines: { main: { from: in, transforms: [{ reader: 0 }], to: out } }\n\
        sinks: { out: { probe: 0 } }\n";
    let folder = tempfile::tempdir().unwrap();
    let state_dir = StateDir { folder: folder.path().to_owned(), positions: true, owner: None };
    let of = |state_dir: &StateDir| {
        let mut groups = wired(text, state_dir).unwrap_or_else(|failure| panic!("{failure}")).checkpoints;
        assert_eq!(groups.len(), 1);
        groups.remove(0)
    };
    let checkpoints = of(&state_dir);
    let names = |positions: &ComponentPositions| -> Vec<String> {
        positions.iter().map(|(name, _)| name.to_string()).collect()
    };
    assert!(checkpoints.are_kept);
    assert_eq!(names(&checkpoints.positions), ["main.reader", "in"]);
    assert_eq!(checkpoints.states.iter().map(|(sink, _)| &**sink).collect::<Vec<_>>(), ["out"]);
    let checkpoints = of(&nowhere());
    assert!(!checkpoints.are_kept);
    assert_eq!(names(&checkpoints.positions), ["in"]);
}

/// A replay restored the windows of the service, and its end ended them.
#[tokio::test]
async fn a_replay_neither_restores_nor_saves_the_state_of_a_transform_that_replays_apart() {
    let of = |transform: &str, is_replay: bool| {
        let text = format!(
            "sources: {{ in: {{ numbers: 0 }} }}\n\
             pipelines: {{ main: {{ from: in, transforms: [{{ {transform}: 0 }}], to: out }} }}\n\
             sinks: {{ out: {{ probe: 0 }} }}\n"
        );
        let folder = tempfile::tempdir().unwrap();
        let state_dir = StateDir { folder: folder.path().to_owned(), positions: true, owner: None };
        let saved = (Arc::from(format!("main.{transform}")), 7.into());
        Store::open(folder.path()).unwrap().save(&[], &[saved], &[]).unwrap();
        let store = LazyStore::new(state_dir.folder.clone(), None);
        let store = if is_replay { store.replaying(Arc::default()) } else { store };
        match wired_over(&text, &state_dir, store) {
            Ok(Wired { checkpoints, .. }) => {
                let states = checkpoints.iter().flat_map(|group| &group.states);
                states.map(|(name, _)| name.to_string()).collect::<Vec<_>>().join(", ")
            }
            Err(failure) => failure.to_string(),
        }
    };
    for (transform, is_replay) in [("shared", false), ("shared", true), ("apart", false)] {
        assert_eq!(of(transform, is_replay), "the state is 7", "{transform} {is_replay}");
    }
    assert_eq!(of("apart", true), "out");
}

#[tokio::test]
async fn a_component_that_cannot_be_built_is_named() {
    let text = "sources: { in: { unbuildable: 0 } }\npipelines: { main: { from: in, to: out } }\n\
        sinks: { out: { probe: 0 } }\n";
    let failure = wired(text, &nowhere()).map(drop).unwrap_err();
    assert_eq!(failure.to_string(), "the port is in use");
    assert_eq!((failure.component.as_deref(), failure.role), (Some("in"), Some(Role::Source)));
}

#[tokio::test]
async fn components_that_nothing_connects_have_checkpoints_of_their_own() {
    let text = "sources: { a: { numbers: 0 }, b: { numbers: 0 }, c: { numbers: 0 } }\n\
        pipelines:\n  one: { from: [a, b], to: { failover: [x, y] } }\n  two: { from: c, transforms: [{ pass: 0 }], to: z }\n\
        sinks: { x: { probe: 0 }, y: { probe: 0 }, z: { probe: 0 } }\n";
    let groups = wired(text, &nowhere()).unwrap_or_else(|failure| panic!("{failure}")).checkpoints;
    let names: Vec<(Vec<&str>, Vec<&str>)> = groups
        .iter()
        .map(|group| {
            let sources = group.positions.iter().map(|(name, _)| &**name).collect();
            (sources, group.states.iter().map(|(name, _)| &**name).collect())
        })
        .collect();
    assert_eq!(names, [(vec!["a", "b"], vec!["x", "y"]), (vec!["c"], vec!["z"])]);
}
