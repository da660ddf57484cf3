//! The sinks: a file each.

pub mod file;
pub mod stdout;
