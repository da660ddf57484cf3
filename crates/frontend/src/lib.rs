//! The commands that run, check, convert and copy, and show errors, without a command line: what the program
//! `thalweg` and `python -m thalweg` share.
//!
//! Each command takes plain options, prints for people or, as JSON, for programs, and returns an exit code or
//! a [`CommandError`]. The parser of a command line calls it: clap in the program, argparse in Python.
//! Progress, summaries and log lines are made here, and nowhere else.
//!
//! Loading and running are `thalweg-job`. No parser of command lines may be linked here: the Python package
//! would carry it.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod check;
mod convert;
#[cfg(feature = "stores")]
mod copy;
pub mod errors;
mod exit;
pub mod format;
pub mod log;
mod metrics_server;
mod paint;
pub mod print;
mod progress;
mod repeat;
mod run;
mod screen;
mod summary;

pub use check::{CheckOptions, check, described};
pub use convert::{convert, write_new};
#[cfg(feature = "stores")]
pub use copy::{copy, print_config};
pub use exit::{CommandError, Exit, WRONG, report, tell};
pub use paint::Paint;
pub use progress::Progress;
pub use repeat::Repeat;
pub use run::{RunRequest, run};
pub use screen::{Screen, Show};
