//! `thalweg reload`.

use clap::Args;
use thalweg_frontend::remote::{self, ReloadOptions};
use thalweg_frontend::{CommandError, Exit};

use super::source::Target;

/// Lets a run read its configuration again.
///
/// The run must have been started with `--watch`. Components that are connected with no changed one run on
/// untouched. The others deliver what is in flight, and those of the new configuration begin in their place.
/// A configuration with mistakes changes nothing, and the exit code is then 3.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  thalweg reload --dry-run
  thalweg reload /var/lib/logs
  thalweg reload 127.0.0.1:9598")]
pub struct Arguments {
    /// Only show the difference between the file and the configuration that runs.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    target: Target,
}

pub fn run(arguments: Arguments) -> Result<Exit, CommandError> {
    let Arguments { dry_run, target } = arguments;
    remote::reload(&ReloadOptions { target: target.into(), only_shows: dry_run })
}
