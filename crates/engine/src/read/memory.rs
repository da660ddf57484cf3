//! Checks that the options of sources and sinks fit into the memory of the process.
//!
//! This is a check of its own, because the command line may give another memory than the document.

use thalweg_config::{Diagnostics, Document};

use super::sections::Section;
use crate::graph::Graph;
use crate::registry::report;

/// Checks the options that need memory. Its graph must be that of the document, with the memory of the run.
///
/// # Errors
/// The options that need more than there is, each at its place.
pub fn check_memory(document: &Document, graph: &Graph) -> Result<(), Diagnostics> {
    let mut diagnostics = document.diagnostics();
    let sources = Section::of(document.root(), "sources");
    for source in &graph.sources {
        let mistakes = source.config.check_memory(graph.memory);
        let Some(node) = sources.node(&source.name) else { continue };
        report(mistakes, node.get(source.kind).unwrap_or(node), node.span, &mut diagnostics);
    }
    let sinks = Section::of(document.root(), "sinks");
    for sink in &graph.sinks {
        let mistakes = sink.config.check_memory(graph.memory);
        let Some(node) = sinks.node(&sink.name) else { continue };
        report(mistakes, node.get(sink.kind).unwrap_or(node), node.span, &mut diagnostics);
    }
    diagnostics.into_result(())
}
