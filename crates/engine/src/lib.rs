//! From a configuration to a graph, from the graph to a plan, and from the plan to a run.
//!
//! A configuration is read into a [`Graph`]: the checked components and the edges between them. The graph
//! becomes a [`Plan`]: adjacent transforms fused into segments, channels only where rates must differ, and
//! the parallelism of each segment. A [`Run`] executes the plan. Graph and plan are values that can be
//! printed.
//!
//! This crate defines what a component is ([`component`]) but contains none: components come in a
//! [`Registry`].

mod beside;
mod buffer;
pub mod component;
mod details;
mod error;
mod flow;
mod graph;
mod index;
mod io_error;
mod journal;
mod kept;
mod metrics;
mod missing;
mod pairs;
mod parcel;
mod plan;
mod positions;
mod read;
mod reference;
mod registry;
mod rejects;
pub mod replay;
mod router;
mod run;
mod schedule;
mod schema;
pub mod segments;
mod settings;
mod source_output;
mod store;
mod temporary;
pub mod testing;

pub use buffer::{FoundBuffer, FoundSegment, Part, find_buffers};
pub use component::{
    Claim, Component, Context, Cost, Disposition, Endless, FieldMistake, FieldUse, FileError, FileReader,
    FileReaderConfig, FileSink, FileTransform, FileTransformConfig, Flow, InFlight, KnownFields, Link,
    Membership, Mistake, Naming, NeededField, OneName, Reads, Sink, SinkConfig, Source, SourceConfig, Step,
    TransactionPlace, Transform, TransformConfig, WaitingTransform, WaitingTransformConfig, WriteOutcome,
};
pub use details::{Details, Gauge};
pub use error::{Error, ErrorKind};
pub use graph::{Feed, Graph, Passed, Pipeline, SinkNode, SourceNode, Targets, To, TransformNode};
pub use io_error::io_error;
pub use journal::Journal;
pub use kept::KeptField;
pub use metrics::{ComponentCounts, ComponentMetrics};
pub use missing::MissingField;
pub use plan::{Destination, FailoverStage, Operator, Plan, Segment, SinkStage, SourceStage, Target};
pub use positions::{Checkpoint, Positions};
pub use read::{absent_files, advice, check_fields, check_memory, is_name, read, read_checked, remarks};
pub use reference::{OptionReference, Reference};
pub use registry::{Built, Definition, Registry, Role};
pub use rejects::Rejects;
pub use run::{
    BatchTrace, Changes, Difference, EdgeCounts, FileEvent, FileWatcher, Handle, LatencyCounts, Parts,
    PartsOptions, QueueCounts, Refused, Rehearsal, Run, RunFailure, SourceState, SourceStatus, StageSpan,
    StateDir, Summary, Tap, TapError, TapRequest, Tapped, Undrained, UnknownSource, Written,
};
pub use schedule::{OnRunFailure, Overlap, Schedule};
pub use schema::schema;
pub use settings::{
    BufferLimits, BufferSettings, ByKey, DEFAULT_MEMORY, DeadLetterLimits, Failover, OnError,
    PipelineSettings, Settings, WhenBufferFull, WhenFull,
};
pub use source_output::{Meter, Reading, Received, Settled, SourceOutput};
#[cfg(target_os = "linux")]
pub use store::RunningLetters;
pub use store::fuzzing;
pub use store::{Added, DeadLetter, DeadLetterCounts, DeadLetterId, KeptFile, OutputFile, Owner, Store};
pub use temporary::Temporaries;
pub use thalweg_record::{Output, Outputs};
