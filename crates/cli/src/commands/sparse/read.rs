//! `thalweg sparse read`.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Instant;

use clap::Args;
use thalweg_config::{ByteRange, ByteSize};
use thalweg_frontend::{CommandError, Exit, print};
use thalweg_sparse::{Cache, Origin, Pool, RemoteFile, RemoteOptions, Span};

use super::{failure, fetched, wait};

/// The memory for fetched parts of the file, in bytes.
const MEMORY: usize = 64 << 20;
/// The size of one write, in bytes.
const PIECE: u64 = 4 << 20;

#[derive(Debug, Args)]
pub struct Arguments {
    /// The file.
    #[arg(value_name = "URL")]
    url: String,
    /// The bytes from the first position up to the second, counted from 0: `0:1024`. Either may be left out.
    /// A negative position counts from the end: `-65536:` is the last 64 KiB, or everything if the file is
    /// shorter. Sizes may have units (`1MiB:2MiB`). Several ranges are written one after the other. Without
    /// any, the whole file is read.
    #[arg(long = "range", value_name = "FROM:TO", allow_hyphen_values = true, value_parser = range)]
    ranges: Vec<ByteRange>,
    /// Write the bytes to this file, not to the standard output.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Keep fetched bytes in this folder, and read them from there next time. Several processes may use it at
    /// once.
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
    /// The most disk space for the cache, for example `1GiB`. The least recently used data is removed first.
    /// Without it, there is no limit.
    #[arg(long, value_name = "SIZE", requires = "cache", value_parser = crate::commands::size)]
    max_cache_bytes: Option<ByteSize>,
    /// Print each request when it has ended: its purpose, its range, the status of the reply, the bytes
    /// received and the time it took.
    #[arg(long)]
    log: bool,
    /// Print only errors.
    #[arg(long, short, conflicts_with = "log")]
    quiet: bool,
}

fn range(text: &str) -> Result<ByteRange, String> {
    ByteRange::from_str(text).map_err(|error| error.to_string())
}

/// Resolves a range in a file of this length.
fn within(range: ByteRange, length: u64) -> Result<Span, CommandError> {
    let Some(found) = range.within(length) else {
        return Err(CommandError::Failed(format!(
            "The range `{range}` is not within the file, which has {length} bytes"
        )));
    };
    Ok(Span::new(found.start, found.end - found.start))
}

pub fn run(arguments: Arguments) -> Result<Exit, CommandError> {
    let begun = Instant::now();
    let origin = Origin::from_url(&arguments.url).map_err(|error| CommandError::Usage(error.to_string()))?;
    let mut options = RemoteOptions { pool: Some(Pool::new(MEMORY)), ..RemoteOptions::default() };
    if let Some(folder) = &arguments.cache {
        let limit = arguments.max_cache_bytes.map(|limit| limit.0);
        let cache = Cache::new(folder, limit).map_err(|error| {
            CommandError::Failed(format!("The cache `{}` cannot be used: {error}", folder.display()))
        })?;
        options.cache = Some(cache);
    }
    if arguments.log {
        options.observer = Some(Arc::new(|request| print::err(&format!("{request}\n"))));
    }
    wait(async {
        let file = RemoteFile::open(origin, options).await.map_err(failure)?;
        let spans = match &arguments.ranges[..] {
            [] => vec![Span::new(0, file.length())],
            ranges => ranges.iter().map(|&range| within(range, file.length())).collect::<Result<_, _>>()?,
        };
        let output: &mut (dyn Write + Send) = match &arguments.output {
            None => &mut io::stdout(),
            Some(path) => &mut File::create(path).map_err(|error| {
                CommandError::Failed(format!("The file `{}` cannot be written: {error}", path.display()))
            })?,
        };
        write(&file, &spans, output).await?;
        if let Some(error) = file.cache_error() {
            print::err(&format!("Nothing more is cached: {error}\n"));
        }
        if !arguments.quiet {
            print::err(&fetched(&file, begun.elapsed()));
        }
        Ok(Exit::Done)
    })
}

/// Writes the bytes of `spans`, one after the other.
async fn write(
    file: &RemoteFile,
    spans: &[Span],
    output: &mut (dyn Write + Send),
) -> Result<(), CommandError> {
    // Ranges that fit into memory together are planned together.
    if spans.len() > 1 && spans.iter().map(|span| span.length).sum::<u64>() <= MEMORY as u64 / 2 {
        file.fetch(spans).await.map_err(failure)?;
    }
    for span in spans {
        let mut position = span.position;
        while position < span.end() {
            let length = PIECE.min(span.end() - position);
            let bytes = file.read(position, length as usize).await.map_err(failure)?;
            output.write_all(&bytes)?;
            position += length;
        }
    }
    output.flush()?;
    Ok(())
}
