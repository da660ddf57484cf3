//! `thalweg ps`.

use std::path::PathBuf;

use clap::Args;
use thalweg_frontend::remote::{self, PsOptions};
use thalweg_frontend::{CommandError, Exit};

/// Lists the runs with a state folder.
///
/// A run with `--state` (or `state` in its configuration) is found by the socket in that folder, which only
/// its user can open.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  thalweg ps
  thalweg ps /srv /home/me/jobs --json")]
pub struct Arguments {
    /// The folders to search. Without them, the current folder and `/var/lib/thalweg`.
    #[arg(value_name = "DIR")]
    folders: Vec<PathBuf>,
    /// Print JSON, one run per line.
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: Arguments) -> Result<Exit, CommandError> {
    remote::ps(&PsOptions { folders: arguments.folders, json: arguments.json })
}
