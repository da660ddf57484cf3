//! `thalweg runs`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use thalweg_frontend::runs::{self, RunListOptions, RunShowOptions};
use thalweg_frontend::{CommandError, Exit};

/// Shows the runs that a state folder has had.
///
/// A run with `--state` (or `state:` in the configuration) leaves a record in that folder: when it began and
/// ended, its outcome, the counters of its components, and the digest of its configuration. A run whose
/// process was killed was `interrupted`. The last 1000 runs of 90 days are kept.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  thalweg runs list /var/lib/thalweg/nightly/state
  thalweg runs list --limit 5 --json
  thalweg runs show 17 state")]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Lists the runs, the latest first: number, begin, duration, outcome, messages read and written, dead
    /// letters.
    List(List),
    /// Shows one run with the counters of its components.
    Show(Show),
}

#[derive(Debug, Args)]
struct List {
    /// The state folder. Without it, the only one with runs in the current folder or `/var/lib/thalweg`.
    #[arg(value_name = "STATE_DIR")]
    state: Option<PathBuf>,
    /// The most runs to list.
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: usize,
    /// Print JSON, one run per line.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Show {
    /// The number of the run, as `list` shows it.
    #[arg(value_name = "ID")]
    id: u64,
    /// The state folder. Without it, the only one with runs in the current folder or `/var/lib/thalweg`.
    #[arg(value_name = "STATE_DIR")]
    state: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: Arguments) -> Result<Exit, CommandError> {
    match arguments.command {
        Command::List(List { state, limit, json }) => runs::list(&RunListOptions { state, limit, json }),
        Command::Show(Show { id, state, json }) => runs::show(&RunShowOptions { id, state, json }),
    }
}
