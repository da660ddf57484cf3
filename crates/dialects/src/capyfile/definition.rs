//! Reads a service definition as far as possible without the environment.
//!
//! capyfile ignores unknown keys, so a typo silently changes what a definition does. Here an unknown key is a
//! remark, and a key that looks like a misspelled important key is a mistake.

use std::collections::BTreeMap;

use thalweg_config::{Diagnostic, Document, Key, Node, Span, nearest};

use super::operation::{self, Operation};
use crate::report::Report;

/// A service and its processors.
pub(super) struct Definition<'a> {
    pub(super) name: &'a str,
    pub(super) processors: Vec<Processor<'a>>,
}

/// A processor and its operations, in order.
pub(super) struct Processor<'a> {
    pub(super) name: &'a str,
    /// The offset at which the processor begins.
    pub(super) start: usize,
    /// The position of its name.
    pub(super) span: Span,
    pub(super) operations: Vec<Operation<'a>>,
}

/// Looks up keys the way Go's reader of YAML or of JSON does.
#[derive(Clone, Copy)]
pub(super) struct Keys {
    /// Go's JSON reader ignores case.
    ignore_case: bool,
}

impl Keys {
    pub(super) fn of(document: &Document) -> Self {
        Self { ignore_case: document.text().trim_start().starts_with('{') }
    }

    pub(super) fn are_same(self, written: &str, name: &str) -> bool {
        written == name || self.ignore_case && written.eq_ignore_ascii_case(name)
    }

    pub(super) fn get<'a>(self, node: &'a Node, name: &str) -> Option<&'a Node> {
        node.entries().iter().find(|(key, _)| self.are_same(&key.name, name)).map(|(_, value)| value)
    }
}

/// Reports keys that mean nothing. A key that looks like one of `vital` is a mistake, any other a remark.
pub(super) fn unknown_keys(
    keys: Keys,
    node: &Node,
    known: &[&str],
    vital: &[&str],
    whose: &str,
    report: &mut Report,
) {
    for (key, _) in node.entries() {
        if known.iter().any(|name| keys.are_same(&key.name, name)) {
            continue;
        }
        let near = nearest(&key.name, known.iter().copied().filter(|name| keys.get(node, name).is_none()));
        match near {
            Some(near) if vital.contains(&near) => {
                let message = format!("`{}` is not a key of {whose}.", key.name);
                report.mistake(key.span, message).help(format!("Did you mean `{near}`?"));
            }
            Some(near) => {
                let message = format!("`{}` has no effect in {whose}. Did you mean `{near}`?", key.name);
                report.remark(key.span, message);
            }
            None => report.remark(key.span, format!("`{}` has no effect in {whose}.", key.name)),
        }
    }
}

/// The start of a mapping, where a missing key is reported.
pub(super) fn beginning(node: &Node) -> Span {
    Span::new(node.span.start, node.span.start)
}

/// Reads as much of the definition as possible. Wrong parts are left out and reported.
pub(super) fn read<'a>(document: &'a Document, report: &mut Report) -> Definition<'a> {
    let keys = Keys::of(document);
    let root = document.root();
    let mut definition = Definition { name: "", processors: Vec::new() };
    if root.as_mapping().is_none() {
        let message = format!("A service definition is a mapping, but this is {}.", root.kind());
        report.mistake(root.span, message).help("Write `name:` and `processors:`.");
        return definition;
    }
    unknown_keys(keys, root, &["version", "name", "processors"], &["processors"], "a service", report);
    if let Some(name) = keys.get(root, "name") {
        definition.name = text(name, "name", report).unwrap_or("");
    }
    match keys.get(root, "processors") {
        None => {
            let help = "Add `processors:` with a list of at least one: a `name` and `operations`.";
            report.mistake(beginning(root), "There are no `processors`.").help(help);
        }
        Some(list) => {
            let mut names = BTreeMap::new();
            for node in items(list, "processors", "Add at least one: a `name` and `operations`.", report) {
                definition.processors.extend(processor(keys, node, &mut names, report));
            }
        }
    }
    definition
}

/// Returns the elements of a list; a value that is no list, or an empty list, is reported.
pub(super) fn items<'a>(node: &'a Node, name: &str, help: &str, report: &mut Report) -> &'a [Node] {
    match node.as_sequence() {
        None if node.is_null() => {
            report.mistake(node.span, format!("`{name}` is empty.")).help(help);
        }
        None => {
            let message = format!("`{name}` is a list, but this is {}.", node.kind());
            report.mistake(node.span, message).help("Put a `-` before each of its elements.");
        }
        Some([]) => {
            report.mistake(node.span, format!("`{name}` is empty.")).help(help);
        }
        Some(_) => {}
    }
    node.items()
}

/// Reads a name, which may look like a number.
pub(super) fn text<'a>(node: &'a Node, name: &str, report: &mut Report) -> Option<&'a str> {
    let text = node.text();
    if text.is_none() {
        report.mistake(node.span, format!("`{name}` is text, but this is {}.", node.kind()));
    }
    text
}

fn processor<'a>(
    keys: Keys,
    node: &'a Node,
    names: &mut BTreeMap<&'a str, Span>,
    report: &mut Report,
) -> Option<Processor<'a>> {
    if node.as_mapping().is_none() {
        let message = format!("A processor is a mapping, but this is {}.", node.kind());
        report.mistake(node.span, message).help("Write `name:` and `operations:`.");
        return None;
    }
    unknown_keys(keys, node, &["name", "operations"], &["name", "operations"], "a processor", report);
    let name = keys.get(node, "name").and_then(|name| Some((text(name, "name", report)?, name.span)));
    let (name, span) = match name {
        Some((name, span)) if !name.is_empty() => (name, span),
        _ => {
            if keys.get(node, "name").is_none_or(|name| name.as_str() == Some("")) {
                let help = "Add `name:`, by which it is called: `service:name`.";
                report.mistake(beginning(node), "This processor has no name.").help(help);
            }
            ("", beginning(node))
        }
    };
    if let Some(former) = names.insert(name, span).filter(|_| !name.is_empty()) {
        let mut mistake = Diagnostic::new(span, format!("There are two processors called `{name}`."));
        mistake.help("Rename one of them: capyfile would run the first only.");
        report.mistakes.push_with(mistake, [(former, "the other one".to_owned())]);
    }
    let mut operations = Vec::new();
    match keys.get(node, "operations") {
        None => {
            report
                .mistake(beginning(node), format!("The processor `{name}` has no `operations`."))
                .help(NO_OPERATIONS);
        }
        Some(list) => {
            for (index, node) in items(list, "operations", NO_OPERATIONS, report).iter().enumerate() {
                operations.extend(operation::read(keys, node, index, report));
            }
        }
    }
    Some(Processor { name, start: node.span.start, span, operations })
}

const NO_OPERATIONS: &str = "Add at least one that reads files: `- name: filesystem_input_read`.";

/// Returns the key of an entry, for its position.
pub(super) fn key_of<'a>(keys: Keys, node: &'a Node, name: &str) -> Option<&'a Key> {
    node.entries().iter().find(|(key, _)| keys.are_same(&key.name, name)).map(|(key, _)| key)
}
