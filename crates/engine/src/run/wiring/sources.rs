//! The tasks of sources.

use std::sync::Arc;

use super::{Wiring, not_built};
use crate::plan::{Destination, SourceStage};
use crate::positions::Positions;
use crate::run::auxiliaries::Auxiliaries;
use crate::run::checkpoints::ComponentPositions;
use crate::run::control::SourceControl;
use crate::run::edges::Place;
use crate::run::retries::Retries;
use crate::run::threads::{Placement, Task};
use crate::run::{RunFailure, source};
use crate::source_output::{Limit, Route, Rows, SourceOutput, Upstream};
use crate::{Flow, Output, Role};

impl Wiring<'_> {
    /// As many sources as cores keep all cores busy as tasks: with a thread each, they would only be in each
    /// other's way, and each would wait for a worker of the segment that another holds while it does not run.
    /// Fewer sources get a thread each: as tasks, they would keep their core, and what they woke, while there
    /// is something to send.
    pub(super) fn sources(&mut self, positions: &ComponentPositions) -> Result<(), RunFailure> {
        let sources = &self.plan.sources;
        let are_many = self.environment.has_many_sources
            || sources.iter().filter(|stage| !stage.node.config.blocks()).count() >= self.plan.cores;
        let auxiliaries =
            Auxiliaries::of(self.plan, &self.environment.handle.stop, self.environment.drain_timeout);
        for (number, (stage, (name, positions))) in sources.iter().zip(positions).enumerate() {
            let config = &stage.node.config;
            let group = self.channels.groups().of_source(number);
            let is_auxiliary = config.is_auxiliary();
            // A buffer ends after the sources that lead to it: auxiliary sources must not wait for it.
            let guard = auxiliaries.guard(is_auxiliary || self.plan.is_of_buffer(name), positions);
            let control = self.environment.handle.sources[number].clone();
            positions.measure(control.latency.clone(), self.environment.handle.traces.clone());
            let output = self.source_output(stage, group, positions, &auxiliaries, &control);
            let mut context = self.context(name, group);
            // Some sources read into memory of their context.
            context.memory = context.memory.behind(control.clone());
            let source = config.build(&context).map_err(not_built(name, Role::Source))?;
            let retries = Retries { stop: control.stop.clone(), log: self.environment.retries.log.clone() };
            let run = source::run(source, output, retries, guard, Some(control.task()));
            let placement =
                if are_many && !config.blocks() { Placement::Runtime } else { Placement::OwnThread };
            self.tasks.push(Task::new(name.clone(), placement, run));
        }
        self.tasks.extend(auxiliaries.stop_task());
        Ok(())
    }

    fn source_output(
        &mut self,
        stage: &SourceStage,
        group: usize,
        positions: &Arc<Positions>,
        auxiliaries: &Auxiliaries,
        control: &Arc<SourceControl>,
    ) -> SourceOutput {
        let environment = self.environment;
        let name = &stage.node.name;
        let is_auxiliary = stage.node.config.is_auxiliary();
        let plan = self.plan;
        let mut inputs = plan.sources.iter().filter(|stage| !plan.is_of_buffer(&stage.node.name));
        // Auxiliary sources end with the others, and buffers with what leads to them.
        let is_limited = !plan.is_of_buffer(name)
            && (!is_auxiliary || inputs.all(|stage| stage.node.config.is_auxiliary()));
        let rows = plan.rows_to(stage.main.iter().copied());
        control.stop.join(if is_auxiliary { auxiliaries.stop() } else { &self.groups[group].stop });
        let limit = environment.limit.filter(|_| is_limited).map(Limit::new);
        if let Some(limit) = limit.clone() {
            // A run is wired once.
            let _ = control.limit.set(limit);
        }
        let saves = environment.checkpoints.as_ref().map(|_| self.groups[group].saver.saves());
        SourceOutput {
            share: environment.handle.budget.held_by(name).share().behind(control.clone()),
            batch_bytes: environment.batch_bytes,
            stop: control.stop.clone(),
            limit,
            metrics: environment.metrics(name),
            traffic: self.channels.traffic(group).clone(),
            main: self.route(stage, group, &stage.main, Output::Main),
            errors: self.route(stage, group, &stage.errors, Output::Errors),
            upstream: Upstream::Source(positions.clone(), saves),
            rows: rows.map(Rows::new),
            leaves_rest: rows.is_some() && stage.node.config.resends(),
            sequence: None,
            singly: stage.main.iter().any(|&to| self.plan.takes_singly(to)),
        }
    }

    fn route(&mut self, stage: &SourceStage, group: usize, targets: &[Destination], output: Output) -> Route {
        let route = match stage.node.config.gives() {
            Flow::Messages => Route::messages(self.channels.message_senders(targets, group)),
            Flow::Files => Route::files(self.channels.file_senders(targets, group)),
        };
        route.through(self.environment.port(&stage.node.name, Place::Output(output)))
    }
}
