//! Checks that no source's files are removed while another source may still read them.

use std::sync::Arc;

use thalweg_config::Node;

use super::Reader;
use crate::graph::{Feed, Graph, SourceNode};

impl Reader<'_> {
    /// Checks each pair of sources of which one leads to a removal. Two sources that lead to nothing but the
    /// same removal are right: each file is processed before it is removed.
    pub(super) fn shared_files(&mut self, root: &Node, graph: &Graph) {
        let sources = root.get("sources");
        for removing in &graph.sources {
            let Some(removal) = removals(graph, removing).into_iter().flatten().next() else { continue };
            for reading in graph.sources.iter().filter(|source| source.name != removing.name) {
                let is_same = removals(graph, reading).iter().all(|other| other.as_ref() == Some(&removal));
                if is_same || !may_meet(removing, reading) {
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
}

/// Returns the removal that each pipeline of a source leads to.
fn removals(graph: &Graph, source: &SourceNode) -> Vec<Option<Arc<str>>> {
    let fed = graph.fed_by(&Feed::Source(source.name.clone()));
    fed.into_iter().map(|at| graph.removal(&graph.pipelines[at].name)).collect()
}

fn may_meet(one: &SourceNode, other: &SourceNode) -> bool {
    let others = other.config.reads();
    one.config.reads().iter().any(|reads| others.iter().any(|other| reads.may_meet(other)))
}
