//! Components that take files.
//!
//! A file goes through its transforms by itself, one after the other, on one copy of its segment, while the other copies
//! are at other files. What such a transform does may block its thread (it reads and writes files) or wait (for a command);
//! a sink of files is a transform after which the file is delivered.

use std::sync::Arc;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use thalweg_record::{File, Outcome, Problem};

use super::{BuildSink, BuildTransform, Context, InFlight, Mistake, Sink};
use crate::{Error, SourceOutput};

/// What becomes of a file after a transform.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disposition {
    /// It goes on.
    Continue,
    /// It ends here, in this way: `Filtered` where the transform removed it on purpose.
    End(Outcome),
}

/// Why a transform could not do its work on a file.
#[derive(Debug)]
pub enum FileError {
    /// It is the file's fault: it leaves by `errors`, with this reason.
    Rejected(Problem),
    /// It is not: after a temporary error the same file is tried again, after a permanent one the run ends.
    Failed(Error),
}

impl FileError {
    /// The file's fault, without a code.
    pub fn rejected(reason: impl Into<String>) -> Self {
        FileError::Rejected(Problem::new(reason))
    }

    /// The file's fault, with a word for programs.
    pub fn coded(code: &'static str, reason: impl Into<String>) -> Self {
        FileError::Rejected(Problem::new(reason).code(code))
    }
}

impl From<Error> for FileError {
    fn from(error: Error) -> Self {
        FileError::Failed(error)
    }
}

/// Does something with a file. It is built once for each copy of the segment that it is part of.
#[async_trait]
pub trait FileTransform: Send {
    /// Does it. Where it ends in trouble, the file must be as it was.
    ///
    /// # Errors
    /// See [`FileError`].
    async fn apply(&mut self, file: &mut File) -> Result<Disposition, FileError>;
}

/// A configured transform of files, or a sink of them.
pub trait FileTransformConfig: DeserializeOwned + JsonSchema + Send + Sync + 'static {
    /// Its key in configurations.
    const NAME: &'static str;
    /// A whole configuration that shows it, runnable in an empty folder where that is possible.
    const EXAMPLE: &'static str;

    /// What is wrong with it beyond its schema.
    fn check(&self) -> Vec<Mistake> {
        Vec::new()
    }

    /// How long a file may take.
    fn cost(&self) -> Cost {
        Cost::Small
    }

    /// Builds one copy.
    ///
    /// # Errors
    /// If its surroundings do not allow it.
    fn build(&self, context: &Context) -> Result<Box<dyn FileTransform>, Error>;
}

/// What a transform takes for a file, roughly: it decides how many files go together, and how many copies there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cost {
    /// Little beside opening a file: small files go through it in groups.
    Small,
    /// A core for a while: each file goes by itself, as many at once as there are cores.
    Core,
    /// It waits for something else: each file goes by itself, and many wait at once.
    Waits,
    /// As `Waits`, but only one at a time.
    Alone,
}

/// Reads messages out of files.
#[async_trait]
pub trait FileReader: Send {
    /// Reads a file to its end and sends what is in it to `out`, which first has to be asked for room. Where it ends in
    /// trouble, what was sent goes on, and the file goes to the dead letters: what takes the `errors` of this takes messages.
    ///
    /// # Errors
    /// See [`FileError`].
    async fn unpack(&mut self, file: &mut File, out: &mut SourceOutput) -> Result<(), FileError>;
}

/// A configured transform of files to messages.
pub trait FileReaderConfig: DeserializeOwned + JsonSchema + Send + Sync + 'static {
    /// Its key in configurations.
    const NAME: &'static str;
    /// A whole configuration that shows it, runnable in an empty folder where that is possible.
    const EXAMPLE: &'static str;

    /// What is wrong with it beyond its schema.
    fn check(&self) -> Vec<Mistake> {
        Vec::new()
    }

    /// Builds one copy.
    ///
    /// # Errors
    /// If its surroundings do not allow it.
    fn build(&self, context: &Context) -> Result<Box<dyn FileReader>, Error>;
}

/// A configured transform of files of any type.
pub trait BuildFileTransform: Send + Sync {
    /// Its key in configurations.
    fn kind(&self) -> &'static str;
    /// See [`FileTransformConfig::check`].
    fn check(&self) -> Vec<Mistake>;
    /// See [`FileTransformConfig::cost`].
    fn cost(&self) -> Cost;
    /// See [`FileTransformConfig::build`].
    ///
    /// # Errors
    /// As there.
    fn build(&self, context: &Context) -> Result<Box<dyn FileTransform>, Error>;
}

impl<C: FileTransformConfig> BuildFileTransform for C {
    fn kind(&self) -> &'static str {
        C::NAME
    }
    fn check(&self) -> Vec<Mistake> {
        FileTransformConfig::check(self)
    }
    fn cost(&self) -> Cost {
        FileTransformConfig::cost(self)
    }
    fn build(&self, context: &Context) -> Result<Box<dyn FileTransform>, Error> {
        FileTransformConfig::build(self, context)
    }
}

/// A configured transform of files to messages, of any type.
pub trait BuildFileReader: Send + Sync {
    /// Its key in configurations.
    fn kind(&self) -> &'static str;
    /// See [`FileReaderConfig::check`].
    fn check(&self) -> Vec<Mistake>;
    /// See [`FileReaderConfig::build`].
    ///
    /// # Errors
    /// As there.
    fn build(&self, context: &Context) -> Result<Box<dyn FileReader>, Error>;
}

impl<C: FileReaderConfig> BuildFileReader for C {
    fn kind(&self) -> &'static str {
        C::NAME
    }
    fn check(&self) -> Vec<Mistake> {
        FileReaderConfig::check(self)
    }
    fn build(&self, context: &Context) -> Result<Box<dyn FileReader>, Error> {
        FileReaderConfig::build(self, context)
    }
}

/// What a sink does with files. Alone it is a sink that takes nothing else; the registry makes one of it.
#[derive(Clone)]
pub struct FileSink(pub Arc<dyn BuildFileTransform>);

impl BuildSink for FileSink {
    fn check(&self) -> Vec<Mistake> {
        self.0.check()
    }
    fn encoder(&self) -> Option<Box<dyn BuildTransform>> {
        None
    }
    fn files(&self) -> Option<FileSink> {
        Some(self.clone())
    }
    fn takes_messages(&self) -> bool {
        false
    }
    fn in_flight(&self) -> InFlight {
        InFlight::One
    }
    fn build(&self, _: &Context) -> Result<Box<dyn Sink>, Error> {
        Err(Error::permanent(format!("`{}` takes files, not messages", self.0.kind())))
    }
}
