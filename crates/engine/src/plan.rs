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

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use thalweg_config::ByteSize;

use crate::component::{BuildTransform, InFlight};
use crate::graph::{Feed, Graph, Pipeline, SinkNode, SourceNode, To, TransformNode};
use crate::outlets::Output;
use crate::read::LetterBounds;
use crate::router::{Router, Way};

/// Where a channel leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Destination {
    /// To the segment of this number.
    Segment(usize),
    /// To the sink of this number.
    Sink(usize),
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
    /// Whether the user says how many. Otherwise fewer run while more would only be in each other's way.
    pub is_fixed: bool,
    /// Whether its results are put back into the order of its input.
    pub ordered: bool,
    sequential: bool,
}

/// A sink and what belongs to it.
pub struct SinkStage {
    /// The sink.
    pub node: SinkNode,
    /// Its encoding, where that cannot be done by the segments before: in a failover, each sink has its own.
    pub encoder: Option<TransformNode>,
    /// The sink that takes over when this one fails.
    pub fallback: Option<usize>,
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
    pub dead_letters: LetterBounds,
    /// The sources.
    pub sources: Vec<SourceStage>,
    /// The segments.
    pub segments: Vec<Segment>,
    /// The sinks.
    pub sinks: Vec<SinkStage>,
}

/// Larger batches cost cache misses, smaller ones cost hand-overs; measured on lines of 100 to 300 bytes.
const BATCH_BYTES: usize = 1 << 20;
const LEAST_BATCH_BYTES: usize = 16 << 10;

impl Plan {
    /// Plans a graph for so many cores.
    pub fn new(graph: &Graph, cores: usize) -> Self {
        let mut planner = Planner { graph, cores, segments: Vec::new(), entries: BTreeMap::new() };
        let mut sinks: Vec<SinkStage> = graph
            .sinks
            .iter()
            .map(|node| {
                let errors = planner.errors(&node.name);
                SinkStage { node: node.clone(), encoder: None, fallback: None, errors }
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
        // Pipelines that only errors of sinks lead to were planned on the way; failovers are between sinks.
        for pipeline in &graph.pipelines {
            if let To::Failover(names) = &pipeline.to {
                let numbers: Vec<usize> = names.iter().filter_map(|name| planner.sink(name)).collect();
                for (at, &number) in numbers.iter().enumerate() {
                    sinks[number].encoder = planner.encoder(number);
                    sinks[number].fallback = numbers.get(at + 1).copied();
                }
            }
        }
        Self {
            cores,
            memory: graph.memory,
            batch_bytes: (graph.memory.as_usize() / 32).clamp(LEAST_BATCH_BYTES, BATCH_BYTES),
            dead_letters: graph.dead_letters,
            sources,
            segments: planner.segments,
            sinks,
        }
    }
}

struct Planner<'g> {
    graph: &'g Graph,
    cores: usize,
    segments: Vec<Segment>,
    /// Where pipelines with a channel of their own begin.
    entries: BTreeMap<usize, Vec<Target>>,
}

impl Planner<'_> {
    fn sink(&self, name: &str) -> Option<usize> {
        self.graph.sinks.iter().position(|sink| &*sink.name == name)
    }

    fn encoder(&self, sink: usize) -> Option<TransformNode> {
        let node = &self.graph.sinks[sink];
        let config: Arc<dyn BuildTransform> = node.config.encoder()?.into();
        let name = format!("{}.encode", node.name).into();
        Some(TransformNode { name, kind: config.kind(), config, before: Arc::default() })
    }

    /// The stages that a feed outside of segments leads to.
    fn stages(&mut self, feed: &Feed) -> Vec<Destination> {
        let pipelines = self.graph.fed_by(feed);
        let targets: Vec<Target> =
            pipelines.into_iter().flat_map(|pipeline| self.enter(pipeline, None)).collect();
        let stages = targets.into_iter().filter_map(|target| match target {
            Target::Stage(stage) => Some(stage),
            Target::Operator(_) => None,
        });
        stages.collect()
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
            pipeline.from.len() == 1 && copies && pipeline.ordered == segment.ordered
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
    fn segment(&mut self, pipeline: &Pipeline, sequential: bool, within: Option<usize>) -> (usize, bool) {
        match within {
            Some(segment) if self.segments[segment].sequential == sequential => (segment, false),
            _ => {
                let copies = if sequential { 1 } else { pipeline.concurrency.unwrap_or(self.cores) };
                let is_fixed = !sequential && pipeline.concurrency.is_some();
                self.segments.push(Segment {
                    name: pipeline.name.clone(),
                    operators: Vec::new(),
                    copies: copies.max(1),
                    is_fixed,
                    ordered: pipeline.ordered,
                    sequential,
                });
                (self.segments.len() - 1, true)
            }
        }
    }

    /// Puts an operator into a segment; `outputs` plans where it leads. Gives where a batch for it goes.
    fn operator(
        &mut self,
        pipeline: &Pipeline,
        node: TransformNode,
        within: Option<usize>,
        outputs: impl FnOnce(&mut Self, usize) -> BTreeMap<Output, Vec<Target>>,
    ) -> Vec<Target> {
        let (segment, is_new) = self.segment(pipeline, node.config.is_sequential(), within);
        let number = self.segments[segment].operators.len();
        self.segments[segment].operators.push(Operator { node, outputs: BTreeMap::new() });
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
        let Some(node) = pipeline.transforms.get(at) else { return self.end(pipeline, within) };
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
    fn end(&mut self, pipeline: &Pipeline, within: Option<usize>) -> Vec<Target> {
        let numbers: Vec<usize> = pipeline.to.sinks().iter().filter_map(|name| self.sink(name)).collect();
        let way = match &pipeline.to {
            _ if numbers.len() < 2 => None,
            To::All(_) | To::Failover(_) => None,
            To::RoundRobin(_) => Some(Way::RoundRobin),
            To::Random(_) => Some(Way::Random),
            To::ByKey(key, _) => Some(Way::ByKey(key.clone())),
        };
        let mut targets = match (way, &pipeline.to) {
            (Some(way), _) => {
                let config = Router::new(way, numbers.len());
                let kind = config.kind();
                let name = format!("{}.{kind}", pipeline.name).into();
                let node = TransformNode { name, kind, config: Arc::new(config), before: Arc::default() };
                self.operator(pipeline, node, within, |planner, segment| {
                    let each = numbers.iter().enumerate().map(|(at, &sink)| {
                        (Output::Named(at), planner.lead_to(pipeline, sink, Some(segment)))
                    });
                    each.collect()
                })
            }
            (None, To::Failover(_)) => {
                numbers.first().map(|&sink| Target::Stage(Destination::Sink(sink))).into_iter().collect()
            }
            (None, _) => numbers.into_iter().flat_map(|sink| self.lead_to(pipeline, sink, within)).collect(),
        };
        let onward = self.graph.fed_by(&Feed::Pipeline(pipeline.name.clone()));
        targets.extend(onward.into_iter().flat_map(|next| self.enter(next, within)));
        targets
    }

    fn lead_to(&mut self, pipeline: &Pipeline, sink: usize, within: Option<usize>) -> Vec<Target> {
        let there = vec![Target::Stage(Destination::Sink(sink))];
        let Some(node) = self.encoder(sink) else { return there };
        let name = self.graph.sinks[sink].name.clone();
        self.operator(pipeline, node, within, |planner, _| {
            let errors = planner.errors(&name).into_iter().map(Target::Stage).collect();
            BTreeMap::from([(Output::Main, there), (Output::Errors, errors)])
        })
    }
}

impl Plan {
    fn name_of(&self, destination: Destination) -> String {
        match destination {
            Destination::Segment(number) => format!("segment {}", number + 1),
            Destination::Sink(number) => self.sinks[number].node.name.to_string(),
            Destination::DeadLetters => "dead letters".to_owned(),
        }
    }

    fn names_of(&self, destinations: impl IntoIterator<Item = Destination>) -> String {
        let mut names: Vec<String> = Vec::new();
        for destination in destinations {
            let name = self.name_of(destination);
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names.join(", ")
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cores = if self.cores == 1 { "1 core".to_owned() } else { format!("{} cores", self.cores) };
        let batch = ByteSize(self.batch_bytes as u64);
        writeln!(f, "  {cores}, {} of memory, batches of about {batch}", self.memory)?;
        for source in &self.sources {
            let to = self.names_of(source.main.iter().copied());
            writeln!(f, "  source     {} ({}) → {to}", source.node.name, source.node.kind)?;
        }
        for (number, segment) in self.segments.iter().enumerate() {
            let copies = match (segment.copies, segment.is_fixed) {
                (1, false) => "1 copy".to_owned(),
                (1, true) => "1 copy, as configured".to_owned(),
                (copies, false) => format!("adaptive 1 to {copies} copies"),
                (copies, true) => format!("{copies} copies, as configured"),
            };
            let order = match (segment.copies, segment.ordered) {
                (1, _) => "",
                (_, true) => ", in order",
                (_, false) => ", in any order",
            };
            let names: Vec<&str> = segment.operators.iter().map(|operator| &*operator.node.name).collect();
            let exits = segment.operators.iter().flat_map(|operator| operator.outputs.iter());
            let exits = exits.filter(|(output, _)| **output != Output::Errors);
            let exits = exits.flat_map(|(_, targets)| targets.iter()).filter_map(|target| match target {
                Target::Stage(stage) => Some(*stage),
                Target::Operator(_) => None,
            });
            let to = self.names_of(exits);
            writeln!(f, "  segment {}  {copies}{order} → {to}", number + 1)?;
            writeln!(f, "             {}", names.join(" · "))?;
        }
        for sink in &self.sinks {
            write!(f, "  sink       {} ({})", sink.node.name, sink.node.kind)?;
            match sink.node.config.in_flight() {
                InFlight::One => {}
                InFlight::Adaptive(most) => write!(f, ", adaptive 1 to {most} requests")?,
                InFlight::Fixed(most) => write!(f, ", {most} requests, as configured")?,
            }
            match sink.fallback {
                Some(next) => writeln!(f, ", else {}", self.sinks[next].node.name)?,
                None => writeln!(f)?,
            }
        }
        Ok(())
    }
}
