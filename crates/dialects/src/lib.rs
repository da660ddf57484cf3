//! Configuration formats that thalweg runs: its own, gollum's, capyfile's. Those of other programs are
//! recognised and refused.
//!
//! A dialect turns a [`Document`] into documents of thalweg's form, one for each phase of the job. The engine
//! then reads them like any other. Each node keeps its place in the user's text, so a mistake found at any
//! later point is shown there. A dialect reports what it cannot express as a mistake, with a replacement, and
//! what has no effect here as a remark. It omits nothing silently.
//!
//! [`dialects`] is the list of all dialects, and the only place that names them together: a new one is a type
//! that implements [`Dialect`] and a line there. A `match` over an enum of dialects was rejected, since every
//! command would repeat it.
//!
//! This crate depends on `thalweg-config` alone. It knows components and options by name, as a user does; the
//! engine finds out whether they are right.
//!
//! See docs/decisions/026-a-dialect-produces-nodes.md.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod capyfile;
pub mod foreign;
pub mod gollum;
mod made;
mod native;
#[cfg(test)]
mod page;
mod report;

use thalweg_config::{Comments, Diagnostics, Document};

pub use capyfile::{Environment, Service};
pub use native::Native;

/// One document of thalweg's form, as a dialect made it.
#[derive(Debug, Clone)]
pub struct Conversion {
    /// The user's text, with nodes in thalweg's form that refer to positions in it.
    pub document: Document,
    /// Comments beside the nodes, for printing.
    pub comments: Comments,
    /// Settings without effect, or with another meaning.
    pub remarks: Diagnostics,
}

/// The phases that a document asks for, in thalweg's form.
#[derive(Debug, Clone)]
pub struct Converted {
    /// The phases, in the order in which they run; at least one.
    pub phases: Vec<ConvertedPhase>,
    /// Settings without effect, or with another meaning.
    pub remarks: Diagnostics,
}

/// A phase in thalweg's form.
#[derive(Debug, Clone)]
pub struct ConvertedPhase {
    /// The user's text, with nodes in thalweg's form that refer to positions in it.
    pub document: Document,
    /// Comments beside the nodes, for printing.
    pub comments: Comments,
    /// The name of the processor, where the document is a service with several.
    pub processor: Option<String>,
    /// The operations of the dialect behind the transforms, if each file is reported by operation.
    pub operations: Option<capyfile::Operations>,
}

/// Which processors of a service to read. Dialects without services ignore it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Selection<'a> {
    /// All processors.
    All,
    /// All processors that run without a request. The others are only checked.
    WithoutRequest,
    /// The processor of this name.
    Processor(&'a str),
}

/// A configuration format.
pub trait Dialect: Send + Sync {
    /// Its name.
    fn name(&self) -> &'static str;

    /// True if a document has this form.
    fn recognises(&self, document: &Document) -> bool;

    /// True for thalweg's own form, which needs no conversion.
    fn is_native(&self) -> bool {
        false
    }

    /// The processors of a document, each of which is a job; `None` if the whole document is one job.
    ///
    /// # Errors
    /// Every mistake that prevents reading the processors, each at its place.
    fn service(&self, document: &Document) -> Result<Option<Service>, Diagnostics> {
        let _ = document;
        Ok(None)
    }

    /// Refuses a processor whose input only a server has.
    ///
    /// # Errors
    /// Every operation that reads a request, at its place.
    fn refuse_requests(&self, document: &Document, processor: &str) -> Result<(), Diagnostics> {
        let _ = (document, processor);
        Ok(())
    }

    /// Reads a document into thalweg's form. `environment` supplies variables, files and parameters.
    ///
    /// # Errors
    /// Every mistake, each at its place.
    fn read(
        &self,
        document: &Document,
        environment: Environment<'_>,
        selection: Selection<'_>,
    ) -> Result<Converted, Diagnostics>;
}

/// All dialects. The first that recognises a document reads it; [`Native`] recognises every document.
#[must_use]
pub fn dialects() -> &'static [&'static dyn Dialect] {
    &[&capyfile::Capyfile, &gollum::Gollum::ANY, &foreign::Foreign, &Native]
}

/// The first of these dialects that recognises a document, else [`Native`].
#[must_use]
pub fn recognise<'d>(dialects: &[&'d dyn Dialect], document: &Document) -> &'d dyn Dialect {
    dialects.iter().copied().find(|dialect| dialect.recognises(document)).unwrap_or(&Native)
}

impl Converted {
    /// A job of one phase.
    fn whole(conversion: Conversion) -> Self {
        let Conversion { document, comments, remarks } = conversion;
        Self {
            phases: vec![ConvertedPhase { document, comments, processor: None, operations: None }],
            remarks,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name_of(text: &str) -> &'static str {
        recognise(dialects(), &Document::parse("x", text).unwrap()).name()
    }

    #[test]
    fn each_form_is_recognised() {
        assert_eq!(name_of("sources: {}\npipelines: {}\nsinks: {}\n"), "thalweg");
        assert_eq!(name_of("In: { Type: consumer.Console, Streams: a }\n"), "gollum");
        assert_eq!(name_of("name: s\nprocessors: [{ name: p, operations: [] }]\n"), "capyfile");
        assert_eq!(name_of("anything: else\n"), "thalweg");
    }

    #[test]
    fn thalwegs_own_form_gets_its_variables() {
        let document = Document::parse("x", "state: ${HERE}\n").unwrap();
        let environment = Environment {
            variable: &|name| (name == "HERE").then(|| "/here".to_owned()),
            ..Environment::of_this_process()
        };
        let read = |environment| Native.read(&document, environment, Selection::All);
        let converted = read(environment).unwrap();
        let [phase] = &converted.phases[..] else { panic!("{converted:?}") };
        assert_eq!(phase.document.root().get("state").and_then(|state| state.as_str()), Some("/here"));
        let unset = Environment { variable: &|_| None, ..environment };
        assert_eq!(
            read(unset).unwrap_err().to_string(),
            "x:1:8: The variable `HERE` is not set. (Set it, or give it a default: `${HERE:-default}`.)"
        );
    }
}
