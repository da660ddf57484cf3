//! Buffers before sinks and pipelines.

use std::borrow::Cow;

use thalweg_config::{ByteSize, Node, Value, decode};

use super::Reader;
use super::sections::Sections;
use crate::component::Flow;
use crate::flow::Flows;
use crate::graph::Graph;
use crate::index::Index;
use crate::settings::BufferSettings;

/// The key of a buffer, beside the kind of a sink and among the keys of a pipeline.
pub(super) const BUFFER: &str = "buffer";

/// The smallest disk buffer: a few batches must have room in it.
const LEAST_DISK: ByteSize = ByteSize::mib(16);

/// The place of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Buffered {
    Sink,
    Pipeline,
}

/// Returns a mapping without one of its keys.
pub(super) fn without(node: &Node, key: &str) -> Node {
    let others = node.entries().iter().filter(|(other, _)| other.name != key).cloned().collect();
    Node::new(node.span, Value::Mapping(others))
}

impl Reader<'_> {
    /// Separates the key `buffer` of a sink from the sink, whose kind is beside it.
    pub(super) fn buffered<'n>(&mut self, sink: &'n Node) -> (Cow<'n, Node>, Option<BufferSettings>) {
        match sink.get(BUFFER).filter(|_| sink.entries().len() > 1) {
            Some(buffer) => (Cow::Owned(without(sink, BUFFER)), self.buffer(buffer, Buffered::Sink)),
            None => (Cow::Borrowed(sink), None),
        }
    }

    /// Reads the options of a buffer.
    pub(super) fn buffer(&mut self, node: &Node, of: Buffered) -> Option<BufferSettings> {
        let buffer: BufferSettings = decode(node, &mut self.diagnostics)?;
        let (message, help) = match (buffer.memory, buffer.disk) {
            (Some(_), Some(_)) => ("A buffer is in memory or on disk, not both.", "Remove one of the two."),
            (None, None) => (
                "A buffer needs a size.",
                "Write for example `buffer: { disk: 10GiB }`, or `{ memory: 64MiB }`.",
            ),
            (Some(_), None) if of == Buffered::Pipeline => {
                ("A buffer in memory is that of a sink.", "Write `disk`, or give the sinks buffers.")
            }
            (Some(_), None) if node.get("when_full").is_some() => (
                "`when_full` is an option of disk buffers.",
                "If a buffer in memory is full, its input waits.",
            ),
            (None, Some(disk)) if disk.bytes() < LEAST_DISK.bytes() => (
                "This disk buffer is too small.",
                "It needs at least `16MiB`, so that a few batches have room.",
            ),
            _ => return Some(buffer),
        };
        self.diagnostics.error(node.span, message).help(help);
        None
    }

    /// Checks that buffers in memory leave room in the budget.
    pub(super) fn buffers_in_memory(&mut self, root: &Node, graph: &Graph) {
        let most = graph.memory.bytes() / 2;
        let mut sum = 0_u64;
        for sink in &graph.sinks {
            let Some(memory) = sink.buffer.and_then(|buffer| buffer.memory) else { continue };
            sum = sum.saturating_add(memory.bytes());
            if sum > most {
                let node = root.get("sinks").and_then(|sinks| sinks.get(&sink.name)?.get(BUFFER));
                let message = format!(
                    "The buffers in memory hold up to {}, and `memory` is {}.",
                    ByteSize(sum),
                    graph.memory
                );
                let help = "They may hold half of it. Raise `memory`, or use buffers on disk.";
                self.diagnostics.error(node.map_or(root.span, |node| node.span), message).help(help);
                return;
            }
        }
    }

    /// Checks that buffers are where messages are.
    pub(super) fn buffers(&mut self, sections: &Sections<'_>, index: &Index<'_>, flows: &Flows) {
        for pipeline in &index.graph.pipelines {
            if pipeline.buffer.is_some() && flows.entering(pipeline) == Flow::Files {
                let node = sections.pipelines.node(&pipeline.name).and_then(|node| node.get(BUFFER));
                self.no_messages(node, &pipeline.name);
            }
        }
        for sink in index.graph.sinks.iter().filter(|sink| sink.buffer.is_some()) {
            let mut leading = index.leading_to(&sink.name).iter().map(|&at| &index.graph.pipelines[at]);
            if leading.any(|pipeline| flows.at_end(pipeline) == Flow::Files) {
                let node = sections.sinks.node(&sink.name).and_then(|node| node.get(BUFFER));
                self.no_messages(node, &sink.name);
            }
        }
    }

    fn no_messages(&mut self, node: Option<&Node>, name: &str) {
        let Some(node) = node else { return };
        let message = format!("A buffer holds messages, but `{name}` receives files.");
        self.diagnostics.error(node.span, message).help("Remove it: files wait where they are.");
    }
}
