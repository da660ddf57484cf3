//! `thalweg check`.

use std::path::PathBuf;

use clap::Args;
use thalweg_frontend::{CheckOptions, CommandError, Exit};
use thalweg_job::{Configuration, GollumVersion};

use super::candidates;

/// Prints every mistake in a configuration, and runs nothing.
///
/// Each mistake is shown with its line, the problem and a correction. With `--plan`, the command also shows
/// how a configuration without mistakes will run. A remark names each setting of another program's
/// configuration (see `convert`) that has no effect.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  thalweg check logs.yaml
  thalweg check logs.yaml --plan
  thalweg check logs.yaml --json | jq '.mistakes[].message'")]
pub struct Arguments {
    /// The configuration; `-` reads it from the standard input.
    #[arg(value_name = "CONFIG", add = candidates::configurations())]
    config: PathBuf,
    /// Show the edges of the graph, and how it will run: segments, queues, parallelism.
    #[arg(long)]
    plan: bool,
    /// Print the mistakes (or, if there are none, counts) as one JSON object on the standard output.
    #[arg(long)]
    json: bool,
    /// The version of gollum that a configuration of gollum was written for: `0.4`, `0.5` or `0.6`. Without
    /// it, the form and the plugins tell.
    #[arg(long, value_name = "VERSION")]
    gollum: Option<GollumVersion>,
    /// Show the plan for this number of cores. Without it, for the cores of this machine.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
}

pub fn run(arguments: &Arguments) -> Result<Exit, CommandError> {
    let &Arguments { plan, json, threads, .. } = arguments;
    let options = CheckOptions { plan, json, threads: threads.map(usize::from) };
    let opened = Configuration::open(&arguments.config);
    thalweg_frontend::check(opened.and_then(|opened| super::of_gollum(opened, arguments.gollum)), &options)
}
