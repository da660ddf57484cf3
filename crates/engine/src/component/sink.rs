//! Sinks of messages.

use std::path::PathBuf;

use async_trait::async_trait;
use thalweg_config::{ByteSize, Mistake};
use thalweg_record::Batch;

use super::{Claim, Context, FileSink, NeededField, TransactionPlace, TransformConfig};
use crate::{Error, Rejects};

/// The result of a [`Sink::write`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteOutcome {
    /// The batch is durable and can be acknowledged.
    Durable,
    /// The batch is durable after the next [`Sink::flush`].
    Buffered,
    /// The sink holds the batch until it can commit it together with later batches, as one object. The sink
    /// reports the commit by [`Sink::take_committed`]; flushing does not help.
    Staged,
}

/// Writes messages to a target. One instance runs as one task.
///
/// The engine acknowledges: it settles a batch when the sink reports the batch as durable.
#[async_trait]
pub trait Sink: Send {
    /// Opens the target. If this run resumes an earlier one, `saved` is the result of [`state`](Self::state)
    /// at its last checkpoint: all messages after that checkpoint are sent again.
    ///
    /// # Errors
    /// After a temporary error the engine calls `open` again.
    async fn open(&mut self, saved: Option<serde_json::Value>) -> Result<(), Error> {
        let _ = saved;
        Ok(())
    }

    /// Writes a batch. Messages that can never be written go to `rejects`; the others are written.
    ///
    /// # Errors
    /// If the batch as a whole could not be written. No message of it may have been written: after a
    /// temporary error the engine calls `write` again with the same batch.
    async fn write(&mut self, batch: &Batch, rejects: &mut Rejects) -> Result<WriteOutcome, Error>;

    /// Makes the written batches durable. The engine flushes when memory is short, and at least once a second
    /// while a batch is pending.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    async fn flush(&mut self) -> Result<(), Error>;

    /// Called before a checkpoint, while nothing moves, if a batch is pending. Puts what it has of
    /// [`Staged`](WriteOutcome::Staged) batches where a later run finds it by the [`state`](Self::state), as
    /// far as it can: the checkpoint then covers them.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    async fn pre_commit(&mut self) -> Result<(), Error> {
        self.flush().await
    }

    /// Called before [`pre_commit`](Self::pre_commit) if a transform divided a batch of a source, and one
    /// part became durable, but another is pending. The checkpoint does not cover such a batch, and a later
    /// run would write the durable part again. Makes all batches durable that `pre_commit` leaves pending,
    /// although their output ends early.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    async fn make_durable(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// Returns the number of steps that wait for a checkpoint with the present [`state`](Self::state): output
    /// becomes visible only then, so that no run can write it a second time. Zero if no checkpoints are kept.
    fn uncommitted(&self) -> usize {
        0
    }

    /// Takes the first `count` of these steps: a checkpoint has what they need. Also after
    /// [`finish`](Self::finish).
    ///
    /// # Errors
    /// As [`write`](Self::write). The remaining steps stay [uncommitted](Self::uncommitted).
    async fn commit(&mut self, count: usize) -> Result<(), Error> {
        let _ = count;
        Ok(())
    }

    /// Returns how many [`Staged`](WriteOutcome::Staged) batches became durable since the last call, in the
    /// order in which they were written. The engine calls it after each write and flush. After
    /// [`finish`](Self::finish) or [`suspend`](Self::suspend) all are durable.
    fn take_committed(&mut self) -> usize {
        0
    }

    /// True if a flush is due by the clock although no batch is pending.
    fn is_due(&self) -> bool {
        false
    }

    /// True if a batch that could not be written is not in the sink, not even in part. Before the batch is
    /// tried again, the engine then flushes what was written before: its senders need not wait with it, and
    /// do not send it again if the run ends meanwhile.
    fn writes_whole(&self) -> bool {
        false
    }

    /// Called for a batch that could not be written and takes another route. The sink drops what it holds of
    /// the batch, which does not come again.
    fn drop_batch(&mut self) {}

    /// Reopens its files, which may have been moved away (on SIGHUP). Flushes what was written first.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    async fn reopen(&mut self) -> Result<(), Error> {
        self.flush().await
    }

    /// Called after the last batch, or when a stopped run has drained. Flushes and closes, except for what
    /// waits for the last checkpoint.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    async fn finish(&mut self) -> Result<(), Error> {
        self.flush().await
    }

    /// Called instead of [`finish`](Self::finish) if the run was asked to stop before its sources ended, and
    /// a later run resumes it. Makes all batches durable. Output that a reader takes for the whole result may
    /// stay unfinished, since the later run continues it from the [`state`](Self::state).
    ///
    /// # Errors
    /// As [`write`](Self::write).
    async fn suspend(&mut self) -> Result<(), Error> {
        self.finish().await
    }

    /// Returns what a later run needs to resume. It is saved in the same checkpoint as the positions of the
    /// sources, and after the batches that those cover were written.
    fn state(&self) -> Option<serde_json::Value> {
        None
    }
}

/// The number of requests that a sink may have in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum InFlight {
    /// One. Batches are written in the order in which they arrive.
    #[default]
    One,
    /// As many as the target serves well, up to this limit. Each has its own instance of the sink, and their
    /// order is not kept.
    Adaptive(usize),
    /// This number, which the user chose.
    Fixed(usize),
}

impl InFlight {
    /// Returns the number that the user chose.
    pub fn chosen(concurrency: usize) -> Self {
        match concurrency {
            1 => InFlight::One,
            more => InFlight::Fixed(more),
        }
    }

    /// The number of instances of the sink.
    pub fn most(self) -> usize {
        match self {
            InFlight::One => 1,
            InFlight::Adaptive(most) | InFlight::Fixed(most) => most.max(1),
        }
    }
}

/// Says where a sink would write messages.
pub trait Naming: Send {
    /// Returns a name for each message of a batch.
    fn names(&mut self, batch: &Batch) -> Vec<String>;
}

/// The name of a sink that writes all messages to one place.
pub struct OneName(String);

impl OneName {
    /// Returns it for [`SinkConfig::naming`].
    pub fn boxed(name: String) -> Box<dyn Naming> {
        Box::new(Self(name))
    }
}

impl Naming for OneName {
    fn names(&mut self, batch: &Batch) -> Vec<String> {
        vec![self.0.clone(); batch.rows()]
    }
}

/// A configured sink.
pub trait SinkConfig: Send + Sync {
    /// Returns the transform that writes payloads in the sink's format (its option `encode`), if any. The
    /// plan adds it to the end of each pipeline that leads to the sink, where it runs in one worker per core.
    fn encoder(&self) -> Option<Box<dyn TransformConfig>> {
        None
    }

    /// Returns the file transform that delivers files, if the sink takes files.
    fn files(&self) -> Option<FileSink> {
        None
    }

    /// Whether the sink takes messages.
    fn takes_messages(&self) -> bool {
        true
    }

    /// Returns the names of fields that it reads beside those of its [encoder](Self::encoder), such as those
    /// in the names of files. The summary of a run names those that no message had.
    fn fields(&self) -> Vec<String> {
        Vec::new()
    }

    /// The number of batches that may be in flight: more than one for a sink that sends requests and waits
    /// for the responses. An option `concurrency` should make it [`InFlight::Fixed`].
    fn in_flight(&self) -> InFlight {
        InFlight::One
    }

    /// Returns the mistakes in options that need more memory than the process has for data in flight.
    fn check_memory(&self, memory: ByteSize) -> Vec<Mistake> {
        let _ = memory;
        Vec::new()
    }

    /// Returns the system in which the sink makes transactions, if these can move the positions of a source:
    /// see [`SourceConfig::positions_place`](super::SourceConfig::positions_place).
    fn transaction_place(&self) -> Option<TransactionPlace> {
        None
    }

    /// Returns what only one component can have: the addresses on which it listens, the name of its session,
    /// the id of its transactions. The graph is checked for two components with the same one.
    fn claims(&self) -> Vec<Claim> {
        Vec::new()
    }

    /// Returns the fields without which a message leaves by `errors`. Where the fields of the messages are
    /// known and have none of them, that is a mistake.
    fn needed_fields(&self) -> Vec<NeededField> {
        Vec::new()
    }

    /// Returns the local files without which a run cannot begin, each with the option that names it. A check
    /// gives a remark if one does not exist.
    fn needed_files(&self) -> Vec<(&'static str, PathBuf)> {
        Vec::new()
    }

    /// Returns remarks on options that work, but are probably not meant so. A check and a run show them.
    fn remarks(&self) -> Vec<Mistake> {
        Vec::new()
    }

    /// True if the sink knows the messages that it has stored by their positions, which must not go back: no
    /// buffer on disk may be before it.
    fn knows_positions(&self) -> bool {
        false
    }

    /// Returns the local file that the sink writes, if it writes a single one.
    fn writes(&self) -> Option<PathBuf> {
        None
    }

    /// Returns the names of the files or objects that messages are written to, for a dry run. `None` if the
    /// sink has none.
    fn naming(&self) -> Option<Box<dyn Naming>> {
        self.writes().map(|path| OneName::boxed(path.display().to_string()))
    }

    /// True if the sink writes to a standard output of the process, on which progress may be drawn.
    fn writes_stdout(&self) -> bool {
        false
    }

    /// Builds one instance. It is called once for each request that may be in flight.
    ///
    /// # Errors
    /// If its surroundings do not allow it. Opening files and connections belongs into [`Sink::open`].
    fn build(&self, context: &Context) -> Result<Box<dyn Sink>, Error>;
}
