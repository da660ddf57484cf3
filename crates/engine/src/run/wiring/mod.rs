//! From a plan to tasks: the components built, the channels between them made.
//!
//! Everything is built before anything starts, so that a component that cannot be built leaves nothing half
//! done.

mod segments;
mod sinks;
mod sources;

use std::sync::Arc;

use thalweg_runtime::Stage;

use super::channels::Channels;
use super::checkpoints::{Checkpoints, ComponentPositions, SinkState};
use super::environment::Environment;
use super::saves::Saver;
use super::sink::CheckpointBarrier;
use super::threads::{Placement, Task};
use super::{RunFailure, failover, letters};
use crate::plan::{Destination, Plan};
use crate::{Error, Role};

/// The tasks of a run, and what it saves while they run.
pub(super) struct Wired {
    pub(super) tasks: Vec<Task>,
    pub(super) checkpoints: Checkpoints,
}

/// A plan that is becoming tasks.
pub(super) struct Wiring<'a> {
    plan: &'a Plan,
    environment: &'a Environment,
    channels: Channels,
    tasks: Vec<Task>,
    /// How far each file reader got.
    file_positions: ComponentPositions,
    states: Vec<SinkState>,
    barrier: CheckpointBarrier,
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
        saver: Saver,
    ) -> Result<Wired, RunFailure> {
        let mut wiring = Self {
            plan,
            environment,
            channels: Channels::new(plan.batch_bytes.saturating_mul(4)),
            tasks: Vec::new(),
            file_positions: Vec::new(),
            states: Vec::new(),
            barrier: CheckpointBarrier::default(),
        };
        wiring.sources(positions)?;
        wiring.segments()?;
        wiring.failovers();
        wiring.sinks()?;
        wiring.letters();
        Ok(wiring.wired(positions, saver))
    }

    fn wired(self, positions: &ComponentPositions, saver: Saver) -> Wired {
        let Self { environment, tasks, file_positions, states, barrier, .. } = self;
        let checkpoints = Checkpoints {
            store: environment.store.clone(),
            are_kept: environment.checkpoints.is_some(),
            // File readers first: the position in a file is only forgotten when its source knows that the
            // file is done.
            positions: [&file_positions[..], positions].concat(),
            states,
            barrier,
            saver,
        };
        Wired { tasks, checkpoints }
    }

    fn failovers(&mut self) {
        for (number, stage) in self.plan.failovers.iter().enumerate() {
            let metrics = self.environment.metrics(&stage.name);
            let channels = &mut self.channels;
            let ways = stage.ways.iter().map(|(_, stages)| channels.message_senders(stages));
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
        };
        let name = handle.letters.name.clone();
        self.tasks.push(Task::new(name, Placement::OwnThread, letters.run()));
    }
}

/// The failure of a component that cannot be built.
fn not_built(component: &Arc<str>, role: Role) -> impl Fn(Error) -> RunFailure {
    move |error| RunFailure::new(component.clone(), role, error)
}
