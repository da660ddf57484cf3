//! `thalweg errors`: what could not be processed, and why.

mod clear;
mod list;
mod replay;
mod show;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::json;
use thalweg_engine::{DeadLetter, DeadLetterId, Store};
use thalweg_frontend::{CommandError, Exit};
use thalweg_job::{Configuration, state_folder};

/// Shows what could not be processed and why, and processes it again.
///
/// A message that a component cannot process, and that no pipeline takes with `from: NAME.errors`, is kept as
/// a dead letter: its payload, its fields, where it came from and the reason. Dead letters are in the state
/// folder (`--state`, or `state:` in the configuration), and without one in the folder `.thalweg` beside the
/// configuration.
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
    /// Lists the dead letters, oldest first: number, time, component, place, reason and the payload's
    /// beginning.
    List(list::Arguments),
    /// Shows one dead letter as a whole.
    Show(show::Arguments),
    /// Processes dead letters again, in the pipelines that rejected them.
    ///
    /// Correct the configuration before. A letter enters its pipeline at the transform that rejected it. It
    /// contains the results of the transforms before; of these, only new ones are applied. A delivered letter
    /// is removed from the dead letters; one that is rejected again becomes a new dead letter. Files that
    /// sinks wrote are added to, not replaced.
    Replay(replay::Arguments),
    /// Removes dead letters.
    Clear(clear::Arguments),
}

#[derive(Debug, Args)]
struct StateLocation {
    /// The configuration whose run rejected them. Without it, dead letters are looked for in this folder.
    #[arg(value_name = "CONFIG")]
    config: Option<PathBuf>,
    /// The state folder, if the run was given one.
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct Filter {
    /// Only those that this component rejected (`main.parse_json`), or any of this pipeline (`main`).
    #[arg(long, value_name = "NAME")]
    component: Option<String>,
}

pub fn run(arguments: Arguments) -> Result<Exit, CommandError> {
    match arguments.command {
        Command::List(arguments) => list::run(&arguments),
        Command::Show(arguments) => show::run(&arguments),
        Command::Replay(arguments) => replay::run(&arguments),
        Command::Clear(arguments) => clear::run(&arguments),
    }
}

impl StateLocation {
    fn folder(&self) -> Result<PathBuf, CommandError> {
        match (&self.config, &self.state) {
            (Some(path), None) => Ok(Configuration::open(path)?.state_folder(None)?),
            (_, state) => Ok(state_folder(Path::new(""), None, state.as_deref()).folder),
        }
    }
}

impl Filter {
    fn takes(&self, letter: &DeadLetter) -> bool {
        self.component.as_deref().is_none_or(|wanted| {
            let rest = letter.component.strip_prefix(wanted);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        })
    }
}

/// The store, if there is one: looking for dead letters is not to make a folder.
fn open(folder: &Path) -> Result<Option<Store>, CommandError> {
    if !folder.exists() {
        return Ok(None);
    }
    Ok(Some(Store::open(folder)?))
}

/// The message where there is nothing to list, remove or process.
fn nothing_in(folder: &Path, filter: &Filter) -> String {
    let folder = folder.display();
    match &filter.component {
        Some(component) => format!("there are no dead letters of `{component}` in `{folder}`\n"),
        None => format!("there are no dead letters in `{folder}`\n"),
    }
}

fn json_of(id: DeadLetterId, letter: &DeadLetter) -> Result<String, CommandError> {
    let failed = |error: serde_json::Error| CommandError::Failed(error.to_string());
    let mut line = json!({ "id": id });
    let letter = serde_json::to_value(letter).map_err(failed)?;
    if let (Some(line), serde_json::Value::Object(letter)) = (line.as_object_mut(), letter) {
        line.extend(letter);
    }
    Ok(format!("{line}\n"))
}
