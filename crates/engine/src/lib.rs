//! From a configuration to a graph, from the graph to a plan, and from the plan to a run.
//!
//! A configuration is read into a [`Graph`]: which components there are and which feeds which, all of it
//! checked. The graph becomes a [`Plan`]: neighbouring transforms fused into segments, a channel
//! only where rates must differ, and how many copies of each. The plan is carried out as a [`run`].
//! Graph and plan are values that can be printed.
//!
//! This crate knows what a component is ([`component`]) but none in particular: they come in a [`Registry`].

pub mod component;
mod details;
mod error;
mod flow;
mod graph;
mod intake;
mod journal;
mod kept;
mod metrics;
mod outlet;
mod outlets;
mod plan;
mod positions;
mod read;
mod registry;
pub mod replay;
mod router;
mod run;
mod schema;
mod store;
mod temporary;
pub mod testing;

pub use component::{
    BuildFileTransform, BuildSink, BuildSource, BuildTransform, BuildUnpack, BuildWaiting, Context, Cost,
    Fate, FileSink, FileTransform, FileTransformConfig, Flow, InFlight, Mistake, Sink, SinkConfig, Source,
    SourceConfig, Step, Transform, TransformConfig, Trouble, Unpack, UnpackConfig, WaitingTransform, Written,
};
pub use details::Details;
pub use error::{Error, ErrorKind};
pub use graph::{Feed, Graph, OnError, Pipeline, SinkNode, SourceNode, Targets, To, TransformNode};
pub use intake::Intake;
pub use journal::Journal;
pub use kept::KeptField;
pub use metrics::{ComponentCounts, ComponentMetrics};
pub use outlet::{Meter, Outlet, Reading, Received, Settled};
pub use outlets::{Outlets, Output, Rejects};
pub use plan::{Destination, FailoverStage, Operator, Plan, Segment, SinkStage, SourceStage, Target};
pub use positions::{Mark, Positions};
pub use read::{ByKey, DEFAULT_MEMORY, Failover, LetterBounds, PipelineSettings, Settings, read};
pub use registry::{Built, Definition, Registry, Role};
pub use run::{FileEvent, FileWatcher, Handle, Keeping, Run, Summary};
pub use schema::schema;
pub use store::{DeadLetter, KeptFile, LetterId, LetterTally, Store};
pub use temporary::Temporaries;
