//! Writes a draft as a document in thalweg's form.

use std::collections::BTreeSet;

use thalweg_config::{ByteSize, Comments, Diagnostics, Document, Node, Span};

use super::definition::{Definition, beginning};
use super::environment::SourceType;
use super::operation::Operation;
use super::phases::Draft;
use super::{DONE, FAILED, Input, Phase, Step};
use crate::Conversion;
use crate::made::{self, Made};

/// Writes a document for each draft, with the remarks that belong to it.
pub(super) fn emit(
    document: &Document,
    definition: &Definition<'_>,
    drafts: Vec<Draft<'_, '_>>,
    remarks: &Diagnostics,
) -> Vec<Phase> {
    let mut emitter = Emitter {
        remarks,
        starts: starts(definition),
        comments: Comments::default(),
        said: document.diagnostics(),
    };
    let mut phases = Vec::new();
    let mut processor = None;
    for draft in drafts {
        emitter.comments = Comments::default();
        emitter.said = document.diagnostics();
        let pipeline = pipeline_name(draft.processor.name);
        if phases.is_empty() {
            emitter.say(None, "");
        }
        if processor.replace(draft.processor.start) != Some(draft.processor.start) {
            emitter.say(Some(draft.processor.start), &format!("pipelines/{pipeline}"));
        }
        emitter.operation(draft.reading, "sources/input");
        for (index, (operation, _)) in draft.transforms.iter().enumerate() {
            emitter.operation(operation, &format!("pipelines/{pipeline}/transforms/{index}"));
        }
        let root = root(&draft, &pipeline, beginning(document.root()));
        let kind = if draft.input == Input::Files { "files" } else { "http_upload" };
        let steps = draft.transforms.iter();
        phases.push(Phase {
            conversion: Conversion {
                document: document.with_root(root),
                comments: emitter.comments.clone(),
                remarks: emitter.said.clone(),
            },
            processor: draft.processor.name.to_owned(),
            pipeline,
            input: draft.input,
            reading: step(draft.reading, kind, &draft.source),
            steps: steps.map(|(operation, made)| step(operation, made.component, &made.node)).collect(),
        });
    }
    phases
}

/// The start offsets of all processors and operations.
fn starts(definition: &Definition<'_>) -> BTreeSet<usize> {
    let processors = definition.processors.iter();
    let operations = processors.clone().flat_map(|processor| &processor.operations);
    operations.map(|operation| operation.start).chain(processors.map(|processor| processor.start)).collect()
}

struct Emitter<'r> {
    remarks: &'r Diagnostics,
    starts: BTreeSet<usize>,
    comments: Comments,
    said: Diagnostics,
}

impl Emitter<'_> {
    /// Copies to `place` the remarks between `start` and the next start offset. With `None`, copies those
    /// before the first.
    fn say(&mut self, start: Option<usize>, place: &str) {
        for remark in self.remarks.iter() {
            if self.starts.range(..=remark.span.start).next_back().copied() == start {
                self.comments.add(place, &remark.message);
                self.said.push(remark.clone());
            }
        }
    }

    /// Adds the remarks on an operation, and a comment for each value from outside the definition. The
    /// converted document contains the fetched value itself, so the comment names its source.
    fn operation(&mut self, operation: &Operation<'_>, place: &str) {
        for parameter in operation.parameters().filter(|parameter| parameter.from != SourceType::Value) {
            let (name, from) = (parameter.source.text().unwrap_or(""), parameter.from.name());
            self.comments.add(place, format!("`{}` came from `{from}` `{name}`.", parameter.rule.name));
        }
        self.say(Some(operation.start), place);
    }
}

fn step(operation: &Operation<'_>, component: &'static str, node: &Node) -> Step {
    let size = |name: &str| {
        let size: ByteSize = node.get("check_size")?.get(name)?.text()?.parse().ok()?;
        Some(size.bytes())
    };
    Step {
        component,
        operation: operation.kind.operation,
        index: operation.index,
        sizes: ["min_bytes", "max_bytes"].map(size),
        reports_end: node.get("exec").is_none_or(|options| options.get("output").is_some()),
    }
}

/// The name of the source.
const INPUT: &str = "input";

/// Turns a processor's name into a valid name that differs from those of the source and the sinks.
fn pipeline_name(processor: &str) -> String {
    let is_right = |character: char| character.is_alphanumeric() || matches!(character, '_' | '-');
    let name: String =
        processor.chars().map(|character| if is_right(character) { character } else { '-' }).collect();
    match name.as_str() {
        "" => "unnamed".to_owned(),
        INPUT | DONE | FAILED => format!("{name}-files"),
        _ => name,
    }
}

fn root(draft: &Draft<'_, '_>, pipeline: &str, start: Span) -> Node {
    let span = draft.processor.span;
    let mut sources = Made::new(start);
    sources.put_at(INPUT, draft.reading.span, draft.source.clone());

    let mut main = Made::new(span);
    main.text("from", INPUT, draft.reading.span).text("on_error", "carry", span);
    let packets = draft.transforms.iter().filter_map(|(operation, _)| operation.packet);
    if let Some((size, span)) = packets.min_by_key(|(size, _)| *size) {
        main.number("concurrency", size, span);
    }
    if !draft.transforms.is_empty() {
        let nodes = draft.transforms.iter().map(|(_, made)| made.node.clone()).collect();
        main.put("transforms", made::list(nodes, span));
    }
    main.text("to", DONE, span);
    // A file that the source cannot read is a failed file as well.
    let errors = [pipeline, INPUT].map(|name| made::text(format!("{name}.errors"), span));
    let mut failed = Made::new(span);
    failed.put("from", made::list(errors.into(), span)).text("to", FAILED, span);
    let mut pipelines = Made::new(start);
    pipelines.put_at(pipeline, span, main.done());
    pipelines.put_at(&format!("{pipeline}-failed"), span, failed.done());

    let mut sinks = Made::new(start);
    for name in [DONE, FAILED] {
        sinks.put_at(name, span, made::component("discard", span, Made::new(span).done()));
    }
    let mut root = Made::new(start);
    root.put("sources", sources.done()).put("pipelines", pipelines.done()).put("sinks", sinks.done());
    root.done()
}
