//! Writes messages to files.
//!
//! Three promises shape this sink:
//!
//! - A file without `.part` at the end of its name is complete, so that other programs can pick it up.
//! - An acknowledged message survives the process. Its bytes are written to the operating system before
//!   [`Sink::write`] returns, or, if the file is compressed, before [`Sink::flush`] returns.
//! - A run that continues another cuts the files to the lengths that were saved as durable, if the sources
//!   send everything after them again. The checkpoints of the sources are saved at the same moment, so no
//!   message is lost, torn or duplicated. Otherwise all whole messages stay.
//!
//! The sink should cost little more than the necessary `write` calls. Payloads that lie in a batch as lines
//! are written from there without a copy ([`Delimited`](thalweg_codec::delimited::Delimited)). If the path
//! depends on the message, one pass groups the rows by path; it compares each rendered name with the previous
//! one.
//!
//! A Parquet table cannot be cut back: `table` leaves it to the sink `objects`.
//!
//! `piece` writes one file, `opening` decides what it begins with, `identity` tells it from others, and
//! `ending` a copy of it; `files` keeps all files of a sink, `link` leads to the current one.

mod config;
mod ending;
mod files;
mod identity;
mod link;
mod names;
mod opening;
mod pack;
mod piece;
mod recovering;
mod stamp;
mod table;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use serde_json::Value;
use thalweg_engine::{Error, Rejects, Sink, WriteOutcome};
use thalweg_record::Batch;

use crate::clock::Clock;
pub use config::{Existing, FileConfig, Fsync, Rotate, TimeOfDay};
use files::{Files, Saved, Settings};
pub use names::Numbers;
pub use thalweg_codec::compress::Compression;

use thalweg_codec::safe_path::safe;
use thalweg_codec::template::{Template, explain};
use thalweg_stream::encode::EncodeConfig;

struct FileSink {
    path: Template,
    /// The constant beginning of all paths.
    prefix: String,
    encode: EncodeConfig,
    settings: Settings,
    /// Shared with the clock task.
    files: Arc<Mutex<Files>>,
    /// The task that finishes files whose time limit has passed while nothing is written.
    clock: Option<Clock>,
    naming: Naming,
}

/// The rows of a batch, grouped by file.
#[derive(Default)]
struct Naming {
    /// Runs of adjacent rows with the same target: slot, first row, number of rows.
    groups: Vec<(usize, u32, u32)>,
    ranges: Vec<(u32, u32)>,
    rejected: Vec<(u32, String)>,
    rendered: Vec<u8>,
    last: Vec<u8>,
}

impl Naming {
    /// Finds the file for each message of a batch, and opens these files.
    fn name(
        &mut self,
        path: &mut Template,
        prefix: &str,
        batch: &Batch,
        files: &mut Files,
    ) -> Result<(), Error> {
        self.groups.clear();
        self.rejected.clear();
        let rows = u32::try_from(batch.rows()).unwrap_or(u32::MAX);
        if path.is_constant() {
            let slot = files.stream(prefix).map_err(|(_, error)| error)?;
            self.groups.push((slot, 0, rows));
            return Ok(());
        }
        let mut unnamed = Vec::new();
        let mut bound = path.bind(batch);
        // True if `last` is the name of the last group, which the next row may join.
        let mut continues = false;
        for row in 0..rows {
            self.rendered.clear();
            bound.render(row as usize, &mut self.rendered);
            if continues
                && self.rendered == self.last
                && let Some((_, _, count)) = self.groups.last_mut()
            {
                *count += 1;
                continue;
            }
            continues = false;
            match safe(&self.rendered, prefix) {
                Ok(name) => match files.stream(name) {
                    Ok(slot) => {
                        self.groups.push((slot, row, 1));
                        std::mem::swap(&mut self.rendered, &mut self.last);
                        continues = true;
                    }
                    // The values of the message lead to a name that the file system does not allow.
                    Err((
                        io::ErrorKind::NotADirectory
                        | io::ErrorKind::IsADirectory
                        | io::ErrorKind::AlreadyExists
                        | io::ErrorKind::InvalidFilename,
                        error,
                    )) => self.rejected.push((row, error.full())),
                    Err((_, error)) => return Err(error),
                },
                Err(reason) => unnamed.push((row, reason)),
            }
        }
        drop(bound);
        explain([&*path], batch, &mut unnamed);
        self.rejected.append(&mut unnamed);
        self.rejected.sort_unstable_by_key(|(row, _)| *row);
        // A stable sort keeps the rows of a file in order.
        self.groups.sort_by_key(|&(slot, ..)| slot);
        Ok(())
    }
}

impl FileSink {
    fn new(path: Template, encode: EncodeConfig, settings: Settings) -> Self {
        Self {
            prefix: path.prefix().to_owned(),
            path,
            encode,
            files: Arc::new(Mutex::new(Files::new(settings.clone()))),
            settings,
            clock: None,
            naming: Naming::default(),
        }
    }

    fn lock(files: &Mutex<Files>) -> MutexGuard<'_, Files> {
        files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_batch(&mut self, batch: &Batch, rejects: &mut Rejects) -> Result<(), Error> {
        let mut files = Self::lock(&self.files);
        files.settle()?;
        self.naming.name(&mut self.path, &self.prefix, batch, &mut files)?;
        let schema = batch.fields().schema();
        let header = || self.encode.header(&schema);
        let Naming { groups, ranges, rejected, .. } = &mut self.naming;
        for group in groups.chunk_by(|a, b| a.0 == b.0) {
            let Some(&(slot, ..)) = group.first() else { continue };
            ranges.clear();
            ranges.extend(group.iter().map(|&(_, start, length)| (start, length)));
            if let Err(error) = files.write(slot, batch.payload(), ranges, &header) {
                files.roll_back()?;
                return Err(error);
            }
        }
        files.commit();
        rejected.drain(..).for_each(|(row, reason)| rejects.reject(row, reason));
        Ok(())
    }
}

#[async_trait]
impl Sink for FileSink {
    async fn open(&mut self, saved: Option<Value>) -> Result<(), Error> {
        let saved: Option<Vec<Saved>> = match saved {
            Some(saved) => Some(serde_json::from_value(saved).map_err(|_| {
                Error::permanent(
                    "the saved state of the sink is not one of `file`. Undo the change of the configuration, or give \
                     the sink another name or use another state folder: what the state has is then not written",
                )
            })?),
            None => None,
        };
        thalweg_runtime::blocking(|| {
            let mut files = Self::lock(&self.files);
            *files = Files::new(self.settings.clone());
            files.resume(saved.unwrap_or_default())?;
            if self.path.is_constant() {
                files.stream(&self.prefix).map_err(|(_, error)| error)?;
            }
            files.note_safe();
            Ok::<(), Error>(())
        })?;
        let beat = Self::lock(&self.files).beat();
        if let (Some(beat), None) = (beat, &self.clock) {
            self.clock = Some(Clock::every(beat, &self.files, |files| {
                // The engine's next call meets the same error, and reports it.
                let _ = thalweg_runtime::blocking(|| Self::lock(files).settle());
            }));
        }
        Ok(())
    }

    async fn write(&mut self, batch: &Batch, rejects: &mut Rejects) -> Result<WriteOutcome, Error> {
        thalweg_runtime::blocking(|| self.write_batch(batch, rejects))?;
        Ok(self.settings.written())
    }

    async fn flush(&mut self) -> Result<(), Error> {
        thalweg_runtime::blocking(|| Self::lock(&self.files).flush())
    }

    async fn reopen(&mut self) -> Result<(), Error> {
        thalweg_runtime::blocking(|| Self::lock(&self.files).reopen())
    }

    async fn finish(&mut self) -> Result<(), Error> {
        self.clock = None;
        thalweg_runtime::blocking(|| Self::lock(&self.files).finish())
    }

    fn state(&self) -> Option<Value> {
        serde_json::to_value(Self::lock(&self.files).saved()).ok()
    }

    fn uncommitted(&self) -> usize {
        Self::lock(&self.files).uncovered()
    }

    async fn commit(&mut self, count: usize) -> Result<(), Error> {
        Self::lock(&self.files).cover(count);
        Ok(())
    }
}
