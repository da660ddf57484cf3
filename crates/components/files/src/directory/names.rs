//! Keeps the names that a run has written, and decides what happens if a file exists.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use thalweg_record::File;
use xxhash_rust::xxh3::xxh3_64;

use super::options::OnExists;

/// The names that a run has written into a folder, each as a hash of eight bytes. If two names have the same
/// hash, the second file gets another name without need. For a million files, that happens once in thirty
/// million runs.
#[derive(Debug, Default)]
pub struct Names(Mutex<HashSet<u64>>);

/// Why a name cannot be used.
#[derive(Debug, PartialEq, Eq)]
pub enum Taken {
    /// The caller tries the next name.
    NextName,
    /// The existing file stays, and the new one is not written.
    LeftAlone,
    /// The file is rejected.
    Refused,
}

impl Names {
    /// Takes a name for a file. Returns true if an existing file may be replaced.
    pub fn take(&self, path: &Path, file: &File, on_exists: OnExists) -> Result<bool, Taken> {
        if on_exists == OnExists::Overwrite {
            return Ok(true);
        }
        let is_new = self.0.lock().insert(hash(path));
        match on_exists {
            OnExists::Overwrite => Ok(true),
            OnExists::Replace if !is_new || is_read_from(path, file) => Err(Taken::NextName),
            OnExists::Replace => Ok(true),
            OnExists::Rename if !is_new || path.symlink_metadata().is_ok() => Err(Taken::NextName),
            OnExists::Skip if !is_new || path.symlink_metadata().is_ok() => Err(Taken::LeftAlone),
            OnExists::Error if !is_new || path.symlink_metadata().is_ok() => Err(Taken::Refused),
            OnExists::Rename | OnExists::Skip | OnExists::Error => Ok(false),
        }
    }

    /// Releases a name that was taken but not written.
    pub fn give_back(&self, path: &Path) {
        self.0.lock().remove(&hash(path));
    }
}

fn hash(path: &Path) -> u64 {
    xxh3_64(path.as_os_str().as_bytes())
}

/// True if the path is that of another file in the folder that the source reads. The source may not have read
/// it yet.
fn is_read_from(path: &Path, file: &File) -> bool {
    let origin = file.origin();
    let (Some(found), Ok(there)) = (&origin.path, path.symlink_metadata()) else { return false };
    let same = |one: &Metadata, other: &Metadata| (one.dev(), one.ino()) == (other.dev(), other.ino());
    let folder = |path: &Path| path.parent().and_then(|folder| fs::metadata(folder_of(folder)).ok());
    let in_it = match (folder(path), folder(found)) {
        (Some(one), Some(other)) => same(&one, &other),
        _ => false,
    };
    let below = origin.folder.as_deref().is_some_and(|folder| path.starts_with(folder));
    (in_it || below) && !fs::symlink_metadata(found).is_ok_and(|found| same(&found, &there))
}

fn folder_of(path: &Path) -> &Path {
    if path.as_os_str().is_empty() { Path::new(".") } else { path }
}

/// Returns the path with the number before its extension. Number 1 is left out.
pub fn numbered(path: &Path, number: u32) -> PathBuf {
    if number < 2 {
        return path.to_owned();
    }
    let mut name = path.file_stem().map(OsString::from).unwrap_or_default();
    name.push(format!("-{number}"));
    if let Some(extension) = path.extension() {
        name.push(".");
        name.push(extension);
    }
    path.with_file_name(name)
}
