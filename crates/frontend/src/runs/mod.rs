//! `thalweg runs`: the history of the runs of a state directory.
//!
//! The records are files, so they are read whether or not a run is active, and nothing is locked.

mod list;
mod show;

use std::path::Path;
use std::time::Duration;

use thalweg_job::{History, RunRecord};
use thalweg_redact::foreign;

use crate::exit::CommandError;
use crate::format::{count, duration};
use crate::remote::find;

pub use list::{RunListOptions, list};
pub use show::{RunShowOptions, show};

/// Returns the history of a state directory: the given one, or the only one that is found.
fn history(given: Option<&Path>) -> Result<History, CommandError> {
    let has_history = |folder: &Path| History::of(folder).exists();
    if let Some(folder) = given {
        return match has_history(folder) {
            true => Ok(History::of(folder)),
            false => Err(CommandError::Usage(format!(
                "no run has left a record in `{}`: give the directory that runs have as `--state`",
                folder.display()
            ))),
        };
    }
    let none = "no state directory with runs is found in this folder: give one, the `--state` of the runs";
    let found = find::directories(&find::usual(), &has_history);
    find::only(found, none, "state directories").map(|folder| History::of(&folder))
}

/// When a run began, without the parts of a second.
fn started(record: &RunRecord) -> String {
    let time = record.started.replacen('T', " ", 1);
    foreign(time.split('.').next().unwrap_or(&time)).into_owned()
}

/// How long a run took, if that is known.
fn took(record: &RunRecord) -> String {
    let time = record.elapsed_seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    time.map_or_else(|| "–".to_owned(), duration)
}

/// A count of an ended run. Nothing is known of another one.
fn counted(record: &RunRecord, number: u64) -> String {
    if record.elapsed_seconds.is_some() { count(number) } else { "–".to_owned() }
}
