//! The options of a configuration that belong to no component.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::{ByteSize, List, TimeSpan};

use crate::schedule::Schedule;

/// The budget if the configuration has none.
pub const DEFAULT_MEMORY: ByteSize = ByteSize(256 << 20);

/// The options of a configuration as a whole, besides its components.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// The memory for data in flight, for the whole process.
    #[schemars(example = "256MiB")]
    pub memory: ByteSize,
    /// The directory of checkpoints and dead letters. With it, a run resumes where the last one ended.
    /// `--state` on the command line overrides it.
    pub state: Option<PathBuf>,
    /// The limits of the dead letters, and what happens when they are reached.
    pub dead_letters: DeadLetterLimits,
    /// The limit of all disk buffers together.
    pub buffers: BufferLimits,
    /// The directory of temporary files, such as converted images and uploads. The run removes them. Without
    /// it, the system's temporary directory is used. Best on the disk of the files' destination.
    pub temporary: Option<PathBuf>,
    /// The treatment of a step with a field that no message can have, or with an expression whose types do
    /// not fit: `error` (the default) makes it a mistake of the configuration, and with `accept` the step has
    /// no effect.
    pub unknown_fields: UnknownFields,
    /// The times at which `thalweg run` runs the configuration, again and again in one process, until it is
    /// stopped: in the notation of cron, or a mapping with more options. By default it runs once, at once.
    #[schemars(example = "*/5 * * * *")]
    pub schedule: Option<Schedule>,
}

/// The treatment of unknown fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UnknownFields {
    /// It is a mistake.
    #[default]
    Error,
    /// It is missing in all messages.
    Accept,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            memory: DEFAULT_MEMORY,
            state: None,
            dead_letters: DeadLetterLimits::default(),
            buffers: BufferLimits::default(),
            temporary: None,
            unknown_fields: UnknownFields::default(),
            schedule: None,
        }
    }
}

/// The limits of the dead letters, and what happens when they are reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DeadLetterLimits {
    /// The maximum size of all letters in the store.
    #[schemars(example = "1GiB")]
    pub max_bytes: ByteSize,
    /// The maximum number of letters.
    pub max_count: u64,
    /// The treatment of a letter that exceeds the limits. With `block`, its message is not acknowledged, and
    /// the run waits until `thalweg errors clear` makes room, or until it is stopped: then `errors replay`
    /// makes room for the next run. With `fail`, the run ends with an error. With `drop`, the oldest letters
    /// are dropped, counted and reported.
    #[schemars(example = &"drop")]
    pub when_full: WhenFull,
}

/// The action when the limits of the dead letters are reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WhenFull {
    /// The run waits until it is stopped. Nothing is lost.
    #[default]
    Wait,
    /// The run ends with an error. Nothing is lost.
    Error,
    /// The oldest letters are dropped.
    Drop,
}

impl Default for DeadLetterLimits {
    fn default() -> Self {
        Self { max_bytes: ByteSize::gib(1), max_count: 1_000_000, when_full: WhenFull::default() }
    }
}

/// The limit of all disk buffers together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BufferLimits {
    /// The maximum size of the disk buffers of all sinks and pipelines together, beside the limit of each. By
    /// default there is none.
    #[schemars(example = "100GiB")]
    pub max_bytes: Option<ByteSize>,
}

/// The buffer before a sink or a pipeline: `memory` or `disk`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BufferSettings {
    /// The bytes of messages that may wait in memory, which absorbs bursts. They are a part of the budget,
    /// and are acknowledged when they are delivered. Sinks only.
    #[schemars(example = "64MiB")]
    #[serde(default)]
    pub memory: Option<ByteSize>,
    /// The bytes of messages that may wait on disk, in the state directory. They are acknowledged when they
    /// are on the disk, so that a slow or dead sink holds nothing else up. Needs `state`.
    #[schemars(example = "10GiB")]
    #[serde(default)]
    pub disk: Option<ByteSize>,
    /// The treatment of messages that a full disk buffer has no room for. With `wait` (the default) the input
    /// waits. With `drop_newest` these messages are dropped, with `drop_oldest` those that have waited
    /// longest. With `error` the run ends with an error.
    #[serde(default)]
    pub when_full: WhenBufferFull,
}

/// The treatment of messages that a full disk buffer has no room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WhenBufferFull {
    /// The input waits. Nothing is lost.
    #[default]
    Wait,
    /// They are dropped.
    DropNewest,
    /// The messages that have waited longest are dropped.
    DropOldest,
    /// The run ends with an error. Nothing is lost.
    Error,
}

/// The options of a pipeline besides `from`, `transforms` and `to`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PipelineSettings {
    /// Whether the order within one source is kept. By default, messages keep their order and files do not.
    /// `false` may be faster.
    pub ordered: Option<bool>,
    /// The treatment of a file that a transform rejects. With `divert` it leaves by `errors` at once. With
    /// `carry` it continues, skips the transforms that are not `for: with_errors` or `for: all`, and leaves
    /// by `errors` at the end.
    pub on_error: OnError,
    /// The number of workers that run the transforms at once. By default, one for each core.
    #[schemars(range(min = 1, max = 1024))]
    pub concurrency: Option<usize>,
}

/// Chooses a sink or pipeline by the value of a column.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ByKey {
    /// The column whose value chooses the sink.
    pub key: String,
    /// The sinks and pipelines to choose from.
    pub sinks: List<String>,
}

/// A failover with its options.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Failover {
    /// The sinks and pipelines, the preferred one first.
    pub to: List<String, 1>,
    /// The time to wait for a target without capacity before the next one gets the batch. Without it, the
    /// wait is unlimited and blocks the pipeline's input; with `0s` the next target gets it at once.
    pub timeout: Option<TimeSpan>,
}

/// The treatment of a file that a transform rejects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnError {
    /// The file leaves by `errors` at once.
    #[default]
    Divert,
    /// The file continues, skips the transforms that are not `for` rejected files, and leaves by `errors` at
    /// the end of the pipeline.
    Carry,
}
