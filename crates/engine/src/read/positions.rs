//! Checks of graphs with sinks that know stored messages by their positions.

use std::sync::Arc;

use thalweg_config::Node;

use super::Reader;
use super::sections::Sections;
use crate::index::Index;
use crate::pairs::Reached;
use crate::settings::BufferSettings;

impl Reader<'_> {
    /// Checks that the messages of each source that leads to such a sink have positions that grow, and keep
    /// their order. The first other message would end the run.
    pub(super) fn growing_positions(&mut self, root: &Node, sections: &Sections<'_>, index: &Index<'_>) {
        for sink in index.graph.sinks.iter().filter(|sink| sink.config.knows_positions()) {
            let span = sections.sinks.span(&sink.name).unwrap_or(root.span);
            let sources = index.graph.sources.iter().filter(|source| !source.config.has_growing_positions());
            for source in sources.filter(|source| index.reaches(&source.name, &sink.name)) {
                let message = format!(
                    "`{}` knows stored messages by their positions, but those of `{}` have none that grow.",
                    sink.name, source.name
                );
                let help = "Remove the option of the sink (`exactly_once`) that needs positions, or let another \
                            run store these messages in a file or in Kafka, and read them from there.";
                self.diagnostics.error(span, message).help(help);
            }
            let unordered = index.graph.pipelines.iter().filter(|pipeline| pipeline.ordered == Some(false));
            for pipeline in unordered {
                let leads = pipeline.to.names().contains(&sink.name)
                    || Reached::from(index, &pipeline.name).sinks.contains(&&sink.name);
                if !leads {
                    continue;
                }
                let span = sections.pipelines.node(&pipeline.name).and_then(|node| node.get("ordered"));
                let span = span.map_or(root.span, |node| node.span);
                let message = format!(
                    "`{}` knows stored messages by their positions, so it needs them in order.",
                    sink.name
                );
                let help = "Leave `ordered` out: messages keep their order by default.";
                self.diagnostics.error(span, message).help(help);
            }
            self.sorted_positions(root, sections, index, &sink.name);
        }
    }

    /// Checks that no transform before such a sink collects all messages and changes their order.
    fn sorted_positions(&mut self, root: &Node, sections: &Sections<'_>, index: &Index<'_>, sink: &Arc<str>) {
        for pipeline in &index.graph.pipelines {
            let leads = pipeline.to.names().contains(sink)
                || Reached::from(index, &pipeline.name).sinks.contains(&sink);
            let sorting = pipeline.transforms.iter().find(|transform| transform.config.needs_end());
            let Some(transform) = sorting.filter(|_| leads) else { continue };
            let span = sections.pipelines.span(&pipeline.name).unwrap_or(root.span);
            let message = format!(
                "`{sink}` knows stored messages by their positions, which they lose in `{}`.",
                transform.name
            );
            let help = "Remove the option of the sink (`exactly_once`) that needs positions, or let another run \
                        store the sorted messages in a file, and read them from there.";
            self.diagnostics.error(span, message).help(help);
        }
    }

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
