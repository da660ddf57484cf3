//! `thalweg convert`.

use std::path::PathBuf;

use clap::Args;
use thalweg_frontend::{CommandError, Exit};
use thalweg_job::{Configuration, GollumVersion};

use super::candidates;

/// Prints a configuration of another program in thalweg's own form.
///
/// gollum's configurations (also those of its old form, a list of plugins) and capyfile's service definitions
/// run unchanged. This command shows what runs, as a starting point for changes. Comments name each setting
/// whose meaning had to be chosen, and each setting without effect.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  thalweg convert gollum.conf
  thalweg convert gollum.conf --output logs.yaml && thalweg run logs.yaml
  thalweg convert service.yml photos:archive")]
pub struct Arguments {
    /// The configuration; `-` reads it from the standard input.
    #[arg(value_name = "CONFIG", add = candidates::configurations())]
    config: PathBuf,
    /// Of a service definition, only this processor: `service:processor`, or its name alone. Without it, all.
    #[arg(value_name = "PROCESSOR")]
    processor: Option<String>,
    /// The version of gollum that a configuration of gollum was written for: `0.4`, `0.5` or `0.6`. Without
    /// it, the form and the plugins tell.
    #[arg(long, value_name = "VERSION")]
    gollum: Option<GollumVersion>,
    /// Write the configuration to this file, which must not exist. Without it, to the standard output.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub fn run(arguments: &Arguments) -> Result<Exit, CommandError> {
    let configuration = super::of_gollum(Configuration::open(&arguments.config)?, arguments.gollum)?;
    thalweg_frontend::convert(&configuration, arguments.processor.as_deref(), arguments.output.as_deref())
}
