//! The names and edges of a graph in maps, for checks that look one up for each pipeline.
//!
//! (Rejected: maps in the graph itself. Its lists are public, and the maps would have to follow each change.)

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use crate::component::{Flow, Step};
use crate::graph::{Feed, Graph, Pipeline, SinkNode, SourceNode, To};

/// The named outputs of pipelines. (Rejected: a search in the outputs of the pipeline for each feed. A
/// pipeline with thousands of outputs has as many feeds.)
pub(crate) struct Labels(Vec<HashMap<String, usize>>);

impl Labels {
    pub(crate) fn of(graph: &Graph) -> Self {
        let labels = |pipeline: &Pipeline| {
            let mut steps = HashMap::new();
            for (at, _, label) in pipeline.outputs() {
                steps.entry(label).or_insert(at);
            }
            steps
        };
        Self(graph.pipelines.iter().map(labels).collect())
    }

    /// Returns the number of the first transform that has this output, of the pipeline with this number.
    pub(crate) fn step(&self, pipeline: usize, label: &str) -> Option<usize> {
        self.0.get(pipeline)?.get(label).copied()
    }
}

/// The names and edges of a graph that does not change.
pub(crate) struct Index<'g> {
    pub(crate) graph: &'g Graph,
    sources: HashMap<&'g str, &'g SourceNode>,
    pipelines: HashMap<&'g str, usize>,
    sinks: HashMap<&'g str, &'g SinkNode>,
    /// The numbers of the pipelines that a feed leads to.
    fed: HashMap<&'g Feed, Vec<usize>>,
    /// The numbers of the pipelines that any feed of a component leads to.
    below: HashMap<&'g str, Vec<usize>>,
    /// The numbers of the pipelines whose `to` has this name.
    leading: HashMap<&'g str, Vec<usize>>,
    labels: Labels,
}

impl<'g> Index<'g> {
    pub(crate) fn new(graph: &'g Graph) -> Self {
        let mut index = Self {
            graph,
            sources: graph.sources.iter().map(|source| (&*source.name, source)).collect(),
            pipelines: graph.pipelines.iter().enumerate().map(|(at, node)| (&*node.name, at)).collect(),
            sinks: graph.sinks.iter().map(|sink| (&*sink.name, sink)).collect(),
            fed: HashMap::new(),
            below: HashMap::new(),
            leading: HashMap::new(),
            labels: Labels::of(graph),
        };
        for (at, pipeline) in graph.pipelines.iter().enumerate() {
            for feed in &pipeline.from {
                note(index.fed.entry(feed).or_default(), at);
                let (Feed::Source(name)
                | Feed::Pipeline(name)
                | Feed::Chosen(name)
                | Feed::Named(name, _)
                | Feed::Errors(name)) = feed;
                note(index.below.entry(name).or_default(), at);
            }
            for name in pipeline.to.names() {
                note(index.leading.entry(name).or_default(), at);
            }
        }
        index
    }

    /// Returns the source of this name.
    pub(crate) fn source(&self, name: &str) -> Option<&'g SourceNode> {
        self.sources.get(name).copied()
    }

    /// Returns the pipeline of this name.
    pub(crate) fn pipeline(&self, name: &str) -> Option<&'g Pipeline> {
        self.graph.pipelines.get(self.number(name)?)
    }

    /// Returns the number of the pipeline of this name.
    pub(crate) fn number(&self, name: &str) -> Option<usize> {
        self.pipelines.get(name).copied()
    }

    /// Returns the number of the first transform of a pipeline that has this output.
    pub(crate) fn step_of(&self, pipeline: &str, label: &str) -> Option<usize> {
        self.labels.step(self.number(pipeline)?, label)
    }

    /// Returns the sink of this name.
    pub(crate) fn sink(&self, name: &str) -> Option<&'g SinkNode> {
        self.sinks.get(name).copied()
    }

    /// Returns the numbers of the pipelines that a feed leads to.
    pub(crate) fn fed_by(&self, feed: &Feed) -> &[usize] {
        self.fed.get(feed).map(Vec::as_slice).unwrap_or_default()
    }

    /// Returns the numbers of the pipelines whose `to` has this name.
    pub(crate) fn leading_to(&self, name: &str) -> &[usize] {
        self.leading.get(name).map(Vec::as_slice).unwrap_or_default()
    }

    /// Returns the numbers of the pipelines that are fed by a component: by its output or its errors.
    pub(crate) fn below(&self, name: &str) -> &[usize] {
        self.below.get(name).map(Vec::as_slice).unwrap_or_default()
    }

    /// Resolves pipelines that depend on those that feed them: until nothing changes, `resolve` is called for
    /// each, and again when one before it was resolved. It returns true once the pipeline is resolved.
    ///
    /// Pipelines come in the order of the graph, round by round. (Rejected: all of them in each round. A
    /// chain in reverse order took a round for each.)
    pub(crate) fn settle(&self, mut resolve: impl FnMut(&'g Pipeline) -> bool) {
        let mut open: BTreeSet<usize> = (0..self.graph.pipelines.len()).collect();
        let mut round = open.clone();
        while !round.is_empty() {
            let mut next = BTreeSet::new();
            while let Some(at) = round.pop_first() {
                let pipeline = &self.graph.pipelines[at];
                if !open.contains(&at) || !resolve(pipeline) {
                    continue;
                }
                open.remove(&at);
                // The errors of a sink carry what leads to the sink.
                let ends = pipeline.to.names().iter().filter(|name| self.number(name).is_none());
                let after = ends.chain([&pipeline.name]).flat_map(|name| self.below(name));
                for &after in after.filter(|after| open.contains(*after)) {
                    let turn = if after > at { &mut round } else { &mut next };
                    turn.insert(after);
                }
            }
            round = next;
        }
    }

    /// True if what a source sends, or what is made of it, may reach this sink.
    pub(crate) fn reaches(&self, source: &str, sink: &Arc<str>) -> bool {
        let (mut open, mut seen) = (vec![source], HashSet::new());
        while let Some(name) = open.pop() {
            for &at in self.below(name) {
                let pipeline = &self.graph.pipelines[at];
                if pipeline.to.names().contains(sink) {
                    return true;
                }
                if seen.insert(at) {
                    open.push(&pipeline.name);
                }
            }
        }
        false
    }

    /// Returns the sinks and pipelines that an output leads to, if more than one of them gets each file.
    pub(crate) fn copies_of(&self, feed: &Feed) -> Vec<Arc<str>> {
        let fed = self.fed_by(feed).iter();
        let mut names: Vec<Arc<str>> = fed.map(|&at| self.graph.pipelines[at].name.clone()).collect();
        let to = match feed {
            Feed::Pipeline(name) => self.pipeline(name).map(|pipeline| &pipeline.to),
            _ => None,
        };
        let copies = match to {
            Some(To::All(to)) => to.len(),
            Some(_) => 1,
            None => 0,
        };
        if names.len() + copies < 2 {
            return Vec::new();
        }
        names.extend(to.into_iter().flat_map(To::names).cloned());
        names
    }

    /// Returns the name of a transform or sink that removes the files that enter this sink or pipeline.
    /// Messages that are made of them, and files that are made of messages, are not followed.
    pub(crate) fn removal(&self, name: &Arc<str>) -> Option<Arc<str>> {
        let (mut open, mut seen) = (vec![name], HashSet::new());
        while let Some(name) = open.pop() {
            if !seen.insert(name) {
                continue;
            }
            let files = self.sink(name).and_then(|sink| sink.config.files());
            if files.is_some_and(|files| files.0.removes_input()) {
                return Some(name.clone());
            }
            if let Some(pipeline) = self.pipeline(name) {
                let of_files = |step: &Step| step.takes() == Flow::Files && step.gives() == Flow::Files;
                let end = pipeline.transforms.iter().position(|transform| !of_files(&transform.config));
                let mut reached = pipeline.transforms.iter().take(end.unwrap_or(usize::MAX));
                if let Some(transform) = reached.find(|transform| transform.config.removes_input()) {
                    return Some(transform.name.clone());
                }
                if end.is_none() {
                    let fed = self.fed_by(&Feed::Pipeline(name.clone())).iter();
                    open.extend(fed.map(|&at| &self.graph.pipelines[at].name));
                    open.extend(pipeline.to.names());
                }
            }
        }
        None
    }
}

/// Adds a pipeline to those of a name, once. Pipelines come in their order.
fn note(numbers: &mut Vec<usize>, at: usize) {
    if numbers.last() != Some(&at) {
        numbers.push(at);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use super::*;
    use crate::component::{Context, Transform, TransformConfig};
    use crate::error::Error;
    use crate::graph::{Passed, Targets, TransformNode};
    use crate::settings::{OnError, Settings};

    /// A transform with these outputs. It counts how often they are listed.
    struct Outlets(Vec<String>, AtomicUsize);

    impl TransformConfig for Outlets {
        fn outputs(&self) -> Vec<String> {
            self.1.fetch_add(1, Relaxed);
            self.0.clone()
        }

        fn build(&self, _: &Context) -> Result<Box<dyn Transform>, Error> {
            Err(Error::permanent("it is never built"))
        }
    }

    fn pipeline(number: usize, from: Feed) -> Pipeline {
        Pipeline {
            name: format!("p{number}").into(),
            from: vec![from],
            transforms: Vec::new(),
            to: To::All(Vec::new()),
            ordered: None,
            on_error: OnError::default(),
            concurrency: None,
            buffer: None,
        }
    }

    fn graph(pipelines: Vec<Pipeline>) -> Graph {
        let Settings { memory, state, dead_letters, buffers, temporary, unknown_fields, schedule } =
            Settings::default();
        Graph {
            memory,
            state,
            dead_letters,
            buffers,
            temporary,
            unknown_fields,
            schedule,
            sources: Vec::new(),
            pipelines,
            sinks: Vec::new(),
        }
    }

    #[test]
    fn a_chain_in_any_order_is_resolved_with_one_more_call_for_each_pipeline() {
        const COUNT: usize = 2000;
        let feed = |number: usize| match number {
            0 => Feed::Source("in".into()),
            _ => Feed::Pipeline(format!("p{}", number - 1).into()),
        };
        // 7 has no common divisor with 2000.
        for order in [|at: usize| at, |at: usize| COUNT - 1 - at, |at: usize| at * 7 % COUNT] {
            let graph = graph((0..COUNT).map(order).map(|number| pipeline(number, feed(number))).collect());
            let index = Index::new(&graph);
            let (mut calls, mut resolved) = (0, HashSet::new());
            index.settle(|pipeline| {
                calls += 1;
                let is_next = match &pipeline.from[0] {
                    Feed::Pipeline(before) => resolved.contains(before),
                    _ => true,
                };
                is_next && resolved.insert(pipeline.name.clone())
            });
            assert_eq!(resolved.len(), COUNT);
            assert!(calls < 2 * COUNT, "{calls} calls");
        }
    }

    #[test]
    fn edges_are_found_by_both_of_their_ends() {
        let mut end = pipeline(2, Feed::Errors("out".into()));
        end.from.push(Feed::Named("p0".into(), "a".to_owned()));
        let mut middle = pipeline(1, Feed::Pipeline("p0".into()));
        middle.to = To::All(vec!["out".into()]);
        let graph = graph(vec![pipeline(0, Feed::Source("in".into())), middle, end]);
        let index = Index::new(&graph);
        assert_eq!(index.fed_by(&Feed::Pipeline("p0".into())), [1]);
        assert_eq!(index.fed_by(&Feed::Pipeline("p1".into())), [0; 0]);
        assert_eq!((index.below("p0"), index.leading_to("out")), (&[1, 2][..], &[1][..]));
        assert!(index.reaches("in", &"out".into()) && !index.reaches("p2", &"out".into()));
    }

    #[test]
    fn the_step_of_an_output_is_found_without_listing_the_outputs_again() {
        let step = |labels: &[&str]| {
            Arc::new(Outlets(labels.iter().map(|&label| label.into()).collect(), AtomicUsize::new(0)))
        };
        let steps = [step(&["a", "b"]), step(&[]), step(&["b", "c"])];
        let node = |step: &Arc<Outlets>| TransformNode {
            name: "p0.outlets".into(),
            kind: "outlets",
            config: Step::Messages(step.clone()),
            targets: Targets::default(),
            before: Passed::default(),
        };
        let mut of_steps = pipeline(0, Feed::Source("in".into()));
        of_steps.transforms = steps.iter().map(node).collect();
        let graph = graph(vec![of_steps]);
        let index = Index::new(&graph);
        let found = ["a", "b", "c", "d"].map(|label| index.step_of("p0", label));
        assert_eq!(found, [Some(0), Some(0), Some(2), None]);
        assert_eq!(index.step_of("p1", "a"), None);
        assert_eq!(steps.map(|step| step.1.load(Relaxed)), [1, 1, 1]);
    }
}
