//! The state of a file in its file system, to know later that it is still the same file.
//!
//! A producer may replace a file, or write to it, while the run works on it. So a component that removes or
//! rewrites a file compares its state with the one that the source found, and one that keeps what is in a
//! file reads it again if its state has changed. To compare contents was rejected: it would read the file
//! each time. The change time alone would nearly do, but two changes within one tick of the clock have the
//! same; the other numbers tell most of them apart.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// See the [module](self).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileState {
    device: u64,
    inode: u64,
    size: u64,
    /// Seconds and nanoseconds.
    modified: (i64, i64),
    /// Seconds and nanoseconds.
    changed: (i64, i64),
}

impl FileState {
    /// Returns the state that the metadata tells.
    pub fn of(found: &Metadata) -> Self {
        Self {
            device: found.dev(),
            inode: found.ino(),
            size: found.len(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        }
    }

    /// True if this is a file that had the other state before it was renamed, which changes only one time.
    pub fn is_renamed(&self, before: &Self) -> bool {
        Self { changed: before.changed, ..*self } == *before
    }

    /// True if the contents were last modified longer ago than this, by the clock of the machine.
    pub fn is_older_than(&self, age: Duration) -> bool {
        let (seconds, nanoseconds) = self.modified;
        let (Ok(seconds), Ok(nanoseconds)) = (u64::try_from(seconds), u32::try_from(nanoseconds)) else {
            return true; // Before 1970.
        };
        let modified = UNIX_EPOCH.checked_add(Duration::new(seconds, nanoseconds));
        let found = modified.and_then(|modified| SystemTime::now().duration_since(modified).ok());
        found.is_some_and(|found| found > age)
    }

    /// Returns the size, in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns the change time (Unix's ctime), in nanoseconds since 1970.
    pub fn changed_ns(&self) -> i128 {
        i128::from(self.changed.0) * 1_000_000_000 + i128::from(self.changed.1)
    }
}
