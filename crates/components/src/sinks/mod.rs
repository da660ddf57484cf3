//! The sinks: a file each.

pub mod discard;
pub mod file;
pub mod stdout;
