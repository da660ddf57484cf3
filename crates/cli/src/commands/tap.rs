//! `thalweg tap`.

use std::path::PathBuf;

use clap::Args;
use thalweg_frontend::remote::{self, RunTarget, TapOptions};
use thalweg_frontend::{CommandError, Exit};

/// Shows messages of a run as they pass.
///
/// A run is named by its state folder or by its address (`--listen` of `run`), before the components. Without
/// either, it is the only one with a state folder in the current folder. A tap costs the run little: it gets
/// copies of single messages, and what is too much is left out. `NAME` shows what a source or transform
/// sends, or what a sink receives; `NAME.errors` shows what it rejects; `*` stands for any text.
#[derive(Debug, Args)]
#[command(override_usage = "thalweg tap [OPTIONS] [ADDRESS|STATE_DIR] EDGE...")]
#[command(after_help = "Examples:
  thalweg tap main.parse_json
  thalweg tap state '*.errors' --limit 10
  thalweg tap 127.0.0.1:9598 orders --rate 100 --json

With --json, each line is an object: `time`, `edge`, `output`, `payload`, `payload_is_cut`,
`fields`, and `reason` of a rejected message. A line `{\"left_out\":N}` is the number of messages
that matched and were left out.")]
pub struct Arguments {
    /// The components, perhaps after the state folder or the address of the run.
    #[arg(value_name = "EDGE", required = true)]
    edges: Vec<String>,
    /// Show at most this many messages a second.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rate: u32,
    /// Cut texts to this many bytes.
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(0..=32_768))]
    max_bytes: u32,
    /// End after this number of messages.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// Print JSON, one object per line.
    #[arg(long)]
    json: bool,
    /// The file with the token of the API (`--api-token-file` of `run`), if it needs one.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

pub fn run(arguments: Arguments) -> Result<Exit, CommandError> {
    remote::tap(&TapOptions {
        target: RunTarget { place: None, token_file: arguments.token_file },
        edges: arguments.edges,
        rate: arguments.rate,
        max_bytes: arguments.max_bytes,
        limit: arguments.limit,
        json: arguments.json,
    })
}
