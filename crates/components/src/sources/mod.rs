//! The sources: a file each.

pub mod file;
pub mod files;
pub mod generate;
pub mod http;
pub mod http_upload;
pub mod internal_logs;
pub mod objects;
pub mod pipe;
pub mod proxy;
pub mod remote_files;
pub mod socket;
pub mod spool;
pub mod stdin;
pub mod syslog;
