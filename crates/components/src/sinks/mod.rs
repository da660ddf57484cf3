//! The sinks: a file each.

pub mod discard;
pub mod file;
pub mod http;
pub mod proxy;
pub mod socket;
pub mod statsd;
pub mod stdout;
pub mod websocket;
