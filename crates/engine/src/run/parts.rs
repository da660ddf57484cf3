//! The segments of a plan, built.

use std::pin::Pin;
use std::sync::Arc;

use parking_lot::Mutex;
use thalweg_record::{Ack, Meta, Parcel};
use thalweg_runtime::{Receiver, Sequencer, Stage, Worker};
use tokio::sync::mpsc;

use crate::component::{BuildFileReader, Flow, Step};
use crate::metrics::ComponentMetrics;
use crate::plan::{Destination, Operator, Plan, Segment};
use crate::positions::Positions;
use crate::store::Store;
use crate::{Context, Cost, Error, FileOutput, Role};

use super::channels::Channels;
use super::files::{FileCopy, FileOperator, FileWatcher, Work};
use super::unpack::FileReaderWorker;
use super::{Handle, Retries, RunFailure, adaptive, segment};

/// What all segments of a run have in common.
pub(super) struct SegmentBuilder<'a> {
    pub(super) plan: &'a Plan,
    pub(super) handle: &'a Handle,
    pub(super) retries: &'a Retries,
    pub(super) watcher: &'a Option<Arc<dyn FileWatcher>>,
    pub(super) context: &'a (dyn Fn(&str) -> Context + Sync),
    pub(super) metrics: &'a (dyn Fn(&Arc<str>) -> Arc<ComponentMetrics> + Sync),
    pub(super) places: &'a FileCheckpoints,
}

/// How far what reads messages out of files has got in each, where that is kept.
pub(super) struct FileCheckpoints {
    pub(super) store: Option<Arc<Store>>,
    pub(super) failures: mpsc::UnboundedSender<RunFailure>,
    pub(super) known: Mutex<Vec<(Arc<str>, Arc<Positions>)>>,
}

impl FileCheckpoints {
    fn of(&self, name: &Arc<str>) -> Result<Option<Arc<Positions>>, Error> {
        let Some(store) = &self.store else { return Ok(None) };
        let positions =
            Positions::new(name.clone(), Role::Transform, store.positions(name)?, self.failures.clone());
        positions.keep();
        self.known.lock().push((name.clone(), positions.clone()));
        Ok(Some(positions))
    }
}

/// A task of a stage, and whether it blocks its thread.
type Task = (bool, Pin<Box<dyn Future<Output = Result<(), RunFailure>> + Send>>);

impl SegmentBuilder<'_> {
    /// The tasks of a segment, one for each copy.
    pub(super) fn segment(
        &self,
        segment: &Segment,
        input: Receiver<Parcel>,
        channels: &mut Channels,
    ) -> Result<Vec<Task>, Error> {
        // Those who wait need no thread of their own; those who read and write files do.
        let blocks = segment.takes == Flow::Files && segment.cost < Cost::Waits;
        let first = segment.operators.first().map(|operator| (self.metrics)(&operator.node.name));
        let hand_overs = first.map(|metrics| metrics.hand_overs.clone()).unwrap_or_default();
        match (segment.takes, segment.unpack()) {
            (Flow::Messages, _) => {
                let copies = self.copies(segment, channels)?;
                Ok(tasks(Stage::new(copies, input, hand_overs), segment.copies, blocks))
            }
            (Flow::Files, None) => {
                let copies = self.file_copies(segment, channels)?;
                Ok(tasks(Stage::new(copies, input, hand_overs), segment.copies, blocks))
            }
            (Flow::Files, Some((operator, config))) => {
                let copies = self.unpackers(segment, operator, config, channels)?;
                Ok(tasks(Stage::new(copies, input, hand_overs), segment.copies, blocks))
            }
        }
    }

    fn copies(&self, segment: &Segment, channels: &mut Channels) -> Result<Vec<segment::Copy>, Error> {
        let sequencer = segment.ordered.then(|| Arc::new(Sequencer::default()));
        let adapts = segment.copies > 1 && !segment.is_fixed;
        let limit = adapts.then(|| adaptive(segment.copies, &self.handle.budget));
        let copy = |_| {
            let mut operators = Vec::new();
            for Operator { node, outputs, .. } in &segment.operators {
                let context = (self.context)(&node.name);
                let work = match &node.config {
                    Step::Messages(config) => segment::Work::Calls(config.build(&context)?),
                    Step::Waits(config) => segment::Work::Waits(config.build(&context)?),
                    Step::Files(_) | Step::FileReader(_) | Step::Marker => continue,
                };
                let metrics = (self.metrics)(&node.name);
                operators.push(segment::Operator::new(work, metrics, outputs.clone()));
            }
            Ok(segment::Copy {
                operators,
                exits: channels.exits(segment),
                sequencer: sequencer.clone(),
                limit: limit.clone(),
                budget: self.handle.budget.clone(),
                stop: self.handle.stop.clone(),
            })
        };
        (0..segment.copies).map(copy).collect()
    }

    fn file_copies(&self, segment: &Segment, channels: &mut Channels) -> Result<Vec<FileCopy>, Error> {
        let sequencer = segment.ordered.then(|| Arc::new(Sequencer::default()));
        let adapts = segment.cost == Cost::Waits && segment.copies > 1 && !segment.is_fixed;
        let limit = adapts.then(|| adaptive(segment.copies, &self.handle.budget));
        // Copies share the account of a component with the budget: so one of them may always go on.
        let contexts: Vec<Context> =
            segment.operators.iter().map(|operator| (self.context)(&operator.node.name)).collect();
        let copy = |_| {
            let mut operators = Vec::new();
            for (operator, context) in segment.operators.iter().zip(&contexts) {
                let Operator { node, on_error, delivers, outputs } = operator;
                let work = match &node.config {
                    Step::Files(config) => Work::Transform(config.build(context)?),
                    Step::Messages(_) | Step::Waits(_) | Step::FileReader(_) | Step::Marker => Work::Part,
                };
                operators.push(FileOperator {
                    work,
                    metrics: (self.metrics)(&node.name),
                    targets: node.targets,
                    on_error: *on_error,
                    delivers: *delivers,
                    outputs: outputs.clone(),
                });
            }
            let exits = channels.exits(segment);
            Ok(FileCopy {
                operators,
                singly: exits.keys().copied().filter(|&to| self.plan.takes_singly(to)).collect(),
                exits,
                sequencer: sequencer.clone(),
                limit: limit.clone(),
                retries: self.retries.clone(),
                watcher: self.watcher.clone(),
            })
        };
        (0..segment.copies).map(copy).collect()
    }

    fn unpackers(
        &self,
        segment: &Segment,
        operator: &Operator,
        config: &Arc<dyn BuildFileReader>,
        channels: &mut Channels,
    ) -> Result<Vec<FileReaderWorker>, Error> {
        let name = &operator.node.name;
        let mut senders = |output| {
            let targets = operator.outputs.get(&output).map(|targets| targets.iter()).into_iter().flatten();
            let stages: Vec<Destination> = targets.filter_map(|target| target.stage()).collect();
            stages.into_iter().map(|to| channels.sender(to)).collect::<Vec<_>>()
        };
        let (main, errors) = (senders(crate::Output::Main), senders(crate::Output::Errors));
        let refused = vec![channels.sender(Destination::DeadLetters)];
        let positions = self.places.of(name)?;
        let copy = |_| {
            let out = FileOutput {
                share: self.handle.budget.share(),
                batch_bytes: self.plan.batch_bytes,
                stop: self.handle.stop.clone(),
                metrics: (self.metrics)(name),
                main: main.clone(),
                errors: errors.clone(),
                ack: Ack::noop(),
                place: Ack::noop(),
                positions: positions.clone(),
                partition: None,
                meta: Arc::new(Meta { source: name.clone(), path: None, time_us: 0 }),
            };
            let unpack = config.build(&(self.context)(name))?;
            Ok(FileReaderWorker { unpack, out, refused: refused.clone() })
        };
        (0..segment.copies).map(copy).collect()
    }
}

fn tasks<W: Worker<Error = RunFailure>>(stage: Stage<W>, copies: usize, blocks: bool) -> Vec<Task> {
    let mut stages = vec![stage];
    while stages.len() < copies {
        stages.extend(stages.first().cloned());
    }
    stages.into_iter().map(|stage| -> Task { (blocks, Box::pin(stage.run())) }).collect()
}
