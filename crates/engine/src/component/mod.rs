//! The traits of components.
//!
//! A component is one file: a configuration struct and what the struct builds. The struct derives
//! `Deserialize` and `JsonSchema`, with `#[serde(deny_unknown_fields)]` and defaults; `thalweg components
//! NAME` and editors show its doc comments. It implements [`Component`], which declares what components of
//! all roles have in common, and the trait of its role:
//!
//! | role | configuration | builds |
//! | --- | --- | --- |
//! | source | [`SourceConfig`] | [`Source`] |
//! | transform of messages | [`TransformConfig`] | [`Transform`] |
//! | transform of messages that waits | [`WaitingTransformConfig`] | [`WaitingTransform`] |
//! | transform or sink of files | [`FileTransformConfig`] | [`FileTransform`] |
//! | file reader | [`FileReaderConfig`] | [`FileReader`] |
//! | sink of messages | [`SinkConfig`] | [`Sink`] |
//!
//! The traits of roles are object-safe: the graph holds `Arc<dyn SourceConfig>`. A component that is created
//! at run time (a Python function) implements only the trait of its role. Associated constants in the traits
//! of roles were rejected, because each role then needs a second, object-safe trait that forwards to them.
//!
//! See docs/decisions/064-one-trait-per-role.md.

mod claim;
mod endless;
mod files;
mod known_fields;
mod link;
mod membership;
mod needed;
mod reads;
mod sink;
mod source;
mod step;
mod transform;
mod waiting;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use thalweg_record::Share;

use crate::{Details, Journal, Temporaries};

pub use thalweg_config::Mistake;

pub use claim::Claim;
pub use endless::Endless;
pub use files::{
    Cost, Disposition, FileError, FileReader, FileReaderConfig, FileSink, FileTransform, FileTransformConfig,
};
pub use known_fields::{FieldMistake, FieldUse, KnownFields};
pub(crate) use known_fields::{has, is_intrinsic, similar};
pub use link::{Link, TransactionPlace};
pub use membership::Membership;
pub use needed::NeededField;
pub use reads::Reads;
pub(crate) use reads::normalised;
pub use sink::{InFlight, Naming, OneName, Sink, SinkConfig, WriteOutcome};
pub use source::{Source, SourceConfig};
pub use step::Step;
pub use transform::{Transform, TransformConfig};
pub use waiting::{WaitingTransform, WaitingTransformConfig};

/// The configuration struct of a component of any role.
pub trait Component: DeserializeOwned + JsonSchema + Send + Sync + 'static {
    /// The key in configurations.
    const NAME: &'static str;
    /// A whole configuration that shows the component. It runs in an empty directory where that is possible.
    const EXAMPLE: &'static str;

    /// Returns the mistakes in the options that the schema cannot express.
    fn check(&self) -> Vec<Mistake> {
        Vec::new()
    }
}

/// The items that travel on an edge of the graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Flow {
    /// Messages, in batches.
    Messages,
    /// Whole files.
    Files,
}

impl Flow {
    /// The name for people.
    pub fn name(self) -> &'static str {
        match self {
            Flow::Messages => "messages",
            Flow::Files => "files",
        }
    }
}

/// The surroundings of a component when it is built.
#[derive(Debug, Clone)]
pub struct Context {
    /// The component's name in the configuration; for a transform `pipeline.transform`.
    pub name: String,
    /// True if sinks append to the output of earlier runs: with `--state`, when dead letters are replayed,
    /// and in place of a component of a configuration that was reloaded.
    pub resumes: bool,
    /// True if the messages are dead letters that are processed again, and no checkpoint has a state of the
    /// component: no checkpoints are saved, or it is a transform that [replays
    /// apart](TransformConfig::replays_apart).
    pub is_replay: bool,
    /// True if every source sends again what no checkpoint covers, so that a sink must cut off what it wrote
    /// since. False if some messages come only once (a datagram, for example): whole messages stay, and
    /// messages that other sources send again are there twice.
    pub resends: bool,
    /// True if a run without `--state` reads all input from its beginning, so that its output replaces that
    /// of earlier runs. False if a source takes messages as a service does, or a component removes the files
    /// that were read: those of earlier runs never come again, so sinks append.
    pub starts_over: bool,
    /// True if every source reads on at the last saved position after a kill: see [`SourceConfig::rereads`].
    /// Checkpoints are then taken while nothing moves, and transforms are asked to [`Transform::pre_commit`].
    pub rereads: bool,
    /// The target size of a batch, in bytes of payload.
    pub batch_bytes: usize,
    /// The component's account with the budget. A buffer of the size of a file is reserved here before it is
    /// allocated.
    pub memory: Share,
    /// Creates temporary files.
    pub temporary: Temporaries,
    /// Receives the component's own metrics, beside messages and bytes.
    pub details: Details,
    /// Records unfinished work, if the run saves checkpoints.
    pub journal: Option<Journal>,
    /// True if a sink that takes messages of the group knows them by their sequences and positions, also
    /// those of a killed run: see [`SinkConfig::knows_positions`]. Before a source sends messages of a new
    /// sequence, it notes in the journal what the sequence was begun for, and waits until the disk has it.
    pub keeps_sequences: bool,
    /// Connects a sink with the source whose positions its transactions move: see
    /// [`SourceConfig::positions_place`].
    pub link: Option<Link>,
}
