//! From a configuration to a finished run: one path for every job.
//!
//! A [`Configuration`] is a document of some dialect and its path. It becomes a [`Job`]: one or more phases,
//! each a checked graph with a state directory. A [`JobRun`] runs them one after the other. A [`Control`]
//! stops it, an [`Observer`] shows it. The result is a [`JobOutcome`], a value that callers print or return.
//!
//! The command line, Python, and every command of either use these steps. Commands with separate code for one
//! dialect were rejected: for that reason alone, Python could not run capyfile's definitions.
//!
//! [`copy`] builds a job from options instead of a document.
//!
//! This crate prints nothing and knows no command line: text for a terminal is in `thalweg-frontend`. It
//! names components for two purposes: to copy objects, and to collect logs for `internal_logs`. It names one
//! dialect, capyfile, to report its files.
//!
//! See docs/decisions/070-one-path-for-every-job.md.

#![deny(missing_docs)]
#![deny(unsafe_code)]

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod code;
mod configuration;
#[cfg(feature = "stores")]
pub mod copy;
#[cfg(unix)]
mod descriptors;
mod dry_run;
mod environment;
mod error;
mod events;
mod history;
mod identity;
mod job;
mod limits;
mod logs;
mod memory;
mod outcome;
mod pipe;
mod run;

use thalweg_engine::Registry;

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
pub use code::release as release_code;
pub use configuration::Configuration;
#[cfg(unix)]
pub use descriptors::raise_descriptor_limit;
pub use dry_run::DryRun;
pub use environment::EtcdLookup;
#[doc(hidden)]
pub use environment::etcd_value;
pub use error::{LoadError, RunError, did_you_mean};
pub use events::{FileEvents, steps};
pub use history::{ComponentRecord, ConfigurationId, History, RunOutcome, RunRecord};
pub use identity::{HIDDEN, Identity};
pub use job::{Job, Overrides, Phase};
pub use limits::Limits;
pub use logs::{LogCollector, LogEvent, is_for_users};
pub use memory::{peak_memory, process_memory};
pub use outcome::{JobOutcome, Outcome, Retries, statistics, summary_input};
pub use pipe::PipeOptions;
pub use run::signals;
pub use run::{
    Control, JobRun, Notice, Observer, ReloadError, ReloadStatus, Reloads, RunOptions, Signal, Signals,
    cores, pause, run_graph,
};
pub use thalweg_dialects::gollum::Version as GollumVersion;
pub use thalweg_expression::{FunctionInfo, Group as FunctionGroup, aliases as function_aliases, functions};
pub use thalweg_runtime::descriptors::{for_clients as descriptors_for_clients, limit as descriptor_limit};
pub use thalweg_runtime::idle::set_before_wait;

/// The components that come with thalweg.
#[must_use]
pub fn registry() -> Registry {
    thalweg_components::registry()
}
