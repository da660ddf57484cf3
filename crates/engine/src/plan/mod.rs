//! The plan of a graph: which transforms are fused into one call, where channels are, and the parallelism of
//! each segment.
//!
//! Adjacent transforms become one *segment*: a batch goes through all of them in one call, on one core. A
//! segment has up to one worker for each core. A pipeline that reads one output of another pipeline becomes a
//! part of its segment, and so does the encoding for a sink. Channels are only where rates must differ (after
//! a source, before a sink), where several outputs meet, and around transforms that must see the batches in
//! order. These run with one worker.
//!
//! `errors` outputs always lead through a channel. They are rare, but every transform has one, so fusing
//! their pipeline into each would duplicate it many times.
//!
//! See docs/decisions/010-a-transform-that-waits-begins-a-segment.md,
//! docs/decisions/011-sequential-transforms.md and docs/decisions/012-errors-lead-through-a-channel.md.

mod edges;
mod pace;
mod shown;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use thalweg_config::ByteSize;

use crate::buffer::{self, DiskBuffer};
use crate::component::{Cost, FileReaderConfig, FileSink, Flow, Step};
use crate::flow::Flows;
use crate::graph::{Feed, Graph, Passed, Pipeline, SinkNode, SourceNode, Targets, To, TransformNode};
use crate::index::Index;
use crate::pairs::Pair;
use crate::router::{Router, Way};
use crate::settings::{BufferLimits, DeadLetterLimits, OnError};
pub(crate) use edges::output_name;
use pace::Pace;
pub(crate) use pace::{MOST_ROWS, SPAN};
use thalweg_record::Output;

/// The stage that a channel leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Destination {
    /// The segment with this number.
    Segment(usize),
    /// The sink with this number.
    Sink(usize),
    /// The failover with this number.
    Failover(usize),
    /// The store of the dead letters.
    DeadLetters,
}

/// The target of an output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// An operator of the same segment, reached by a call.
    Operator(usize),
    /// Another stage, reached by its channel.
    Stage(Destination),
}

impl Target {
    /// Returns the stage, if the target is one.
    pub fn stage(self) -> Option<Destination> {
        match self {
            Target::Stage(stage) => Some(stage),
            Target::Operator(_) => None,
        }
    }
}

/// A source and its targets.
pub struct SourceStage {
    /// The source.
    pub node: SourceNode,
    /// The targets of its main output. Each gets a copy.
    pub main: Vec<Destination>,
    /// The targets of its `errors` output.
    pub errors: Vec<Destination>,
}

/// A transform within a segment, and the targets of its outputs.
pub struct Operator {
    /// The transform.
    pub node: TransformNode,
    /// The treatment of files that it rejects.
    pub on_error: OnError,
    /// True if it is a sink of files: files that pass it are delivered.
    pub delivers: bool,
    /// The targets of each output. Each gets a copy.
    pub outputs: BTreeMap<Output, Arc<[Target]>>,
}

/// Transforms that run in one call.
pub struct Segment {
    /// The name of the pipeline that it begins in.
    pub name: Arc<str>,
    /// Its operators. The first one receives the input.
    pub operators: Vec<Operator>,
    /// The parallelism: the most workers that run at once.
    pub parallelism: usize,
    /// True if the user, or the first operator, sets the parallelism. Otherwise it adapts: fewer workers run
    /// if more would only compete.
    pub is_fixed: bool,
    /// True if its results are put back into the order of its input.
    pub ordered: bool,
    /// The flow of its input.
    pub takes: Flow,
    /// The cost of its most expensive operator for one message or file.
    pub cost: Cost,
    sequential: bool,
}

impl Segment {
    /// True if an operator removes the files that sources read.
    pub fn removes_input(&self) -> bool {
        self.operators.iter().any(|operator| operator.node.config.removes_input())
    }

    /// True if an operator with these properties can join the segment.
    fn is_like(&self, takes: Flow, sequential: bool) -> bool {
        self.takes == takes && self.sequential == sequential && self.file_reader().is_none()
    }

    /// Returns the first operator and its configuration, if it is a file reader.
    pub fn file_reader(&self) -> Option<(&Operator, &Arc<dyn FileReaderConfig>)> {
        let operator = self.operators.first()?;
        match &operator.node.config {
            Step::FileReader(config) => Some((operator, config)),
            Step::Messages(_) | Step::Waits(_) | Step::Files(_) | Step::Marker => None,
        }
    }

    /// True if the first operator sets the parallelism.
    fn has_own_parallelism(&self) -> bool {
        self.operators.first().is_some_and(|operator| operator.node.config.parallelism().is_some())
    }

    /// True if it receives each file in a parcel of its own.
    pub fn takes_singly(&self) -> bool {
        self.takes == Flow::Files && self.cost > Cost::Small
    }
}

/// A stage that sends a batch to the next target if the preferred one cannot deliver it.
pub struct FailoverStage {
    /// `pipeline.failover`.
    pub name: Arc<str>,
    /// The targets in the order of preference: the name of a sink or pipeline, and the stages that it begins
    /// with.
    pub ways: Vec<(Arc<str>, Vec<Destination>)>,
    /// How long to wait for capacity. None waits without limit.
    pub timeout: Option<Duration>,
}

/// A sink and its properties in the plan.
pub struct SinkStage {
    /// The sink.
    pub node: SinkNode,
    /// True if a failover that has another target leads to this sink.
    pub is_dispensable: bool,
    /// The bytes that may wait in its channel, if it has a buffer in memory.
    pub memory: Option<ByteSize>,
    /// The targets of its `errors` output.
    pub errors: Vec<Destination>,
}

/// The plan of a run. Its `Display` shows the stages.
pub struct Plan {
    /// The number of cores to use.
    pub cores: usize,
    /// The memory budget.
    pub memory: ByteSize,
    /// The approximate number of payload bytes in a batch.
    pub batch_bytes: usize,
    /// The limits of the dead letters.
    pub dead_letters: DeadLetterLimits,
    /// The directory of temporary files. Without it, the system's temporary directory.
    pub temporary: Option<PathBuf>,
    /// The sources.
    pub sources: Vec<SourceStage>,
    /// The segments.
    pub segments: Vec<Segment>,
    /// The failovers.
    pub failovers: Vec<FailoverStage>,
    /// The sinks.
    pub sinks: Vec<SinkStage>,
    /// The limit of all disk buffers together.
    pub buffer_limits: BufferLimits,
    /// The disk buffers. Each has a source and a sink.
    pub(crate) buffers: Vec<Arc<DiskBuffer>>,
    /// The size of batches before transforms with a rate.
    pub(crate) pace: Pace,
    /// The sources whose positions are moved by the transactions of a sink.
    pub(crate) pairs: Vec<Pair>,
}

/// Larger batches cost cache misses, smaller ones cost hand-overs. Measured with lines of 100 to 300 bytes.
const BATCH_BYTES: usize = 1 << 20;
const LEAST_BATCH_BYTES: usize = 16 << 10;
/// The number of files that may wait at once in transforms that wait for another machine.
const MOST_WAITING: usize = 16;

impl Plan {
    /// Plans a graph for a number of cores.
    pub fn new(graph: &Graph, cores: usize) -> Self {
        let (graph, buffers) = buffer::expanded(graph);
        let graph = &*graph;
        let mut planner = Planner {
            graph,
            flows: Flows::of(&Index::new(graph)),
            cores,
            segments: Vec::new(),
            failovers: Vec::new(),
            entries: BTreeMap::new(),
        };
        let dispensable = dispensable(graph);
        let written: Vec<&SinkNode> =
            graph.sinks.iter().filter(|node| planner.flows.reach(graph, node)).collect();
        let sinks: Vec<SinkStage> = written
            .into_iter()
            .map(|node| {
                let errors = planner.errors(&node.name);
                let is_dispensable = dispensable.contains(&node.name);
                let memory = node.buffer.and_then(|buffer| buffer.memory);
                SinkStage { node: node.clone(), is_dispensable, memory, errors }
            })
            .collect();
        let sources: Vec<SourceStage> = graph
            .sources
            .iter()
            .map(|node| SourceStage {
                node: node.clone(),
                main: planner.stages(&Feed::Source(node.name.clone())),
                errors: planner.errors(&node.name),
            })
            .collect();
        let errors = sources.iter().map(|stage| &stage.errors).chain(sinks.iter().map(|stage| &stage.errors));
        let ways = planner.failovers.iter().flat_map(|failover| &failover.ways).map(|(_, to)| to);
        let pace = Pace::of(&planner.segments, errors.chain(ways).flatten().copied());
        Self {
            cores,
            memory: graph.memory,
            batch_bytes: (graph.memory.as_usize() / 32).clamp(LEAST_BATCH_BYTES, BATCH_BYTES),
            dead_letters: graph.dead_letters,
            temporary: graph.temporary.clone(),
            sources,
            segments: planner.segments,
            failovers: planner.failovers,
            sinks,
            buffer_limits: graph.buffers,
            buffers,
            pace,
            pairs: Pair::of(graph),
        }
    }
}

/// Returns the sinks and pipelines behind a failover that has another target for their batches.
fn dispensable(graph: &Graph) -> BTreeSet<Arc<str>> {
    let mut open: Vec<Arc<str>> = Vec::new();
    for pipeline in &graph.pipelines {
        if let To::Failover(names, _) = &pipeline.to
            && let Some((_, preferred)) = names.split_last()
        {
            open.extend(preferred.iter().cloned());
        }
    }
    let mut found = BTreeSet::new();
    while let Some(name) = open.pop() {
        if found.insert(name.clone()) {
            open.extend(graph.pipeline(&name).into_iter().flat_map(|pipeline| pipeline.to.names().to_vec()));
            let fed = graph.pipelines.iter().filter(|next| {
                next.from
                    .iter()
                    .any(|feed| matches!(feed, Feed::Pipeline(from) | Feed::Named(from, _) if *from == name))
            });
            open.extend(fed.map(|next| next.name.clone()));
        }
    }
    found
}

struct Planner<'g> {
    graph: &'g Graph,
    flows: Flows,
    cores: usize,
    segments: Vec<Segment>,
    failovers: Vec<FailoverStage>,
    /// The first targets of pipelines that have a channel of their own.
    entries: BTreeMap<usize, Vec<Target>>,
}

impl Planner<'_> {
    fn sink(&self, name: &str) -> Option<usize> {
        self.graph.sinks.iter().position(|sink| &*sink.name == name)
    }

    /// Returns the number of a sink among the sinks that have a stage: those that receive messages.
    fn sink_stage(&self, sink: usize) -> usize {
        self.graph.sinks[..sink].iter().filter(|node| self.flows.reach(self.graph, node)).count()
    }

    fn encoder(&self, sink: usize) -> Option<TransformNode> {
        let node = &self.graph.sinks[sink];
        let config = Step::Messages(node.config.encoder()?.into());
        let name = format!("{}.encode", node.name).into();
        Some(TransformNode { name, kind: "encode", config, targets: Targets::All, before: Passed::default() })
    }

    /// Returns the stages that a feed from outside of segments leads to.
    fn stages(&mut self, feed: &Feed) -> Vec<Destination> {
        let pipelines = self.graph.fed_by(feed);
        let targets: Vec<Target> =
            pipelines.into_iter().flat_map(|pipeline| self.enter(pipeline, None)).collect();
        targets.into_iter().filter_map(Target::stage).collect()
    }

    fn errors(&mut self, name: &Arc<str>) -> Vec<Destination> {
        let stages = self.stages(&Feed::Errors(name.clone()));
        if stages.is_empty() { vec![Destination::DeadLetters] } else { stages }
    }

    /// Returns the targets at which a batch enters a pipeline, from within a segment or from outside.
    fn enter(&mut self, number: usize, within: Option<usize>) -> Vec<Target> {
        let pipeline = &self.graph.pipelines[number];
        let alike = within.filter(|&segment| {
            let segment = &self.segments[segment];
            let same = pipeline.concurrency.is_none_or(|workers| workers == segment.parallelism);
            let ordered = pipeline.is_ordered(self.flows.entering(pipeline));
            pipeline.from.len() == 1 && same && ordered == segment.ordered
        });
        if alike.is_some() {
            return self.chain(pipeline, 0, alike);
        }
        if let Some(entry) = self.entries.get(&number) {
            return entry.clone();
        }
        let entry = self.chain(pipeline, 0, None);
        self.entries.insert(number, entry.clone());
        entry
    }

    /// Returns the segment for an operator: the given one if the operator can join it, else a new one. The
    /// flag is true if the segment has no operators yet.
    fn segment(&mut self, pipeline: &Pipeline, step: &Step, within: Option<usize>) -> (usize, bool) {
        let (takes, sequential) = (step.takes(), step.is_sequential());
        let is_apart = matches!(step, Step::FileReader(_));
        // Several workers of a file reader send the messages of several files, in no order.
        let is_one = is_apart && pipeline.is_ordered(takes);
        let said = step.parallelism().filter(|_| !is_one).map(|workers| workers.max(1));
        let number = match within {
            Some(segment) if !step.is_first() && self.segments[segment].is_like(takes, sequential) => segment,
            _ => {
                self.segments.push(Segment {
                    name: pipeline.name.clone(),
                    operators: Vec::new(),
                    parallelism: said.unwrap_or(1),
                    is_fixed: said.is_some(),
                    ordered: pipeline.is_ordered(takes),
                    takes,
                    cost: Cost::Small,
                    sequential,
                });
                self.segments.len() - 1
            }
        };
        let cores = self.cores;
        let segment = &mut self.segments[number];
        segment.cost = segment.cost.max(step.cost());
        if said.is_some() || segment.has_own_parallelism() {
            return (number, segment.operators.is_empty());
        }
        segment.parallelism = match segment.cost {
            _ if sequential || is_one => 1,
            Cost::Alone => 1,
            Cost::Waits => pipeline.concurrency.unwrap_or(cores.max(MOST_WAITING)),
            Cost::Small | Cost::Core => pipeline.concurrency.unwrap_or(cores),
        };
        segment.parallelism = segment.parallelism.max(1);
        segment.is_fixed = !sequential && pipeline.concurrency.is_some();
        (number, segment.operators.is_empty())
    }

    /// Adds an operator to a segment; `outputs` plans its targets. Returns the targets for its input.
    fn operator(
        &mut self,
        pipeline: &Pipeline,
        node: TransformNode,
        within: Option<usize>,
        outputs: impl FnOnce(&mut Self, usize) -> BTreeMap<Output, Vec<Target>>,
    ) -> Vec<Target> {
        let (segment, is_new) = self.segment(pipeline, &node.config, within);
        let number = self.segments[segment].operators.len();
        let on_error = pipeline.on_error;
        let mut node = node;
        if on_error == OnError::Divert {
            // A file that enters with a problem was rejected elsewhere and came by `errors`.
            node.targets = Targets::All;
        }
        let operator = Operator { node, on_error, delivers: false, outputs: BTreeMap::new() };
        self.segments[segment].operators.push(operator);
        let outputs = outputs(self, segment);
        self.segments[segment].operators[number].outputs =
            outputs.into_iter().map(|(output, targets)| (output, targets.into())).collect();
        if is_new {
            vec![Target::Stage(Destination::Segment(segment))]
        } else {
            vec![Target::Operator(number)]
        }
    }

    /// Returns the targets of a batch before the transform `at` of a pipeline.
    fn chain(&mut self, pipeline: &Pipeline, at: usize, within: Option<usize>) -> Vec<Target> {
        let Some(node) = pipeline.transforms.get(at) else { return self.end(pipeline, within, false) };
        let labels = node.config.outputs();
        self.operator(pipeline, node.clone(), within, |planner, segment| {
            let mut outputs = BTreeMap::new();
            outputs.insert(Output::Main, planner.chain(pipeline, at + 1, Some(segment)));
            for (number, label) in labels.into_iter().enumerate() {
                let feed = Feed::Named(pipeline.name.clone(), label);
                outputs.insert(Output::Named(number), planner.fed(&feed, segment));
            }
            let errors = planner.errors(&pipeline.name);
            outputs.insert(Output::Errors, errors.into_iter().map(Target::Stage).collect());
            outputs
        })
    }

    fn fed(&mut self, feed: &Feed, segment: usize) -> Vec<Target> {
        let pipelines = self.graph.fed_by(feed);
        pipelines.into_iter().flat_map(|pipeline| self.enter(pipeline, Some(segment))).collect()
    }

    /// Returns the targets of a batch at the end of a pipeline.
    fn end(&mut self, pipeline: &Pipeline, within: Option<usize>, is_parted: bool) -> Vec<Target> {
        let names = pipeline.to.names();
        let flow = self.flows.at_end(pipeline);
        if flow == Flow::Files && pipeline.on_error == OnError::Carry && !is_parted {
            return self.part(pipeline, within);
        }
        let way = match &pipeline.to {
            _ if names.len() < 2 => None,
            To::All(_) | To::Failover(..) => None,
            To::RoundRobin(_) => Some(Way::RoundRobin),
            To::Random(_) => Some(Way::Random),
            To::ByKey(key, _) => Some(Way::ByKey(key.clone())),
        };
        let mut targets = match (way, &pipeline.to) {
            (Some(way), _) => {
                let config = Router::new(way, names.len());
                let kind = config.kind();
                let name = format!("{}.{kind}", pipeline.name).into();
                let config = Step::Messages(Arc::new(config));
                let node =
                    TransformNode { name, kind, config, targets: Targets::All, before: Passed::default() };
                self.operator(pipeline, node, within, |planner, segment| {
                    let each = names.iter().enumerate();
                    let each = each.map(|(at, name)| {
                        (Output::Named(at), planner.lead_to(pipeline, name, Some(segment)))
                    });
                    each.collect()
                })
            }
            (None, To::Failover(_, timeout)) if names.len() > 1 => self.failover(pipeline, names, *timeout),
            (None, _) => names.iter().flat_map(|name| self.lead_to(pipeline, name, within)).collect(),
        };
        let onward = self.graph.fed_by(&Feed::Pipeline(pipeline.name.clone()));
        targets.extend(onward.into_iter().flat_map(|next| self.enter(next, within)));
        targets
    }

    /// Plans the end of a pipeline that carries files with a problem: these leave by `errors` there.
    fn part(&mut self, pipeline: &Pipeline, within: Option<usize>) -> Vec<Target> {
        let name = format!("{}.errors", pipeline.name).into();
        let before = Passed::of(&pipeline.transforms);
        let node =
            TransformNode { name, kind: "errors", config: Step::Marker, targets: Targets::All, before };
        self.operator(pipeline, node, within, |planner, segment| {
            let errors = planner.errors(&pipeline.name).into_iter().map(Target::Stage).collect();
            let main = planner.end(pipeline, Some(segment), true);
            BTreeMap::from([(Output::Main, main), (Output::Errors, errors)])
        })
    }

    fn failover(
        &mut self,
        pipeline: &Pipeline,
        names: &[Arc<str>],
        timeout: Option<Duration>,
    ) -> Vec<Target> {
        let number = self.failovers.len();
        let name = format!("{}.failover", pipeline.name).into();
        self.failovers.push(FailoverStage { name, ways: Vec::new(), timeout });
        for name in names {
            let targets = self.lead_to(pipeline, name, None);
            let stages = targets.into_iter().filter_map(Target::stage).collect();
            self.failovers[number].ways.push((name.clone(), stages));
        }
        vec![Target::Stage(Destination::Failover(number))]
    }

    /// Returns the targets of a batch that the `to` of a pipeline sends to a sink or another pipeline.
    fn lead_to(&mut self, pipeline: &Pipeline, name: &str, within: Option<usize>) -> Vec<Target> {
        let Some(sink) = self.sink(name) else {
            let next = self.graph.pipelines.iter().position(|pipeline| &*pipeline.name == name);
            return next.map(|next| self.enter(next, within)).unwrap_or_default();
        };
        if self.flows.at_end(pipeline) == Flow::Files {
            return self.file_sink(pipeline, sink, within);
        }
        let there = vec![Target::Stage(Destination::Sink(self.sink_stage(sink)))];
        let Some(node) = self.encoder(sink) else { return there };
        let name = self.graph.sinks[sink].name.clone();
        self.operator(pipeline, node, within, |planner, _| {
            let errors = planner.errors(&name).into_iter().map(Target::Stage).collect();
            BTreeMap::from([(Output::Main, there), (Output::Errors, errors)])
        })
    }
}

impl Planner<'_> {
    /// Adds a sink of files, as the last operator of a segment.
    fn file_sink(&mut self, pipeline: &Pipeline, sink: usize, within: Option<usize>) -> Vec<Target> {
        let SinkNode { name, kind, config, .. } = self.graph.sinks[sink].clone();
        let Some(FileSink(config)) = config.files() else { return Vec::new() };
        let config = Step::Files(config);
        let targets = Targets::All;
        let node = TransformNode { name: name.clone(), kind, config, targets, before: Passed::default() };
        let targets = self.operator(pipeline, node, within, |planner, _| {
            let errors = planner.errors(&name).into_iter().map(Target::Stage).collect();
            BTreeMap::from([(Output::Errors, errors)])
        });
        let operators = self.segments.iter_mut().flat_map(|segment| &mut segment.operators);
        for operator in operators.filter(|operator| operator.node.name == name) {
            (operator.delivers, operator.on_error) = (true, OnError::Divert);
        }
        targets
    }
}

impl Plan {
    /// True if this is the name of the source or of the sink of a disk buffer.
    pub(crate) fn is_of_buffer(&self, name: &str) -> bool {
        self.buffers.iter().any(|buffer| *buffer.reader == *name || *buffer.writer == *name)
    }

    /// Returns the most messages of a batch that goes to these stages. None if there is no such limit.
    pub(crate) fn rows_to(&self, to: impl IntoIterator<Item = Destination>) -> Option<usize> {
        to.into_iter().filter_map(|to| self.pace.rows_to(to)).min()
    }

    /// True if the stage receives each file in a parcel of its own.
    pub(crate) fn takes_singly(&self, to: Destination) -> bool {
        match to {
            Destination::Segment(number) => self.segments[number].takes_singly(),
            Destination::Sink(_) | Destination::Failover(_) | Destination::DeadLetters => false,
        }
    }
}
