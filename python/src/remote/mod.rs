//! Remote files: `thalweg.RemoteFile`, which fetches only the parts that are read.
//!
//! Held bytes are read immediately, with the interpreter lock: that takes a fraction of the time of releasing
//! the lock. Only ranges to be fetched go to the runtime's threads.

mod error;
mod file;
mod future;
mod lines;
mod opened;
mod options;
mod statistics;

pub use file::RemoteFile;
