//! Files that a run needs at its beginning, and that do not exist when its configuration is checked.
//!
//! They may be there by then, so this is a remark. Only a check gives it: a run tells itself what it misses.

use std::path::PathBuf;
use std::sync::Arc;

use thalweg_config::{Diagnostics, Document, Span};

use super::sections::{Section, Sections};
use crate::component::Step;
use crate::graph::{Graph, Pipeline};

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
    let outer = sources.chain(sinks).map(|(section, name, kind, (option, path))| {
        (name.clone(), path, section.option_span(name, kind, option))
    });
    let inner = graph.pipelines.iter().flat_map(|pipeline| of_transforms(pipeline, &sections.pipelines));
    for (name, path, span) in outer.chain(inner) {
        // Without permission to look, nothing is known.
        if path.try_exists().unwrap_or(true) {
            continue;
        }
        let message = format!("`{}`, which `{name}` reads, does not exist.", path.display());
        let span = span.unwrap_or(root.span);
        found
            .error(span, message)
            .help("It must exist when a run begins. A relative path begins at the folder in which the program runs.");
    }
    found
}

/// Returns the files that the transforms of a pipeline need, each with the name of the transform and its
/// place.
fn of_transforms(pipeline: &Pipeline, written: &Section<'_>) -> Vec<(Arc<str>, PathBuf, Option<Span>)> {
    let steps = written.steps(&pipeline.name);
    let mut found = Vec::new();
    for (number, transform) in pipeline.transforms.iter().enumerate() {
        let Step::Messages(config) = &transform.config else { continue };
        let step = steps.get(number);
        for (option, path) in config.needed_files() {
            let options = step.and_then(|step| step.get(transform.kind));
            let place = options.and_then(|options| options.get(option)).or(step);
            found.push((transform.name.clone(), path, place.map(|node| node.span)));
        }
    }
    found
}
