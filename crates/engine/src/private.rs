//! Directories that only this user may enter.

use std::fs::{DirBuilder, create_dir_all};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

/// The mode of a private directory.
const MODE: u32 = 0o700;

/// Creates a directory that only this user may enter, unless it exists. Missing parents are created as usual.
pub(crate) fn create_private(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        create_dir_all(parent)?;
    }
    match create_private_new(path) {
        // Another process has created it meanwhile.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        created => created,
    }
}

/// Creates a directory that only this user may enter.
pub(crate) fn create_private_new(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(MODE).create(path)
}
