//! A case for every registered component.
//!
//! A component without a case fails the test that walks the registry. [`feeds`] has the sources, [`outlets`]
//! the sinks, whose output `replicas` reads back, [`files`] what works on files, and [`messages`] the
//! transforms of messages.

pub mod avro;
pub mod clients;
pub mod feeds;
pub mod files;
pub mod messages;
pub mod outlets;
mod replicas;
