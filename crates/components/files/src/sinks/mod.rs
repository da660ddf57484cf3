//! The sinks: one file each.

pub mod directory;
pub mod objects;
