//! How a graph will run: which transforms are fused into one call, where a channel stands, how many copies.
//!
//! Neighbouring transforms become one *segment*: a batch goes through all of them in one call, on one core,
//! and the segment is copied, one a core. Pipelines that take from one output of another are part of its
//! segment too, and so is the encoding of what a sink will write. A channel stands only where rates must
//! differ (after a source, before a sink), where several outputs meet, and around transforms that must see
//! the batches in order, which run as one copy.
//!
//! `errors` always lead through a channel: they are rare, and every transform has them, so fusing their
//! pipeline into each place would copy it without end.

mod shown;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use thalweg_config::ByteSize;

use crate::component::{Cost, FileReaderConfig, FileSink, Flow, Step};
use crate::flow::Flows;
use crate::graph::{Feed, Graph, OnError, Pipeline, SinkNode, SourceNode, Targets, To, TransformNode};
use crate::read::DeadLetterLimits;
use crate::router::{Router, Way};
use thalweg_record::Output;

/// Where a channel leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Destination {
    /// To the segment of this number.
    Segment(usize),
    /// To the sink of this number.
    Sink(usize),
    /// To the failover of this number.
    Failover(usize),
    /// To the store of what could not be processed.
    DeadLetters,
}

/// Where an output leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// To an operator of the same segment: by a call.
    Operator(usize),
    /// To another stage: by its channel.
    Stage(Destination),
}

impl Target {
    /// The stage, if it is one.
    pub fn stage(self) -> Option<Destination> {
        match self {
            Target::Stage(stage) => Some(stage),
            Target::Operator(_) => None,
        }
    }
}

/// A source and where it leads.
pub struct SourceStage {
    /// The source.
    pub node: SourceNode,
    /// Where what it reads goes: a copy to each.
    pub main: Vec<Destination>,
    /// Where what it rejects goes.
    pub errors: Vec<Destination>,
}

/// A transform within a segment, and where its outputs lead.
pub struct Operator {
    /// The transform.
    pub node: TransformNode,
    /// What becomes of files that it rejects.
    pub on_error: OnError,
    /// Whether it is a sink of files: what went through it is delivered.
    pub delivers: bool,
    /// For each output, where it leads: a copy to each.
    pub outputs: BTreeMap<Output, Arc<[Target]>>,
}

/// Transforms that run in one call.
pub struct Segment {
    /// The pipeline that it begins in.
    pub name: Arc<str>,
    /// Its operators; the first takes the input.
    pub operators: Vec<Operator>,
    /// How many copies run at once, at most.
    pub copies: usize,
    /// Whether the user, or its first operator, says how many. Otherwise fewer run while more would only be in each other's way.
    pub is_fixed: bool,
    /// Whether its results are put back into the order of its input.
    pub ordered: bool,
    /// What it takes.
    pub takes: Flow,
    /// What the dearest of its operators takes for an item.
    pub cost: Cost,
    sequential: bool,
}

impl Segment {
    /// Whether operators of this sort can be in it.
    fn is_like(&self, takes: Flow, sequential: bool) -> bool {
        self.takes == takes && self.sequential == sequential && self.unpack().is_none()
    }

    /// Its operator, if it is one that reads messages out of files.
    pub fn unpack(&self) -> Option<(&Operator, &Arc<dyn FileReaderConfig>)> {
        let operator = self.operators.first()?;
        match &operator.node.config {
            Step::FileReader(config) => Some((operator, config)),
            Step::Messages(_) | Step::Waits(_) | Step::Files(_) | Step::Marker => None,
        }
    }

    /// Whether its first operator says how many copies there are.
    fn says_copies(&self) -> bool {
        self.operators.first().is_some_and(|operator| operator.node.config.copies().is_some())
    }

    /// Whether it takes each file by itself.
    pub fn takes_singly(&self) -> bool {
        self.takes == Flow::Files && self.cost > Cost::Small
    }
}

/// Where what one cannot deliver goes to another.
pub struct FailoverStage {
    /// `pipeline.failover`.
    pub name: Arc<str>,
    /// The ways in the order of preference: a sink's or a pipeline's name, and the stages that it begins with.
    pub ways: Vec<(Arc<str>, Vec<Destination>)>,
    /// How long to wait for room, if not for ever.
    pub timeout: Option<Duration>,
}

/// A sink and what belongs to it.
pub struct SinkStage {
    /// The sink.
    pub node: SinkNode,
    /// Whether a failover leads to it that has another way.
    pub is_dispensable: bool,
    /// Where what it rejects goes.
    pub errors: Vec<Destination>,
}

/// How a graph will run. Printed, it shows the stages.
pub struct Plan {
    /// Cores to use.
    pub cores: usize,
    /// The budget.
    pub memory: ByteSize,
    /// About how many bytes of payload a batch has.
    pub batch_bytes: usize,
    /// How many dead letters are kept.
    pub dead_letters: DeadLetterLimits,
    /// Where temporary files are made, if not in the system's folder for them.
    pub temporary: Option<PathBuf>,
    /// The sources.
    pub sources: Vec<SourceStage>,
    /// The segments.
    pub segments: Vec<Segment>,
    /// The failovers.
    pub failovers: Vec<FailoverStage>,
    /// The sinks.
    pub sinks: Vec<SinkStage>,
}

/// Larger batches cost cache misses, smaller ones cost hand-overs; measured on lines of 100 to 300 bytes.
const BATCH_BYTES: usize = 1 << 20;
const LEAST_BATCH_BYTES: usize = 16 << 10;
/// How many files may wait at once in transforms that wait for something else than this machine.
const MOST_WAITING: usize = 16;

impl Plan {
    /// Plans a graph for so many cores.
    pub fn new(graph: &Graph, cores: usize) -> Self {
        let mut planner = Planner {
            graph,
            flows: Flows::of(graph),
            cores,
            segments: Vec::new(),
            failovers: Vec::new(),
            entries: BTreeMap::new(),
        };
        let dispensable = dispensable(graph);
        let written: Vec<&SinkNode> =
            graph.sinks.iter().filter(|node| planner.flows.reach(graph, node)).collect();
        let sinks = written
            .into_iter()
            .map(|node| {
                let errors = planner.errors(&node.name);
                SinkStage { node: node.clone(), is_dispensable: dispensable.contains(&node.name), errors }
            })
            .collect();
        let sources = graph
            .sources
            .iter()
            .map(|node| SourceStage {
                node: node.clone(),
                main: planner.stages(&Feed::Source(node.name.clone())),
                errors: planner.errors(&node.name),
            })
            .collect();
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
        }
    }
}

/// The sinks that something leads to for which a failover has another way.
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
    /// Where pipelines with a channel of their own begin.
    entries: BTreeMap<usize, Vec<Target>>,
}

impl Planner<'_> {
    fn sink(&self, name: &str) -> Option<usize> {
        self.graph.sinks.iter().position(|sink| &*sink.name == name)
    }

    /// The number of a sink among those that have a stage: those that take messages.
    fn sink_stage(&self, sink: usize) -> usize {
        self.graph.sinks[..sink].iter().filter(|node| self.flows.reach(self.graph, node)).count()
    }

    fn encoder(&self, sink: usize) -> Option<TransformNode> {
        let node = &self.graph.sinks[sink];
        let config = Step::Messages(node.config.encoder()?.into());
        let name = format!("{}.encode", node.name).into();
        Some(TransformNode { name, kind: "encode", config, targets: Targets::All, before: Arc::default() })
    }

    /// The stages that a feed outside of segments leads to.
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

    /// Where a batch enters a pipeline, coming from within a segment or from outside.
    fn enter(&mut self, number: usize, within: Option<usize>) -> Vec<Target> {
        let pipeline = &self.graph.pipelines[number];
        let alike = within.filter(|&segment| {
            let segment = &self.segments[segment];
            let copies = pipeline.concurrency.is_none_or(|copies| copies == segment.copies);
            let ordered = pipeline.is_ordered(self.flows.entering(pipeline));
            pipeline.from.len() == 1 && copies && ordered == segment.ordered
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

    /// The segment to put an operator into: the given one if it is of the right sort, else a new one.
    fn segment(&mut self, pipeline: &Pipeline, step: &Step, within: Option<usize>) -> (usize, bool) {
        let (takes, sequential) = (step.takes(), step.is_sequential());
        let is_apart = matches!(step, Step::FileReader(_));
        let said = step.copies().map(|copies| copies.max(1));
        let number = match within {
            Some(segment) if !step.is_first() && self.segments[segment].is_like(takes, sequential) => segment,
            _ => {
                self.segments.push(Segment {
                    name: pipeline.name.clone(),
                    operators: Vec::new(),
                    copies: said.unwrap_or(1),
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
        if said.is_some() || segment.says_copies() {
            return (number, segment.operators.is_empty());
        }
        segment.copies = match segment.cost {
            _ if sequential || is_apart && segment.ordered => 1,
            Cost::Alone => 1,
            Cost::Waits => pipeline.concurrency.unwrap_or(cores.max(MOST_WAITING)),
            Cost::Small | Cost::Core => pipeline.concurrency.unwrap_or(cores),
        };
        segment.copies = segment.copies.max(1);
        segment.is_fixed = !sequential && pipeline.concurrency.is_some();
        (number, segment.operators.is_empty())
    }

    /// Puts an operator into a segment; `outputs` plans where it leads. Gives where a batch for it goes.
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
            // What has a problem here came with it from elsewhere, by `errors`.
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

    /// Where a batch goes that stands before the transform `at` of a pipeline.
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

    /// Where a batch goes at the end of a pipeline.
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
                    TransformNode { name, kind, config, targets: Targets::All, before: Arc::default() };
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

    /// The end of a pipeline that carries files with a problem: these leave by `errors` there.
    fn part(&mut self, pipeline: &Pipeline, within: Option<usize>) -> Vec<Target> {
        let name = format!("{}.errors", pipeline.name).into();
        let before = pipeline.transforms.iter().map(|node| node.name.clone()).collect();
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

    /// Where a batch goes that a pipeline's `to` gives to a sink or another pipeline.
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
    /// A sink of files is the last operator of a segment.
    fn file_sink(&mut self, pipeline: &Pipeline, sink: usize, within: Option<usize>) -> Vec<Target> {
        let SinkNode { name, kind, config } = self.graph.sinks[sink].clone();
        let Some(FileSink(config)) = config.files() else { return Vec::new() };
        let config = Step::Files(config);
        let targets = Targets::All;
        let node = TransformNode { name: name.clone(), kind, config, targets, before: Arc::default() };
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
    /// Whether what a channel leads to takes each file by itself.
    pub(crate) fn takes_singly(&self, to: Destination) -> bool {
        match to {
            Destination::Segment(number) => self.segments[number].takes_singly(),
            Destination::Sink(_) | Destination::Failover(_) | Destination::DeadLetters => false,
        }
    }
}
