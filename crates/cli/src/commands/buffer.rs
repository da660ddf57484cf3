//! `thalweg buffer`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use thalweg_frontend::buffer::{self, BufferOptions, DumpOptions, ReplayOptions};
use thalweg_frontend::errors::StateLocation;
use thalweg_frontend::{CommandError, Exit};

use super::candidates;

/// Shows the messages that wait in buffers on disk, and delivers them.
///
/// A sink or a pipeline with `buffer: { disk: 10GiB }` has a buffer in the state folder (`--state`, or
/// `state:` in the configuration). A run delivers what former runs left there. All commands but `replay` only
/// read, and may be used while a run writes.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  thalweg buffer list logs.yaml
  thalweg buffer check --state state
  thalweg buffer dump logs.yaml --buffer outside --payload
  thalweg buffer replay logs.yaml")]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Lists the buffers: messages, segments, bytes, and since when they wait.
    ///
    /// A segment is removed as a whole, so some of its messages may be delivered already.
    List(Selection),
    /// Reads all that is in the buffers, and compares it with its checksums. The exit code is 1 if something
    /// is damaged.
    Check(Selection),
    /// Prints the messages, the oldest first. They stay in the buffer.
    Dump(Dump),
    /// Delivers what is in the buffers, and ends when they are empty. The sources do not run.
    Replay(Replay),
}

#[derive(Debug, Args)]
struct Buffers {
    /// The configuration that they belong to. Without it, `--state` is needed.
    #[arg(value_name = "CONFIG", required_unless_present = "state", add = candidates::configurations())]
    config: Option<PathBuf>,
    /// The state folder, if the run was given one.
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Only the buffer of this sink or pipeline.
    #[arg(long, value_name = "NAME")]
    buffer: Option<String>,
}

#[derive(Debug, Args)]
struct Selection {
    #[command(flatten)]
    buffers: Buffers,
    /// Print JSON, one buffer per line.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Dump {
    #[command(flatten)]
    buffers: Buffers,
    /// The most messages to print.
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Print payloads alone, a line each, in place of JSON.
    #[arg(long)]
    payload: bool,
}

#[derive(Debug, Args)]
struct Replay {
    /// The configuration to deliver them with.
    #[arg(value_name = "CONFIG", add = candidates::configurations())]
    config: PathBuf,
    /// The state folder, if the run was given one.
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Print the outcome as JSON.
    #[arg(long)]
    json: bool,
}

impl Arguments {
    /// True if buffers are delivered.
    pub fn replays(&self) -> bool {
        matches!(self.command, Command::Replay(_))
    }
}

pub fn run(arguments: Arguments) -> Result<Exit, CommandError> {
    match arguments.command {
        Command::List(selection) => buffer::list(&selection.buffers.options(selection.json)),
        Command::Check(selection) => buffer::check(&selection.buffers.options(selection.json)),
        Command::Dump(Dump { buffers, limit, payload }) => {
            buffer::dump(&DumpOptions { buffers: buffers.options(true), limit, payload })
        }
        Command::Replay(Replay { config, state, json }) => {
            buffer::replay(&ReplayOptions { config, state, json })
        }
    }
}

impl Buffers {
    fn options(self, json: bool) -> BufferOptions {
        let location = StateLocation { config: self.config, state: self.state };
        BufferOptions { location, name: self.buffer, json }
    }
}
