//! The sections of a document by name: a look-up in a mapping compares all of its keys.

use std::collections::HashMap;

use thalweg_config::{Key, Node, Span};

/// The sections that name components.
pub(super) struct Sections<'n> {
    pub(super) sources: Section<'n>,
    pub(super) pipelines: Section<'n>,
    pub(super) sinks: Section<'n>,
}

/// The entries of a section, and the number of each by its name.
pub(super) struct Section<'n> {
    pub(super) entries: &'n [(Key, Node)],
    numbers: HashMap<&'n str, usize>,
}

impl<'n> Sections<'n> {
    pub(super) fn of(root: &'n Node) -> Self {
        Self {
            sources: Section::of(root, "sources"),
            pipelines: Section::of(root, "pipelines"),
            sinks: Section::of(root, "sinks"),
        }
    }
}

impl<'n> Section<'n> {
    pub(super) fn of(root: &'n Node, name: &str) -> Self {
        let entries = root.get(name).map(Node::entries).unwrap_or_default();
        let numbers = entries.iter().enumerate().map(|(at, (key, _))| (key.name.as_str(), at)).collect();
        Self { entries, numbers }
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.numbers.contains_key(name)
    }

    /// Returns the number of an entry.
    pub(super) fn number(&self, name: &str) -> Option<usize> {
        self.numbers.get(name).copied()
    }

    /// Returns the position of a name.
    pub(super) fn span(&self, name: &str) -> Option<Span> {
        self.entries.get(self.number(name)?).map(|(key, _)| key.span)
    }

    /// Returns the position of an option of a component, or that of its name if the option is not written.
    pub(super) fn option_span(&self, name: &str, kind: &str, option: &str) -> Option<Span> {
        let options = self.node(name).and_then(|node| node.get(kind));
        let written = options.and_then(|options| options.get(option)).map(|node| node.span);
        written.or_else(|| self.span(name))
    }

    /// Returns the value of a name.
    pub(super) fn node(&self, name: &str) -> Option<&'n Node> {
        self.entries.get(self.number(name)?).map(|(_, node)| node)
    }

    /// Returns the steps of a pipeline.
    pub(super) fn steps(&self, pipeline: &str) -> &'n [Node] {
        let node = self.node(pipeline);
        node.and_then(|node| node.get("transforms")).map(Node::items).unwrap_or_default()
    }
}
