//! `thalweg errors`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use thalweg_engine::DeadLetterId;
use thalweg_frontend::errors::{self, ClearOptions, ListOptions, ReplayOptions, ShowOptions};
use thalweg_frontend::{CommandError, Exit};

use super::candidates;

/// Shows what could not be processed and why, and processes it again.
///
/// A message that a component cannot process is kept as a dead letter, unless a pipeline reads it with `from:
/// NAME.errors`. A dead letter has the payload, the fields, the origin and the reason. Dead letters are in
/// the state folder (`--state`, or `state:` in the configuration); without one, in a folder in `.thalweg`
/// beside the configuration. A state folder belongs to one configuration, and others are refused. When a
/// configuration was moved, it continues. To hand the folder over otherwise, delete the file `owner` in it.
/// `list`, `show` and `clear` may be used while a run is active.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  thalweg errors list logs.yaml
  thalweg errors show 17 logs.yaml
  thalweg errors replay logs.yaml --component main.parse_json
  thalweg errors clear logs.yaml --yes")]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Lists the dead letters, oldest first: number, time, component, origin, reason and the start of the
    /// payload.
    List(List),
    /// Shows one dead letter as a whole.
    Show(Show),
    /// Processes dead letters again, in the pipelines that rejected them.
    ///
    /// Correct the configuration first. A dead letter enters its pipeline at the transform that rejected it.
    /// It contains the results of the earlier transforms; of these, only new ones are applied. A delivered
    /// dead letter is removed. One that is rejected again becomes a new dead letter. Files that sinks wrote
    /// are appended to, not replaced.
    Replay(Replay),
    /// Removes dead letters.
    Clear(Clear),
}

#[derive(Debug, Args)]
struct StateLocation {
    /// The configuration whose run rejected them. Without it, the current folder is searched for dead
    /// letters.
    #[arg(value_name = "CONFIG", add = candidates::configurations())]
    config: Option<PathBuf>,
    /// The state folder, if the run was given one.
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct Filter {
    /// Only dead letters of this component (`main.parse_json`), or of this pipeline (`main`).
    #[arg(long, value_name = "NAME")]
    component: Option<String>,
}

#[derive(Debug, Args)]
struct List {
    #[command(flatten)]
    location: StateLocation,
    #[command(flatten)]
    filter: Filter,
    /// The most dead letters to list.
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: u64,
    /// Print JSON, one dead letter per line.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Show {
    /// The number of the dead letter, as `list` shows it.
    #[arg(value_name = "ID")]
    id: DeadLetterId,
    #[command(flatten)]
    location: StateLocation,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Print the payload alone, byte for byte.
    #[arg(long, conflicts_with = "json")]
    payload: bool,
}

#[derive(Debug, Args)]
struct Replay {
    /// The configuration to process them with.
    #[arg(value_name = "CONFIG", add = candidates::configurations())]
    config: PathBuf,
    /// The state folder, if the run was given one.
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    #[command(flatten)]
    filter: Filter,
    /// The most dead letters to process, the oldest first.
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Print the outcome as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Clear {
    #[command(flatten)]
    location: StateLocation,
    #[command(flatten)]
    filter: Filter,
    /// The most dead letters to remove, the oldest first.
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Remove without asking. Needed where there is no terminal to ask on.
    #[arg(long, short)]
    yes: bool,
}

impl Arguments {
    /// True if dead letters are replayed.
    pub fn replays(&self) -> bool {
        matches!(self.command, Command::Replay(_))
    }
}

pub fn run(arguments: Arguments) -> Result<Exit, CommandError> {
    match arguments.command {
        Command::List(List { location, filter, limit, json }) => {
            errors::list(&ListOptions { location: location.into(), filter: filter.into(), limit, json })
        }
        Command::Show(Show { location, id, json, payload }) => {
            errors::show(&ShowOptions { location: location.into(), id, json, payload })
        }
        Command::Replay(Replay { config, state, filter, limit, json }) => {
            errors::replay(&ReplayOptions { config, state, filter: filter.into(), limit, json })
        }
        Command::Clear(Clear { location, filter, limit, yes }) => {
            errors::clear(&ClearOptions { location: location.into(), filter: filter.into(), limit, yes })
        }
    }
}

impl From<StateLocation> for errors::StateLocation {
    fn from(location: StateLocation) -> Self {
        Self { config: location.config, state: location.state }
    }
}

impl From<Filter> for errors::Filter {
    fn from(filter: Filter) -> Self {
        Self { component: filter.component }
    }
}
