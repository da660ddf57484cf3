//! The sinks, each in its own module.

pub mod directory;
pub mod objects;
