//! Changes that the run itself makes to a file that a source has found.
//!
//! A source that watches a folder sends a file again when it has changed. A transform that rewrites a file in
//! its place therefore says so: before, because the source may meet the new file at once, and afterwards with
//! the new state.

use std::fmt;
use std::path::Path;

use crate::{FileState, Origin};

/// Hears of such changes. A source that watches implements it.
pub trait OwnChanges: fmt::Debug + Send + Sync {
    /// Called before the file at this path is changed.
    fn begin(&self, path: &Path);

    /// Called afterwards, with the state of the changed file; with `None` if it was not changed.
    fn end(&self, path: &Path, state: Option<FileState>);
}

/// A change in progress. If it is dropped, the file was not changed.
#[derive(Debug)]
pub struct OwnChange<'a> {
    origin: &'a Origin,
    state: Option<FileState>,
}

impl<'a> OwnChange<'a> {
    pub(crate) fn begin(origin: &'a Origin) -> Self {
        if let (Some(changes), Some(path)) = (&origin.own_changes, &origin.path) {
            changes.begin(path);
        }
        Self { origin, state: None }
    }

    /// Ends the change, with the state of the changed file.
    pub fn end(mut self, state: FileState) {
        self.origin.set_state(state);
        self.state = Some(state);
    }
}

impl Drop for OwnChange<'_> {
    fn drop(&mut self) {
        if let (Some(changes), Some(path)) = (&self.origin.own_changes, &self.origin.path) {
            changes.end(path, self.state);
        }
    }
}
