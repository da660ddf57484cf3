//! From a configuration to a finished run: one path for every job.
//!
//! A [`Configuration`] is a document of some dialect and its place. It becomes a [`Job`]: the phases that it
//! asks for, each a checked graph with a state directory. A [`JobRun`] runs them one after the other, under a
//! [`Control`] that stops it and an [`Observer`] that shows it. The result is a [`JobOutcome`], a value that
//! callers print or return.
//!
//! The command line, Python, and every command of either go through these steps. Commands with code of their
//! own for one dialect were rejected: Python could not run capyfile's definitions for that reason alone.
//!
//! [`copy`] makes a job of options instead of a document.
//!
//! This crate prints nothing and knows no command line: text for a terminal is `thalweg-frontend`. It names
//! components only to copy objects.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod configuration;
#[cfg(feature = "stores")]
pub mod copy;
mod environment;
mod error;
mod events;
mod job;
mod logs;
mod outcome;
mod run;

use thalweg_engine::Registry;

pub use configuration::Configuration;
pub use environment::EtcdLookup;
pub use error::{LoadError, RunError, did_you_mean};
pub use events::{FileEvents, steps};
pub use job::{Job, Overrides, Phase, state_folder};
pub use logs::{LogCollector, LogEvent};
pub use outcome::{JobOutcome, Outcome, Retries, peak_memory, rejected, statistics, summary_input};
pub use run::{Control, JobRun, Notice, Observer, RunOptions, Signal, Signals, cores, pause, run_graph};

/// The components that come with thalweg.
#[must_use]
pub fn registry() -> Registry {
    thalweg_components::registry()
}
