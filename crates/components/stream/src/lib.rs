//! Byte streams at the edge of the engine: reads them into batches, and encodes batches for sinks.
//!
//! The codec knows bytes and columns but no engine; the engine knows batches but no format. This crate
//! connects the two for every family of components: memory to read into ([`arenas`]), messages that are cut
//! from it and sent ([`cut`], [`taker`]), errors of the operating system ([`io_error`]), and the transform
//! that encodes messages for a sink ([`encode`]).
//!
//! No component must live here, except `encode`, which is also an option of sinks in three families.

pub mod arenas;
pub mod cut;
pub mod encode;
pub mod io_error;
pub mod taker;
