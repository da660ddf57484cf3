//! Which names a run has written, and what may be done where there is a file already.

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

/// Which names a run has written into a folder: eight bytes for each, its hash. Two names of one hash (among a million
/// files, once in thirty million runs) are taken for one: the second file gets another name than it would.
#[derive(Debug, Default)]
pub struct Names(Mutex<HashSet<u64>>);

/// Why a name cannot be used.
#[derive(Debug, PartialEq, Eq)]
pub enum Taken {
    /// Another is to be tried.
    NextName,
    /// The file that is there stays there, in the place of this one.
    LeftAlone,
    /// The file is to be rejected.
    Refused,
}

impl Names {
    /// Takes a name for a file. Says whether what is there may be replaced.
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

    /// Gives a name back that was taken and not written.
    pub fn give_back(&self, path: &Path) {
        self.0.lock().remove(&hash(path));
    }
}

fn hash(path: &Path) -> u64 {
    xxh3_64(path.as_os_str().as_bytes())
}

/// Whether a path is that of another file in the folder that the file was found in: one that may still have to be read.
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

/// The path with a number before its extension; the first has none.
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
