//! Checks that no two components use the same local files: no source's files are removed while another source
//! may still read them, no file is written by two sinks, and no sink writes a file that its messages come
//! from.

use std::collections::BTreeMap;
use std::sync::Arc;

use thalweg_config::Node;

use super::Reader;
use crate::component::normalised;
use crate::graph::{Feed, SourceNode};
use crate::index::Index;

impl Reader<'_> {
    /// Checks each pair of sources of which one leads to a removal. Two sources that lead to the same
    /// pipelines are right: each file is processed before it is removed.
    pub(super) fn shared_files(&mut self, root: &Node, index: &Index<'_>) {
        let sources = root.get("sources");
        for removing in &index.graph.sources {
            let Some(removal) = removal(index, removing) else { continue };
            for reading in index.graph.sources.iter().filter(|source| source.name != removing.name) {
                let fed = |source: &SourceNode| index.fed_by(&Feed::Source(source.name.clone()));
                if fed(reading) == fed(removing) || !may_meet(removing, reading) {
                    continue;
                }
                let span = sources.and_then(|node| node.key(&reading.name)).map_or(root.span, |key| key.span);
                let message = format!(
                    "`{removal}` removes files of `{}` that `{}` may not have read yet.",
                    removing.name, reading.name
                );
                let help = "Let one source read the files, and write them with a transform, such as `write` or \
                            `upload`, before they are removed. Or give the sources separate folders, or names of \
                            files that exclude each other.";
                self.diagnostics.error(span, message).help(help);
            }
        }
    }

    /// Checks that each file is written by one sink. A sink that continues or replaces its file would cut off
    /// or replace what another one wrote.
    pub(super) fn shared_targets(&mut self, root: &Node, index: &Index<'_>) {
        let mut writers = BTreeMap::new();
        for sink in &index.graph.sinks {
            let Some(path) = sink.config.writes() else { continue };
            let Some(first) = writers.insert(normalised(&path), &sink.name) else { continue };
            let span =
                root.get("sinks").and_then(|node| node.key(&sink.name)).map_or(root.span, |key| key.span);
            let message = format!("`{}` writes the same file as `{first}`: `{}`.", sink.name, path.display());
            let help = format!("Let both pipelines lead to `{first}`, or give the sinks separate files.");
            self.diagnostics.error(span, message).help(help);
        }
    }

    /// Checks that no sink writes a file of its own source: a job would replace what it has not read yet, and
    /// a run that follows the file would read its own output for ever.
    pub(super) fn own_input(&mut self, root: &Node, index: &Index<'_>) {
        for sink in &index.graph.sinks {
            let Some(path) = sink.config.writes() else { continue };
            let reads =
                |source: &&SourceNode| source.config.reads().iter().any(|reads| reads.includes(&path));
            let mut sources = index.graph.sources.iter().filter(reads);
            let Some(source) = sources.find(|source| index.reaches(&source.name, &sink.name)) else {
                continue;
            };
            let span =
                root.get("sinks").and_then(|node| node.key(&sink.name)).map_or(root.span, |key| key.span);
            let message =
                format!("`{}` writes a file that `{}` reads: `{}`.", sink.name, source.name, path.display());
            let help = "Write to another folder, or give the file a name that the source does not read.";
            self.diagnostics.error(span, message).help(help);
        }
    }
}

/// Returns the removal that a source leads to.
fn removal(index: &Index<'_>, source: &SourceNode) -> Option<Arc<str>> {
    let fed = index.fed_by(&Feed::Source(source.name.clone()));
    fed.iter().find_map(|&at| index.removal(&index.graph.pipelines[at].name))
}

fn may_meet(one: &SourceNode, other: &SourceNode) -> bool {
    let others = other.config.reads();
    one.config.reads().iter().any(|reads| others.iter().any(|other| reads.may_meet(other)))
}
