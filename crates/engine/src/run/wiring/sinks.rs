//! The tasks of sinks.

use std::sync::Arc;

use thalweg_runtime::ConcurrencyLimit;

use super::{Wiring, not_built};
use crate::buffer::BYTES;
use crate::component::FieldUse;
use crate::missing::FieldWatch;
use crate::plan::{Destination, SinkStage};
use crate::run::RunFailure;
use crate::run::checkpoints::StateSlot;
use crate::run::edges::Place;
use crate::run::leaving::Leaving;
use crate::run::sink::{self, Commits, Condition, Pending, Reopens, SinkPorts, Writer};
use crate::run::threads::{Placement, Task};
use crate::{InFlight, Output, Role};

impl Wiring<'_> {
    pub(super) fn sinks(&mut self) -> Result<(), RunFailure> {
        let environment = self.environment;
        for (number, stage) in self.plan.sinks.iter().enumerate() {
            let name = &stage.node.name;
            let group = self.channels.groups().of_stage(Destination::Sink(number));
            let (state, saved) = self.state(name, group)?;
            let in_flight = stage.node.config.in_flight();
            let limit = match in_flight {
                InFlight::One | InFlight::Fixed(_) => None,
                InFlight::Adaptive(most) => Some(environment.adaptive_limit(most)),
            };
            let leaving = self.leaving(name, number);
            let writer = |_| {
                let writer = self.writer(stage, group, &state, &limit)?;
                Ok(Writer { leaving: leaving.clone(), ..writer })
            };
            let writers: Result<Vec<Writer>, RunFailure> = (0..in_flight.most()).map(writer).collect();
            let input = self.channels.message_receiver(Destination::Sink(number));
            if stage.memory.is_some() {
                let waiting = input.gauge();
                let metrics = environment.metrics(name);
                metrics.details.show_gauge("buffer_bytes", BYTES, move || waiting() as u64);
            }
            let shortage = environment.handle.budget.shortage();
            let run = sink::run(writers?, input, saved, environment.metrics(name), shortage);
            self.tasks.push(Task::new(name.clone(), Placement::Thread, run));
        }
        Ok(())
    }

    /// When a sink is left, if the sources of its group read buffers on disk.
    fn leaving(&self, name: &Arc<str>, number: usize) -> Option<Leaving> {
        let (stage, groups) = (Destination::Sink(number), self.channels.groups());
        let of_group = self.groups.get(groups.of_stage(stage)).filter(|group| group.is_buffered)?;
        if groups.gets_drops(stage) {
            return None;
        }
        let positions = of_group.positions.iter().map(|(_, positions)| positions.clone()).collect();
        let (stop, timeout) = (self.environment.handle.stop.clone(), self.environment.drain_timeout);
        Some(Leaving::new(name.clone(), stop, timeout, positions))
    }

    fn writer(
        &mut self,
        stage: &SinkStage,
        group: usize,
        state: &StateSlot,
        limit: &Option<ConcurrencyLimit>,
    ) -> Result<Writer, RunFailure> {
        let environment = self.environment;
        let name = &stage.node.name;
        let of_group = &self.groups[group];
        let context = self.context(name, group);
        let sink = stage.node.config.build(&context).map_err(not_built(name, Role::Sink))?;
        Ok(Writer {
            sink,
            errors: self.channels.message_senders(&stage.errors, group),
            ports: SinkPorts {
                input: environment.port(name, Place::Input),
                errors: environment.port(name, Place::Output(Output::Errors)),
            },
            metrics: environment.metrics(name),
            fields: FieldWatch::new(stage.node.config.fields(), FieldUse::Needed),
            budget: environment.handle.budget.held_by(name),
            retries: environment.retries.clone(),
            state: environment.checkpoints.is_some().then(|| state.clone()),
            barrier: of_group.barrier.clone(),
            limit: limit.clone(),
            is_dispensable: stage.is_dispensable,
            pending: Pending::default(),
            condition: Condition::default(),
            stop: of_group.stop.clone(),
            removed: environment.handle.removed.clone(),
            reopens: Reopens::new(&environment.handle.reopens),
            commits: Commits::new(of_group.saver.saves()),
            uncommitted: of_group.uncommitted.clone(),
            leaving: None,
            member: of_group.flushes.join(),
        })
    }
}
