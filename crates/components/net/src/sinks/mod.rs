//! The sinks: one module each.

pub mod http;
pub mod proxy;
pub mod socket;
pub mod statsd;
pub mod websocket;
