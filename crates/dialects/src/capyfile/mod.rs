//! capyfile's service definitions.
//!
//! capyfile reads files, checks, converts and writes them: a *service* has *processors*, each a list of *operations* whose
//! parameters may come from the environment, from files, or from the HTTP request that is served. A definition is read
//! in steps:
//!
//! 1. `definition` and `operation` read what stands in it, held against `tables`, where every parameter of every operation
//!    has its fate. What capyfile ignored in silence is a remark, or a mistake if it changed what was meant.
//! 2. `values` fetches the parameters of the processor that is to run, from the [`Environment`], and `transforms` makes
//!    a transform of each operation. `goglob` and `gotext` translate patterns and templates.
//! 3. `phases` cuts a processor at its reading operations: where one stands in the middle, the files before it end there,
//!    and another run begins. `emit` writes a document for each.
//!
//! Every node that is made has the place in the definition that it came from. [`response`] and [`events`] are what
//! capyfile's programs say: answers to requests, and lines of progress.

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

/// A service as it calls itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// Its name; empty if it has none.
    pub name: String,
    /// The names of its processors, in their order.
    pub processors: Vec<String>,
}

/// What files begin at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input {
    /// Files of this machine.
    Files,
    /// The files in the form that a request brings.
    Multipart,
    /// The body of a request, as one file.
    Body,
}

/// A transform of a document that was made, and the operation that it does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The kind of the transform.
    pub component: &'static str,
    /// The operation.
    pub operation: Operation,
    /// The how manyth operation of its processor it is, from 0.
    pub index: usize,
    /// The sizes that are allowed, where the operation checks sizes: the least, and the largest.
    pub sizes: [Option<u64>; 2],
}

/// A part of a processor that is one run: from a reading operation to the next one.
#[derive(Debug, Clone)]
pub struct Phase {
    /// What it is in our form.
    pub conversion: Conversion,
    /// The name of the processor, as it was written.
    pub processor: String,
    /// The name of the pipeline in the document.
    pub pipeline: String,
    /// What its files begin at.
    pub input: Input,
    /// The reading operation: the `component` is that of the source `input`.
    pub reading: Step,
    /// The operations of the pipeline's transforms, one for each, in their order.
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

/// Why nothing can be run.
#[derive(Debug, Clone)]
pub enum LoadError {
    /// The definition is wrong, or what it refers to on this machine is missing.
    Definition(Diagnostics),
    /// The definition is right, and what the request says is missing or is not what it should be.
    Request(Diagnostics),
}

impl LoadError {
    /// What is wrong, each at its place in the definition.
    pub fn diagnostics(&self) -> &Diagnostics {
        match self {
            Self::Definition(wrong) | Self::Request(wrong) => wrong,
        }
    }

    /// The same as a value.
    pub fn into_diagnostics(self) -> Diagnostics {
        match self {
            Self::Definition(wrong) | Self::Request(wrong) => wrong,
        }
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.diagnostics().fmt(formatter)
    }
}

impl std::error::Error for LoadError {}

/// Whether a document has the form of a service definition: a list of `processors`, and none of the sections of ours.
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

/// The names of the service and of its processors.
///
/// # Errors
/// Every mistake in it that can be told without the world around it.
pub fn service(document: &Document) -> Result<Service, Diagnostics> {
    let mut report = Report::new(document);
    let definition = definition::read(document, &mut report);
    let processors = definition.processors.iter().map(|processor| processor.name.to_owned()).collect();
    let service = Service { name: definition.name.to_owned(), processors };
    report.mistakes.into_result(service)
}

/// The operations of a processor, in their order.
pub fn operations(document: &Document, processor: &str) -> Vec<Operation> {
    let mut report = Report::new(document);
    let definition = definition::read(document, &mut report);
    let found = definition.processors.iter().find(|known| known.name == processor);
    let operations = found.into_iter().flat_map(|processor| &processor.operations);
    operations.map(|operation| operation.kind.operation).collect()
}

/// Whether a processor can run only where a request is served: it reads one, or has parameters from one.
pub fn needs_request(document: &Document, processor: &str) -> bool {
    let mut report = Report::new(document);
    let definition = definition::read(document, &mut report);
    let mut operations = definition
        .processors
        .iter()
        .filter(|known| known.name == processor)
        .flat_map(|processor| &processor.operations);
    operations.any(|operation| {
        matches!(
            operation.kind.operation,
            Operation::HttpMultipartFormInputRead | Operation::HttpOctetStreamInputRead
        ) || operation.parameters().any(|parameter| parameter.from.is_of_request())
    })
}

/// Reads a processor of a service definition into thalweg's form, or all of them: a document for each run that it takes.
///
/// The definition is checked as a whole; values are fetched for what is to run.
///
/// # Errors
/// Every mistake in it, each at its place. There is no phase without a document, and at least one.
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
    let of_request = values.of_request;
    let remarks = report.remarks;
    report.mistakes.into_result(()).map_err(LoadError::Definition)?;
    of_request.into_result(()).map_err(LoadError::Request)?;
    Ok(emit::emit(document, &definition, drafts, &remarks))
}

/// Checks a definition and all of its values but those that only a request has, and gives the remarks on it.
///
/// # Errors
/// Every mistake in it, each at its place.
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
