//! `thalweg pipe`.

use std::path::Path;
use std::time::Duration;

use clap::Args;
use thalweg_config::{ByteSize, Comments};
use thalweg_frontend::{CommandError, Exit, RunRequest, Show, print};
use thalweg_job::{Configuration, Overrides, PipeOptions, RunOptions, cores};

use super::{size, time};

/// Runs transforms that are written on one line, from the standard input to the standard output.
///
/// Transforms are separated by `|`. A transform is its name and its value: an expression, names, `option:
/// value` pairs, or YAML in brackets. `thalweg components` lists transforms, and `thalweg functions` what
/// expressions can call.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  thalweg pipe 'parse_json | filter status >= 500 | keep host, status' < access.jsonl
  thalweg pipe -p csv -e json 'set total: price * count' < orders.csv
  thalweg pipe -p csv -i orders.csv -o large.csv -e csv 'filter CAST(count AS BIGINT) > 100'
  zcat app.log.gz | thalweg pipe \"filter payload LIKE '%timeout%'\" | head
  thalweg pipe -p logfmt 'drop trace_*' --print-config > drop.yaml

Messages are lines, which may end in a line feed or in CR LF; in the output a line feed ends each. Messages
that cannot be processed are lines on the standard error output, with the reason: at most 20 a second, and
their number at the end.

Exit codes:
  0  done
  1  done, but messages could not be processed
  2  the transforms or the command line are wrong
  3  failed")]
pub struct Arguments {
    /// The transforms, for example `parse_json | filter status >= 500`.
    #[arg(value_name = "TRANSFORMS", default_value = "", hide_default_value = true)]
    transforms: String,
    /// Read this file, or the files of this pattern, instead of the standard input. May be given several
    /// times.
    #[arg(long, short, value_name = "PATH")]
    input: Vec<String>,
    /// Write this file instead of the standard output. It appears when it is complete.
    #[arg(long, short, value_name = "PATH")]
    output: Option<String>,
    /// Parse the input first: `json` (or `jsonl`), `csv` (with a header), `logfmt`.
    #[arg(long, short, value_name = "FORMAT", value_parser = ["json", "jsonl", "csv", "logfmt"])]
    parse: Option<String>,
    /// The character set of the input, such as `latin1`, `utf-16` or `shift_jis`. The output is in UTF-8.
    #[arg(long, value_name = "NAME")]
    charset: Option<String>,
    /// Write messages in this format: `json`, `csv`, `logfmt` or `raw`. Without it, `json` if they were
    /// parsed or got fields, and otherwise as they are.
    #[arg(long, short, value_name = "FORMAT", value_parser = ["json", "csv", "logfmt", "raw"])]
    encode: Option<String>,
    /// Print the configuration for `thalweg run` that does the same, with variables in place of secrets, and
    /// run nothing.
    #[arg(long)]
    print_config: bool,
    /// End after this number of messages.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// The memory for data in flight, for example `1GiB`. Without it, `256MiB`.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    memory: Option<ByteSize>,
    /// How many cores to use. Without it, all.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// How long a stopped run may take to deliver what it has read, for example `30s`; a number is seconds,
    /// and 0 does not wait. After that it ends with exit code 3. A second signal ends it at once.
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "60s", allow_hyphen_values = true)]
    drain_timeout: Duration,
}

pub fn run(arguments: Arguments) -> Result<Exit, CommandError> {
    let options = PipeOptions {
        transforms: arguments.transforms,
        input: arguments.input,
        output: arguments.output,
        parse: arguments.parse,
        charset: arguments.charset,
        encode: arguments.encode,
    };
    let registry = thalweg_job::registry();
    if arguments.print_config {
        print::out(&thalweg_config::write(&options.printable(&registry)?, &Comments::default()))?;
        return Ok(Exit::Done);
    }
    let document = options.document(&registry)?;
    let request = RunRequest {
        overrides: Overrides { memory: arguments.memory, ..Overrides::default() },
        options: RunOptions {
            cores: arguments.threads.map_or_else(cores, usize::from),
            limit: arguments.limit,
            drain_timeout: arguments.drain_timeout,
            ..RunOptions::default()
        },
        show: Show { quiet: true, ..Show::default() },
        strict: true,
        hints: true,
        shows_rejected: Some(PipeOptions::REJECTED),
        ..RunRequest::default()
    };
    thalweg_frontend::run(&Configuration::new(document, Path::new("")), &request)
}
