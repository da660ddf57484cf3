//! The sources whose positions are moved by the transactions of a sink.
//!
//! See docs/decisions/093-offsets-are-committed-in-transactions.md.

use std::collections::HashSet;
use std::sync::Arc;

use crate::graph::{Graph, SinkNode, SourceNode};
use crate::index::Index;

/// A source, and the sink whose transactions move its positions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) source: Arc<str>,
    pub(crate) sink: Arc<str>,
}

impl Pair {
    /// Returns the pairs of a graph: sources and sinks of the same system, of which one leads to the other.
    pub(crate) fn of(graph: &Graph) -> Vec<Self> {
        let places: Vec<_> =
            graph.sinks.iter().filter_map(|sink| Some((sink, sink.config.transaction_place()?))).collect();
        if places.is_empty() {
            return Vec::new();
        }
        let index = Index::new(graph);
        let mut pairs = Vec::new();
        for source in &graph.sources {
            let Some(place) = source.config.positions_place() else { continue };
            let reached = Reached::from(&index, &source.name);
            let found = places.iter().filter(|(sink, of_sink)| of_sink.is(&place) && reached.has(sink));
            pairs
                .extend(found.map(|(sink, _)| Self { source: source.name.clone(), sink: sink.name.clone() }));
        }
        pairs
    }
}

/// The pipelines and sinks that the messages of a source may reach, also by the errors of sinks.
pub(crate) struct Reached<'g> {
    /// The numbers of the pipelines.
    pub(crate) pipelines: Vec<usize>,
    /// The sinks, in the order in which they are reached.
    pub(crate) sinks: Vec<&'g Arc<str>>,
}

impl<'g> Reached<'g> {
    pub(crate) fn from(index: &Index<'g>, source: &str) -> Self {
        let graph = index.graph;
        let mut reached = Self { pipelines: Vec::new(), sinks: Vec::new() };
        let (mut seen, mut open) = (HashSet::new(), vec![source]);
        while let Some(name) = open.pop() {
            for &at in index.below(name) {
                if !seen.insert(at) {
                    continue;
                }
                let pipeline = &graph.pipelines[at];
                reached.pipelines.push(at);
                open.push(&pipeline.name);
                for target in pipeline.to.names().iter().filter(|target| index.number(target).is_none()) {
                    if !reached.sinks.contains(&target) {
                        reached.sinks.push(target);
                        open.push(target);
                    }
                }
            }
        }
        reached.pipelines.sort_unstable();
        reached
    }

    fn has(&self, sink: &SinkNode) -> bool {
        self.sinks.contains(&&sink.name)
    }

    /// True if messages of this source reach the sink.
    pub(crate) fn joins(index: &Index<'g>, source: &SourceNode, sink: &Arc<str>) -> bool {
        Self::from(index, &source.name).sinks.contains(&sink)
    }
}
