//! `thalweg top`.

use clap::Args;
use thalweg_frontend::{CommandError, Exit, remote};

use super::source::Target;

/// Shows what a run does now: rates, latencies, queues, and what is retried.
///
/// The picture changes every second. `q` or Ctrl-C ends it. Where the output is no terminal, one picture is
/// printed.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  thalweg top
  thalweg top /var/lib/thalweg/orders/state
  thalweg top 127.0.0.1:9598")]
pub struct Arguments {
    #[command(flatten)]
    target: Target,
}

pub fn run(arguments: Arguments) -> Result<Exit, CommandError> {
    remote::top(&arguments.target.into())
}
