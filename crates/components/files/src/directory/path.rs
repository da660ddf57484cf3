//! The path of a file in a folder.

use std::fs;
use std::io::{BufRead, BufReader, Seek};
use std::path::{Component, Path, PathBuf};

use thalweg_engine::FileError;

use super::UNWRITABLE;

/// Returns the path of `name` in `folder`.
///
/// # Errors
/// A rejection, if the name is not a file name or leads out of the folder.
pub fn path_below(folder: &Path, name: &Path) -> Result<PathBuf, FileError> {
    let is_below = name.components().all(|part| matches!(part, Component::Normal(_)));
    // A path would drop a slash at the end, and the name would be that of a folder.
    let is_name = name.file_name().is_some() && !name.as_os_str().as_encoded_bytes().ends_with(b"/");
    if !is_below || !is_name {
        let reason =
            format!("`{}` is not a valid name for a file below `{}`", name.display(), folder.display());
        return Err(FileError::coded(UNWRITABLE, reason));
    }
    Ok(folder.join(name))
}

/// True if an open file and another have the same content. False if either cannot be read.
pub fn same_content(one: &mut fs::File, other: &Path) -> bool {
    let mut same = || -> std::io::Result<bool> {
        one.rewind()?;
        let other = fs::File::open(other)?;
        if one.metadata()?.len() != other.metadata()?.len() {
            return Ok(false);
        }
        let (mut one, mut other) =
            (BufReader::with_capacity(1 << 16, &*one), BufReader::with_capacity(1 << 16, other));
        loop {
            let (a, b) = (one.fill_buf()?, other.fill_buf()?);
            let length = a.len().min(b.len());
            if length == 0 {
                return Ok(a.is_empty() && b.is_empty());
            }
            if a[..length] != b[..length] {
                return Ok(false);
            }
            one.consume(length);
            other.consume(length);
        }
    };
    same().unwrap_or(false)
}
