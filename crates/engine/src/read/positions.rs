//! Checks of graphs with sinks that know stored messages by their positions.

use std::sync::Arc;

use thalweg_config::Node;

use super::Reader;
use super::sections::Sections;
use crate::index::Index;
use crate::pairs::Reached;
use crate::settings::BufferSettings;

impl Reader<'_> {
    /// Checks that no buffer on disk is before such a sink. After a kill, what the source sends again is in
    /// the buffer twice, and its positions go back.
    pub(super) fn positions_through_buffers(
        &mut self,
        root: &Node,
        sections: &Sections<'_>,
        index: &Index<'_>,
    ) {
        let is_on_disk = |buffer: Option<BufferSettings>| buffer.is_some_and(|buffer| buffer.disk.is_some());
        for sink in index.graph.sinks.iter().filter(|sink| sink.config.knows_positions()) {
            let leads = |name: &Arc<str>| {
                *name == sink.name || Reached::from(index, name).sinks.contains(&&sink.name)
            };
            let mut found = Vec::new();
            for pipeline in index.graph.pipelines.iter().filter(|pipeline| is_on_disk(pipeline.buffer)) {
                if pipeline.to.names().contains(&sink.name) || leads(&pipeline.name) {
                    found.push((&pipeline.name, sections.pipelines.span(&pipeline.name)));
                }
            }
            for buffered in index.graph.sinks.iter().filter(|buffered| is_on_disk(buffered.buffer)) {
                if leads(&buffered.name) {
                    found.push((&buffered.name, sections.sinks.span(&buffered.name)));
                }
            }
            for (name, span) in found {
                let message = format!(
                    "`{name}` has a buffer on disk, but `{}` knows stored messages by their positions, which go \
                     back in the buffer after a kill.",
                    sink.name
                );
                let help =
                    "Remove the buffer, or the option of the sink (`exactly_once`) that needs positions.";
                self.diagnostics.error(span.unwrap_or(root.span), message).help(help);
            }
        }
    }
}
