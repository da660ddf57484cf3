//! The sources: a file each.

pub mod file;
pub mod stdin;
