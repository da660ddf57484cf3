//! The documents: one for each reading operation of a processor.

use thalweg_config::{Comments, Diagnostics, Document, Node, Span};

use super::definition::{Definition, Processor};
use super::operation::Operation;
use super::surroundings::SourceType;
use super::tables;
use super::transforms::{self, Transform};
use super::values::Values;
use super::{Input, Phase, Step, goglob};
use crate::Conversion;
use crate::made::{self, Made};
use crate::report::Report;

/// A phase before it is written.
pub(super) struct Draft<'d, 'a> {
    processor: &'d Processor<'a>,
    input: Input,
    reading: &'d Operation<'a>,
    source: Node,
    transforms: Vec<(&'d Operation<'a>, Transform)>,
}

/// What must be so in every processor, whether it is to run or not.
pub(super) fn check(processor: &Processor<'_>, report: &mut Report) {
    let Some(first) = processor.operations.first() else { return };
    // What could not be read was said, and may have been the one that reads.
    if first.index == 0 && !first.kind.operation.reads() {
        let message =
            format!("The processor `{}` has no operation before this one that reads files.", processor.name);
        let help = "Begin it with `filesystem_input_read`, `http_multipart_form_input_read` or \
                    `http_octet_stream_input_read`.";
        report.mistake(first.span, message).help(help);
    }
    let body = |operation: &&Operation<'_>| {
        operation.kind.operation.reads() && operation.kind.operation != tables::Operation::FilesystemInputRead
    };
    if let Some(second) = processor.operations.iter().filter(body).nth(1) {
        let message = "The request has been read before: there is nothing left of it.";
        report.mistake(second.span, message).help("Leave one of the two out.");
    }
}

/// Reads what a processor does. What is wrong is in the report.
pub(super) fn drafts<'d, 'a>(
    definition: &Definition<'a>,
    processor: &'d Processor<'a>,
    values: &mut Values<'_>,
) -> Vec<Draft<'d, 'a>> {
    check(processor, values.report);
    let mut drafts: Vec<Draft<'d, 'a>> = Vec::new();
    for operation in &processor.operations {
        if operation.kind.operation.reads() {
            let (input, source) = source(definition, processor, operation, values);
            drafts.push(Draft { processor, input, reading: operation, source, transforms: Vec::new() });
            continue;
        }
        let transform = transforms::transform(operation, values);
        if let (Some(draft), Some(transform)) = (drafts.last_mut(), transform) {
            draft.transforms.push((operation, transform));
        }
    }
    drafts
}

fn source(
    definition: &Definition<'_>,
    processor: &Processor<'_>,
    operation: &Operation<'_>,
    values: &mut Values<'_>,
) -> (Input, Node) {
    let idle = [
        ("targetFiles", operation.target.map(|(_, span)| span)),
        ("maxPacketSize", operation.packet.map(|(_, span)| span)),
    ];
    for (name, span) in idle {
        if let Some(span) = span {
            values.report.remark(span, format!("`{name}` means nothing where files are read."));
        }
    }
    let mut options = Made::new(operation.span);
    let (input, kind) = match operation.kind.operation {
        tables::Operation::FilesystemInputRead => {
            if let Some(target) = values.some_text(operation, "target") {
                match goglob::translated(&target.value) {
                    Ok(path) => {
                        options.text("path", path, target.span);
                    }
                    Err(why) => {
                        let message = "`target` is not a pattern of paths.".to_owned();
                        values.wrong(target.from, target.span, message).help(why);
                    }
                }
            }
            options.flag("hidden", true, operation.span).flag("recursive", false, operation.span);
            options.text("folders", "skip", operation.span).text("order", "name", operation.span);
            (Input::Files, "files")
        }
        other => {
            let (input, accept) = match other {
                tables::Operation::HttpOctetStreamInputRead => (Input::Body, "body"),
                _ => (Input::Multipart, "multipart"),
            };
            options.text("address", "0.0.0.0:8024", operation.span);
            options.text("path", format!("/{}/{}", definition.name, processor.name), operation.span);
            options.text("accept", accept, operation.span);
            (input, "http_upload")
        }
    };
    (input, made::component(kind, operation.span, options.done()))
}

/// Writes the documents.
pub(super) fn written(
    document: &Document,
    definition: &Definition<'_>,
    drafts: Vec<Draft<'_, '_>>,
    remarks: &Diagnostics,
) -> Vec<Phase> {
    let mut head = document.diagnostics();
    let all = || definition.processors.iter().flat_map(|processor| &processor.operations);
    let owner =
        |span: Span| all().map(|operation| operation.start).filter(|start| *start <= span.start).max();
    remarks.iter().filter(|remark| owner(remark.span).is_none()).for_each(|remark| head.push(remark.clone()));
    let mut phases = Vec::new();
    for draft in drafts {
        let mut comments = Comments::default();
        let mut of_phase = document.diagnostics();
        if phases.is_empty() {
            head.iter().for_each(|remark| comments.add("", &remark.message));
            of_phase.extend(head.clone());
        }
        let pipeline = pipeline_name(draft.processor.name);
        let mut operations = vec![(draft.reading, "sources/input".to_owned())];
        operations.extend(
            draft.transforms.iter().enumerate().map(|(index, (operation, _))| {
                (*operation, format!("pipelines/{pipeline}/transforms/{index}"))
            }),
        );
        for (operation, place) in &operations {
            sources(operation, place, &mut comments);
            for remark in remarks.iter().filter(|remark| owner(remark.span) == Some(operation.start)) {
                comments.add(place, &remark.message);
                of_phase.push(remark.clone());
            }
        }
        let root = root(&draft, &pipeline, definition_span(document));
        phases.push(Phase {
            conversion: Conversion { document: document.with_root(root), comments, remarks: of_phase },
            processor: draft.processor.name.to_owned(),
            pipeline,
            input: draft.input,
            reading: step(draft.reading, if draft.input == Input::Files { "files" } else { "http_upload" }),
            steps: draft.transforms.iter().map(|(operation, made)| step(operation, made.component)).collect(),
        });
    }
    phases
}

fn definition_span(document: &Document) -> Span {
    Span::new(document.root().span.start, document.root().span.start)
}

fn step(operation: &Operation<'_>, component: &'static str) -> Step {
    Step { component, operation: operation.kind.operation, index: operation.index }
}

/// Where values came from that do not stand in the definition: what is printed has what they were.
fn sources(operation: &Operation<'_>, place: &str, comments: &mut Comments) {
    for parameter in operation.parameters().filter(|parameter| parameter.from != SourceType::Value) {
        let name = parameter.source.text().unwrap_or("");
        comments
            .add(place, format!("`{}` came from `{}` `{name}`.", parameter.rule.name, parameter.from.name()));
    }
}

/// A name that the engine takes and that none of the others has.
fn pipeline_name(processor: &str) -> String {
    let is_right = |character: char| character.is_alphanumeric() || matches!(character, '_' | '-');
    let name: String =
        processor.chars().map(|character| if is_right(character) { character } else { '-' }).collect();
    match name.as_str() {
        "" => "unnamed".to_owned(),
        "input" | "done" | "failed" => format!("{name}-files"),
        _ => name,
    }
}

fn root(draft: &Draft<'_, '_>, pipeline: &str, start: Span) -> Node {
    let span = draft.processor.span;
    let mut sources = Made::new(start);
    sources.put_at("input", draft.reading.span, draft.source.clone());

    let mut main = Made::new(span);
    main.text("from", "input", draft.reading.span).text("on_error", "carry", span);
    let packets = draft.transforms.iter().filter_map(|(operation, _)| operation.packet);
    if let Some((size, span)) = packets.min_by_key(|(size, _)| *size) {
        main.number("concurrency", size, span);
    }
    if !draft.transforms.is_empty() {
        let nodes = draft.transforms.iter().map(|(_, made)| made.node.clone()).collect();
        main.put("transforms", made::list(nodes, span));
    }
    main.text("to", "done", span);
    let mut failed = Made::new(span);
    failed.text("from", format!("{pipeline}.errors"), span).text("to", "failed", span);
    let mut pipelines = Made::new(start);
    pipelines.put_at(pipeline, span, main.done());
    pipelines.put_at(&format!("{pipeline}-failed"), span, failed.done());

    let mut sinks = Made::new(start);
    for name in ["done", "failed"] {
        sinks.put_at(name, span, made::component("discard", span, Made::new(span).done()));
    }
    let mut root = Made::new(start);
    root.put("sources", sources.done()).put("pipelines", pipelines.done()).put("sinks", sinks.done());
    root.done()
}
