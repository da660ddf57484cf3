//! The files of an entry, and its lock.

use std::ffi::OsStr;
use std::fs::{self, File, Metadata, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use thalweg_runtime::private::private_file;

/// The paths of the files of one entry.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EntryPaths {
    pub data: PathBuf,
    pub ranges: PathBuf,
    pub lock: PathBuf,
    /// A journal that is being written; renamed to `ranges` when complete.
    pub new: PathBuf,
}

impl EntryPaths {
    pub fn new(folder: &Path, name: &str) -> Self {
        let with = |extension: &str| folder.join(format!("{name}.{extension}"));
        Self { data: with("data"), ranges: with("ranges"), lock: with("lock"), new: with("new") }
    }

    /// Returns how many bytes the entry occupies on disk.
    pub fn disk(&self) -> u64 {
        [&self.data, &self.ranges, &self.new]
            .iter()
            .map(|path| fs::metadata(path).map_or(0, |found| disk(&found)))
            .sum()
    }

    /// Returns when the entry was last used.
    pub fn used(&self) -> Option<SystemTime> {
        fs::metadata(&self.lock).and_then(|found| found.modified()).ok()
    }

    /// Waits for the lock.
    pub fn lock(&self) -> io::Result<File> {
        loop {
            let file = self.lock_file()?;
            file.lock()?;
            if self.is_there(&file) {
                return Ok(file);
            }
        }
    }

    /// Returns the lock, if it is free.
    pub fn try_lock(&self) -> io::Result<Option<File>> {
        let file = self.lock_file()?;
        match file.try_lock() {
            Ok(()) => Ok(self.is_there(&file).then_some(file)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn lock_file(&self) -> io::Result<File> {
        private_file().create(true).truncate(false).write(true).open(&self.lock)
    }

    /// True if the previous holder of the lock did not remove the file.
    fn is_there(&self, file: &File) -> bool {
        is_same(file, &self.lock)
    }

    /// Removes all files but the lock, the journal first: it declares that the data is valid. Requires the
    /// lock.
    pub fn clear(&self) -> io::Result<()> {
        [&self.ranges, &self.data, &self.new].into_iter().try_for_each(|path| gone(fs::remove_file(path)))
    }

    /// Removes all files. Requires the lock.
    pub fn remove(&self) -> io::Result<()> {
        self.clear()?;
        gone(fs::remove_file(&self.lock))
    }
}

fn gone(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// True if the open file is the one at `path`. The file is kept open, so its inode number cannot be reused.
pub(super) fn is_same(file: &File, path: &Path) -> bool {
    let number = |found: &Metadata| (found.dev(), found.ino());
    matches!((file.metadata(), fs::metadata(path)), (Ok(ours), Ok(theirs)) if number(&ours) == number(&theirs))
}

fn disk(found: &Metadata) -> u64 {
    found.blocks() * 512
}

/// Returns all entries of a folder.
pub(super) fn all(folder: &Path) -> io::Result<Vec<EntryPaths>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let ours = path
            .extension()
            .and_then(OsStr::to_str)
            .is_some_and(|end| matches!(end, "data" | "ranges" | "new"));
        if let Some(name) = path.file_stem().and_then(OsStr::to_str).filter(|_| ours) {
            found.push(EntryPaths::new(folder, name));
        }
    }
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// Punches a hole: returns a part of a file to the disk, which then reads as zeros. Returns true if that
/// succeeded.
#[cfg(target_os = "linux")]
pub(super) fn punch(file: &File, position: u64, length: u64) -> bool {
    use rustix::fs::{FallocateFlags, fallocate};
    length == 0
        || fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, position, length).is_ok()
}

/// Holes are not supported on this system: returns true only if there is nothing to punch.
#[cfg(not(target_os = "linux"))]
pub(super) fn punch(_: &File, _: u64, length: u64) -> bool {
    length == 0
}
