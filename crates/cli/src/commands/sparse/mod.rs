//! `thalweg sparse`: parts of remote files.

mod read;
mod stat;

use clap::{Args, Subcommand};
use thalweg_frontend::format::{bytes, count, counted, duration};
use thalweg_frontend::{CommandError, Exit};
use thalweg_sparse::{RemoteError, RemoteFile};

/// Reads parts of large remote files, and fetches only those parts.
///
/// A file is named by its URL (`https://…`, `s3://BUCKET/KEY`, `gs://BUCKET/KEY`, `az://CONTAINER/KEY`,
/// `file:///PATH`) or by a path. Options of a store follow as a query
/// (`?region=eu-central-1&endpoint=http://localhost:9000`). Its credentials are read from the environment, or
/// from the files of the store's own tools.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  thalweg sparse read https://example.org/large.zip --range -65536: --log | xxd | tail
  thalweg sparse read s3://bucket/large.tif --range 0:1024 --range 1M:1100K --output parts.bin
  thalweg sparse read big.parquet --range -8: --cache /var/cache/parts --max-cache-bytes 1GiB
  thalweg sparse stat https://example.org/large.zip
  thalweg sparse stat /var/cache/parts")]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Reads ranges of a file, and reports the requests and the share of the file that was fetched.
    Read(read::Arguments),
    /// Shows the length and the version of a file, or the contents of a cache.
    Stat(stat::Arguments),
}

pub fn run(arguments: Arguments) -> Result<Exit, CommandError> {
    match arguments.command {
        Command::Read(arguments) => read::run(arguments),
        Command::Stat(arguments) => stat::run(&arguments),
    }
}

/// Runs asynchronous work on a runtime of its own.
fn wait<T>(work: impl Future<Output = Result<T, CommandError>>) -> Result<T, CommandError> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?.block_on(work)
}

fn failure(error: RemoteError) -> CommandError {
    CommandError::Failed(error.to_string())
}

/// Describes the part of a file that was fetched: `fetched 64.0 KiB of 120 MiB (0.053 %) in 3 requests, 12.3
/// ms`.
fn fetched(file: &RemoteFile, took: std::time::Duration) -> String {
    let statistics = file.statistics();
    let length = file.length();
    let mut line = format!(
        "fetched {} of {}{} in {}, {}",
        bytes(statistics.fetched),
        bytes(length),
        share(statistics.fetched, length),
        counted(statistics.requests, "request"),
        duration(took),
    );
    if statistics.retries > 0 {
        line += &format!("; {} of them retries", count(statistics.retries));
    }
    if statistics.cached > 0 {
        line += &format!("; {} came from the cache", bytes(statistics.cached));
    }
    line + "\n"
}

/// A part of a whole: ` (0.053 %)`.
fn share(part: u64, whole: u64) -> String {
    if whole == 0 {
        return String::new();
    }
    let percent = part as f64 * 100.0 / whole as f64;
    match percent {
        _ if part == 0 || percent >= 9.95 => format!(" ({percent:.0} %)"),
        _ if percent >= 0.995 => format!(" ({percent:.1} %)"),
        _ if percent >= 0.0005 => format!(" ({percent:.3} %)"),
        _ => " (less than 0.001 %)".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_have_as_many_digits_as_they_need() {
        let shown = [(0, 5), (5, 5), (1, 100), (1, 2000), (1, 100_000), (1, 1 << 40)]
            .map(|(part, whole)| share(part, whole));
        assert_eq!(
            shown,
            [" (0 %)", " (100 %)", " (1.0 %)", " (0.050 %)", " (0.001 %)", " (less than 0.001 %)"]
        );
        assert_eq!(share(0, 0), "");
    }
}
