//! Buffers on disk: messages that wait before a sink or a pipeline.
//!
//! The plan puts two components in place of the edge that leads there. A sink, the *writer*, appends batches
//! to [segments](crate::segments) in the state directory. A source, the *reader*, sends them on. No channel
//! connects the two. So the edge divides the graph into parts with checkpoints of their own, and everything
//! else is as between any source and any sink: a batch is acknowledged to its source when the writer has
//! synced it, many with one sync, and a segment is removed when a checkpoint of the reader covers it.
//!
//! A buffer inside the channel was rejected: acks, checkpoints, retries, the budget and the end of a run
//! would each have needed a second way for messages that are safe and not delivered.
//!
//! See docs/decisions/090-a-buffer-is-a-sink-and-a-source.md.

mod found;
mod log;
mod reader;
#[cfg(test)]
mod tests;
mod writer;

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use thalweg_config::ByteSize;

use crate::graph::{Feed, Graph, Pipeline, SinkNode, SourceNode, To};
use crate::settings::{BufferSettings, WhenBufferFull};
use crate::{Error, io_error};

pub use found::{FoundBuffer, FoundSegment, Part, find_buffers};
pub(crate) use log::Total;
use log::{Limits, Log};
use reader::Reading;
pub(crate) use writer::BYTES;
use writer::Writing;

/// The kind of the two components of a buffer.
pub const KIND: &str = "buffer";

/// The folder of all buffers in a state directory.
const FOLDER: &str = "buffers";

/// A disk buffer of a plan.
pub struct DiskBuffer {
    /// The sink or pipeline behind it.
    pub name: Arc<str>,
    /// The name of the sink that writes it.
    pub(crate) writer: Arc<str>,
    /// The name of the source that reads it.
    pub(crate) reader: Arc<str>,
    limit: ByteSize,
    when_full: WhenBufferFull,
    /// Open during a run.
    log: OnceLock<Arc<Log>>,
    /// True if something leads to the writer. Otherwise the buffer is only emptied.
    is_fed: bool,
}

impl DiskBuffer {
    fn of(graph: &Graph, name: &Arc<str>, buffer: Option<BufferSettings>) -> Option<Arc<Self>> {
        let BufferSettings { disk: Some(limit), when_full, .. } = buffer? else { return None };
        let leads = |pipeline: &Pipeline| {
            pipeline.to.names().contains(name) || (pipeline.name == *name && !pipeline.from.is_empty())
        };
        Some(Arc::new(Self {
            name: name.clone(),
            writer: format!("{name}.buffer").into(),
            reader: format!("{name}.buffered").into(),
            limit,
            when_full,
            log: OnceLock::new(),
            is_fed: graph.pipelines.iter().any(leads),
        }))
    }

    /// Opens the segments that former runs left in a state directory. `linger` is how long the reader sends
    /// on after the request to stop.
    ///
    /// # Errors
    /// If they cannot be read, or another process writes there.
    pub(crate) fn open(&self, state: &Path, total: &Arc<Total>, linger: Duration) -> Result<(), Error> {
        let limits = Limits { bytes: self.limit.bytes(), when_full: self.when_full, linger };
        let log = Arc::new(Log::open(folder_of(state, &self.name), limits, total.clone())?);
        if !self.is_fed {
            log.end();
        }
        // A plan is run once.
        let _ = self.log.set(log);
        Ok(())
    }

    fn log(&self) -> Result<Arc<Log>, Error> {
        let log = self.log.get().cloned();
        log.ok_or_else(|| Error::permanent("the buffer is not open; this is a bug of thalweg"))
    }
}

fn folder_of(state: &Path, name: &str) -> PathBuf {
    state.join(FOLDER).join(name)
}

/// Returns a graph in which the two components of each disk buffer are in place of the edge, and the buffers.
pub(crate) fn expanded(graph: &Graph) -> (Cow<'_, Graph>, Vec<Arc<DiskBuffer>>) {
    let sinks = graph.sinks.iter().filter_map(|sink| DiskBuffer::of(graph, &sink.name, sink.buffer));
    let pipelines = graph.pipelines.iter().filter_map(|node| DiskBuffer::of(graph, &node.name, node.buffer));
    let buffers: Vec<Arc<DiskBuffer>> = sinks.chain(pipelines).collect();
    if buffers.is_empty() {
        return (Cow::Borrowed(graph), buffers);
    }
    let mut graph = graph.clone();
    buffers.iter().for_each(|buffer| put(&mut graph, buffer));
    (Cow::Owned(graph), buffers)
}

/// Puts the components of a buffer in place of the edge to its sink or pipeline.
fn put(graph: &mut Graph, buffer: &Arc<DiskBuffer>) {
    let DiskBuffer { name, writer, reader, .. } = &**buffer;
    let targets = graph.pipelines.iter_mut().flat_map(|pipeline| pipeline.to.names_mut());
    targets.filter(|target| **target == *name).for_each(|target| *target = writer.clone());
    match graph.pipelines.iter_mut().find(|pipeline| pipeline.name == *name) {
        Some(pipeline) => {
            let feeds = std::mem::replace(&mut pipeline.from, vec![Feed::Source(reader.clone())]);
            // Those that chose it by `to` lead to the writer now.
            let from: Vec<Feed> = feeds.into_iter().filter(|feed| !matches!(feed, Feed::Chosen(_))).collect();
            if !from.is_empty() {
                let into = Pipeline::straight(format!("{writer}.in").into(), To::All(vec![writer.clone()]));
                graph.pipelines.push(Pipeline { from, ..into });
            }
        }
        None => graph.pipelines.push(Pipeline::straight(reader.clone(), To::All(vec![name.clone()]))),
    }
    let to_errors = lead_drops_to_errors(graph, buffer);
    let config = Arc::new(Writing { buffer: buffer.clone(), to_errors });
    graph.sinks.push(SinkNode { name: writer.clone(), kind: KIND, config, buffer: None });
    let config = Arc::new(Reading(buffer.clone()));
    graph.sources.push(SourceNode { name: reader.clone(), kind: KIND, config });
}

/// Leads new messages that a full buffer drops to the pipelines that take the errors of what is behind it.
/// Returns true if there is one. Otherwise they are only counted: as dead letters they would fill the store,
/// which then blocks.
fn lead_drops_to_errors(graph: &mut Graph, buffer: &DiskBuffer) -> bool {
    if buffer.when_full != WhenBufferFull::DropNewest {
        return false;
    }
    let (errors, drops) = (Feed::Errors(buffer.name.clone()), Feed::Errors(buffer.writer.clone()));
    let mut is_led = false;
    for pipeline in graph.pipelines.iter_mut().filter(|pipeline| pipeline.from.contains(&errors)) {
        pipeline.from.push(drops.clone());
        is_led = true;
    }
    is_led
}

impl Graph {
    /// Returns the pipelines that give copies to targets with disk buffers and to others, and the names of
    /// these others: if one of them does not work, nothing reaches the buffers either.
    pub fn unbuffered_copies(&self) -> Vec<(Arc<str>, Vec<Arc<str>>)> {
        let is_on_disk = |name: &Arc<str>| {
            let sink = self.sinks.iter().find(|sink| sink.name == *name).and_then(|sink| sink.buffer);
            let buffer = sink.or_else(|| self.pipeline(name)?.buffer);
            buffer.is_some_and(|buffer| buffer.disk.is_some())
        };
        let copying = self.pipelines.iter().filter_map(|pipeline| {
            let To::All(names) = &pipeline.to else { return None };
            let (buffered, others): (Vec<_>, Vec<_>) = names.iter().cloned().partition(is_on_disk);
            let is_mixed = !buffered.is_empty() && !others.is_empty();
            is_mixed.then(|| (pipeline.name.clone(), others))
        });
        copying.collect()
    }

    /// Keeps only what is behind disk buffers, so that a run delivers what is in them and ends. Returns false
    /// if there are none.
    pub fn keep_behind_buffers(&mut self) -> bool {
        let is_on_disk = |buffer: Option<BufferSettings>| buffer.is_some_and(|buffer| buffer.disk.is_some());
        self.sources.clear();
        loop {
            let pipelines: Vec<Arc<str>> = self.pipelines.iter().map(|node| node.name.clone()).collect();
            let led = self.pipelines.iter().flat_map(|pipeline| pipeline.to.names());
            let led: Vec<Arc<str>> = led.cloned().collect();
            self.sinks.retain(|sink| is_on_disk(sink.buffer) || led.contains(&sink.name));
            let sinks = &self.sinks;
            for pipeline in &mut self.pipelines {
                pipeline.from.retain(|feed| match feed {
                    Feed::Source(_) => false,
                    Feed::Pipeline(name) | Feed::Chosen(name) | Feed::Named(name, _) => {
                        pipelines.contains(name)
                    }
                    Feed::Errors(name) => {
                        pipelines.contains(name) || sinks.iter().any(|sink| sink.name == *name)
                    }
                });
            }
            self.pipelines.retain(|pipeline| is_on_disk(pipeline.buffer) || !pipeline.from.is_empty());
            if self.pipelines.len() == pipelines.len() {
                break;
            }
        }
        let mut buffers = self.pipelines.iter().map(|node| node.buffer);
        buffers.any(is_on_disk) || self.sinks.iter().any(|sink| is_on_disk(sink.buffer))
    }
}

/// Warns of the messages in buffers of a state directory that a run does not deliver.
///
/// # Errors
/// If the directory cannot be read.
pub(crate) fn warn_of_others(state: &Path, buffers: &[Arc<DiskBuffer>]) -> Result<(), Error> {
    let found = find_buffers(state).map_err(|error| io_error("read", state.join(FOLDER), &error))?;
    for other in found {
        let is_own = buffers.iter().any(|buffer| *buffer.name == *other.name);
        if !is_own && !other.segments.is_empty() {
            tracing::warn!(
                "the state has messages in a buffer of `{}`, which this run does not deliver: `thalweg buffer list` \
                 shows them. Give `{}` its buffer back until it is empty",
                other.name,
                other.name
            );
        }
    }
    Ok(())
}
