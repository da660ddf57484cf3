//! Reads a configuration document into a [`Graph`].
//!
//! The document is walked by hand. One struct for the whole was rejected: the valid options depend on the
//! registry, all mistakes must be found at once, and a mistake in one component must not hide those in the
//! next. The options of each component are decoded by their own struct.
//!
//! See docs/decisions/025-the-document-is-walked-its-options-are-decoded.md.

mod absent_files;
mod buffers;
mod claims;
mod connections;
mod ends;
mod fields;
mod memory;
mod positions;
mod remarks;
mod scheduled;
mod sections;
mod shared_files;
mod terms;
mod transactions;

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

use thalweg_config::{Diagnostic, Diagnostics, Document, Key, Node, Span, decode, nearest};

use crate::graph::{Graph, Passed, Pipeline, SinkNode, SourceNode, Targets, To, TransformNode, numbered};
use crate::registry::{Built, Registry, Role};
use crate::settings::{BufferSettings, ByKey, Failover, PipelineSettings, Settings};
use buffers::{BUFFER, Buffered, without};

pub use absent_files::absent_files;
pub use fields::check_fields;
pub use memory::check_memory;
pub use remarks::remarks;
pub use terms::advice;

const SECTIONS: [&str; 10] = [
    "memory",
    "state",
    "dead_letters",
    "buffers",
    "temporary",
    "unknown_fields",
    "schedule",
    "sources",
    "pipelines",
    "sinks",
];
/// Those that belong to no component.
const SETTINGS: [&str; 7] =
    ["memory", "state", "dead_letters", "buffers", "temporary", "unknown_fields", "schedule"];
/// The key of the kind of a component in the form of Vector and Fluent Bit.
const KIND: &str = "type";
/// Written beside the kind of a file transform.
const TARGETS: &str = "for";
const PIPELINE_KEYS: [&str; 7] = ["from", "transforms", "to", "ordered", "on_error", "concurrency", BUFFER];

/// At most this many transforms are in a pipeline: a message passes them on one stack.
const MOST_TRANSFORMS: usize = 1000;

/// At most this many names of components are compared to suggest one for those that do not exist.
const MOST_COMPARED: usize = 1_000_000;

/// A budget below this many bytes is one in other units, if no unit is written.
const LEAST_WITHOUT_UNIT: i64 = 16 << 10;

/// Reads a document into a graph.
///
/// # Errors
/// All mistakes in it.
pub fn read(document: &Document, registry: &Registry) -> Result<Graph, Diagnostics> {
    let mut reader = Reader::new(document, registry);
    let graph = reader.graph(document.root());
    reader.diagnostics.into_result(graph)
}

/// Reads a document into a graph, and checks the fields that its steps name, see [`check_fields`].
///
/// # Errors
/// All mistakes in it. With a mistake in a component, the fields behind that component are not checked; with
/// one in a connection, no fields are.
pub fn read_checked(document: &Document, registry: &Registry) -> Result<Graph, Diagnostics> {
    let mut reader = Reader::new(document, registry);
    let graph = reader.graph(document.root());
    if reader.is_connected {
        fields::check(document, &graph, &mut reader.diagnostics);
    }
    reader.diagnostics.into_result(graph)
}

/// True for a text that a source, a pipeline or a sink can have as its name.
pub fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '-')
}

struct Reader<'a> {
    registry: &'a Registry,
    diagnostics: Diagnostics,
    /// The names of all sources, pipelines and sinks, with their positions in the document.
    names: BTreeMap<String, Span>,
    /// True if the graph has all connections that the document has.
    is_connected: bool,
    /// How many names may still be compared to suggest one.
    comparisons: Cell<usize>,
}

/// A component of a section.
struct Found<'n> {
    key: &'n Key,
    kind: &'static str,
    built: Option<Built>,
    /// The buffer before it, if it is a sink that has one.
    buffer: Option<BufferSettings>,
}

impl<'a> Reader<'a> {
    fn new(document: &Document, registry: &'a Registry) -> Self {
        let diagnostics = document.diagnostics();
        let comparisons = Cell::new(MOST_COMPARED);
        Self { registry, diagnostics, names: BTreeMap::new(), is_connected: true, comparisons }
    }

    /// Returns the name that was probably meant. None without a search if the document has many wrong names:
    /// each search compares all names.
    fn nearest<'n>(&self, name: &str, known: impl Iterator<Item = &'n str>) -> Option<&'n str> {
        if self.comparisons.get() == 0 {
            return None;
        }
        let known: Vec<&str> = known.collect();
        let left = self.comparisons.get().checked_sub(known.len());
        self.comparisons.set(left.unwrap_or_default());
        left.and_then(|_| nearest(name, known))
    }
}

impl Reader<'_> {
    fn graph(&mut self, root: &Node) -> Graph {
        if root.as_mapping().is_none() {
            let message = format!("A configuration is a mapping, but this is {}.", root.kind());
            self.diagnostics
                .error(root.span, message)
                .help("Begin with `sources:`, `pipelines:` and `sinks:`.");
        }
        self.unknown_keys(root, &SECTIONS, "a configuration");
        self.folders(root);
        self.budget(root);
        let settings: Settings = self.settings(root, &SETTINGS);
        self.scheduled(root, settings.schedule.as_ref());
        let sources = self.section(root, "sources", Role::Source);
        let sinks = self.section(root, "sinks", Role::Sink);
        let mut graph = Graph {
            memory: settings.memory,
            state: settings.state,
            dead_letters: settings.dead_letters,
            buffers: settings.buffers,
            temporary: settings.temporary,
            unknown_fields: settings.unknown_fields,
            schedule: settings.schedule,
            sources: Vec::new(),
            pipelines: Vec::new(),
            sinks: Vec::new(),
        };
        for Found { key, kind, built, .. } in sources {
            if let Some(Built::Source(config)) = built {
                graph.sources.push(SourceNode { name: key.name.as_str().into(), kind, config });
            }
        }
        for Found { key, kind, built, buffer } in sinks {
            if let Some(Built::Sink(config)) = built {
                graph.sinks.push(SinkNode { name: key.name.as_str().into(), kind, config, buffer });
            }
        }
        self.buffers_in_memory(root, &graph);
        let pipelines = self.entries(root, "pipelines");
        for (key, _) in pipelines {
            self.name(key);
        }
        for (key, node) in pipelines {
            let pipeline = self.pipeline(key, node);
            graph.pipelines.push(pipeline);
        }
        let mistakes = self.diagnostics.len();
        self.connections(root, &mut graph);
        self.is_connected = self.diagnostics.len() == mistakes;
        graph
    }

    /// Finds a budget without a unit that is smaller than any that is of use: its unit is missing.
    fn budget(&mut self, root: &Node) {
        let Some((node, bytes)) = root.get("memory").and_then(|node| Some((node, node.as_i64()?))) else {
            return;
        };
        if (1..LEAST_WITHOUT_UNIT).contains(&bytes) {
            self.diagnostics
                .error(node.span, format!("`memory` has no unit, and would be {bytes} bytes."))
                .help(format!("Did you mean `{bytes}MiB`? Bytes are written `{bytes}B`."));
        }
    }

    /// Finds settings that name a folder and have a value that is none: `true` would be a folder of that
    /// name.
    fn folders(&mut self, root: &Node) {
        for name in ["state", "temporary"] {
            let Some((node, value)) = root.get(name).and_then(|node| Some((node, node.as_bool()?))) else {
                continue;
            };
            let message = format!("`{name}` is the name of a folder, but this is `{value}`.");
            self.diagnostics
                .error(node.span, message)
                .help(format!("Write for example `{name}: folder/of/{name}`, or leave it out."));
        }
    }

    /// Decodes the settings among the keys of a mapping that has other keys as well.
    fn settings<T: serde::de::DeserializeOwned + schemars::JsonSchema + Default>(
        &mut self,
        node: &Node,
        keys: &[&str],
    ) -> T {
        let entries = node.entries().iter().filter(|(key, _)| keys.contains(&key.name.as_str()));
        let part = Node::new(node.span, thalweg_config::Value::Mapping(entries.cloned().collect()));
        decode(&part, &mut self.diagnostics).unwrap_or_default()
    }

    fn unknown_keys(&mut self, node: &Node, known: &[&str], what: &str) {
        for (key, _) in node.entries() {
            if known.contains(&key.name.as_str()) {
                continue;
            }
            let help = match (terms::key(&key.name, known), nearest(&key.name, known.iter().copied())) {
                _ if key.name.starts_with("//") => "A comment begins with `#`.".to_owned(),
                (Some(ours), _) => format!("Here it is called `{ours}`."),
                (None, Some(near)) => format!("Did you mean `{near}`?"),
                (None, None) => format!("{} has: {}.", capitalised(what), list(known)),
            };
            let message = format!("`{}` is not a key of {what}.", key.name);
            self.diagnostics.error(key.span, message).help(help);
        }
    }

    fn entries<'n>(&mut self, root: &'n Node, section: &str) -> &'n [(Key, Node)] {
        let Some(node) = root.get(section) else {
            // A misspelt section is one mistake, which names the right one.
            let is_meant = |key: &str| {
                terms::key(key, &SECTIONS) == Some(section) || nearest(key, SECTIONS) == Some(section)
            };
            let other_word =
                |(key, _): &(Key, Node)| !SECTIONS.contains(&key.name.as_str()) && is_meant(&key.name);
            if root.as_mapping().is_some() && !root.entries().iter().any(other_word) {
                let message = format!("There are no `{section}`.");
                let help = format!(
                    "Add `{section}:` with at least one. `thalweg new` writes a configuration to begin with."
                );
                self.diagnostics.error(Span::new(root.span.start, root.span.start), message).help(help);
            }
            return &[];
        };
        if node.as_mapping().is_none() {
            let message = format!("`{section}` is a mapping of names, but this is {}.", node.kind());
            self.diagnostics.error(node.span, message).help(format!("Write `{section}: {{ a_name: … }}`."));
        } else if node.entries().is_empty() {
            self.diagnostics.error(node.span, format!("`{section}` is empty.")).help("Add at least one.");
        }
        node.entries()
    }

    fn name(&mut self, key: &Key) {
        if !is_name(&key.name) {
            let message = format!("`{}` cannot be a name.", key.name);
            self.diagnostics.error(key.span, message).help("Names have letters, digits, `_` and `-`.");
        }
        if let Some(former) = self.names.insert(key.name.clone(), key.span) {
            let mut mistake =
                Diagnostic::new(key.span, format!("There are two components called `{}`.", key.name));
            mistake.help("Sources, pipelines and sinks share one set of names: rename one of them.");
            self.diagnostics.push_with(mistake, [(former, "the other one".to_owned())]);
        }
    }

    fn section<'n>(&mut self, root: &'n Node, section: &str, role: Role) -> Vec<Found<'n>> {
        let mut found = Vec::new();
        for (key, node) in self.entries(root, section) {
            self.name(key);
            let (node, buffer) = match role {
                Role::Sink => self.buffered(node),
                Role::Source | Role::Transform => (Cow::Borrowed(node), None),
            };
            if let Some((kind, built)) = self.component(&node, role) {
                found.push(Found { key, kind, built, buffer });
            }
        }
        found
    }

    /// Reads a component: its kind alone, or a mapping with one key, its kind, to its options.
    fn component(&mut self, node: &Node, role: Role) -> Option<(&'static str, Option<Built>)> {
        let nothing = Node::new(node.span, thalweg_config::Value::Mapping(Vec::new()));
        let (name, span, options) = match (node.as_str(), node.entries()) {
            (Some(name), _) => (name, node.span, &nothing),
            (None, [(key, options)]) if key.name != KIND || options.as_str().is_none() => {
                (key.name.as_str(), key.span, options)
            }
            (None, entries) => {
                let kind = node.get(KIND).and_then(Node::as_str);
                let connection = entries.iter().find(|(key, _)| terms::connects(&key.name));
                let (message, help) = match (kind, connection, entries.get(1)) {
                    // The form of Vector and Fluent Bit.
                    (Some(kind), ..) => (
                        format!("The kind of a {} is the key above its options.", role.name()),
                        format!(
                            "Instead of `type: {kind}`, write `{kind}:` and indent the options below it."
                        ),
                    ),
                    (None, Some((key, _)), Some(_)) => (
                        format!("A {} does not say what it is connected to.", role.name()),
                        format!(
                            "Leave `{}` out: the `from` and `to` of a pipeline name sources and sinks.",
                            key.name
                        ),
                    ),
                    (None, _, Some((second, _)))
                        if role == Role::Transform && self.registry.get(role, &second.name).is_some() =>
                    {
                        (
                            "This element of the list has two transforms.".to_owned(),
                            format!("Begin `{}` on a line of its own with `- `.", second.name),
                        )
                    }
                    (None, _, Some((second, _))) => (
                        format!("This {} has more than one key.", role.name()),
                        format!("Its options belong under its kind: indent `{}` further.", second.name),
                    ),
                    (None, _, None) => (
                        format!("This {} should be its kind with its options.", role.name()),
                        format!("Write for example `{}`.", example_of(role)),
                    ),
                };
                self.diagnostics.error(node.span, message).help(help);
                return None;
            }
        };
        let Some(definition) = self.registry.get(role, name) else {
            let names = || self.registry.iter().filter(|known| known.role == role).map(|known| known.name);
            let elsewhere =
                self.registry.iter().find(|known| known.name == name).map(|known| known.role.name());
            let is_key = role == Role::Transform && PIPELINE_KEYS.contains(&name);
            let help = match (terms::advice(Some(role), name), nearest(name, names()), elsewhere) {
                _ if is_key => format!("It is a key of the pipeline: write `{name}:` beside `transforms:`."),
                (Some(advice), ..) => advice.to_owned(),
                (_, _, Some(other)) => format!("It is a {other}. `thalweg components` lists all."),
                (_, Some(near), None) => format!("Did you mean `{near}`?"),
                (_, None, None) => "`thalweg components` lists all.".to_owned(),
            };
            let message = format!("There is no {} called `{name}`.", role.name());
            self.diagnostics.error(span, message).help(help);
            return None;
        };
        let built = definition.decode(options, span, &mut self.diagnostics);
        Some((definition.name, built))
    }

    fn pipeline(&mut self, key: &Key, node: &Node) -> Pipeline {
        let name: Arc<str> = key.name.as_str().into();
        if node.as_mapping().is_none() {
            let message = format!("A pipeline is a mapping, but this is {}.", node.kind());
            self.diagnostics.error(node.span, message).help("Give it `from`, `transforms` and `to`.");
        }
        self.unknown_keys(node, &PIPELINE_KEYS, "a pipeline");
        let settings: PipelineSettings = self.settings(node, &["ordered", "on_error", "concurrency"]);
        let mut transforms = Vec::new();
        let mut seen = BTreeMap::new();
        // A step with a mistake is not in the graph, and neither are those behind it.
        let mut is_whole = true;
        if let Some(list) = node.get("transforms") {
            if list.as_sequence().is_none() && !list.is_null() {
                let message = format!("`transforms` is a list, but this is {}.", list.kind());
                self.diagnostics.error(list.span, message).help("Begin each transform with `- `.");
            }
            self.too_many(list);
            for item in list.items().iter().take(MOST_TRANSFORMS) {
                let (item, targets) = self.targets(item);
                let Some((kind, built)) = self.component(&item, Role::Transform) else {
                    is_whole = false;
                    continue;
                };
                let numbered = numbered(kind, &mut seen);
                match built {
                    Some(Built::Transform(config)) if is_whole => {
                        let name = format!("{name}.{numbered}").into();
                        let before = Passed::default();
                        transforms.push(TransformNode { name, kind, config, targets, before });
                    }
                    _ => is_whole = false,
                }
            }
        }
        Passed::note(&mut transforms);
        let buffer = node.get(BUFFER).and_then(|buffer| self.buffer(buffer, Buffered::Pipeline));
        let to = node.get("to").map_or(To::All(Vec::new()), |to| self.to(to));
        Pipeline {
            name,
            from: Vec::new(),
            transforms,
            to,
            ordered: settings.ordered,
            on_error: settings.on_error,
            concurrency: settings.concurrency,
            buffer,
        }
    }

    fn too_many(&mut self, list: &Node) {
        if let Some(beyond) = list.items().get(MOST_TRANSFORMS) {
            let (count, most) = (list.items().len(), MOST_TRANSFORMS);
            let message = format!("A pipeline has at most {most} transforms, but this has {count}.");
            self.diagnostics
                .error(beyond.span, message)
                .label("the first that is too many")
                .help("Add a pipeline with `from:` this one for the rest.");
        }
    }

    /// Separates the key `for` of a file transform from the transform, whose kind is beside it.
    fn targets<'n>(&mut self, item: &'n Node) -> (Cow<'n, Node>, Targets) {
        let Some(targets) = item.get(TARGETS).filter(|_| item.entries().len() > 1) else {
            return (Cow::Borrowed(item), Targets::default());
        };
        let targets = decode(targets, &mut self.diagnostics).unwrap_or_default();
        (Cow::Owned(without(item, TARGETS)), targets)
    }

    fn names_of(&mut self, node: &Node, what: &str) -> Vec<Arc<str>> {
        let one = |reader: &mut Self, node: &Node| match node.text() {
            Some(name) => Some(Arc::from(name)),
            None => {
                let message = format!("{} is a name, but this is {}.", capitalised(what), node.kind());
                let help = "To choose in two ways, let it lead to a pipeline that chooses again.";
                let mistake = reader.diagnostics.error(node.span, message);
                if node.as_mapping().is_some() {
                    mistake.help(help);
                }
                None
            }
        };
        match node.as_sequence() {
            Some(items) => items.iter().filter_map(|item| one(self, item)).collect(),
            None => one(self, node).into_iter().collect(),
        }
    }

    fn to(&mut self, node: &Node) -> To {
        const WAYS: [&str; 4] = ["round_robin", "random", "by_key", "failover"];
        match node.entries() {
            [] => To::All(self.names_of(node, "a sink or pipeline")),
            [(key, value)] => match key.name.as_str() {
                "round_robin" => To::RoundRobin(self.names_of(value, "a sink or pipeline")),
                "random" => To::Random(self.names_of(value, "a sink or pipeline")),
                "failover" if value.as_mapping().is_some() => {
                    match decode::<Failover>(value, &mut self.diagnostics) {
                        Some(Failover { to, timeout }) => {
                            let names = to.into_iter().map(Arc::from).collect();
                            To::Failover(names, timeout.map(|timeout| timeout.0))
                        }
                        None => To::All(Vec::new()),
                    }
                }
                "failover" => To::Failover(self.names_of(value, "a sink or pipeline"), None),
                "by_key" => match decode::<ByKey>(value, &mut self.diagnostics) {
                    Some(ByKey { key, sinks }) => To::ByKey(key, sinks.into_iter().map(Arc::from).collect()),
                    None => To::All(Vec::new()),
                },
                other => {
                    let help = match nearest(other, WAYS) {
                        Some(near) => format!("Did you mean `{near}`?"),
                        None => format!("A sink or pipeline, a list of them, or one of: {}.", list(&WAYS)),
                    };
                    let message = format!("`{other}` is not a way to choose among sinks and pipelines.");
                    self.diagnostics.error(key.span, message).help(help);
                    To::All(Vec::new())
                }
            },
            [_, (second, _), ..] => {
                self.diagnostics
                    .error(second.span, "`to` takes one way to choose among sinks and pipelines.")
                    .help("To feed sinks in two ways, add a pipeline with `from:` this one.");
                To::All(Vec::new())
            }
        }
    }
}

fn example_of(role: Role) -> &'static str {
    match role {
        Role::Source => "file: { path: input.log }",
        Role::Transform => "filter: \"status >= 500\"",
        Role::Sink => "file: { path: output.log }",
    }
}

fn list(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

fn capitalised(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}
