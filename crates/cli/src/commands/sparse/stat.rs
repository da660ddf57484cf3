//! `thalweg sparse stat`.

use std::path::Path;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use clap::Args;
use thalweg_frontend::format::{bytes, count, counted, duration, moment};
use thalweg_frontend::{CommandError, Exit, print};
use thalweg_sparse::{Cache, CacheEntry, Origin, RemoteError, RemoteFile, RemoteOptions};

use super::{failure, fetched, share, wait};

#[derive(Debug, Args)]
pub struct Arguments {
    /// The file, or the folder of a cache.
    #[arg(value_name = "URL|DIR")]
    target: String,
}

pub fn run(arguments: &Arguments) -> Result<Exit, CommandError> {
    let folder = Path::new(&arguments.target);
    if folder.is_dir() { cache(folder) } else { file(&arguments.target) }
}

fn file(url: &str) -> Result<Exit, CommandError> {
    let begun = Instant::now();
    let origin = Origin::from_url(url).map_err(|error| CommandError::Usage(error.to_string()))?;
    // One byte is read, to learn whether the server supports ranges. The file is never fetched as a whole for
    // this.
    let options = RemoteOptions { shortest: 1, whole: 0, read_ahead: 0, ..RemoteOptions::default() };
    let (text, requests) = wait(async {
        let file = RemoteFile::open(origin, options).await.map_err(failure)?;
        let ranges = match file.read(0, usize::from(file.length() > 0)).await {
            Ok(_) => "yes",
            Err(RemoteError::NoRanges { .. }) => "no: it can only be read as a whole",
            Err(error) => return Err(failure(error)),
        };
        let state = file.fingerprint();
        let mut text = format!("name      {}\n", file.name());
        text += &format!("length    {} ({} bytes)\n", bytes(state.length), count(state.length));
        if let Some(modified) = state.modified {
            text += &format!("changed   {}\n", moment(modified / 1000));
        }
        if let Some(etag) = &state.etag {
            text += &format!("tag       {etag}\n");
        }
        text += &format!("ranges    {ranges}\n");
        if let Some(latency) = file.statistics().latency {
            text += &format!("latency   {}\n", duration(latency));
        }
        Ok((text, fetched(&file, begun.elapsed())))
    })?;
    print::out(&text)?;
    print::err(&requests);
    Ok(Exit::Done)
}

fn cache(folder: &Path) -> Result<Exit, CommandError> {
    let unreadable =
        |error| CommandError::Failed(format!("The cache `{}` cannot be read: {error}", folder.display()));
    let cache = Cache::new(folder, None).map_err(unreadable)?;
    let entries = cache.entries().map_err(unreadable)?;
    let disk = entries.iter().map(|entry| entry.disk).sum();
    let mut text = format!("{}, {} of the disk\n", counted(entries.len() as u64, "file"), bytes(disk));
    entries.iter().for_each(|entry| text += &shown(entry));
    print::out(&text)?;
    Ok(Exit::Done)
}

fn shown(entry: &CacheEntry) -> String {
    let length = entry.fingerprint.length;
    let used = entry.used.and_then(|used: SystemTime| used.duration_since(UNIX_EPOCH).ok());
    format!(
        "\n{}\n  {} of {}{} in {}, {} of the disk, last used {}\n",
        entry.name,
        bytes(entry.held),
        bytes(length),
        share(entry.held, length),
        counted(entry.pieces as u64, "piece"),
        bytes(entry.disk),
        used.map_or_else(|| "–".to_owned(), |used| moment(used.as_micros() as i64)),
    )
}
