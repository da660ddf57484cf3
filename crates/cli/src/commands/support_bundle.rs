//! `thalweg support-bundle`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use thalweg_frontend::{BundleOptions, CommandError, Exit};

use super::{address, candidates};
use crate::version;

/// Writes one file with what others need to find a fault, without secrets and without data.
///
/// The file has the configurations, before variables take their places in them, and how they would run; or
/// their mistakes; the version, the features, the limits of the process and of the container; and the names
/// and sizes of the files of the state. With `--metrics`, it also has the metrics and the health of a run.
/// The command prints what is in the file. It runs nothing, and may be used while a run is active.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  thalweg support-bundle orders.yaml --state state -o support.tar.gz
  thalweg support-bundle orders.yaml --metrics 127.0.0.1:9598 -o support.tar.gz
  tar -tzvf support.tar.gz")]
pub struct Arguments {
    /// The configurations.
    #[arg(value_name = "CONFIG", required = true, add = candidates::configurations())]
    configs: Vec<PathBuf>,
    /// The state folder, if the run was given one.
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// The address at which a run serves its metrics (`--listen` of `run`).
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address)]
    metrics: Option<SocketAddr>,
    /// The new file.
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
}

pub fn run(arguments: Arguments) -> Result<Exit, CommandError> {
    thalweg_frontend::support_bundle(&BundleOptions {
        configs: arguments.configs,
        state: arguments.state,
        metrics: arguments.metrics,
        output: arguments.output,
        version: version::long().to_owned(),
    })
}
