//! Waits until files are on the disk.
//!
//! Each `fsync` waits for the disk: a hundred thousand of them take minutes. Many files are therefore synced
//! together, by one `syncfs` for each file system that they are on. It also writes what other programs left
//! to be written, which is why a few files are synced one by one.

use std::collections::{BTreeSet, HashSet};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use thalweg_engine::Error;

use super::super::names;
use super::writing::write_error;
use super::{Files, Fsync};
use thalweg_stream::io_error::io_error;

/// The number of files from which on they are synced together.
const MANY: usize = 256;

impl Files {
    /// Writes and syncs all files together, if there are many. A file that is not synced here is synced when
    /// it is finished.
    pub(super) fn sync_in_bulk(&mut self) -> Result<(), Error> {
        if self.settings.fsync == Fsync::Never || !cfg!(target_os = "linux") {
            return Ok(());
        }
        let streams = self.streams.iter_mut().flatten();
        let mut pieces: Vec<_> =
            streams.flat_map(|stream| stream.ended.iter_mut().chain(&mut stream.current)).collect();
        for piece in pieces.iter_mut().filter(|piece| piece.owes()) {
            piece.flush().map_err(|error| write_error(piece.now(), &error))?;
        }
        pieces.retain(|piece| piece.is_dirty());
        if pieces.len() < MANY {
            return Ok(());
        }
        let folders: BTreeSet<&Path> = pieces.iter().map(|piece| names::folder(piece.path())).collect();
        sync_file_systems(folders.into_iter())?;
        pieces.into_iter().for_each(|piece| piece.note_synced());
        Ok(())
    }

    /// Syncs the folders of files that got their final names.
    pub(super) fn sync_folders(&self, folders: BTreeSet<PathBuf>) -> Result<(), Error> {
        if folders.len() >= MANY && cfg!(target_os = "linux") {
            return sync_file_systems(folders.iter().map(PathBuf::as_path));
        }
        for folder in folders {
            // Some file systems cannot sync a folder, and do not need to.
            if let Ok(file) = File::open(&folder)
                && let Err(error) = file.sync_all()
                && !matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported)
            {
                return Err(io_error("sync to disk", &folder, &error));
            }
        }
        Ok(())
    }
}

/// Syncs the file systems that these folders are on.
fn sync_file_systems<'a>(folders: impl Iterator<Item = &'a Path>) -> Result<(), Error> {
    let mut synced = HashSet::new();
    for folder in folders {
        let failed = |error: io::Error| io_error("sync to disk", folder, &error);
        if synced.insert(fs::metadata(folder).map_err(failed)?.dev()) {
            sync_file_system(&File::open(folder).map_err(failed)?).map_err(failed)?;
        }
    }
    Ok(())
}

#[cfg(target_os = "linux")]
fn sync_file_system(file: &File) -> io::Result<()> {
    Ok(rustix::fs::syncfs(file)?)
}

#[cfg(not(target_os = "linux"))]
fn sync_file_system(file: &File) -> io::Result<()> {
    file.sync_all()
}
