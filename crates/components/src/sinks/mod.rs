//! The sinks: a file each.

pub mod directory;
pub mod discard;
pub mod file;
pub mod http;
pub mod measure;
pub mod objects;
pub mod proxy;
pub mod socket;
pub mod spool;
pub mod statsd;
pub mod stdout;
pub mod websocket;
