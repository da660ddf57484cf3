//! The sources: one file each.

pub mod file;
pub mod generate;
pub mod internal_logs;
pub mod pipe;
pub mod spool;
pub mod stdin;
