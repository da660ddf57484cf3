//! The file of a table: which one it is, and its bytes.
//!
//! The number, size and times of a file tell whether it is the same: a program that replaces it, or writes to
//! it, changes one of them. To compare contents was rejected: it would read the file again and again.

use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use thalweg_codec::decompress::{Compression, Decoder};

use super::unusable::Unusable;

/// The marks of a file, of which a replacement or a change alters one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// Returns the stamp of the file that is at a path now, if there is one.
    pub(super) fn at(path: &Path) -> Option<Self> {
        fs::metadata(path).ok().map(|metadata| Self::of(&metadata))
    }

    /// The size in bytes.
    pub(super) fn size(&self) -> u64 {
        self.size
    }
}

/// Opens a file, and returns its stamp.
pub(super) fn open(path: &Path) -> Result<(File, Stamp), Unusable> {
    let unreadable = |error: io::Error| Unusable::unreadable(path, &error);
    // To open a pipe would wait for a program that writes to it.
    if !fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err(Unusable::new("table", format!("the table `{}` is not a file.", path.display())));
    }
    let file = File::open(path).map_err(unreadable)?;
    let stamp = Stamp::of(&file.metadata().map_err(unreadable)?);
    Ok((file, stamp))
}

/// Fails if a file has changed since it was opened.
pub(super) fn is_unchanged(path: &Path, file: &File, stamp: Stamp) -> Result<(), Unusable> {
    let metadata = file.metadata().map_err(|error| Unusable::unreadable(path, &error))?;
    // A file that was replaced is complete.
    let now = Stamp { changed: stamp.changed, ..Stamp::of(&metadata) };
    if now == stamp { Ok(()) } else { Err(Unusable::changing(path)) }
}

/// Returns the bytes of a file, decompressed. It may have at most `most`.
pub(super) fn bytes(path: &Path, file: &File, stamp: Stamp, most: usize) -> Result<Vec<u8>, Unusable> {
    let unreadable = |error: io::Error| Unusable::unreadable(path, &error);
    let size = usize::try_from(stamp.size).unwrap_or(usize::MAX);
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
