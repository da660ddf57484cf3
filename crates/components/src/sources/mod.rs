//! The sources: a file each.

pub mod file;
pub mod generate;
pub mod http;
pub mod proxy;
pub mod socket;
pub mod stdin;
pub mod syslog;
