//! Builds nodes in thalweg's form, in place of the nodes that were read.

use thalweg_config::{Key, Node, Span, Value};

/// A mapping under construction. All its nodes have the position `span` unless the caller passes another.
#[derive(Debug, Clone)]
pub(crate) struct Made {
    span: Span,
    entries: Vec<(Key, Node)>,
}

impl Made {
    pub(crate) fn new(span: Span) -> Self {
        Self { span, entries: Vec::new() }
    }

    pub(crate) fn put(&mut self, name: &str, node: Node) -> &mut Self {
        self.entries.push((Key { name: name.to_owned(), span: node.span }, node));
        self
    }

    /// Adds a node under a key that has its own position.
    pub(crate) fn put_at(&mut self, name: &str, span: Span, node: Node) -> &mut Self {
        self.entries.push((Key { name: name.to_owned(), span }, node));
        self
    }

    pub(crate) fn text(&mut self, name: &str, value: impl Into<String>, span: Span) -> &mut Self {
        self.put(name, text(value, span))
    }

    pub(crate) fn number(&mut self, name: &str, value: i64, span: Span) -> &mut Self {
        self.put(name, Node::plain(span, &value.to_string()))
    }

    pub(crate) fn flag(&mut self, name: &str, value: bool, span: Span) -> &mut Self {
        self.put(name, Node::plain(span, &value.to_string()))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn done(self) -> Node {
        Node::new(self.span, Value::Mapping(self.entries))
    }
}

pub(crate) fn text(value: impl Into<String>, span: Span) -> Node {
    Node::new(span, Value::String(value.into()))
}

pub(crate) fn list(items: Vec<Node>, span: Span) -> Node {
    Node::new(span, Value::Sequence(items))
}

/// A component: a mapping from its kind to its options.
pub(crate) fn component(kind: &str, kind_span: Span, options: Node) -> Node {
    let key = Key { name: kind.to_owned(), span: kind_span };
    Node::new(options.span, Value::Mapping(vec![(key, options)]))
}

/// Formats milliseconds as a person would write them: `90000` becomes `90s`.
pub(crate) fn time(milliseconds: i64) -> String {
    match milliseconds {
        0 => "0s".to_owned(),
        ms if ms % 3_600_000 == 0 => format!("{}h", ms / 3_600_000),
        ms if ms % 60_000 == 0 => format!("{}m", ms / 60_000),
        ms if ms % 1000 == 0 => format!("{}s", ms / 1000),
        ms => format!("{ms}ms"),
    }
}

/// Formats a number of MiB as a person would write it: `2048` becomes `2GiB`.
pub(crate) fn size_mib(mib: i64) -> String {
    if mib % 1024 == 0 { format!("{}GiB", mib / 1024) } else { format!("{mib}MiB") }
}
