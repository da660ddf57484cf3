//! Notices that the folder of the output was removed while a run writes to it.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::OnceLock;

use thalweg_engine::Error;

/// A folder that was there once a file was written to it. A writer would otherwise create it again, and no
/// one would notice that files are gone.
#[derive(Debug)]
pub(crate) struct Presence {
    folder: PathBuf,
    handle: OnceLock<File>,
}

impl Presence {
    /// Creates the watch over a folder, which need not exist yet.
    pub(crate) fn of(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into(), handle: OnceLock::new() }
    }

    /// Notes that the folder exists: a file was written to it.
    pub(crate) fn note(&self) {
        // Without a handle, for example if too many files are open, the next file tries again.
        if self.handle.get().is_none()
            && let Ok(folder) = File::open(&self.folder)
        {
            let _ = self.handle.set(folder);
        }
    }

    /// Checks that the folder was not removed since, with all files in it.
    ///
    /// # Errors
    /// If it was.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let metadata = self.handle.get().and_then(|folder| folder.metadata().ok());
        if metadata.is_none_or(|metadata| metadata.nlink() > 0) {
            return Ok(());
        }
        Err(Error::permanent(format!(
            "`{}` was removed while the run was writing to it: the files in it are lost. Find out what removes it, \
             and restart.",
            self.folder.display()
        )))
    }
}
