//! The sources: a file each.

pub mod generate;
