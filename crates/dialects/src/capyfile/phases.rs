//! Cuts a processor into phases: one for each reading operation.

use thalweg_config::Node;

use super::definition::{Definition, Processor};
use super::operation::Operation;
use super::tables;
use super::transforms::{self, Transform};
use super::values::Values;
use super::{Input, goglob};
use crate::made::{self, Made};
use crate::report::Report;

/// A phase that is not yet written as a document.
pub(super) struct Draft<'d, 'a> {
    pub(super) processor: &'d Processor<'a>,
    pub(super) input: Input,
    pub(super) reading: &'d Operation<'a>,
    pub(super) source: Node,
    pub(super) transforms: Vec<(&'d Operation<'a>, Transform)>,
}

/// Checks the rules that hold for every processor, including those that do not run.
pub(super) fn check(processor: &Processor<'_>, report: &mut Report) {
    let Some(first) = processor.operations.first() else { return };
    // An operation that could not be read is already reported, and may have been the reading one.
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

/// Reads the operations of a processor into drafts. Mistakes are added to the report.
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
            values.report.remark(span, format!("`{name}` has no effect where files are read."));
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
