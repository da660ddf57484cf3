//! The path of a file that is written in a folder of this machine.
//!
//! Below a folder that other users may write to, a part of the path can become a link at any time. So each
//! step opens the folder of the file without following links, and works through the open folder.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use thalweg_beneath::{Beneath, CopyOf, make_folder};

/// The path of a file to be written.
#[derive(Debug, Clone)]
pub(crate) struct Spot {
    path: PathBuf,
    /// The folder below which no link is followed.
    beneath: Option<Beneath>,
}

impl Spot {
    pub(crate) fn new(path: PathBuf, beneath: Option<Beneath>) -> Self {
        Self { path, beneath }
    }

    /// Returns the path by its names.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Calls `work` with a path to the file. Until it returns, no other user can exchange a folder of that
    /// path.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
        match &self.beneath {
            Some(beneath) => {
                let place = beneath.place(&self.path)?;
                work(&place.path())
            }
            None => work(&self.path),
        }
    }

    /// Creates the folder of the file, durably.
    pub(crate) fn make_folder(&self, copy: Option<&CopyOf>) -> io::Result<()> {
        match (self.path.parent(), &self.beneath) {
            (Some(folder), Some(beneath)) => beneath.make_folder(folder, copy, &mut sync_folder),
            (Some(folder), None) => make_folder(folder, copy, &mut sync_folder),
            (None, _) => Ok(()),
        }
    }
}

/// Makes a change of the name `of` durable.
pub(crate) fn sync_folder(of: &Path) -> io::Result<()> {
    of.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}
