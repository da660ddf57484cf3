//! The tasks of segments: one for each worker.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use thalweg_runtime::{Receiver, Sequencer, Stage, Worker};

use super::{Wiring, not_built};
use crate::component::{FileReaderConfig, Step, Transform};
use crate::plan::{Destination, Operator, Segment, Target};
use crate::run::RunFailure;
use crate::run::edges::{Place, Port};
use crate::run::file_reader::FileReaderWorker;
use crate::run::files::{FileOperator, FileSegmentWorker, Work as FileWork};
use crate::run::segment::{self, SegmentWorker, Work};
use crate::run::threads::{Placement, Task};
use crate::source_output::{OpenFile, Route, Rows, SourceOutput, Upstream};
use crate::{Context, Cost, Flow, Output, Role};

/// How often transforms that send messages at times of their own are asked whether they are due, while no
/// messages arrive.
const TICK: Duration = Duration::from_millis(100);

impl Wiring<'_> {
    pub(super) fn segments(&mut self) -> Result<(), RunFailure> {
        let segments = &self.plan.segments;
        for (number, segment) in segments.iter().enumerate() {
            let to = Destination::Segment(number);
            let group = self.channels.groups().of_stage(to);
            match (segment.takes, segment.file_reader()) {
                (Flow::Messages, _) => {
                    let workers = self.segment_workers(segment, group)?;
                    let input = self.channels.message_receiver(to);
                    self.segment(segment, workers, input);
                }
                (Flow::Files, None) => {
                    let (workers, input) =
                        (self.file_workers(segment, group)?, self.channels.file_receiver(to));
                    self.segment(segment, workers, input);
                }
                (Flow::Files, Some((operator, config))) => {
                    let workers = self.file_readers(segment, group, operator, config)?;
                    let input = self.channels.file_receiver(to);
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
        // File transforms read and write files. Those that wait for something else do not block, nor do
        // transforms of messages.
        let blocks = segment.takes == Flow::Files && segment.cost < Cost::Waits;
        let placement = if blocks { Placement::Thread } else { Placement::Runtime };
        let Some(first) = segment.operators.first() else { return };
        let hand_overs = self.environment.metrics(&first.node.name).hand_overs.clone();
        let mut stage = Stage::new(workers, input, hand_overs);
        if segment.operators.iter().any(|operator| operator.node.config.ticks()) {
            stage = stage.with_rests(TICK, Arc::default());
        }
        let mut stages = vec![stage];
        while stages.len() < segment.parallelism {
            stages.extend(stages.first().cloned());
        }
        let name = &first.node.name;
        self.tasks.extend(stages.into_iter().map(|stage| Task::new(name.clone(), placement, stage.run())));
    }

    fn segment_workers(&mut self, segment: &Segment, group: usize) -> Result<Vec<SegmentWorker>, RunFailure> {
        let environment = self.environment;
        // The results of one worker are in order without a sequencer.
        let is_sequenced = segment.ordered && segment.parallelism > 1;
        let sequencer = is_sequenced.then(|| Arc::new(Sequencer::default()));
        let adapts = segment.parallelism > 1 && !segment.is_fixed;
        let limit = adapts.then(|| environment.adaptive_limit(segment.parallelism));
        // Batches made by any transform of a stage count for the one that the stage is named after.
        let budget = match segment.operators.first() {
            Some(first) => environment.handle.budget.held_by(&first.node.name),
            None => environment.handle.budget.clone(),
        };
        let worker = |_| {
            Ok(SegmentWorker {
                operators: self.operators(segment, group)?,
                exits: self.channels.message_exits(self.plan, segment, group),
                file_exits: self.channels.file_exits(self.plan, segment, group),
                sequencer: sequencer.clone(),
                limit: limit.clone(),
                budget: budget.clone(),
                traffic: self.channels.traffic(group).clone(),
                stop: environment.handle.stop.clone(),
            })
        };
        (0..segment.parallelism).map(worker).collect()
    }

    fn operators(&mut self, segment: &Segment, group: usize) -> Result<Vec<segment::Operator>, RunFailure> {
        let mut operators = Vec::new();
        for Operator { node, outputs, .. } in &segment.operators {
            let context = self.environment.context(&node.name, self.groups[group].input);
            let is_apart = self.environment.store.replays() && node.config.replays_apart();
            let context = match is_apart {
                true => Context { is_replay: true, journal: None, ..context },
                false => context,
            };
            let work = match &node.config {
                Step::Messages(config) => config.build(&context).map(Work::Calls),
                Step::Waits(config) => config.build(&context).map(Work::Waits),
                Step::Files(_) | Step::FileReader(_) | Step::Marker => continue,
            };
            let work = work.map_err(not_built(&node.name, Role::Transform))?;
            let work = match work {
                Work::Calls(transform) if node.config.is_sequential() && !is_apart => {
                    self.restored(&node.name, group, transform)?
                }
                other => other,
            };
            let metrics = self.environment.metrics(&node.name);
            let operator = segment::Operator::new(work, metrics, outputs.clone());
            operators.push(operator.reading(&node.config).through(self.ports(&node.name, outputs)));
        }
        Ok(operators)
    }

    /// The ports of the outputs of an operator.
    fn ports(
        &self,
        name: &Arc<str>,
        outputs: &BTreeMap<Output, Arc<[Target]>>,
    ) -> BTreeMap<Output, Arc<Port>> {
        let port = |output: &Output| Some((*output, self.environment.port(name, Place::Output(*output))?));
        outputs.keys().filter_map(port).collect()
    }

    /// Gives a transform the state that a former run saved, and lets checkpoints save its state, if any are
    /// kept.
    fn restored(
        &mut self,
        name: &Arc<str>,
        group: usize,
        mut transform: Box<dyn Transform>,
    ) -> Result<Work, RunFailure> {
        if self.environment.checkpoints.is_none() {
            return Ok(Work::Calls(transform));
        }
        let (slot, saved) = self.state(name, group)?;
        if let Some(saved) = saved {
            transform.restore(saved).map_err(not_built(name, Role::Transform))?;
        }
        let shared = Arc::new(Mutex::new(transform));
        self.groups[group].transforms.push((slot, shared.clone()));
        Ok(Work::Kept(shared))
    }

    fn file_workers(
        &mut self,
        segment: &Segment,
        group: usize,
    ) -> Result<Vec<FileSegmentWorker>, RunFailure> {
        let environment = self.environment;
        let sequencer = segment.ordered.then(|| Arc::new(Sequencer::default()));
        let adapts = segment.cost == Cost::Waits && segment.parallelism > 1 && !segment.is_fixed;
        let limit = adapts.then(|| environment.adaptive_limit(segment.parallelism));
        // The workers share a component's account with the budget, so that one of them may always continue.
        let contexts: Vec<Context> = segment
            .operators
            .iter()
            .map(|operator| environment.context(&operator.node.name, self.groups[group].input))
            .collect();
        let worker = |_| {
            let exits = self.channels.file_exits(self.plan, segment, group);
            Ok(FileSegmentWorker {
                operators: self.file_operators(segment, &contexts)?,
                singly: exits.0.keys().copied().filter(|&to| self.plan.takes_singly(to)).collect(),
                exits,
                sequencer: sequencer.clone(),
                limit: limit.clone(),
                retries: environment.retries.clone(),
                watcher: environment.watcher.clone(),
            })
        };
        (0..segment.parallelism).map(worker).collect()
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
                Step::Messages(_) | Step::Waits(_) | Step::FileReader(_) | Step::Marker => FileWork::Marker,
            };
            operators.push(FileOperator {
                work,
                metrics,
                targets: node.targets,
                on_error: *on_error,
                delivers: *delivers,
                outputs: outputs.clone(),
                ports: self.ports(&node.name, outputs),
                input: self.environment.port(&node.name, Place::Input).filter(|_| *delivers),
            });
        }
        Ok(operators)
    }

    fn file_readers(
        &mut self,
        segment: &Segment,
        group: usize,
        operator: &Operator,
        config: &Arc<dyn FileReaderConfig>,
    ) -> Result<Vec<FileReaderWorker>, RunFailure> {
        let environment = self.environment;
        let name = &operator.node.name;
        let main = self.route_of(operator, group, Output::Main);
        let errors = self.route_of(operator, group, Output::Errors);
        let stages = operator.outputs.get(&Output::Main).map(|targets| targets.iter()).into_iter().flatten();
        let rows = self.plan.rows_to(stages.filter_map(|target| target.stage()));
        let refused = Route::files(vec![self.channels.file_sender(Destination::DeadLetters, group)])
            .through(environment.port(name, Place::Refused));
        let positions = match environment.checkpoints {
            Some(_) => Some(environment.positions(name, Role::Transform)?),
            None => None,
        };
        self.groups[group]
            .file_positions
            .extend(positions.clone().map(|positions| (name.clone(), positions)));
        let (traffic, input) = (self.channels.traffic(group).clone(), self.groups[group].input);
        let stop = self.groups[group].stop.clone();
        let worker = |_| {
            let open = Arc::new(Mutex::new(OpenFile::none(name, positions.clone())));
            let out = SourceOutput {
                share: environment.handle.budget.held_by(name).share(),
                batch_bytes: environment.batch_bytes,
                stop: stop.clone(),
                limit: None,
                metrics: environment.metrics(name),
                main: main.clone(),
                errors: errors.clone(),
                singly: false,
                rows: rows.map(Rows::new),
                leaves_rest: false,
                sequence: None,
                traffic: traffic.clone(),
                upstream: Upstream::File(open.clone()),
            };
            let reader =
                config.build(&environment.context(name, input)).map_err(not_built(name, Role::Transform))?;
            Ok(FileReaderWorker { reader, out, open, refused: refused.clone() })
        };
        (0..segment.parallelism).map(worker).collect()
    }

    /// Where the messages of a file reader go.
    fn route_of(&mut self, operator: &Operator, group: usize, output: Output) -> Route {
        let targets = operator.outputs.get(&output).map(|targets| targets.iter()).into_iter().flatten();
        let stages: Vec<Destination> = targets.filter_map(|target| target.stage()).collect();
        Route::messages(self.channels.message_senders(&stages, group))
            .through(self.environment.port(&operator.node.name, Place::Output(output)))
    }
}
