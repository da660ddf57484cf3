//! The sinks: one file each.

pub mod discard;
pub mod file;
pub mod measure;
pub mod spool;
pub mod stdout;
