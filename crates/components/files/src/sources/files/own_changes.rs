//! The files that the run itself rewrites, which are not new to a source that watches them.
//!
//! Only the passes of one run know them. Until its change time is older than a pass, a file is kept with its
//! state, which a pass then saves like that of any file that was sent.

use std::collections::HashMap;
use std::fs::Metadata;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use thalweg_record::{FileState, OwnChanges};

/// The files, each with its new state, or with `None` while it is being rewritten.
#[derive(Debug, Default)]
pub struct Rewritten(Mutex<HashMap<PathBuf, Option<FileState>>>);

/// The author of a change.
#[derive(Debug, PartialEq, Eq)]
pub enum ChangedBy {
    /// Others, as far as the source knows.
    Others,
    /// The run itself. The file is as the run left it.
    Run,
    /// Not known yet: the run is rewriting the file.
    Unknown,
}

impl Rewritten {
    /// Returns who changed a file that was found like this.
    pub fn changed_by(&self, path: &Path, metadata: &Metadata) -> ChangedBy {
        match self.0.lock().get(path) {
            Some(None) => ChangedBy::Unknown,
            Some(Some(state)) if *state == FileState::of(metadata) => ChangedBy::Run,
            Some(Some(_)) | None => ChangedBy::Others,
        }
    }

    /// Forgets the files that were rewritten before this time, in nanoseconds since 1970.
    pub fn forget_before(&self, time: i128) {
        self.0.lock().retain(|_, state| state.is_none_or(|state| state.changed_ns() >= time));
    }
}

impl OwnChanges for Rewritten {
    fn begin(&self, path: &Path) {
        self.0.lock().insert(path.to_owned(), None);
    }

    fn end(&self, path: &Path, state: Option<FileState>) {
        let mut files = self.0.lock();
        match state {
            Some(state) => files.insert(path.to_owned(), Some(state)),
            None => files.remove(path),
        };
    }
}
