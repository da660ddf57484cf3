//! The seeds of a target: small inputs that are kept in the project.

use std::path::{Path, PathBuf};
use std::{fs, io};

/// Returns the folder with the seeds of a target.
pub fn folder(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds").join(target)
}

/// Returns the seeds of a target in the order of their names, with their names.
///
/// # Errors
/// If they cannot be read.
pub fn read(target: &str) -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut seeds = Vec::new();
    for entry in fs::read_dir(folder(target))? {
        let entry = entry?;
        seeds.push((entry.file_name().to_string_lossy().into_owned(), fs::read(entry.path())?));
    }
    seeds.sort();
    Ok(seeds)
}
