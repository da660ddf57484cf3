//! The sources: one file each.

pub mod files;
pub mod objects;
pub mod remote_files;
