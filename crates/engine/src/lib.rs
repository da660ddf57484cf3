//! From a configuration to a graph, from the graph to a plan, and from the plan to a run.
//!
//! A configuration is read into a [`Graph`]: the components and which feeds which, checked. The graph becomes
//! a [`Plan`]: adjacent transforms fused into segments, channels only where rates must differ, and the
//! parallelism of each segment. The plan is carried out as a [`Run`]. Graph and plan are values that can be
//! printed.
//!
//! This crate knows what a component is ([`component`]) but none in particular: they come in a [`Registry`].

pub mod component;
mod details;
mod error;
mod flow;
mod graph;
mod journal;
mod kept;
mod metrics;
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
mod schema;
mod source_output;
mod store;
mod temporary;
pub mod testing;

pub use component::{
    BuildFileReader, BuildFileTransform, BuildSink, BuildSource, BuildTransform, BuildWaiting, Context, Cost,
    Disposition, FileError, FileReader, FileReaderConfig, FileSink, FileTransform, FileTransformConfig, Flow,
    InFlight, Mistake, Sink, SinkConfig, Source, SourceConfig, Step, Transform, TransformConfig,
    WaitingTransform, WriteOutcome,
};
pub use details::Details;
pub use error::{Error, ErrorKind};
pub use graph::{Feed, Graph, OnError, Pipeline, SinkNode, SourceNode, Targets, To, TransformNode};
pub use journal::Journal;
pub use kept::KeptField;
pub use metrics::{ComponentCounts, ComponentMetrics};
pub use plan::{Destination, FailoverStage, Operator, Plan, Segment, SinkStage, SourceStage, Target};
pub use positions::{Checkpoint, Positions};
pub use read::{ByKey, DEFAULT_MEMORY, DeadLetterLimits, Failover, PipelineSettings, Settings, read};
pub use reference::{OptionReference, Reference};
pub use registry::{Built, Definition, Registry, Role};
pub use rejects::Rejects;
pub use run::{FileEvent, FileWatcher, Handle, Run, RunFailure, StateDir, Summary, Undrained};
pub use schema::schema;
pub use source_output::{Meter, Reading, Received, Settled, SourceOutput};
pub use store::{DeadLetter, DeadLetterCounts, DeadLetterId, KeptFile, Store};
pub use temporary::Temporaries;
pub use thalweg_record::{Output, Outputs};
