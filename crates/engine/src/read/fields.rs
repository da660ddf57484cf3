//! Checks the names of fields in the steps of pipelines, where the fields of messages are known: see
//! [`KnownFields`].
//!
//! This is a check of its own: a configuration converted from another program is not checked, because its
//! author made no mistake there.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use thalweg_config::{Diagnostic, Diagnostics, Document, FormatError, Node};

use super::list;
use super::sections::Section;
use crate::component::{FieldMistake, FieldUse, KnownFields, NeededField, Step, similar};
use crate::graph::{Feed, Graph, Pipeline, SinkNode, TransformNode};
use crate::index::Index;
use crate::settings::UnknownFields;

/// At most this many names of fields are listed in a message.
const LISTED: usize = 12;

/// Checks the fields that the steps of a configuration name. Its graph must be that of the document.
///
/// # Errors
/// The names that no message can have, and expressions whose types do not fit.
pub fn check_fields(document: &Document, graph: &Graph) -> Result<(), Diagnostics> {
    let mut diagnostics = document.diagnostics();
    check(document, graph, &mut diagnostics);
    diagnostics.into_result(())
}

/// Adds the mistakes in the fields that steps name. Components with a mistake may be missing in the graph,
/// and the steps behind them.
pub(super) fn check(document: &Document, graph: &Graph, diagnostics: &mut Diagnostics) {
    if graph.unknown_fields == UnknownFields::Accept {
        return;
    }
    let written = Section::of(document.root(), "pipelines");
    let index = Index::new(graph);
    let entering = entering(&written, &index);
    for pipeline in &graph.pipelines {
        let items = written.steps(&pipeline.name);
        let mut known = entering.get(&pipeline.name).cloned().unwrap_or_default();
        for (item, transform) in items.iter().zip(&pipeline.transforms) {
            report(mistakes(transform, &known), item, document, diagnostics);
            known = transform.config.fields_after(known);
        }
    }
    let sinks = Section::of(document.root(), "sinks");
    for sink in &graph.sinks {
        let Some(item) = sinks.node(&sink.name) else { continue };
        let encoder = sink.config.encoder().map(|encoder| Step::Messages(encoder.into()));
        let needed = sink.config.needed_fields();
        let mut named: BTreeSet<String> = sink.config.fields().into_iter().collect();
        named.extend(encoder.iter().flat_map(Step::fields));
        if named.is_empty() && needed.is_empty() {
            continue;
        }
        let known = reaching(&sink.name, &written, &index, &entering);
        if let Some(encoder) = &encoder {
            report(parts(encoder, &sink.name, &known), item, document, diagnostics);
        }
        for needed in needed {
            if let Some(mut mistake) = missing(&needed, sink, &known, &sinks) {
                named.retain(|name| !needed.names.contains(name));
                mistake.help(needed.help);
                diagnostics.push(mistake);
            }
        }
        named.retain(|name| known.lacks(name));
        for name in named {
            // Others are defaults.
            let Some((node, range)) = naming(item, &name) else { continue };
            let mut error = lacking(&name, &sink.name, &known, known.names());
            error.range = range;
            diagnostics.push(error.in_document(node, document.text()));
        }
    }
}

/// Adds the remarks of the steps of a graph without mistakes.
pub(super) fn add_remarks(document: &Document, graph: &Graph, index: &Index<'_>, found: &mut Diagnostics) {
    if graph.unknown_fields == UnknownFields::Accept {
        return;
    }
    let written = Section::of(document.root(), "pipelines");
    let entering = entering(&written, index);
    for pipeline in &graph.pipelines {
        let mut known = entering.get(&pipeline.name).cloned().unwrap_or_default();
        for (item, transform) in written.steps(&pipeline.name).iter().zip(&pipeline.transforms) {
            report(transform.config.remarks(&known), item, document, found);
            known = transform.config.fields_after(known);
        }
    }
}

/// Returns the mistake of a sink if no message has one of the fields that it needs.
fn missing(
    needed: &NeededField,
    sink: &SinkNode,
    known: &KnownFields,
    sinks: &Section<'_>,
) -> Option<Diagnostic> {
    let NeededField { option, names, .. } = needed;
    if names.is_empty() || !names.iter().all(|name| known.lacks(name)) {
        return None;
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let message = format!(
        "No message has a field {} at `{}`, which needs it for `{option}`: all would be rejected.",
        list(&names),
        sink.name
    );
    Some(Diagnostic::new(sinks.option_span(&sink.name, sink.kind, option)?, message))
}

/// Adds the mistakes in the fields that a component names.
fn report(found: Vec<FieldMistake>, item: &Node, document: &Document, diagnostics: &mut Diagnostics) {
    for FieldMistake { text, mut error } in found {
        let node = node_of(item, &text);
        error.range = error.range.or_else(|| word(node.text()?, &text));
        diagnostics.push(error.in_document(node, document.text()));
    }
}

/// Returns what is known of the fields of the messages that a sink receives.
pub(super) fn reaching(
    sink: &str,
    written: &Section<'_>,
    index: &Index<'_>,
    entering: &BTreeMap<Arc<str>, KnownFields>,
) -> KnownFields {
    let pipelines = index.leading_to(sink).iter().map(|&at| &index.graph.pipelines[at]);
    let feeds = pipelines.map(|pipeline| Feed::Pipeline(pipeline.name.clone()));
    let known = feeds.map(|feed| fields_of(&feed, written, index, entering).unwrap_or_default());
    known.reduce(KnownFields::or).unwrap_or_default()
}

/// Returns what is known of the fields of the messages that enter each pipeline.
pub(super) fn entering(written: &Section<'_>, index: &Index<'_>) -> BTreeMap<Arc<str>, KnownFields> {
    let mut known = BTreeMap::new();
    index.settle(|pipeline| {
        let fed: Option<Vec<KnownFields>> =
            pipeline.from.iter().map(|feed| fields_of(feed, written, index, &known)).collect();
        let Some(fed) = fed else { return false };
        let fields = fed.into_iter().reduce(KnownFields::or).unwrap_or_default();
        known.insert(pipeline.name.clone(), fields);
        true
    });
    known
}

/// Returns what is known of the fields that a feed carries. None if that of its pipeline is not found yet.
fn fields_of(
    feed: &Feed,
    written: &Section<'_>,
    index: &Index<'_>,
    known: &BTreeMap<Arc<str>, KnownFields>,
) -> Option<KnownFields> {
    let after = |pipeline: &Pipeline, steps: usize| {
        if pipeline.transforms.len() < written.steps(&pipeline.name).len() {
            return Some(KnownFields::unknown());
        }
        let before = known.get(&pipeline.name)?.clone();
        let steps = pipeline.transforms.iter().take(steps);
        Some(steps.fold(before, |fields, step| step.config.fields_after(fields)))
    };
    match feed {
        Feed::Source(name) => {
            let source = index.source(name);
            Some(source.map_or_else(KnownFields::unknown, |source| source.config.fields()))
        }
        Feed::Pipeline(name) | Feed::Chosen(name) => after(index.pipeline(name)?, usize::MAX),
        Feed::Named(name, label) => after(index.pipeline(name)?, index.step_of(name, label)? + 1),
        Feed::Errors(_) => Some(KnownFields::unknown()),
    }
}

/// Returns the mistakes of a step.
fn mistakes(transform: &TransformNode, known: &KnownFields) -> Vec<FieldMistake> {
    let mut names = transform.config.fields();
    let is_probable = |name: &str| {
        transform.config.field_use() != FieldUse::Optional || similar(name, known.names()).is_some()
    };
    names.retain(|name| known.lacks(name) && is_probable(name));
    if names.is_empty() {
        let mut found = transform.config.check_fields(known);
        found.extend(parts(&transform.config, &transform.name, known));
        return found;
    }
    names.dedup();
    names.into_iter().map(|name| lacking_in_step(name, transform, known)).collect()
}

/// Returns the mistakes of a component that finds whole fields only, and names a part of one.
fn parts(config: &Step, component: &str, known: &KnownFields) -> Vec<FieldMistake> {
    if config.field_use() != FieldUse::Whole {
        return Vec::new();
    }
    let mistake = |text: String| {
        let whole = known.whole_of(&text)?;
        let message =
            format!("No message has a field `{text}` at `{component}`: `{whole}` has no fields in it.");
        let help = format!(
            "If it is JSON text, make fields of it first: `parse_json: {{ field: {whole}, prefix: {whole}. }}`."
        );
        Some(FieldMistake { error: FormatError::new(message).help(help), text })
    };
    config.fields().into_iter().filter_map(mistake).collect()
}

fn lacking_in_step(name: String, transform: &TransformNode, known: &KnownFields) -> FieldMistake {
    // A step may also use fields that it made itself.
    let after = transform.config.fields_after(known.clone());
    let others: Vec<&str> = after.names().filter(|other| *other != name).chain(known.names()).collect();
    let mut error = lacking(&name, &transform.name, known, others.iter().copied());
    // YAML takes the quotes of `'x'`.
    let is_near = similar(&name, others.into_iter()).is_some();
    if transform.config.field_use() == FieldUse::InExpressions && !is_near {
        error.help = error.help.map(|help| format!("{help} A text is written `\"'{name}'\"`."));
    }
    FieldMistake { error, text: name }
}

/// Returns the mistake of a name that no message has. `others` are the names that may be meant.
fn lacking<'n>(
    name: &str,
    component: &str,
    known: &KnownFields,
    others: impl Iterator<Item = &'n str>,
) -> FormatError {
    let fields: Vec<&str> = known.names().collect();
    let help = match similar(name, others) {
        Some(near) => format!("Did you mean `{near}`?"),
        None if fields.is_empty() => {
            "The messages have no fields here: parse them first, for example with `parse_json`.".to_owned()
        }
        None if fields.len() <= LISTED => format!("The fields here are {}.", list(&fields)),
        None => format!("There are {} fields here, such as {}.", fields.len(), list(&fields[..LISTED])),
    };
    FormatError::new(format!("No message has a field `{name}` at `{component}`.")).help(help)
}

/// Returns the scalar in the options of a sink that names a field, alone or in the braces of a template, and
/// the place of the name in it.
fn naming<'n>(item: &'n Node, name: &str) -> Option<(&'n Node, Option<Range<usize>>)> {
    if let Some(node) = find(item, &|text| text == name) {
        return Some((node, None));
    }
    let node = find(item, &|text| in_braces(text, name).is_some())?;
    Some((node, in_braces(node.text()?, name)))
}

/// Returns the place of a name that follows a brace of a template.
fn in_braces(text: &str, name: &str) -> Option<Range<usize>> {
    text.match_indices('{').find_map(|(brace, _)| {
        let inside = &text[brace + 1..];
        let at = brace + 1 + (inside.len() - inside.trim_start().len());
        let after = text[at..].strip_prefix(name)?.trim_start();
        after.starts_with(['}', ':']).then(|| at..at + name.len())
    })
}

/// Returns the place of a word in a longer text.
fn word(text: &str, word: &str) -> Option<Range<usize>> {
    let is_part = |character: char| character.is_alphanumeric() || character == '_';
    let found = text.match_indices(word).find(|(at, _)| {
        let before = text[..*at].chars().next_back();
        let after = text[at + word.len()..].chars().next();
        !before.is_some_and(is_part) && !after.is_some_and(is_part)
    });
    found.filter(|_| text != word).map(|(at, _)| at..at + word.len())
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
