//! The file of a table: its state, by which a change is seen, and its bytes.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use thalweg_codec::decompress::{Compression, Decoder};
use thalweg_record::FileState;

use super::unusable::Unusable;

/// Returns the state of the file that is at a path now, if there is one.
pub(super) fn state_at(path: &Path) -> Option<FileState> {
    fs::metadata(path).ok().map(|metadata| FileState::of(&metadata))
}

/// Opens a file, and returns its state.
pub(super) fn open(path: &Path) -> Result<(File, FileState), Unusable> {
    let unreadable = |error: io::Error| Unusable::unreadable(path, &error);
    // To open a pipe would wait for a program that writes to it.
    if !fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err(Unusable::new("table", format!("the table `{}` is not a file.", path.display())));
    }
    let file = File::open(path).map_err(unreadable)?;
    let state = FileState::of(&file.metadata().map_err(unreadable)?);
    Ok((file, state))
}

/// Fails if a file has changed since it was opened.
pub(super) fn is_unchanged(path: &Path, file: &File, state: FileState) -> Result<(), Unusable> {
    let metadata = file.metadata().map_err(|error| Unusable::unreadable(path, &error))?;
    // A file that was replaced is complete. To rename or remove it changes only one time.
    match FileState::of(&metadata).is_renamed(&state) {
        true => Ok(()),
        false => Err(Unusable::changing(path)),
    }
}

/// Returns the bytes of a file, decompressed. It may have at most `most`.
pub(super) fn bytes(path: &Path, file: &File, state: FileState, most: usize) -> Result<Vec<u8>, Unusable> {
    let unreadable = |error: io::Error| Unusable::unreadable(path, &error);
    let size = usize::try_from(state.size()).unwrap_or(usize::MAX);
    if size > most {
        return Err(Unusable::too_large(path, size, most));
    }
    let mut raw = Vec::with_capacity(size);
    file.take(most as u64 + 1).read_to_end(&mut raw).map_err(unreadable)?;
    let first = raw.get(..4).unwrap_or(&raw);
    let bytes = match Compression::Auto.of(first).flatten() {
        Some(format) => {
            let mut plain = Vec::new();
            let decoder = Decoder::new(format, raw.as_slice()).within(most);
            decoder.take(most as u64 + 1).read_to_end(&mut plain).map_err(|error| {
                let message = format!("the table `{}` cannot be decompressed: {error}.", path.display());
                Unusable::new("table", message)
            })?;
            plain
        }
        None => raw,
    };
    if bytes.len() > most {
        return Err(Unusable::too_large(path, bytes.len(), most));
    }
    Ok(bytes)
}
