//! Files that a source sends together, because many are small.

use thalweg_record::File;

/// The maximum number of files in a group.
const FILES: usize = 32;
/// The size at which a group is sent, in bytes.
const BYTES: u64 = 1 << 20;

/// Files that are sent together.
#[derive(Default)]
pub(crate) struct Group {
    files: Vec<File>,
    /// The size of the files, in bytes.
    bytes: u64,
}

impl Group {
    /// The memory to reserve for the files of a group, in bytes.
    pub(crate) const WEIGHT: usize = FILES * File::WEIGHT;

    /// Adds a file.
    pub(crate) fn add(&mut self, file: File) {
        self.bytes += file.size();
        self.files.push(file);
    }

    /// True if the group must be sent.
    pub(crate) fn is_full(&self) -> bool {
        self.files.len() >= FILES || self.bytes >= BYTES
    }

    /// True if the group has no files.
    pub(crate) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Returns the files. The group is empty then.
    pub(crate) fn take(&mut self) -> Vec<File> {
        self.bytes = 0;
        std::mem::take(&mut self.files)
    }
}
