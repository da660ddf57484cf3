//! Sources.

use std::path::PathBuf;

use async_trait::async_trait;
use thalweg_config::ByteSize;

use super::{Claim, Context, Endless, Flow, KnownFields, Membership, Mistake, Reads, TransactionPlace};
use crate::{Error, SourceOutput};

/// Reads messages or files. One instance runs as one task.
#[async_trait]
pub trait Source: Send {
    /// Reads until the input ends or `out` requests a stop, and sends what it reads to `out`.
    ///
    /// It waits for capacity before it reads ([`SourceOutput::arena`], [`SourceOutput::reserve`]), and
    /// resumes at [`SourceOutput::saved`]. Code that may block a thread belongs into
    /// [`thalweg_runtime::blocking`].
    ///
    /// # Errors
    /// After a temporary error the engine calls `run` again, after a pause. Items sent before must not be
    /// sent twice.
    async fn run(&mut self, out: &mut SourceOutput) -> Result<(), Error>;
}

/// A configured source.
pub trait SourceConfig: Send + Sync {
    /// Returns the flow that the source sends.
    fn gives(&self) -> Flow {
        Flow::Messages
    }

    /// Returns what is known of the fields of its messages. By default nothing is.
    fn fields(&self) -> KnownFields {
        KnownFields::unknown()
    }

    /// Returns why it never ends by itself, if it does not. A remark is given if a schedule waits for its
    /// end.
    fn endless(&self) -> Option<Endless> {
        None
    }

    /// True if [`Source::run`] blocks. Blocking sources get a dedicated thread; others may share the threads
    /// of the segments.
    fn blocks(&self) -> bool {
        true
    }

    /// True if the source only accompanies other sources. It is stopped when those have ended and their
    /// messages are settled, so that a finite run still ends. Without other sources it runs like any source.
    fn is_auxiliary(&self) -> bool {
        false
    }

    /// True if a later run gets all messages again that no checkpoint covers: the source reads them again, or
    /// their sender was not answered and sends them again.
    fn resends(&self) -> bool {
        true
    }

    /// True if a run without `--state` starts from the beginning of the input. False if the source takes
    /// messages as a service does, or removes what it has read: what earlier runs got never comes again.
    fn starts_over(&self) -> bool {
        true
    }

    /// True if a run with `--state` that was killed reads on at the last saved position. Then a checkpoint is
    /// taken while nothing moves, so that no sink gets a message twice.
    fn rereads(&self) -> bool {
        self.resends() && self.starts_over()
    }

    /// Returns the system in which the source keeps its positions, if transactions of a sink can move them.
    /// If such a sink takes its messages, it is linked with the source ([`Context::link`]), and the graph is
    /// checked: all messages must end in that sink, and may come again.
    fn positions_place(&self) -> Option<TransactionPlace> {
        None
    }

    /// Returns an option with which transactions cannot move its positions, if there is one.
    fn transaction_mistake(&self) -> Option<Mistake> {
        None
    }

    /// False if its messages have no positions that grow ([`Batch::positions`](thalweg_record::Batch)), by
    /// which a sink could know those again that it has stored: see
    /// [`SinkConfig::knows_positions`](super::SinkConfig::knows_positions).
    fn has_growing_positions(&self) -> bool {
        true
    }

    /// Returns what only one component can have: the addresses on which it listens, the name of its session.
    /// The graph is checked for two components with the same one.
    fn claims(&self) -> Vec<Claim> {
        Vec::new()
    }

    /// Returns the group that the source is a member of, if its members should all read the same.
    fn membership(&self) -> Option<Membership> {
        None
    }

    /// True if it has [fields](Self::fields), and they only describe the message: nothing of the payload is
    /// in them. A sink that writes fields then loses the payload, unless a transform makes fields of it.
    fn describes_payload(&self) -> bool {
        false
    }

    /// Returns the mistakes in options that need more memory than the process has for data in flight.
    fn check_memory(&self, memory: ByteSize) -> Vec<Mistake> {
        let _ = memory;
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

    /// Returns the local files that the source reads, as far as its options say it.
    fn reads(&self) -> Vec<Reads> {
        Vec::new()
    }

    /// True if the source reads the standard input of the process, which then cannot hold the configuration.
    fn reads_stdin(&self) -> bool {
        false
    }

    /// True if the source reads the log of the process.
    fn collects_logs(&self) -> bool {
        false
    }

    /// Builds the source.
    ///
    /// # Errors
    /// If its surroundings do not allow it. Opening files and connections belongs into [`Source::run`].
    fn build(&self, context: &Context) -> Result<Box<dyn Source>, Error>;
}
