//! Files that a source sends together, because many are small.

use std::sync::Arc;

use thalweg_engine::SourceOutput;
use thalweg_record::{File, Lease};

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
    /// The memory of the files.
    lease: Option<Arc<Lease>>,
}

impl Group {
    /// Returns the memory of the group's files. Waits for it before the first file, when nothing of an
    /// earlier group is held: a source that waits with memory in hand could wait for itself.
    pub(crate) async fn lease(&mut self, out: &SourceOutput) -> Arc<Lease> {
        match &self.lease {
            Some(lease) => lease.clone(),
            None => self.lease.insert(Arc::new(out.reserve(FILES * File::WEIGHT).await)).clone(),
        }
    }

    /// Adds a file.
    pub(crate) fn add(&mut self, file: File) {
        self.bytes += file.size();
        self.files.push(file);
    }

    /// True if the group must be sent: also if the source may send no more.
    pub(crate) fn is_full(&self, out: &SourceOutput) -> bool {
        self.files.len() >= FILES.min(out.left()) || self.bytes >= BYTES
    }

    /// True if the group has no files.
    pub(crate) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Returns the files. The group is empty then.
    pub(crate) fn take(&mut self) -> Vec<File> {
        (self.bytes, self.lease) = (0, None);
        std::mem::take(&mut self.files)
    }
}
