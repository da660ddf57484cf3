//! The tasks of segments: one for each worker.

use std::sync::Arc;

use thalweg_record::{Ack, Meta, Parcel};
use thalweg_runtime::{Receiver, Sender, Sequencer, Stage, Worker};

use super::{Wiring, not_built};
use crate::component::{BuildFileReader, Step};
use crate::plan::{Destination, Operator, Segment};
use crate::run::RunFailure;
use crate::run::file_reader::FileReaderWorker;
use crate::run::files::{FileOperator, FileSegmentWorker, Work as FileWork};
use crate::run::segment::{self, SegmentWorker, Work};
use crate::run::threads::{Placement, Task};
use crate::{Context, Cost, FileOutput, Flow, Output, Role};

impl Wiring<'_> {
    pub(super) fn segments(&mut self) -> Result<(), RunFailure> {
        let segments = &self.plan.segments;
        for (number, segment) in segments.iter().enumerate() {
            let input = self.channels.receiver(Destination::Segment(number));
            match (segment.takes, segment.unpack()) {
                (Flow::Messages, _) => {
                    let workers = self.segment_workers(segment)?;
                    self.segment(segment, workers, input);
                }
                (Flow::Files, None) => {
                    let workers = self.file_workers(segment)?;
                    self.segment(segment, workers, input);
                }
                (Flow::Files, Some((operator, config))) => {
                    let workers = self.file_readers(segment, operator, config)?;
                    self.segment(segment, workers, input);
                }
            }
        }
        Ok(())
    }

    /// Adds a task for each worker of a segment.
    fn segment<W>(&mut self, segment: &Segment, workers: Vec<W>, input: Receiver<W::Item>)
    where
        W: Worker<Error = RunFailure>,
    {
        // File transforms read and write files. Those that wait for something else do not block, nor do transforms of
        // messages.
        let blocks = segment.takes == Flow::Files && segment.cost < Cost::Waits;
        let placement = if blocks { Placement::Thread } else { Placement::Runtime };
        let Some(first) = segment.operators.first() else { return };
        let hand_overs = self.environment.metrics(&first.node.name).hand_overs.clone();
        let mut stages = vec![Stage::new(workers, input, hand_overs)];
        while stages.len() < segment.copies {
            stages.extend(stages.first().cloned());
        }
        let name = &first.node.name;
        self.tasks.extend(stages.into_iter().map(|stage| Task::new(name.clone(), placement, stage.run())));
    }

    fn segment_workers(&mut self, segment: &Segment) -> Result<Vec<SegmentWorker>, RunFailure> {
        let environment = self.environment;
        let sequencer = segment.ordered.then(|| Arc::new(Sequencer::default()));
        let adapts = segment.copies > 1 && !segment.is_fixed;
        let limit = adapts.then(|| environment.adaptive_limit(segment.copies));
        let worker = |_| {
            Ok(SegmentWorker {
                operators: self.operators(segment)?,
                exits: self.channels.exits(segment),
                sequencer: sequencer.clone(),
                limit: limit.clone(),
                budget: environment.handle.budget.clone(),
                stop: environment.handle.stop.clone(),
            })
        };
        (0..segment.copies).map(worker).collect()
    }

    fn operators(&self, segment: &Segment) -> Result<Vec<segment::Operator>, RunFailure> {
        let mut operators = Vec::new();
        for Operator { node, outputs, .. } in &segment.operators {
            let context = self.environment.context(&node.name);
            let work = match &node.config {
                Step::Messages(config) => config.build(&context).map(Work::Calls),
                Step::Waits(config) => config.build(&context).map(Work::Waits),
                Step::Files(_) | Step::FileReader(_) | Step::Marker => continue,
            };
            let work = work.map_err(not_built(&node.name, Role::Transform))?;
            let metrics = self.environment.metrics(&node.name);
            operators.push(segment::Operator::new(work, metrics, outputs.clone()));
        }
        Ok(operators)
    }

    fn file_workers(&mut self, segment: &Segment) -> Result<Vec<FileSegmentWorker>, RunFailure> {
        let environment = self.environment;
        let sequencer = segment.ordered.then(|| Arc::new(Sequencer::default()));
        let adapts = segment.cost == Cost::Waits && segment.copies > 1 && !segment.is_fixed;
        let limit = adapts.then(|| environment.adaptive_limit(segment.copies));
        // The workers share a component's account with the budget, so that one of them may always continue.
        let contexts: Vec<Context> =
            segment.operators.iter().map(|operator| environment.context(&operator.node.name)).collect();
        let worker = |_| {
            let exits = self.channels.exits(segment);
            Ok(FileSegmentWorker {
                operators: self.file_operators(segment, &contexts)?,
                singly: exits.keys().copied().filter(|&to| self.plan.takes_singly(to)).collect(),
                exits,
                sequencer: sequencer.clone(),
                limit: limit.clone(),
                retries: environment.retries.clone(),
                watcher: environment.watcher.clone(),
            })
        };
        (0..segment.copies).map(worker).collect()
    }

    fn file_operators(
        &self,
        segment: &Segment,
        contexts: &[Context],
    ) -> Result<Vec<FileOperator>, RunFailure> {
        let mut operators = Vec::new();
        for (operator, context) in segment.operators.iter().zip(contexts) {
            let Operator { node, on_error, delivers, outputs } = operator;
            let metrics = self.environment.metrics(&node.name);
            let work = match &node.config {
                Step::Files(config) => {
                    let built = config.build(context).map_err(not_built(&node.name, metrics.role))?;
                    FileWork::Transform(built)
                }
                Step::Messages(_) | Step::Waits(_) | Step::FileReader(_) | Step::Marker => FileWork::Part,
            };
            operators.push(FileOperator {
                work,
                metrics,
                targets: node.targets,
                on_error: *on_error,
                delivers: *delivers,
                outputs: outputs.clone(),
            });
        }
        Ok(operators)
    }

    fn file_readers(
        &mut self,
        segment: &Segment,
        operator: &Operator,
        config: &Arc<dyn BuildFileReader>,
    ) -> Result<Vec<FileReaderWorker>, RunFailure> {
        let environment = self.environment;
        let name = &operator.node.name;
        let main = self.senders(operator, Output::Main);
        let errors = self.senders(operator, Output::Errors);
        let refused = vec![self.channels.sender(Destination::DeadLetters)];
        let positions = match environment.checkpoints {
            Some(_) => Some(environment.positions(name, Role::Transform)?),
            None => None,
        };
        self.file_positions.extend(positions.clone().map(|positions| (name.clone(), positions)));
        let worker = |_| {
            let out = FileOutput {
                share: environment.handle.budget.share(),
                batch_bytes: environment.batch_bytes,
                stop: environment.handle.stop.clone(),
                metrics: environment.metrics(name),
                main: main.clone(),
                errors: errors.clone(),
                ack: Ack::noop(),
                place: Ack::noop(),
                positions: positions.clone(),
                partition: None,
                meta: Arc::new(Meta { source: name.clone(), path: None, time_us: 0 }),
            };
            let reader =
                config.build(&environment.context(name)).map_err(not_built(name, Role::Transform))?;
            Ok(FileReaderWorker { reader, out, refused: refused.clone() })
        };
        (0..segment.copies).map(worker).collect()
    }

    fn senders(&mut self, operator: &Operator, output: Output) -> Vec<Sender<Parcel>> {
        let targets = operator.outputs.get(&output).map(|targets| targets.iter()).into_iter().flatten();
        targets.filter_map(|target| target.stage()).map(|to| self.channels.sender(to)).collect()
    }
}
