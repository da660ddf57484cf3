//! The sources: one module each.

pub mod http;
pub mod http_upload;
pub mod proxy;
pub mod socket;
pub mod syslog;
