//! The sources: a file each.

pub mod file;
pub mod generate;
pub mod stdin;
