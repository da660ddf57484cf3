//! Writing segments.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use thalweg_engine::Error;
use thalweg_record::Batch;
use thalweg_runtime::Failpoint;
use thalweg_runtime::private::{create_private, private_file};

use super::{BLOCK_HEAD, BlockHead, FINISHED, HEAD, MAGIC, OPEN, block, entries, path_of};
use thalweg_stream::io_error::io_error;

/// The location and limits of a spool.
#[derive(Debug, Clone)]
pub(crate) struct Bounds {
    pub(crate) folder: PathBuf,
    /// The maximum size of a segment in bytes; a batch is not divided.
    pub(crate) file_bytes: u64,
    /// The maximum age of a segment, counted from its creation.
    pub(crate) file_age: Duration,
    /// The maximum size of all segments together, in bytes.
    pub(crate) bytes: Option<u64>,
    /// True if a segment is synced to the disk before it is finished.
    pub(crate) fsync: bool,
}

/// Why a batch was not written.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The spool is full at the moment.
    Full,
    /// The batch is larger than the whole spool may be.
    TooLarge,
    /// Any other error.
    Failed(Error),
}

/// Writes a spool.
pub(crate) struct Writer {
    bounds: Bounds,
    current: Option<Segment>,
    /// The size of all segments in bytes, as far as this writer knows: a reader may have removed some.
    used: Option<u64>,
    block: Vec<u8>,
}

struct Segment {
    file: File,
    number: u32,
    id: u64,
    length: u64,
    begun: Instant,
    /// True if some of it may not be on the disk yet.
    is_dirty: bool,
}

impl Writer {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self { bounds, current: None, used: None, block: Vec::new() }
    }

    /// Creates the folder, and measures its content.
    pub(crate) fn open(&mut self) -> Result<(), Error> {
        let folder = &self.bounds.folder;
        create_private(folder).map_err(|error| io_error("create", folder, &error))?;
        self.used = None;
        self.look().map(drop)
    }

    /// Measures the size of all segments in bytes.
    fn look(&mut self) -> Result<u64, Error> {
        let folder = &self.bounds.folder;
        let found = entries(folder).map_err(|error| io_error("list", folder, &error))?;
        let used = found.iter().map(|entry| entry.bytes).sum();
        self.used = Some(used);
        Ok(used)
    }

    /// Appends a batch, completely or not at all.
    pub(crate) fn append(&mut self, batch: &Batch) -> Result<(), Refusal> {
        let mut body = std::mem::take(&mut self.block);
        body.clear();
        // The head is filled in when the offset is known, so that one system call writes both.
        body.resize(BLOCK_HEAD, 0);
        let encoded = block::encode(batch, &mut body).map_err(|error| Refusal::Failed(error.into()));
        let result = encoded.and_then(|()| self.append_block(&mut body, batch.rows()));
        self.block = body;
        result
    }

    pub(super) fn append_block(&mut self, block: &mut [u8], rows: usize) -> Result<(), Refusal> {
        let length = block.len() as u64;
        if let Some(most) = self.bounds.bytes {
            if length + HEAD as u64 > most {
                return Err(Refusal::TooLarge);
            }
            let fits = |used: u64| used.saturating_add(length + HEAD as u64) <= most;
            if !self.used.is_some_and(fits) && !fits(self.look().map_err(Refusal::Failed)?) {
                return Err(Refusal::Full);
            }
        }
        let is_full = |segment: &Segment| segment.length + length > self.bounds.file_bytes;
        if self.current.as_ref().is_some_and(is_full) {
            self.finish_segment().map_err(Refusal::Failed)?;
        }
        if self.current.is_none() {
            self.current = Some(self.begin().map_err(Refusal::Failed)?);
            self.used = self.used.map(|used| used + HEAD as u64);
        }
        let Some(segment) = &mut self.current else { return Err(Refusal::Full) };
        let (head, body) = block.split_at_mut(BLOCK_HEAD);
        head.copy_from_slice(&BlockHead::of(body, rows).write(segment.id, segment.length));
        if let Err(error) = segment.file.write_all(block) {
            let path = path_of(&self.bounds.folder, segment.number, OPEN);
            // If the cut fails too, nothing may follow the torn block; the reader recognises it.
            if segment.file.set_len(segment.length).is_err() {
                self.current = None;
            }
            self.used = None;
            return Err(Refusal::Failed(io_error("write to", path, &error)));
        }
        // No reader would find the block, so its messages must not be acknowledged.
        if segment.file.metadata().is_ok_and(|metadata| metadata.nlink() == 0) {
            let path = path_of(&self.bounds.folder, segment.number, OPEN);
            self.current = None;
            return Err(Refusal::Failed(Error::permanent(format!(
                "`{}` was removed while the sink was writing to it: the messages in it are lost. Find out what \
                 removes it, and restart.",
                path.display()
            ))));
        }
        segment.length += length;
        segment.is_dirty = true;
        self.used = self.used.map(|used| used + length);
        Ok(())
    }

    fn begin(&self) -> Result<Segment, Error> {
        let folder = &self.bounds.folder;
        let failed = |error: &io::Error| io_error("create a file in", folder, error);
        create_private(folder).map_err(|error| failed(&error))?;
        let mut number =
            entries(folder).map_err(|error| failed(&error))?.last().map_or(0, |last| last.number);
        loop {
            number = number.checked_add(1).ok_or_else(|| {
                Error::permanent(format!("`{}` has no number left for a file", folder.display()))
            })?;
            let path = path_of(folder, number, OPEN);
            // Opened for appending: after a failed write it is cut, and writing continues at its end.
            let mut file = match private_file().append(true).create_new(true).open(&path) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(error) => return Err(failed(&error)),
            };
            match file.try_lock() {
                // Before it was locked, a reader may have mistaken it for a segment left behind by a crash.
                Ok(()) if fs::metadata(&path).is_ok() => {}
                Ok(()) | Err(TryLockError::WouldBlock) => continue,
                Err(TryLockError::Error(error)) => return Err(failed(&error)),
            }
            let id = fastrand::u64(..);
            let mut head = MAGIC.to_vec();
            head.extend_from_slice(&id.to_le_bytes());
            if let Err(error) = file.write_all(&head) {
                // The empty file is not needed by any reader.
                let _ = fs::remove_file(&path);
                return Err(failed(&error));
            }
            let length = head.len() as u64;
            return Ok(Segment { file, number, id, length, begun: Instant::now(), is_dirty: true });
        }
    }

    /// Waits until everything written is on the disk.
    pub(crate) fn sync(&mut self) -> Result<(), Error> {
        let Some(segment) = self.current.as_mut().filter(|segment| segment.is_dirty) else { return Ok(()) };
        let path = path_of(&self.bounds.folder, segment.number, OPEN);
        segment.file.sync_data().map_err(|error| io_error("sync to disk", path, &error))?;
        segment.is_dirty = false;
        Ok(())
    }

    /// Finishes the current segment, if there is one: readers may read it.
    pub(crate) fn finish_segment(&mut self) -> Result<(), Error> {
        if self.bounds.fsync {
            self.sync()?;
        }
        let Some(segment) = &self.current else { return Ok(()) };
        let folder = &self.bounds.folder;
        let path = path_of(folder, segment.number, OPEN);
        let renamed = Failpoint::RenameBefore.check();
        renamed
            .and_then(|()| fs::rename(&path, path_of(folder, segment.number, FINISHED)))
            .map_err(|error| io_error("rename", &path, &error))?;
        Failpoint::RenameAfter.pass();
        self.current = None;
        Ok(())
    }

    /// Finishes the current segment if it is old enough.
    pub(crate) fn look_at_clock(&mut self) -> Result<(), Error> {
        let age = self.bounds.file_age;
        match self.current.as_ref().is_some_and(|segment| segment.begun.elapsed() >= age) {
            true => self.finish_segment(),
            false => Ok(()),
        }
    }
}
