//! Byte streams at the edge of the engine: reads them into batches, and encodes batches for sinks.
//!
//! The codec knows bytes and columns but no engine; the engine knows batches but no format. This crate
//! connects the two for every family of components:
//!
//! - [`arenas`]: memory to read into.
//! - [`command`]: programs of the operating system, for components that run them.
//! - [`cut`]: cuts messages from that memory and sends them to a source output.
//! - [`io_error`]: errors of the operating system.
//! - [`links`]: symbolic links in folders that are read.
//! - [`encode`]: the transform that encodes messages for a sink.
//! - [`pieces`]: batches whose output is larger than they are.
//! - [`table`]: Parquet tables, the format of `encode` that is one of whole files.
//! - [`unacknowledged`]: the end of sources whose servers wait for acknowledgements.
//! - [`whole`]: messages that need no cutting, as those of brokers.
//!
//! No component must live here, except `encode`, which is also an option of sinks in three families.
//!
//! See docs/decisions/051-components-are-families-of-crates.md.

pub mod arenas;
pub mod command;
pub mod cut;
pub mod encode;
pub mod links;
pub mod pieces;
#[cfg(feature = "parquet")]
pub mod table;
#[cfg(not(feature = "parquet"))]
#[path = "no_table.rs"]
pub mod table;
pub mod unacknowledged;
pub mod whole;

/// Errors of the operating system, as sentences about a file.
pub mod io_error {
    pub use thalweg_engine::io_error;
}
