//! Components that take files.
//!
//! A file passes through its transforms by itself, one after the other, in one worker of its segment; other
//! workers process other files meanwhile. A file transform may block its thread (it reads and writes files)
//! or wait (for a command). A file sink is a file transform after which the file is delivered.

use std::sync::Arc;

use async_trait::async_trait;
use thalweg_record::{File, Outcome, Problem};

use super::{Context, Sink, SinkConfig};
use crate::{Error, SourceOutput};

/// Where a file goes after a transform.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disposition {
    /// To the next transform.
    Continue,
    /// Nowhere: it is settled with this outcome, `Filtered` if the transform removed it on purpose.
    End(Outcome),
}

/// Why a transform could not process a file.
#[derive(Debug)]
pub enum FileError {
    /// Because of the file. It leaves by `errors`, with this reason.
    Rejected(Problem),
    /// For another reason. After a temporary error the same file is retried; a permanent error ends the run.
    Failed(Error),
}

impl FileError {
    /// Rejects the file, without a code.
    pub fn rejected(reason: impl Into<String>) -> Self {
        FileError::Rejected(Problem::new(reason))
    }

    /// Rejects the file, with a code for programs.
    pub fn coded(code: &'static str, reason: impl Into<String>) -> Self {
        FileError::Rejected(Problem::new(reason).code(code))
    }
}

impl From<Error> for FileError {
    fn from(error: Error) -> Self {
        FileError::Failed(error)
    }
}

/// Processes files. Each worker of the segment has its own instance.
#[async_trait]
pub trait FileTransform: Send {
    /// Processes a file. After an error, the file must be unchanged.
    ///
    /// # Errors
    /// See [`FileError`].
    async fn apply(&mut self, file: &mut File) -> Result<Disposition, FileError>;

    /// True if it does not change the content of files. Content that an earlier transform has kept open
    /// ([`File::keep_open`]) then stays open. It is closed before any other transform, because that may put
    /// another file in its place.
    fn only_reads(&self) -> bool {
        false
    }
}

/// A configured file transform or file sink.
pub trait FileTransformConfig: Send + Sync {
    /// How long a file may take.
    fn cost(&self) -> Cost {
        Cost::Small
    }

    /// True if it removes the files that sources read. Later runs do not read them again, so the sinks of the
    /// graph keep what earlier runs wrote.
    fn removes_input(&self) -> bool {
        false
    }

    /// True if it has effects outside the run, such as written files. A dry run passes files by it. Sinks
    /// need not say so.
    fn has_effects(&self) -> bool {
        self.removes_input()
    }

    /// Returns where the file would be written, for a dry run, if the component writes it.
    fn target(&self, file: &mut File) -> Option<String> {
        let _ = file;
        None
    }

    /// Builds the instance of one worker.
    ///
    /// # Errors
    /// If its surroundings do not allow it.
    fn build(&self, context: &Context) -> Result<Box<dyn FileTransform>, Error>;
}

/// How long a transform takes for a file, roughly. It determines how many files travel together, and the
/// number of workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cost {
    /// About as long as opening a file. Small files travel in groups.
    Small,
    /// A core for a while. Each file travels by itself; there are as many workers as cores.
    Core,
    /// It waits for something else. Each file travels by itself, and many wait concurrently.
    Waits,
    /// As `Waits`, but one file at a time.
    Alone,
}

/// Reads messages out of files.
#[async_trait]
pub trait FileReader: Send {
    /// Reads a file to its end and sends the messages to `out`, after waiting for capacity there. After an
    /// error, the messages sent before continue and the file becomes a dead letter: a pipeline that takes the
    /// `errors` of a file reader receives messages.
    ///
    /// # Errors
    /// See [`FileError`].
    async fn unpack(&mut self, file: &mut File, out: &mut SourceOutput) -> Result<(), FileError>;

    /// Called after the last file. Ends what the reader started.
    async fn finish(&mut self) {}
}

/// A configured file reader.
pub trait FileReaderConfig: Send + Sync {
    /// The number of workers, each of which reads one file. None means one per core.
    fn parallelism(&self) -> Option<usize> {
        None
    }

    /// Builds the instance of one worker.
    ///
    /// # Errors
    /// If its surroundings do not allow it.
    fn build(&self, context: &Context) -> Result<Box<dyn FileReader>, Error>;
}

/// The file transform of a sink that takes files. By itself it is a sink that takes only files, which the
/// registry creates.
#[derive(Clone)]
pub struct FileSink(pub Arc<dyn FileTransformConfig>);

impl SinkConfig for FileSink {
    fn files(&self) -> Option<FileSink> {
        Some(self.clone())
    }

    fn takes_messages(&self) -> bool {
        false
    }

    fn build(&self, context: &Context) -> Result<Box<dyn Sink>, Error> {
        Err(Error::permanent(format!("`{}` takes files, not messages", context.name)))
    }
}
