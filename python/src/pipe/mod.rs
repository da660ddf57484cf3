//! Pipelines in Python: running configurations, and Python's own sources, transforms and sinks in them.
//!
//! What comes from Python and goes there are Arrow's record batches, by its C interface (`capsules`): nothing is copied. A
//! Python object becomes a component of the registry of one run (`objects`); it is called on threads that may block, never
//! on those of the engine's segments. The classes here are not those of users: the package wraps them.

mod batches;
mod begin;
mod capsules;
mod narrow;
mod objects;
mod read;
mod run;
mod sink;
mod source;
mod stream;
mod transform;
mod workers;

pub use batches::Batch;
pub use begin::{as_yaml, check, kinds, raised, start};
pub use run::Run;
pub use stream::Stream;
