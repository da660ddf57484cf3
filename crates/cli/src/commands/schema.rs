//! `thalweg schema`.

use clap::Args;
use thalweg_frontend::{CommandError, Exit, print};

/// Prints the JSON schema of configurations, by which editors complete and check them.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  thalweg schema > thalweg.schema.json

An editor with the YAML language server uses it in files that begin with:
  # yaml-language-server: $schema=thalweg.schema.json")]
pub struct Arguments {}

pub fn run(_: &Arguments) -> Result<Exit, CommandError> {
    let schema = thalweg_engine::schema(&thalweg_job::registry());
    print::out(&format!("{schema:#}\n"))?;
    Ok(Exit::Done)
}
