//! `thalweg run`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use thalweg_config::ByteSize;
use thalweg_engine::Keeping;

use crate::drive::{Manner, drive};
use crate::exit::{Exit, Failure};
use crate::load::{Configuration, restrict, state_folder};
use crate::paint::Paint;
use crate::print;
use crate::summary;

/// Runs a configuration until its sources end, or until it is told to stop.
///
/// Ctrl-C or SIGTERM lets the sources stop and delivers what is on its way; a second one ends at once. SIGHUP lets
/// sinks finish their files and begin new ones. With `--state`, a run continues where the last one ended. What cannot be processed is kept, with the reason: see
/// `thalweg errors`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  thalweg run logs.yaml
  thalweg run logs.yaml main --state /var/lib/logs
  zcat old.gz | thalweg run from-stdin.yaml | wc -l
  thalweg new generate | thalweg run -

With --json, all that is told goes to the standard error output (the standard output belongs to
the sink `stdout`), an object a line, each with an `event`: `progress` (every 10 s), `log`,
`stopping`, and at the end `summary`, `mistakes` or `failed`.

Warnings and more are told as THALWEG_LOG says: error, warn (the default), info, debug, trace.

Exit codes:
  0  done, also when it was told to stop and everything on its way was delivered
  1  done, but messages could not be processed (only with --strict)
  2  the configuration or the command line is wrong
  3  failed")]
pub struct Arguments {
    /// The configuration; `-` reads it from the standard input.
    #[arg(value_name = "CONFIG")]
    config: PathBuf,
    /// Run only these pipelines, with what feeds them. Without any, all are run.
    #[arg(value_name = "PIPELINE")]
    pipelines: Vec<String>,
    /// Keep positions and dead letters in this folder, and continue where the last run ended. Goes before `state` in the
    /// configuration.
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// The memory for data in flight, for example `1GiB`. Goes before `memory` in the configuration, which goes before
    /// `256MiB`.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    memory: Option<ByteSize>,
    /// How many cores to use. Without it, all.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Tell how the run goes over HTTP at this address: `/metrics` for Prometheus, and `/health`, which answers 503 with the
    /// reason while something does not work.
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// End with exit code 1 if there were messages that could not be processed.
    #[arg(long)]
    strict: bool,
    /// Tell everything in JSON, a line each, on the standard error output.
    #[arg(long)]
    pub json: bool,
    /// Tell nothing but errors.
    #[arg(long, short)]
    quiet: bool,
}

/// Reads a size on the command line.
pub fn size(text: &str) -> Result<ByteSize, String> {
    ByteSize::from_str(text).map_err(|error| error.to_string())
}

pub fn run(arguments: Arguments) -> Result<Exit, Failure> {
    let configuration = Configuration { path: &arguments.config };
    let mut graph = configuration.graph(&thalweg_components::registry())?;
    restrict(&mut graph, &arguments.pipelines)?;
    graph.memory = arguments.memory.unwrap_or(graph.memory);
    let (folder, positions) =
        state_folder(&configuration.folder(), graph.state.as_deref(), arguments.state.as_deref());
    let manner = Manner {
        cores: arguments.threads.map_or_else(super::cores, usize::from),
        json: arguments.json,
        quiet: arguments.quiet,
        continues: positions,
        listen: arguments.listen,
    };
    let outcome = drive(&graph, Keeping { folder, positions }, manner)?;
    if outcome.nobody_reads() {
        return Err(Failure::NobodyReads);
    }
    if arguments.json {
        print::err(&format!("{}\n", summary::json(&outcome)));
    } else if !arguments.quiet {
        let mut command = "thalweg errors list".to_owned();
        if arguments.config != *"-" {
            command += &format!(" {}", configuration.name());
        }
        if let Some(state) = &arguments.state {
            command += &format!(" --state {}", state.display());
        }
        print::err(&summary::text(&outcome, &command, Paint::stderr()));
    }
    match outcome.summary.failure {
        Some(_) if arguments.json => Err(Failure::Told),
        Some(failure) => Err(Failure::Failed(failure)),
        None if arguments.strict && summary::errors(&outcome.summary) > 0 => Ok(Exit::Errors),
        None => Ok(Exit::Done),
    }
}
