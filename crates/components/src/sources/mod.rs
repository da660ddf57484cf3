//! The sources: a file each.

pub mod file;
pub mod generate;
<<<<<<< HEAD
pub mod internal_logs;
pub mod pipe;
pub mod spool;
=======
pub mod http;
pub mod proxy;
pub mod socket;
>>>>>>> network
pub mod stdin;
pub mod syslog;
