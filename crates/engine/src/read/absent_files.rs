//! Files that a run needs at its beginning, and that do not exist when its configuration is checked.
//!
//! They may be there by then, so this is a remark. Only a check gives it: a run tells itself what it misses.

use thalweg_config::{Diagnostics, Document};

use super::sections::Sections;
use crate::graph::Graph;

/// Returns a remark for each file that a component of a graph needs and that does not exist. The graph must
/// be that of the document.
pub fn absent_files(document: &Document, graph: &Graph) -> Diagnostics {
    let root = document.root();
    let sections = &Sections::of(root);
    let mut found = document.diagnostics();
    let sources = graph.sources.iter().flat_map(|source| {
        let files = source.config.needed_files().into_iter();
        files.map(move |file| (&sections.sources, &source.name, source.kind, file))
    });
    let sinks = graph.sinks.iter().flat_map(|sink| {
        let files = sink.config.needed_files().into_iter();
        files.map(move |file| (&sections.sinks, &sink.name, sink.kind, file))
    });
    for (section, name, kind, (option, path)) in sources.chain(sinks) {
        // Without permission to look, nothing is known.
        if path.try_exists().unwrap_or(true) {
            continue;
        }
        let message = format!("`{}`, which `{name}` reads, does not exist.", path.display());
        let span = section.option_span(name, kind, option).unwrap_or(root.span);
        found
            .error(span, message)
            .help("It must exist when a run begins. A relative path begins at the folder in which the program runs.");
    }
    found
}
