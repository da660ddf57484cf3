//! The connected parts of a graph: what is kept or replaced as a whole when the configuration changes.
//!
//! Two components are in one part if messages or files can go from one to the other, also by `errors` and
//! through a buffer on disk. So a part shares no channel and no checkpoint with another one. Two parts are
//! equal if their components are written alike, after the substitution of variables. Positions in the
//! document and the order of components do not matter.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use thalweg_config::{Document, Node};

use crate::graph::{Feed, Graph};

/// The sections of a document that have components.
const SOURCES: &str = "sources";
const PIPELINES: &str = "pipelines";
const SINKS: &str = "sinks";
/// It says how a configuration is checked, and is of no effect in a run.
const UNKNOWN_FIELDS: &str = "unknown_fields";

/// The section of a component, and its name.
type Key = (&'static str, Arc<str>);

/// The components of a version: each as it is written, and the part that it is in.
pub(super) type Components<'v> = HashMap<&'v Key, (&'v Node, &'v Arc<Part>)>;

/// A graph, and the document that it was read from.
#[derive(Clone)]
pub struct Written {
    /// The graph.
    pub graph: Graph,
    /// The document, after the substitution of variables.
    pub document: Document,
}

/// A connected part of a graph.
pub(super) struct Part {
    pub(super) graph: Graph,
    /// Its components as they are written.
    content: BTreeMap<Key, Node>,
}

impl Part {
    /// True if all its sources only accompany those of other parts.
    pub(super) fn is_auxiliary(&self) -> bool {
        let sources = &self.graph.sources;
        !sources.is_empty() && sources.iter().all(|source| source.config.is_auxiliary())
    }

    /// True if a source of it accompanies no other.
    pub(super) fn has_input(&self) -> bool {
        self.graph.sources.iter().any(|source| !source.config.is_auxiliary())
    }

    /// The names of its sources that read the standard input of the process.
    pub(super) fn sources_of_standard_input(&self) -> impl Iterator<Item = &Arc<str>> {
        let sources = self.graph.sources.iter().filter(|source| source.config.reads_stdin());
        sources.map(|source| &source.name)
    }

    /// True if a run without state that is restarted gives nothing of its input twice.
    pub(super) fn may_restart(&self) -> bool {
        !self.graph.sources.iter().any(|source| source.config.starts_over())
    }

    pub(super) fn has_same_content(&self, other: &Self) -> bool {
        let mut both = self.content.iter().zip(&other.content);
        self.content.len() == other.content.len()
            && both.all(|((key, node), (of_other, other))| key == of_other && node.reads_as(other))
    }

    /// The components, in the order of their sections and names.
    pub(super) fn components(&self) -> impl Iterator<Item = (&Key, &Node)> {
        self.content.iter()
    }
}

/// A configuration, divided.
pub(super) struct Version {
    /// The settings that belong to no component.
    settings: BTreeMap<String, Node>,
    pub(super) parts: Vec<Arc<Part>>,
}

impl Version {
    pub(super) fn of(written: &Written) -> Self {
        let root = written.document.root();
        let of_components = [SOURCES, PIPELINES, SINKS, UNKNOWN_FIELDS];
        let settings = root.entries().iter().filter(|(key, _)| !of_components.contains(&key.name.as_str()));
        let nodes = Nodes::of(&written.document);
        let parts = divided(&written.graph).into_iter();
        Self {
            settings: settings.map(|(key, node)| (key.name.clone(), node.clone())).collect(),
            parts: parts.map(|graph| Arc::new(Part { content: nodes.content(&graph), graph })).collect(),
        }
    }

    /// The settings that another version has not, or has with other values.
    pub(super) fn other_settings(&self, other: &Self) -> Vec<String> {
        let names = self.settings.keys().chain(other.settings.keys());
        let is_same = |name: &str| match (self.settings.get(name), other.settings.get(name)) {
            (Some(node), Some(other)) => node.reads_as(other),
            _ => false,
        };
        let mut others: Vec<String> = names.filter(|name| !is_same(name)).cloned().collect();
        others.sort();
        others.dedup();
        others
    }

    /// The version without some of its parts.
    pub(super) fn without(&self, gone: &[Arc<Part>]) -> Self {
        let is_left = |part: &&Arc<Part>| !gone.iter().any(|gone| Arc::ptr_eq(gone, part));
        Self { settings: self.settings.clone(), parts: self.parts.iter().filter(is_left).cloned().collect() }
    }

    /// Each component, and the part that it is in.
    pub(super) fn components(&self) -> Components<'_> {
        let parts = self.parts.iter();
        parts.flat_map(|part| part.components().map(move |(key, node)| (key, (node, part)))).collect()
    }
}

/// The components of a document by section and name.
struct Nodes<'d>(HashMap<(&'static str, &'d str), &'d Node>);

impl<'d> Nodes<'d> {
    fn of(document: &'d Document) -> Self {
        let root = document.root();
        let entries = [SOURCES, PIPELINES, SINKS].into_iter().flat_map(|section| {
            let entries = root.get(section).map(Node::entries).unwrap_or_default();
            entries.iter().map(move |(key, node)| ((section, key.name.as_str()), node))
        });
        Self(entries.collect())
    }

    fn content(&self, graph: &Graph) -> BTreeMap<Key, Node> {
        let sources = graph.sources.iter().map(|source| (SOURCES, &source.name));
        let pipelines = graph.pipelines.iter().map(|pipeline| (PIPELINES, &pipeline.name));
        let sinks = graph.sinks.iter().map(|sink| (SINKS, &sink.name));
        let keys = sources.chain(pipelines).chain(sinks);
        keys.filter_map(|(section, name)| {
            Some(((section, name.clone()), (*self.0.get(&(section, &**name))?).clone()))
        })
        .collect()
    }
}

/// Divides a graph into its connected parts, in the order of their first components.
fn divided(graph: &Graph) -> Vec<Graph> {
    let mut sets = Sets::default();
    for source in &graph.sources {
        sets.number(&source.name);
    }
    for pipeline in &graph.pipelines {
        let own = sets.number(&pipeline.name);
        for feed in &pipeline.from {
            let (Feed::Source(name)
            | Feed::Pipeline(name)
            | Feed::Chosen(name)
            | Feed::Named(name, _)
            | Feed::Errors(name)) = feed;
            let other = sets.number(name);
            sets.join(own, other);
        }
        for name in pipeline.to.names() {
            let other = sets.number(name);
            sets.join(own, other);
        }
    }
    let empty = Graph { sources: Vec::new(), pipelines: Vec::new(), sinks: Vec::new(), ..graph.clone() };
    let mut parts = Divided { empty, parts: Vec::new(), numbers: HashMap::new() };
    for source in &graph.sources {
        parts.of(sets.of(&source.name)).sources.push(source.clone());
    }
    for pipeline in &graph.pipelines {
        parts.of(sets.of(&pipeline.name)).pipelines.push(pipeline.clone());
    }
    for sink in &graph.sinks {
        parts.of(sets.of(&sink.name)).sinks.push(sink.clone());
    }
    parts.parts
}

/// The parts found so far.
struct Divided {
    empty: Graph,
    parts: Vec<Graph>,
    /// The number of the part of each set.
    numbers: HashMap<usize, usize>,
}

impl Divided {
    fn of(&mut self, set: usize) -> &mut Graph {
        let Self { empty, parts, numbers } = self;
        let number = *numbers.entry(set).or_insert_with(|| {
            parts.push(empty.clone());
            parts.len() - 1
        });
        &mut parts[number]
    }
}

/// Sets of names that are joined.
#[derive(Default)]
struct Sets {
    numbers: HashMap<Arc<str>, usize>,
    /// For each name, another one of its set, or itself.
    parents: Vec<usize>,
}

impl Sets {
    fn number(&mut self, name: &Arc<str>) -> usize {
        let Self { numbers, parents } = self;
        *numbers.entry(name.clone()).or_insert_with(|| {
            parents.push(parents.len());
            parents.len() - 1
        })
    }

    fn root(&mut self, mut at: usize) -> usize {
        while self.parents[at] != at {
            self.parents[at] = self.parents[self.parents[at]];
            at = self.parents[at];
        }
        at
    }

    fn join(&mut self, one: usize, other: usize) {
        let (one, other) = (self.root(one), self.root(other));
        self.parents[one] = other;
    }

    /// The set of a name.
    fn of(&mut self, name: &Arc<str>) -> usize {
        let number = self.number(name);
        self.root(number)
    }
}
