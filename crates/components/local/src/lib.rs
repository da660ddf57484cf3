//! Sources and sinks of the local machine: files that are followed or written, standard streams, pipes,
//! spools, generated messages and the process's own log.
//!
//! A component depends on the engine's traits and on the codec, never on another component. The one exception
//! is `encode: parquet` of the sink `file`, which the sink `objects` writes.
//!
//! See docs/decisions/051-components-are-families-of-crates.md.

mod clock;
mod input;
mod program;
pub mod report;
pub mod sinks;
pub mod sources;

/// Adds the components of this family to a registry.
pub fn register(registry: thalweg_engine::Registry) -> thalweg_engine::Registry {
    sinks::register(sources::register(registry))
}
