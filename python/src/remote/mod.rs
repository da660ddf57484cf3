//! Files elsewhere: `thalweg.RemoteFile`, of which that is fetched what is read.
//!
//! What is held is read there and then, with the interpreter lock: that takes a fraction of what letting go of it would. Only
//! what is to be fetched goes to the runtime's threads.

mod error;
mod file;
mod future;
mod lines;
mod opened;
mod options;
mod statistics;

pub use file::RemoteFile;
