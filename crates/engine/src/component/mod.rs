//! What a component is: a configuration struct, and what it builds.
//!
//! A component is one file. Its configuration struct derives `Deserialize` and `JsonSchema`, with
//! `#[serde(deny_unknown_fields)]` and defaults; the doc comments of the struct and its fields are what
//! `thalweg components NAME` and editors show. It implements one of [`SourceConfig`], [`TransformConfig`],
//! [`SinkConfig`], which build the thing that runs; those that take files are [`FileTransformConfig`] and
//! [`FileReaderConfig`].

mod build;
mod files;
mod step;
mod waiting;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use thalweg_record::{Batch, Share};

use crate::{Details, Error, Journal, Outputs, Rejects, SourceOutput, Temporaries};

pub use thalweg_config::Mistake;

pub use build::{BuildSink, BuildSource, BuildTransform};
pub use files::{
    BuildFileReader, BuildFileTransform, Cost, Disposition, FileError, FileReader, FileReaderConfig,
    FileSink, FileTransform, FileTransformConfig,
};
pub use step::Step;
pub use waiting::{BuildWaiting, WaitingTransform};

/// What travels on an edge of the graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Flow {
    /// Messages, in batches.
    Messages,
    /// Whole files.
    Files,
}

impl Flow {
    /// Its name for people.
    pub fn name(self) -> &'static str {
        match self {
            Flow::Messages => "messages",
            Flow::Files => "files",
        }
    }
}

/// Reads from somewhere. One runs as one task.
#[async_trait]
pub trait Source: Send {
    /// Reads until the end, or until `out` says to stop, and sends what it reads to `out`.
    ///
    /// It asks `out` for memory before it reads ([`SourceOutput::arena`], [`SourceOutput::reserve`]), and begins where
    /// [`SourceOutput::saved`] says that a former run got to. Code that may block a thread goes into
    /// [`thalweg_runtime::blocking`].
    ///
    /// # Errors
    /// After a temporary error the engine calls this again, after a pause; so what was sent before must not be
    /// sent twice.
    async fn run(&mut self, out: &mut SourceOutput) -> Result<(), Error>;
}

/// Changes batches, in memory, without waiting. It is built once for each copy of the segment it is part of.
pub trait Transform: Send {
    /// Takes a batch and gives any number to `out`. Every message must go somewhere: on (to an output), to
    /// `errors`, or be settled as filtered; a batch that is simply dropped is a failure of the run.
    ///
    /// # Errors
    /// Only where the transform itself is broken: this stops the run.
    fn apply(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error>;

    /// All input has come: gives what was held back.
    ///
    /// # Errors
    /// As [`apply`](Self::apply).
    fn finish(&mut self, out: &mut Outputs) -> Result<(), Error> {
        let _ = out;
        Ok(())
    }
}

/// What became of what was given to a sink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteOutcome {
    /// It is in safety: it can be acknowledged.
    Durable,
    /// It will be in safety after the next [`Sink::flush`].
    Buffered,
    /// The sink keeps it until it can be brought into safety together with what comes later: as an object that is there when it
    /// is complete. It says by [`Sink::take_committed`] when it is; flushing does not help.
    Staged,
}

/// Writes to somewhere. One runs as one task.
///
/// Acknowledgements are the engine's business: it settles a batch when the sink says that it is safe.
#[async_trait]
pub trait Sink: Send {
    /// Opens what it writes to. `saved` is what [`state`](Self::state) gave when positions were last saved, if
    /// this run continues a former one: everything after that will be sent again.
    ///
    /// # Errors
    /// After a temporary error the engine calls this again.
    async fn open(&mut self, saved: Option<serde_json::Value>) -> Result<(), Error> {
        let _ = saved;
        Ok(())
    }

    /// Writes a batch. Messages that cannot be written, ever, are given to `rejects`; the others are written.
    ///
    /// # Errors
    /// If the batch as a whole could not be written. Nothing of it may then have been written: after a
    /// temporary error the engine calls this again with the same batch.
    async fn write(&mut self, batch: &Batch, rejects: &mut Rejects) -> Result<WriteOutcome, Error>;

    /// Brings everything that was written into safety. The engine calls this when nothing more is waiting to
    /// be written, when memory is short, and at least once a second while something is pending.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    async fn flush(&mut self) -> Result<(), Error>;

    /// How many of the batches that it has [`Kept`](WriteOutcome::Staged) came into safety since this was asked last, in the order in
    /// which they came. It is asked after each write and flush; in the end all are safe.
    fn take_committed(&mut self) -> usize {
        0
    }

    /// Whether it is to be flushed although nothing is pending: something is due by the clock.
    fn is_due(&self) -> bool {
        false
    }

    /// The batch that could not be written goes another way, and will not come again: what is kept of it can go.
    fn give_up(&mut self) {}

    /// Someone asked to begin anew what can be begun anew (by SIGHUP): files that may have been moved away, say. What was
    /// written is brought into safety as by [`flush`](Self::flush).
    ///
    /// # Errors
    /// As [`write`](Self::write).
    async fn reopen(&mut self) -> Result<(), Error> {
        self.flush().await
    }

    /// All input has come (or the run was told to stop, and has drained): flushes and closes.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    async fn finish(&mut self) -> Result<(), Error> {
        self.flush().await
    }

    /// What a later run must know to continue: saved together with the positions of the sources, always after
    /// what the positions cover was written.
    fn state(&self) -> Option<serde_json::Value> {
        None
    }
}

/// What a component may know of its surroundings when it is built.
#[derive(Debug, Clone)]
pub struct Context {
    /// The component's name in the configuration (of a transform: `pipeline.transform`).
    pub name: String,
    /// Whether the run keeps positions (`--state`): it then continues where the last one ended.
    pub resumes: bool,
    /// About how many bytes of payload a batch should have.
    pub batch_bytes: usize,
    /// The component's account with the budget: what has the size of a file is reserved here before it is allocated.
    pub memory: Share,
    /// Where it makes files of its own.
    pub temporary: Temporaries,
    /// Where it shows what it counts beside messages and bytes.
    pub details: Details,
    /// Where it notes what is half done, if the run keeps positions.
    pub journal: Option<Journal>,
}

/// A configured source.
pub trait SourceConfig: DeserializeOwned + JsonSchema + Send + Sync + 'static {
    /// Its key in configurations.
    const NAME: &'static str;
    /// A whole configuration that shows it, runnable in an empty folder where that is possible.
    const EXAMPLE: &'static str;
    /// Whether it blocks its thread: it then has one of its own. Of those that do not, many share the threads of the
    /// segments.
    const BLOCKS: bool = true;
    /// What it sends.
    const GIVES: Flow = Flow::Messages;

    /// What is wrong with it beyond its schema.
    fn check(&self) -> Vec<Mistake> {
        Vec::new()
    }

    /// Whether it only accompanies the other sources: it is then told to stop when those have ended and what they
    /// sent is settled, so that a run that has an end still ends. Alone, it is a source like any other.
    fn is_auxiliary(&self) -> bool {
        false
    }

    /// True if it reads the standard input of the process, which then cannot hold the configuration as well.
    fn reads_stdin(&self) -> bool {
        false
    }

    /// True if it reads what the process itself logs.
    fn collects_logs(&self) -> bool {
        false
    }

    /// Builds it.
    ///
    /// # Errors
    /// If its surroundings do not allow it. Opening files and the like belongs into [`Source::run`].
    fn build(&self, context: &Context) -> Result<Box<dyn Source>, Error>;
}

/// A configured transform.
pub trait TransformConfig: DeserializeOwned + JsonSchema + Send + Sync + 'static {
    /// Its key in configurations.
    const NAME: &'static str;
    /// A whole configuration that shows it, runnable in an empty folder where that is possible.
    const EXAMPLE: &'static str;
    /// What goes on from it.
    const GIVES: Flow = Flow::Messages;

    /// What is wrong with it beyond its schema.
    fn check(&self) -> Vec<Mistake> {
        Vec::new()
    }

    /// The names of its outputs beside the one that leads on and `errors`. [`Outputs::send_to`] counts in this
    /// order.
    fn outputs(&self) -> Vec<String> {
        Vec::new()
    }

    /// Whether what it does to a batch depends on the batches before. If so it runs as one copy and sees the
    /// batches in order; if not it is copied to all cores.
    fn is_sequential(&self) -> bool {
        false
    }

    /// Builds one copy.
    ///
    /// # Errors
    /// If its surroundings do not allow it.
    fn build(&self, context: &Context) -> Result<Box<dyn Transform>, Error>;
}

/// How many requests a sink has under way at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum InFlight {
    /// One: what comes is written in the order in which it comes.
    #[default]
    One,
    /// As many as do the other side good, up to so many. Each is a copy of the sink, and the order is that in which
    /// they arrive.
    Adaptive(usize),
    /// So many, since the user says so.
    Fixed(usize),
}

impl InFlight {
    /// How many copies of the sink there must be.
    pub fn most(self) -> usize {
        match self {
            InFlight::One => 1,
            InFlight::Adaptive(most) | InFlight::Fixed(most) => most.max(1),
        }
    }
}

/// A configured sink.
pub trait SinkConfig: DeserializeOwned + JsonSchema + Send + Sync + 'static {
    /// Its key in configurations.
    const NAME: &'static str;
    /// A whole configuration that shows it, runnable in an empty folder where that is possible.
    const EXAMPLE: &'static str;

    /// What is wrong with it beyond its schema.
    fn check(&self) -> Vec<Mistake> {
        Vec::new()
    }

    /// The transform that gives payloads the form in which this sink writes them (its `encode` option), if any.
    /// The plan puts it at the end of each pipeline that leads here, where it is copied to all cores.
    fn encoder(&self) -> Option<Box<dyn BuildTransform>> {
        None
    }

    /// What it does with files, if it takes these as well.
    fn files(&self) -> Option<FileSink> {
        None
    }

    /// How many batches may be on the way at once: more than one for what sends requests and waits for the answers.
    /// An option `concurrency` of the sink should make it [`InFlight::Fixed`].
    fn in_flight(&self) -> InFlight {
        InFlight::One
    }

    /// True if it writes to a standard output of the process, where progress may be drawn as well.
    fn writes_stdout(&self) -> bool {
        false
    }

    /// Builds it; once for each request that may be on the way.
    ///
    /// # Errors
    /// If its surroundings do not allow it. Opening files and the like belongs into [`Sink::open`].
    fn build(&self, context: &Context) -> Result<Box<dyn Sink>, Error>;
}
