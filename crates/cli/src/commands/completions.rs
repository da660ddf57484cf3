//! `thalweg completions`.

use clap::{Args, CommandFactory};
use clap_complete::Shell;
use thalweg_frontend::{CommandError, Exit, print};

/// Prints a script that makes a shell complete thalweg's command line.
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
    clap_complete::generate(arguments.shell, &mut super::CommandLine::command(), "thalweg", &mut script);
    print::out(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Done)
}
