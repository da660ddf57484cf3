//! The commands `run`, `check`, `convert`, `copy`, `errors`, `buffer`, `runs`, `support-bundle`, and those
//! for a run in another process, without a parser. The program `thalweg` and `python -m thalweg` share them.
//!
//! Each command takes plain options, prints text for people or JSON for programs, and returns an exit code or
//! a [`CommandError`]. The program parses its command line with clap, Python with argparse. Progress,
//! summaries and log lines are formatted here and nowhere else.
//!
//! `thalweg-job` loads and runs configurations. No parser of command lines may be linked here: the Python
//! package would carry it.
//!
//! See docs/decisions/071-a-front-end-without-a-command-line.md.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod api;
mod around;
pub mod buffer;
mod check;
mod convert;
#[cfg(feature = "stores")]
mod copy;
pub mod errors;
mod exit;
pub mod format;
mod health;
mod instruments;
mod limits;
pub mod log;
mod paint;
pub mod print;
mod progress;
mod pulse;
pub mod remote;
mod repeat;
mod repeats;
mod run;
pub mod runs;
mod screen;
mod service_manager;
mod summary;
mod support_bundle;
mod telemetry;
mod timetable;
mod write_new;

pub use check::{CheckOptions, check, described};
pub use convert::convert;
#[cfg(feature = "stores")]
pub use copy::{copy, print_config};
pub use exit::{CommandError, Early, Exit, WRONG, report, until_heeded};
pub use paint::Paint;
pub use repeat::{Repeat, Scheduling};
pub use run::{RunRequest, run};
pub use screen::{Screen, Show};
pub use support_bundle::{BundleOptions, support_bundle};
pub use telemetry::Telemetry;
pub use write_new::write_new;
