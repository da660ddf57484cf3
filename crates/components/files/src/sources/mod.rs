//! The sources, each in its own module.

pub mod files;
pub mod objects;
pub mod remote_files;
