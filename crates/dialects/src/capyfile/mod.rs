//! Converts capyfile's service definitions.
//!
//! capyfile reads, checks, converts and writes files. A *service* has *processors*, each a list of
//! *operations*. The parameters of an operation may come from the environment, from files, or from the HTTP
//! request being served. A definition is read in steps:
//!
//! 1. `definition` and `operation` read the definition and check it against `tables`, which lists what every
//!    parameter of every operation becomes. Keys that capyfile ignored silently are remarks, or mistakes if
//!    they probably misspell a key that matters.
//! 2. `values` fetches the parameters of the processor to run from the [`Environment`]. `transforms` turns
//!    each operation into a transform. `goglob` and `gotext` translate patterns and templates.
//! 3. `phases` cuts a processor into phases at its reading operations. If one stands in the middle, the files
//!    before it end there and the next phase begins. `emit` writes a document for each phase.
//!
//! Every node keeps its position in the definition. [`response`] and [`events`] produce the output of
//! capyfile's programs: answers to requests, and lines of progress.

pub mod codes;
mod definition;
mod emit;
mod environment;
pub mod events;
mod goglob;
mod gotext;
mod operation;
mod phases;
pub mod response;
pub mod tables;
#[cfg(test)]
mod tests;
mod transforms;
mod values;

use std::fmt;

use thalweg_config::{Diagnostics, Document, nearest};

use crate::report::Report;
use crate::{Conversion, Converted, ConvertedPhase, Dialect, Selection};
use definition::{Definition, Keys};
use values::Values;

pub use environment::{Environment, Etcd, Request, SECRETS, SourceType};
pub use tables::Operation;

/// The name of the sink of processed files in converted definitions.
pub const DONE: &str = "done";
/// The name of the sink of failed files in converted definitions.
pub const FAILED: &str = "failed";

/// A service and its processors, by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// The service's name; empty if it has none.
    pub name: String,
    /// The names of the processors, in the order of the definition.
    pub processors: Vec<String>,
}

/// The source of a processor's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input {
    /// Files on this machine.
    Files,
    /// The files in the form of a request.
    Multipart,
    /// The body of a request, as one file.
    Body,
}

/// A transform of a converted document, with the operation that it performs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The kind of the transform.
    pub component: &'static str,
    /// The operation.
    pub operation: Operation,
    /// The operation's index in its processor, from 0.
    pub index: usize,
    /// The smallest and largest allowed sizes in bytes, if the operation checks sizes.
    pub sizes: [Option<u64>; 2],
    /// True unless it is a command whose output is no file: capyfile does not report the end of such a
    /// command.
    pub reports_end: bool,
}

/// A part of a processor that is one phase of the job: from one reading operation to the next.
#[derive(Debug, Clone)]
pub struct Phase {
    /// The phase in thalweg's form.
    pub conversion: Conversion,
    /// The name of the processor, as written in the definition.
    pub processor: String,
    /// The name of the pipeline in the document.
    pub pipeline: String,
    /// The source of the phase's files.
    pub input: Input,
    /// The reading operation; `component` is the kind of the source `input`.
    pub reading: Step,
    /// The operations of the pipeline's transforms, in order, one for each transform.
    pub steps: Vec<Step>,
}

/// The operations behind the transforms of a phase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operations {
    /// The name of the pipeline in the document.
    pub pipeline: String,
    /// The reading operation.
    pub reading: Step,
    /// The operations of the pipeline's transforms, one for each, in their order.
    pub steps: Vec<Step>,
}

/// capyfile's service definitions.
#[derive(Debug, Clone, Copy)]
pub struct Capyfile;

impl Dialect for Capyfile {
    fn name(&self) -> &'static str {
        "capyfile"
    }

    fn recognises(&self, document: &Document) -> bool {
        is_capyfile(document)
    }

    fn service(&self, document: &Document) -> Result<Option<Service>, Diagnostics> {
        service(document).map(Some)
    }

    fn refuse_requests(&self, document: &Document, processor: &str) -> Result<(), Diagnostics> {
        refuse_requests(document, processor)
    }

    fn read(
        &self,
        document: &Document,
        environment: Environment<'_>,
        selection: Selection<'_>,
    ) -> Result<Converted, Diagnostics> {
        let phases_of = |processor: Option<&str>| {
            read(document, processor, environment).map_err(LoadError::into_diagnostics)
        };
        match selection {
            Selection::All => Ok(converted(document, phases_of(None)?)),
            Selection::Processor(name) => Ok(converted(document, phases_of(Some(name))?)),
            Selection::WithoutRequest => {
                let remarks = check(document, environment)?;
                let mut phases = Vec::new();
                for processor in service(document)?.processors {
                    if !needs_request(document, &processor) {
                        phases.extend(phases_of(Some(&processor))?);
                    }
                }
                Ok(Converted { remarks, ..converted(document, phases) })
            }
        }
    }
}

fn converted(document: &Document, phases: Vec<Phase>) -> Converted {
    let mut remarks = document.diagnostics();
    let phases = phases.into_iter().map(|phase| {
        let Phase { conversion, processor, pipeline, reading, steps, .. } = phase;
        remarks.extend(conversion.remarks);
        ConvertedPhase {
            document: conversion.document,
            comments: conversion.comments,
            processor: Some(processor),
            operations: Some(Operations { pipeline, reading, steps }),
        }
    });
    Converted { phases: phases.collect(), remarks }
}

/// The reason why a definition cannot run.
#[derive(Debug, Clone)]
pub enum LoadError {
    /// The definition is wrong, or something that it refers to on this machine is missing.
    Definition(Diagnostics),
    /// The definition is right, but a value from the request is missing or malformed.
    Request(Diagnostics),
    /// The definition is right, but this operation cannot work with a value from the request.
    Operation {
        /// The operation.
        operation: Operation,
        /// The reason, in capyfile's words.
        message: String,
        /// The mistakes in values.
        mistakes: Diagnostics,
    },
}

impl LoadError {
    /// The mistakes, each at its position in the definition.
    pub fn diagnostics(&self) -> &Diagnostics {
        match self {
            Self::Definition(wrong) | Self::Request(wrong) | Self::Operation { mistakes: wrong, .. } => wrong,
        }
    }

    /// The mistakes by value; see [`diagnostics`](Self::diagnostics).
    pub fn into_diagnostics(self) -> Diagnostics {
        match self {
            Self::Definition(wrong) | Self::Request(wrong) | Self::Operation { mistakes: wrong, .. } => wrong,
        }
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.diagnostics().fmt(formatter)
    }
}

impl std::error::Error for LoadError {}

/// True if a document looks like a service definition: it lists `processors` and has no section of thalweg's
/// own form.
pub fn is_capyfile(document: &Document) -> bool {
    let (keys, root) = (Keys::of(document), document.root());
    if ["sources", "pipelines", "sinks"].iter().any(|section| root.get(section).is_some()) {
        return false;
    }
    keys.get(root, "processors").is_some_and(|list| {
        let is_processor = |item: &thalweg_config::Node| {
            ["operations", "name"].iter().any(|key| keys.get(item, key).is_some())
        };
        list.items().iter().any(is_processor) || list.items().is_empty() && list.as_mapping().is_none()
    })
}

/// Returns the names of the service and of its processors.
///
/// # Errors
/// All mistakes that can be found without the environment.
pub fn service(document: &Document) -> Result<Service, Diagnostics> {
    let mut report = Report::new(document);
    let definition = definition::read(document, &mut report);
    let processors = definition.processors.iter().map(|processor| processor.name.to_owned()).collect();
    let service = Service { name: definition.name.to_owned(), processors };
    report.mistakes.into_result(service)
}

/// Returns the operations of a processor, in order.
pub fn operations(document: &Document, processor: &str) -> Vec<Operation> {
    let mut report = Report::new(document);
    let definition = definition::read(document, &mut report);
    let found = definition.processors.iter().find(|known| known.name == processor);
    let operations = found.into_iter().flat_map(|processor| &processor.operations);
    operations.map(|operation| operation.kind.operation).collect()
}

/// True if a processor can run only while a request is served: it reads the request, or takes parameters from
/// it.
pub fn needs_request(document: &Document, processor: &str) -> bool {
    let mut report = Report::new(document);
    let definition = definition::read(document, &mut report);
    let mut operations = definition
        .processors
        .iter()
        .filter(|known| known.name == processor)
        .flat_map(|processor| &processor.operations);
    operations.any(|operation| {
        reads_request(operation.kind.operation)
            || operation.parameters().any(|parameter| parameter.from.is_of_request())
    })
}

fn reads_request(operation: Operation) -> bool {
    matches!(operation, Operation::HttpMultipartFormInputRead | Operation::HttpOctetStreamInputRead)
}

/// Refuses a processor that reads the files of a request. Without a server it would wait for them for ever.
///
/// # Errors
/// Each operation that reads a request, at its position.
pub fn refuse_requests(document: &Document, processor: &str) -> Result<(), Diagnostics> {
    let mut unread = Report::new(document);
    let definition = definition::read(document, &mut unread);
    let mut report = Report::new(document);
    let found = definition.processors.iter().filter(|known| known.name == processor);
    for operation in found.flat_map(|processor| &processor.operations) {
        if reads_request(operation.kind.operation) {
            let message = format!(
                "`{}` reads the files of an HTTP request, which `run` does not have.",
                operation.kind.name
            );
            let help = format!("Serve the definition: `thalweg serve {}`.", document.name());
            report.mistake(operation.span, message).help(help);
        }
    }
    report.mistakes.into_result(())
}

/// Converts one processor of a service definition, or all of them, to thalweg's form. Each phase becomes a
/// document.
///
/// The whole definition is checked. Values are fetched only for the processors to run.
///
/// # Errors
/// All mistakes, each at its position. On success there is at least one phase, and each has its document.
pub fn read(
    document: &Document,
    processor: Option<&str>,
    environment: Environment<'_>,
) -> Result<Vec<Phase>, LoadError> {
    let mut report = Report::new(document);
    let definition = definition::read(document, &mut report);
    if let Some(wanted) = processor {
        known(&definition, wanted, document, &mut report);
    }
    let mut values = Values::new(&mut report, document.diagnostics(), environment);
    let mut drafts = Vec::new();
    for found in &definition.processors {
        if processor.is_none_or(|wanted| wanted == found.name) {
            drafts.extend(phases::drafts(&definition, found, &mut values));
        } else {
            phases::check(found, values.report);
        }
    }
    let (of_request, cannot_work) = (values.of_request, values.cannot_work);
    let remarks = report.remarks;
    report.mistakes.into_result(()).map_err(LoadError::Definition)?;
    of_request.into_result(()).map_err(|mistakes| match cannot_work {
        Some((operation, message)) => LoadError::Operation { operation, message, mistakes },
        None => LoadError::Request(mistakes),
    })?;
    Ok(emit::emit(document, &definition, drafts, &remarks))
}

/// Checks a definition and all its values except those from a request, and returns the remarks.
///
/// # Errors
/// All mistakes, each at its position.
pub fn check(document: &Document, environment: Environment<'_>) -> Result<Diagnostics, Diagnostics> {
    let mut report = Report::new(document);
    let definition = definition::read(document, &mut report);
    let mut values = Values::without_request(&mut report, document.diagnostics(), environment);
    for processor in &definition.processors {
        phases::drafts(&definition, processor, &mut values);
    }
    report.mistakes.into_result(report.remarks)
}

fn known(definition: &Definition<'_>, wanted: &str, document: &Document, report: &mut Report) {
    let names = || definition.processors.iter().map(|processor| processor.name);
    if definition.processors.is_empty() || names().any(|name| name == wanted) {
        return;
    }
    let list: Vec<String> = names().map(|name| format!("`{name}`")).collect();
    let span = definition::key_of(Keys::of(document), document.root(), "processors")
        .map_or_else(Default::default, |key| key.span);
    let help = match nearest(wanted, names()) {
        Some(near) => format!("Did you mean `{near}`?"),
        None => format!("There are {}.", list.join(", ")),
    };
    report.mistake(span, format!("Processor \"{wanted}\" not found")).help(help);
}
