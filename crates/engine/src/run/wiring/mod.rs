//! From a plan to tasks: the components built, the channels between them made.
//!
//! Everything is built before anything starts, so that a component that cannot be built leaves nothing half
//! done.

mod segments;
mod sinks;
mod sources;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde_json::Value;
use thalweg_runtime::{Stage, Stop};

use super::channels::Channels;
use super::checkpoints::{Checkpoints, ComponentPositions, SavedState, SharedTransform, StateSlot, Stuck};
use super::edges::Place;
use super::environment::{Environment, Input};
use super::flushes::Flushes;
use super::groups::Groups;
use super::saves::Saver;
use super::sink::{CheckpointBarrier, Uncommitted};
use super::threads::{Placement, Task};
use super::{RunFailure, failover, letters};
use crate::component::{Context, Link};
use crate::plan::{Destination, Plan};
use crate::{Error, Role, SourceConfig};

/// The tasks of a run, and what it saves while they run: of each group of connected components.
pub(super) struct Wired {
    pub(super) tasks: Vec<Task>,
    pub(super) checkpoints: Vec<Arc<Checkpoints>>,
}

/// A plan that is becoming tasks.
pub(super) struct Wiring<'a> {
    plan: &'a Plan,
    environment: &'a Environment,
    channels: Channels,
    tasks: Vec<Task>,
    groups: Vec<Group>,
    /// The links between the sources and sinks of pairs, by the name of each.
    links: BTreeMap<Arc<str>, Link>,
}

/// The state that a group of connected components saves together.
struct Group {
    /// How far each file reader got, then how far each source got.
    file_positions: ComponentPositions,
    positions: ComponentPositions,
    states: Vec<SavedState>,
    /// The transforms whose state is saved.
    transforms: Vec<(StateSlot, SharedTransform)>,
    barrier: CheckpointBarrier,
    saver: Saver,
    flushes: Arc<Flushes>,
    uncommitted: Uncommitted,
    /// The request to stop that its sources and file readers obey, and its sinks ask: a part of the run's. A
    /// source that is drained alone must not suspend the sinks of other groups.
    stop: Stop,
    input: Input,
    /// See [`Context::keeps_sequences`].
    keeps_sequences: bool,
    /// True if all its sources read buffers on disk: a later run has what is not delivered.
    is_buffered: bool,
}

impl<'a> Wiring<'a> {
    /// Builds everything that a plan names. `positions` are those of its sources.
    ///
    /// # Errors
    /// If a component cannot be built.
    pub(super) fn build(
        plan: &'a Plan,
        environment: &'a Environment,
        positions: &ComponentPositions,
    ) -> Result<Wired, RunFailure> {
        let groups = Groups::of(plan);
        let mut wiring = Self {
            plan,
            environment,
            groups: groups_of(plan, environment, positions, &groups),
            channels: Channels::new(plan, groups),
            tasks: Vec::new(),
            links: links(plan),
        };
        wiring.sources(positions)?;
        wiring.segments()?;
        wiring.failovers();
        wiring.sinks()?;
        wiring.letters();
        Ok(wiring.wired())
    }

    fn wired(self) -> Wired {
        let Self { plan, environment, tasks, channels, groups, .. } = self;
        // A run is wired once.
        let _ = environment.handle.queues.set(channels.queues(plan));
        let checkpoints = groups.into_iter().enumerate().map(|(number, group)| {
            Arc::new(Checkpoints {
                store: environment.store.clone(),
                are_kept: environment.checkpoints.is_some(),
                // File readers first: the position in a file is only forgotten when its source knows that the
                // file is done.
                positions: [group.file_positions, group.positions].concat(),
                states: group.states,
                transforms: group.transforms,
                barrier: group.barrier,
                saver: group.saver,
                traffic: channels.traffic(number).clone(),
                flushes: group.flushes,
                uncommitted: group.uncommitted,
                rereads: group.input.rereads,
                // A message that left a buffer is not sent again by the source that it came from.
                covers_letters: group.input.rereads && plan.buffers.is_empty(),
                has_state: AtomicBool::default(),
                is_exact: AtomicBool::default(),
                is_behind: AtomicBool::default(),
                stuck: Stuck::default(),
            })
        });
        Wired { tasks, checkpoints: checkpoints.collect() }
    }

    /// Where a component of a group puts its state for the next save, and what a former run saved there.
    fn state(&mut self, name: &Arc<str>, group: usize) -> Result<(StateSlot, Option<Value>), Error> {
        let slot = StateSlot::default();
        self.groups[group].states.push((name.clone(), slot.clone()));
        let saved = match &self.environment.checkpoints {
            Some(store) => store.sink_state(name)?,
            None => None,
        };
        Ok((slot, saved))
    }

    /// The context of a source or a sink.
    fn context(&self, name: &Arc<str>, group: usize) -> Context {
        let context = self.environment.context(name, self.groups[group].input);
        let keeps_sequences = self.groups[group].keeps_sequences;
        Context { link: self.links.get(name).cloned(), keeps_sequences, ..context }
    }

    fn failovers(&mut self) {
        for (number, stage) in self.plan.failovers.iter().enumerate() {
            let metrics = self.environment.metrics(&stage.name);
            let channels = &mut self.channels;
            let group = channels.groups().of_stage(Destination::Failover(number));
            let ways = stage.ways.iter().enumerate().map(|(way, (_, stages))| {
                let port = self.environment.port(&stage.name, Place::Way(way));
                (channels.message_senders(stages, group), port)
            });
            let Some(first) = failover::Way::first_of(ways, &metrics) else { continue };
            let worker = failover::Failover { first, timeout: stage.timeout, has_waited: false };
            let input = self.channels.message_receiver(Destination::Failover(number));
            let stage = Stage::new(vec![worker], input, metrics.hand_overs.clone());
            self.tasks.push(Task::new(metrics.name.clone(), Placement::Runtime, stage.run()));
        }
    }

    fn letters(&mut self) {
        let operators = self.plan.segments.iter().flat_map(|segment| &segment.operators);
        let handle = &self.environment.handle;
        let letters = letters::DeadLetters {
            messages: self.channels.message_receiver(Destination::DeadLetters),
            files: self.channels.file_receiver(Destination::DeadLetters),
            store: self.environment.store.clone(),
            metrics: handle.letters.clone(),
            limits: self.plan.dead_letters,
            before: operators
                .map(|operator| (operator.node.name.clone(), operator.node.before.clone()))
                .collect(),
            budget: handle.budget.held_by(&handle.letters.name),
            stop: handle.stop.clone(),
            rehearsal: self.environment.rehearsal.clone(),
        };
        let name = handle.letters.name.clone();
        self.tasks.push(Task::new(name, Placement::OwnThread, letters.run()));
    }
}

/// Makes the links of all pairs.
fn links(plan: &Plan) -> BTreeMap<Arc<str>, Link> {
    let linked = plan.pairs.iter().flat_map(|pair| {
        let link = Link::default();
        [(pair.source.clone(), link.clone()), (pair.sink.clone(), link)]
    });
    linked.collect()
}

fn groups_of(
    plan: &Plan,
    environment: &Environment,
    positions: &ComponentPositions,
    groups: &Groups,
) -> Vec<Group> {
    let group = |number| {
        let own = |source: &usize| groups.of_source(*source) == number;
        let sources: Vec<usize> = (0..plan.sources.len()).filter(own).collect();
        let all = |promise: &dyn Fn(&dyn SourceConfig) -> bool| {
            sources.iter().all(|&source| promise(&*plan.sources[source].node.config))
        };
        let mut segments = plan.segments.iter().enumerate();
        let comes_again = !groups.has_drops(number);
        let removes_input = segments.any(|(segment, stage)| {
            groups.of_stage(Destination::Segment(segment)) == number && stage.removes_input()
        });
        let keeps_sequences = plan.sinks.iter().enumerate().any(|(sink, stage)| {
            groups.of_stage(Destination::Sink(sink)) == number && stage.node.config.knows_positions()
        });
        let is_paired = sources
            .iter()
            .any(|&source| plan.pairs.iter().any(|pair| pair.source == plan.sources[source].node.name));
        Group {
            file_positions: Vec::new(),
            positions: sources.iter().map(|&source| positions[source].clone()).collect(),
            states: Vec::new(),
            transforms: Vec::new(),
            barrier: CheckpointBarrier::default(),
            saver: Saver::new(),
            flushes: Arc::new(Flushes::new(environment.handle.budget.shortage())),
            uncommitted: Uncommitted::default(),
            stop: stop_of(plan, environment, groups, number),
            input: Input {
                resends: comes_again && all(&|source| source.resends()),
                starts_over: !removes_input && all(&|source| source.starts_over()),
                // A source of a pair continues where the last transaction was committed. Dead letters since
                // an older checkpoint must stay then.
                rereads: comes_again && !is_paired && all(&|source| source.rereads()),
            },
            keeps_sequences,
            is_buffered: !sources.is_empty()
                && sources.iter().all(|&source| plan.is_of_buffer(&plan.sources[source].node.name)),
        }
    };
    (0..groups.count()).map(group).collect()
}

/// The request to stop of a group. It is the run's own if the input of the group depends on other groups: its
/// sinks are then suspended whenever a source of the run leaves input to a later run.
fn stop_of(plan: &Plan, environment: &Environment, groups: &Groups, number: usize) -> Stop {
    let whole = &environment.handle.stop;
    let sources = plan.sources.iter().enumerate();
    let mut own = sources.filter(|(source, _)| groups.of_source(*source) == number).peekable();
    let is_alone = own.peek().is_some()
        && !groups.has_drops(number)
        && own.all(|(_, source)| !source.node.config.is_auxiliary() && !plan.is_of_buffer(&source.node.name));
    if !is_alone {
        return whole.clone();
    }
    let stop = Stop::default();
    stop.join(whole);
    stop
}

/// The failure of a component that cannot be built.
fn not_built(component: &Arc<str>, role: Role) -> impl Fn(Error) -> RunFailure {
    move |error| RunFailure::new(component.clone(), role, error)
}
