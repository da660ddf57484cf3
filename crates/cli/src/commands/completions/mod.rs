//! `thalweg completions`.
//!
//! The script asks the program at each press of the key, so it knows components, templates, and the pipelines
//! of a configuration. (Rejected: a script with all values in it. It is stale after an upgrade, and knows no
//! configuration.)

mod shell;

use clap::{Args, CommandFactory, ValueEnum};
use clap_complete::env::{CompleteEnv, EnvCompleter, Shells};
use thalweg_frontend::{CommandError, Exit, print};

use self::shell::Shell;

/// The variable that the script sets when it asks.
const VARIABLE: &str = "THALWEG_COMPLETE";

/// Prints a script that makes a shell complete thalweg's command line.
///
/// The shell then completes commands and options, components, functions, templates, configurations and their
/// pipelines. Print the script again after an upgrade.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  thalweg completions bash > ~/.local/share/bash-completion/completions/thalweg
  thalweg completions zsh > ~/.zfunc/_thalweg
  thalweg completions fish > ~/.config/fish/completions/thalweg.fish")]
pub struct Arguments {
    /// The shell.
    shell: Shell,
}

pub fn run(arguments: &Arguments) -> Result<Exit, CommandError> {
    let mut script = Vec::new();
    arguments.shell.write_registration(VARIABLE, "thalweg", "thalweg", "thalweg", &mut script)?;
    print::out(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Done)
}

/// Answers the script, and ends the process, if it asks.
pub fn answer() {
    let shells: Vec<&dyn EnvCompleter> =
        Shell::value_variants().iter().map(|shell| shell as &dyn EnvCompleter).collect();
    CompleteEnv::with_factory(super::CommandLine::command).var(VARIABLE).shells(Shells(&shells)).complete();
}
