//! Writing segments.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use thalweg_record::Batch;
use thalweg_runtime::Failpoint;
use thalweg_runtime::private::{create_private, private_file};

use super::{BLOCK_HEAD, BlockHead, FINISHED, HEAD, MAGIC, OPEN, block, entries, path_of};
use crate::{Error, io_error};

/// The location and limits of a folder of segments.
#[derive(Debug, Clone)]
pub struct Bounds {
    /// The folder. It is created if it does not exist.
    pub folder: PathBuf,
    /// The maximum size of a segment in bytes; a batch is not divided.
    pub file_bytes: u64,
    /// The maximum age of a segment, counted from its creation.
    pub file_age: Duration,
    /// The maximum size of all segments together, in bytes.
    pub bytes: Option<u64>,
    /// True if a segment is synced to the disk before it is finished.
    pub fsync: bool,
}

/// Why a batch was not written.
#[derive(Debug)]
pub enum Refusal {
    /// The folder is full at the moment.
    Full,
    /// The batch is larger than all segments together may be.
    TooLarge,
    /// Any other error.
    Failed(Error),
}

/// Writes segments.
pub struct Writer {
    bounds: Bounds,
    current: Option<Segment>,
    /// The size of all segments in bytes, as far as this writer knows: a reader may have removed some.
    used: Option<u64>,
    block: Vec<u8>,
    /// The highest number of a segment that this writer began or found: no two have the same.
    last: u32,
}

struct Segment {
    file: File,
    number: u32,
    id: u64,
    length: u64,
    begun: Instant,
    /// True if some of it may not be on the disk yet.
    is_dirty: bool,
    /// True if its name is on the disk.
    is_named: bool,
}

impl Writer {
    /// Creates a writer, which writes nothing yet.
    pub fn new(bounds: Bounds) -> Self {
        Self { bounds, current: None, used: None, block: Vec::new(), last: 0 }
    }

    /// Creates the folder, and measures its content.
    ///
    /// # Errors
    /// If the folder cannot be created or listed.
    pub fn open(&mut self) -> Result<(), Error> {
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
        // A reader in this process knows by their numbers which segments it has read.
        self.last = found.last().map_or(self.last, |entry| entry.number.max(self.last));
        Ok(used)
    }

    /// Appends a batch, completely or not at all.
    ///
    /// # Errors
    /// Why the batch was not written.
    pub fn append(&mut self, batch: &Batch) -> Result<(), Refusal> {
        let mut body = std::mem::take(&mut self.block);
        let encoded = encode(batch, &mut body).map_err(Refusal::Failed);
        let result = encoded.and_then(|()| self.append_block(&mut body, batch.rows()));
        self.block = body;
        result
    }

    /// Appends the block of a batch with this number of messages: see [`encode`].
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn append_block(&mut self, block: &mut [u8], rows: usize) -> Result<(), Refusal> {
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

    /// Returns the number of the segment that is being written, and its length in bytes.
    pub fn position(&self) -> Option<(u32, u64)> {
        self.current.as_ref().map(|segment| (segment.number, segment.length))
    }

    fn begin(&mut self) -> Result<Segment, Error> {
        let folder = &self.bounds.folder;
        let failed = |error: &io::Error| io_error("create a file in", folder, error);
        create_private(folder).map_err(|error| failed(&error))?;
        let found = entries(folder).map_err(|error| failed(&error))?;
        let mut number = found.last().map_or(0, |last| last.number).max(self.last);
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
            let (length, begun) = (head.len() as u64, Instant::now());
            self.last = number;
            return Ok(Segment { file, number, id, length, begun, is_dirty: true, is_named: false });
        }
    }

    /// Waits until everything written is on the disk.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn sync(&mut self) -> Result<(), Error> {
        let Some(segment) = self.current.as_mut().filter(|segment| segment.is_dirty) else { return Ok(()) };
        let folder = &self.bounds.folder;
        let path = path_of(folder, segment.number, OPEN);
        segment.file.sync_data().map_err(|error| io_error("sync to disk", path, &error))?;
        if !segment.is_named {
            let synced = File::open(folder).and_then(|folder| folder.sync_all());
            synced.map_err(|error| io_error("sync to disk", folder, &error))?;
            segment.is_named = true;
        }
        segment.is_dirty = false;
        Ok(())
    }

    /// Finishes the current segment, if there is one: readers may read it.
    ///
    /// # Errors
    /// If it cannot be synced or renamed.
    pub fn finish_segment(&mut self) -> Result<(), Error> {
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
    ///
    /// # Errors
    /// As [`finish_segment`](Self::finish_segment).
    pub fn look_at_clock(&mut self) -> Result<(), Error> {
        let age = self.bounds.file_age;
        match self.current.as_ref().is_some_and(|segment| segment.begun.elapsed() >= age) {
            true => self.finish_segment(),
            false => Ok(()),
        }
    }
}

/// Puts the block of a batch into a buffer, in place of what is there.
///
/// # Errors
/// If the columns of the batch cannot be written.
pub fn encode(batch: &Batch, to: &mut Vec<u8>) -> Result<(), Error> {
    to.clear();
    // The head is filled in when the offset is known, so that one system call writes both.
    to.resize(BLOCK_HEAD, 0);
    Ok(block::encode(batch, to)?)
}
