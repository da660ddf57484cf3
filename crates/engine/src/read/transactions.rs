//! Checks of graphs in which the transactions of a sink move the positions of a source.
//!
//! A transaction is either committed, with all output of the messages that its positions cover, or aborted,
//! and then these messages come again. So they may leave nothing outside of it: no output in another sink, no
//! memory in a transform. A graph in which that does not hold is refused.
//!
//! See docs/decisions/093-offsets-are-committed-in-transactions.md.

use std::sync::Arc;

use thalweg_config::{Node, Span};

use super::Reader;
use super::sections::Sections;
use crate::component::Flow;
use crate::graph::{Pipeline, To};
use crate::index::Index;
use crate::pairs::{Pair, Reached};

impl Reader<'_> {
    /// Checks each pair of a source and a sink whose transactions move its positions.
    pub(super) fn transactions(&mut self, root: &Node, sections: &Sections<'_>, index: &Index<'_>) {
        for pair in &Pair::of(index.graph) {
            let reached = Reached::from(index, &pair.source);
            self.other_sinks(root, sections, pair, &reached);
            self.other_sources(root, sections, pair, index);
            self.options_of_source(root, sections, pair, index);
            for &at in &reached.pipelines {
                self.passed_pipeline(root, sections, pair, &index.graph.pipelines[at]);
            }
            let buffer = index.sink(&pair.sink).and_then(|sink| sink.buffer);
            if buffer.is_some_and(|buffer| buffer.disk.is_some()) {
                let span = sections.sinks.span(&pair.sink).unwrap_or(root.span);
                self.buffer_between(span, pair, &pair.sink);
            }
        }
    }

    /// The messages must reach no other sink: it would get those of an aborted transaction twice.
    fn other_sinks(&mut self, root: &Node, sections: &Sections<'_>, pair: &Pair, reached: &Reached<'_>) {
        for other in reached.sinks.iter().filter(|sink| ***sink != pair.sink) {
            let span = sections.sinks.span(other).unwrap_or(root.span);
            let message = format!(
                "`{other}` gets messages of `{}`, whose positions are committed in the transactions of `{}`.",
                pair.source, pair.sink
            );
            let help = format!(
                "Let all messages of `{}` end in `{}`, which may write to several places, and rejected ones in \
                 the dead letters. Or read the input for `{other}` with a source of its own.",
                pair.source, pair.sink
            );
            self.diagnostics.error(span, message).help(help);
        }
    }

    /// The sink must get no messages of others: those of an aborted transaction would not come again.
    fn other_sources(&mut self, root: &Node, sections: &Sections<'_>, pair: &Pair, index: &Index<'_>) {
        let others = index.graph.sources.iter().filter(|source| source.name != pair.source);
        for other in others.filter(|source| Reached::joins(index, source, &pair.sink)) {
            let span = sections.sinks.span(&pair.sink).unwrap_or(root.span);
            let message = format!(
                "The transactions of `{}` have the positions of `{}`, so it can take no messages of `{}`.",
                pair.sink, pair.source, other.name
            );
            let help = "Give each source a sink of its own, with an id of its own for its transactions.";
            self.diagnostics.error(span, message).help(help);
        }
    }

    fn options_of_source(&mut self, root: &Node, sections: &Sections<'_>, pair: &Pair, index: &Index<'_>) {
        let Some(source) = index.source(&pair.source) else { return };
        let Some(mistake) = source.config.transaction_mistake() else { return };
        let span = sections.sources.option_span(&pair.source, source.kind, mistake.option);
        let span = span.unwrap_or(root.span);
        let reported = self.diagnostics.error(span, mistake.message);
        if let Some(help) = mistake.help {
            reported.help(help);
        }
    }

    /// Checks a pipeline that the messages pass.
    fn passed_pipeline(&mut self, root: &Node, sections: &Sections<'_>, pair: &Pair, pipeline: &Pipeline) {
        let Pair { source, sink } = pair;
        let name = &pipeline.name;
        let span = sections.pipelines.span(name).unwrap_or(root.span);
        if let To::Failover(..) = pipeline.to {
            let message = format!(
                "`{name}` has a failover, but the positions of `{source}` are committed in the transactions of \
                 `{sink}`."
            );
            let help = format!("Lead to `{sink}` alone: it waits until its server works again.");
            self.diagnostics.error(span, message).help(help);
        }
        if pipeline.buffer.is_some_and(|buffer| buffer.disk.is_some()) {
            self.buffer_between(span, pair, name);
        }
        self.passed_steps(span, sections, pair, pipeline);
    }

    /// Checks the transforms of a pipeline that the messages pass.
    fn passed_steps(&mut self, span: Span, sections: &Sections<'_>, pair: &Pair, pipeline: &Pipeline) {
        let Pair { source, sink } = pair;
        let steps = sections.pipelines.steps(&pipeline.name);
        for (at, transform) in pipeline.transforms.iter().enumerate() {
            let span = steps.get(at).map_or(span, |node| node.span);
            let config = &transform.config;
            if config.remembers() {
                let message = format!(
                    "`{}` remembers earlier messages, but those of an aborted transaction of `{sink}` come again.",
                    transform.name
                );
                let help = format!(
                    "Remove it, or let another run do it before or behind this one. Without transactions, `{source}` \
                     sends its messages once in each run."
                );
                self.diagnostics.error(span, message).help(help);
            } else if config.takes() == Flow::Files || config.gives() == Flow::Files {
                let message = format!(
                    "`{}` has to do with files, which have no part in the transactions of `{sink}`.",
                    transform.name
                );
                self.diagnostics.error(span, message).help("Let another run do it.");
            }
        }
    }

    fn buffer_between(&mut self, span: Span, pair: &Pair, of: &Arc<str>) {
        let message = format!(
            "`{of}` has a buffer on disk, which holds messages outside of the transactions of `{}`.",
            pair.sink
        );
        let help =
            format!("Remove the buffer: what `{}` has not committed stays in its topics.", pair.source);
        self.diagnostics.error(span, message).help(help);
    }
}
