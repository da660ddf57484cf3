//! Pipelines in Python: running configurations, with sources, transforms and sinks that are Python objects.
//!
//! Data crosses the boundary as Arrow record batches through Arrow's C interface (`capsules`), without
//! copies. A Python object becomes a component of the registry of one run (`objects`). It is called on
//! threads that may block, never on those of the engine's segments. Users do not see the classes here: the
//! package wraps them.

mod batches;
mod begin;
mod capsules;
mod iterable;
mod narrow;
mod nesting;
mod objects;
mod process;
mod read;
mod run;
mod sink;
mod source;
mod starter;
mod stream;
mod transform;
mod workers;

pub use batches::Batch;
pub use begin::{as_yaml, check, kinds, raised, start};
pub use nesting::check_nesting;
pub use run::Run;
pub use starter::end_with_parent;
pub use stream::Stream;
