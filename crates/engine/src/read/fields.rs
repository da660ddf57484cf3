//! Checks the names of fields in the steps of pipelines, where the fields of messages are known: see
//! [`KnownFields`].
//!
//! This is a step of its own, because a converted configuration is not checked so: that a step has no effect
//! is not the mistake of whoever wrote it for another program.

use std::collections::BTreeMap;
use std::sync::Arc;

use thalweg_config::{Diagnostics, Document, FormatError, Node, nearest};

use super::list;
use crate::component::{KnownFields, is_intrinsic};
use crate::graph::{Feed, Graph, Pipeline, TransformNode};

/// At most this many names of fields are listed in a message.
const LISTED: usize = 12;

/// Checks the fields that the steps of a configuration name. Its graph must be that of the document.
///
/// # Errors
/// The names that no message can have, and expressions whose types do not fit.
pub fn check_fields(document: &Document, graph: &Graph) -> Result<(), Diagnostics> {
    let mut diagnostics = document.diagnostics();
    let pipelines = document.root().get("pipelines");
    let entering = entering(graph);
    for pipeline in &graph.pipelines {
        let Some(node) = pipelines.and_then(|node| node.get(&pipeline.name)) else { continue };
        let items = node.get("transforms").map(Node::items).unwrap_or_default();
        let mut known = entering.get(&pipeline.name).cloned().unwrap_or_default();
        for (item, transform) in items.iter().zip(&pipeline.transforms) {
            for (text, error) in mistakes(transform, &known) {
                diagnostics.push(error.in_document(node_of(item, &text), document.text()));
            }
            known = transform.config.fields_after(known);
        }
    }
    diagnostics.into_result(())
}

/// Returns what is known of the fields of the messages that enter each pipeline.
fn entering(graph: &Graph) -> BTreeMap<Arc<str>, KnownFields> {
    let mut known = BTreeMap::new();
    // No pipeline feeds itself, so each round finds at least one more.
    while known.len() < graph.pipelines.len() {
        let before = known.len();
        for pipeline in &graph.pipelines {
            if known.contains_key(&pipeline.name) {
                continue;
            }
            let fed: Option<Vec<KnownFields>> =
                pipeline.from.iter().map(|feed| fields_of(feed, graph, &known)).collect();
            let Some(fed) = fed else { continue };
            let fields = fed.into_iter().reduce(KnownFields::or).unwrap_or_default();
            known.insert(pipeline.name.clone(), fields);
        }
        if known.len() == before {
            break;
        }
    }
    known
}

/// Returns what is known of the fields that a feed carries. None if that of its pipeline is not found yet.
fn fields_of(feed: &Feed, graph: &Graph, known: &BTreeMap<Arc<str>, KnownFields>) -> Option<KnownFields> {
    let after = |pipeline: &Pipeline, steps: usize| {
        let before = known.get(&pipeline.name)?.clone();
        let steps = pipeline.transforms.iter().take(steps);
        Some(steps.fold(before, |fields, step| step.config.fields_after(fields)))
    };
    match feed {
        Feed::Source(name) => {
            let source = graph.sources.iter().find(|source| source.name == *name)?;
            Some(source.config.fields())
        }
        Feed::Pipeline(name) | Feed::Chosen(name) => after(graph.pipeline(name)?, usize::MAX),
        Feed::Named(name, label) => {
            let pipeline = graph.pipeline(name)?;
            let (at, _, _) = pipeline.outputs().find(|(_, _, output)| output == label)?;
            after(pipeline, at + 1)
        }
        Feed::Errors(_) => Some(KnownFields::unknown()),
    }
}

/// Returns the mistakes of a step, each with the text of the document that it is in.
fn mistakes(transform: &TransformNode, known: &KnownFields) -> Vec<(String, FormatError)> {
    let mut names = transform.config.fields();
    names.retain(|name| known.lacks(name));
    names.dedup();
    let mut mistakes: Vec<_> = names.into_iter().map(|name| lacking(&name, transform, known)).collect();
    if mistakes.is_empty() {
        let found = transform.config.check_fields(known).into_iter();
        mistakes.extend(found.map(|mistake| (mistake.text, mistake.error)));
    }
    mistakes
}

fn lacking(name: &str, transform: &TransformNode, known: &KnownFields) -> (String, FormatError) {
    let mut error = FormatError::new(format!("No message has a field `{name}` at `{}`.", transform.name));
    let fields: Vec<&str> = known.names().collect();
    error = error.help(match nearest(name, fields.iter().copied()) {
        Some(near) => format!("Did you mean `{near}`?"),
        None if fields.is_empty() => {
            "The messages have no fields here: parse them first, for example with `parse_json`.".to_owned()
        }
        None if fields.len() <= LISTED => format!("The fields here are {}.", list(&fields)),
        None => format!("There are {} fields here, such as {}.", fields.len(), list(&fields[..LISTED])),
    });
    debug_assert!(!is_intrinsic(name));
    (name.to_owned(), error)
}

/// Returns the scalar within a step that is this text or, if there is none, contains it.
fn node_of<'n>(item: &'n Node, text: &str) -> &'n Node {
    find(item, &|found| found == text).or_else(|| find(item, &|found| found.contains(text))).unwrap_or(item)
}

fn find<'n>(node: &'n Node, is_wanted: &dyn Fn(&str) -> bool) -> Option<&'n Node> {
    if node.text().is_some_and(is_wanted) {
        return Some(node);
    }
    let below = node.items().iter().chain(node.entries().iter().map(|(_, value)| value));
    below.into_iter().find_map(|child| find(child, is_wanted))
}
