//! `thalweg source`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use thalweg_frontend::remote::{self, RunTarget, SourceAction, SourceOptions};
use thalweg_frontend::{CommandError, Exit};

/// Pauses, resumes or drains one source of a run.
///
/// The other sources go on, and what the source has read is delivered.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  thalweg source pause orders
  thalweg source resume orders state
  thalweg source drain orders 127.0.0.1:9598")]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Lets a source read nothing until it is resumed. Its connections stay.
    Pause(Source),
    /// Lets a paused source read on.
    Resume(Source),
    /// Lets a source stop, as SIGTERM stops all. It does not read again in this run.
    Drain(Source),
}

#[derive(Debug, Args)]
struct Source {
    /// The name of the source.
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    target: Target,
}

// A doc comment would replace the help of the commands that have this.
#[derive(Debug, Args)]
pub struct Target {
    /// The state folder of the run, or its address (`--listen` of `run`). Without it, the only run with a
    /// state folder in the current folder or in `/var/lib/thalweg`.
    #[arg(value_name = "ADDRESS|STATE_DIR")]
    place: Option<String>,
    /// The file with the token of the API (`--api-token-file` of `run`), if it needs one.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

impl From<Target> for RunTarget {
    fn from(target: Target) -> Self {
        Self { place: target.place, token_file: target.token_file }
    }
}

pub fn run(arguments: Arguments) -> Result<Exit, CommandError> {
    let (action, Source { name, target }) = match arguments.command {
        Command::Pause(source) => (SourceAction::Pause, source),
        Command::Resume(source) => (SourceAction::Resume, source),
        Command::Drain(source) => (SourceAction::Drain, source),
    };
    remote::source(&SourceOptions { target: target.into(), name, action })
}
