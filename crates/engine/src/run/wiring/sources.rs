//! The tasks of sources.

use std::sync::Arc;

use super::{Wiring, not_built};
use crate::Role;
use crate::outlet::SourceOutput;
use crate::plan::SourceStage;
use crate::positions::Positions;
use crate::run::auxiliaries::Auxiliaries;
use crate::run::checkpoints::ComponentPositions;
use crate::run::threads::{Placement, Task};
use crate::run::{RunFailure, source};

impl Wiring<'_> {
    /// As many sources as cores keep all cores busy as tasks: with a thread each, they would only be in each other's way,
    /// and each would wait for a worker of the segment that another holds while it does not run. Fewer sources get a thread
    /// each: as tasks, they would keep their core, and what they woke, while there is something to send.
    pub(super) fn sources(&mut self, positions: &ComponentPositions) -> Result<(), RunFailure> {
        let sources = &self.plan.sources;
        let are_many = sources.iter().filter(|stage| !stage.node.config.blocks()).count() >= self.plan.cores;
        let auxiliaries = Auxiliaries::of(self.plan, &self.environment.handle.stop);
        for (stage, (name, positions)) in sources.iter().zip(positions) {
            let config = &stage.node.config;
            let is_auxiliary = config.is_auxiliary();
            let guard = auxiliaries.guard(is_auxiliary, positions);
            let output = self.source_output(stage, positions, &auxiliaries);
            let source =
                config.build(&self.environment.context(name)).map_err(not_built(name, Role::Source))?;
            let run = source::run(source, output, self.environment.retries.clone(), guard);
            let placement =
                if are_many && !config.blocks() { Placement::Runtime } else { Placement::OwnThread };
            self.tasks.push(Task::new(name.clone(), placement, run));
        }
        self.tasks.extend(auxiliaries.dismissal());
        Ok(())
    }

    fn source_output(
        &mut self,
        stage: &SourceStage,
        positions: &Arc<Positions>,
        auxiliaries: &Auxiliaries,
    ) -> SourceOutput {
        let environment = self.environment;
        let name = &stage.node.name;
        SourceOutput {
            share: environment.handle.budget.share(),
            batch_bytes: environment.batch_bytes,
            positions: positions.clone(),
            stop: auxiliaries.stop(stage.node.config.is_auxiliary()).clone(),
            metrics: environment.metrics(name),
            saves: environment.checkpoints.as_ref().map(|_| environment.saves.clone()),
            main: stage.main.iter().map(|&to| self.channels.sender(to)).collect(),
            errors: stage.errors.iter().map(|&to| self.channels.sender(to)).collect(),
            singly: stage.main.iter().any(|&to| self.plan.takes_singly(to)),
        }
    }
}
