//! The sinks: a file each.

pub mod discard;
pub mod file;
<<<<<<< HEAD
pub mod measure;
pub mod spool;
=======
pub mod http;
pub mod proxy;
pub mod socket;
pub mod statsd;
>>>>>>> network
pub mod stdout;
pub mod websocket;
