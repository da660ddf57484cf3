//! The sinks: a file each.

pub mod discard;
