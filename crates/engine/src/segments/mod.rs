//! Messages kept on disk: between the sink `spool` and the source `spool`, and in the buffers of the engine.
//!
//! They are a folder of *segments*, which are numbered files. A segment begins with a head that identifies
//! it. Then come *blocks*: each is a batch with its length and checksum in front. The segment that is being
//! written is called `.open`, and its writer holds a lock on it. A segment that is full or old enough is
//! renamed to `.spool`, and may be read. The reader of a buffer is in the process of its writer, and also
//! reads the segment that is being written.
//!
//! The lock is the operating system's own: it disappears with the process, however the process ends. An
//! `.open` file without a lock was therefore left behind by a crash. The reader cuts off its incomplete last
//! block, which was never acknowledged, and reads the rest.
//!
//! Blocks are Arrow IPC streams. Fields keep their types, later versions can read them, and reading copies
//! nothing but the file into memory. A database was rejected: the data is written once, read once and removed
//! in whole files, which a folder does better.
//!
//! See docs/decisions/024-a-spool-is-a-directory-of-segments.md.

mod block;
#[doc(hidden)]
pub mod fuzzing;
pub mod read;
#[cfg(test)]
mod tests;
pub mod write;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

pub use block::{from_bytes, to_bytes};

/// The extension of a segment that may be read.
pub(crate) const FINISHED: &str = "spool";
/// The extension of a segment that is being written.
pub(crate) const OPEN: &str = "open";
/// The extension of a segment that could not be read completely, and is kept.
pub(crate) const DAMAGED: &str = "damaged";

/// The first bytes of each segment.
const MAGIC: &[u8; 16] = b"thalweg spool 1\n";
/// The size in bytes of a segment's head: the magic, and a random id that distinguishes the segment from
/// earlier ones with the same name.
const HEAD: usize = 24;

/// The first bytes of each block.
const BLOCK_MAGIC: u32 = 0x4b4c_4253;
/// The size in bytes of a block's head: magic, number of messages, length, checksum, and the checksum of
/// these.
const BLOCK_HEAD: usize = 32;

/// The head of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct BlockHead {
    rows: u32,
    length: u64,
    hash: u64,
}

impl BlockHead {
    fn of(body: &[u8], rows: usize) -> Self {
        Self { rows: u32::try_from(rows).unwrap_or(u32::MAX), length: body.len() as u64, hash: xxh3_64(body) }
    }

    /// Encodes the head. Its checksum covers the segment's id and the offset, so that old data left on the
    /// disk is not mistaken for a block.
    fn write(self, segment: u64, offset: u64) -> [u8; BLOCK_HEAD] {
        let mut head = [0; BLOCK_HEAD];
        head[..4].copy_from_slice(&BLOCK_MAGIC.to_le_bytes());
        head[4..8].copy_from_slice(&self.rows.to_le_bytes());
        head[8..16].copy_from_slice(&self.length.to_le_bytes());
        head[16..24].copy_from_slice(&self.hash.to_le_bytes());
        let own = xxh3_64_with_seed(&head[..24], segment ^ offset);
        head[24..].copy_from_slice(&own.to_le_bytes());
        head
    }

    fn read(head: &[u8; BLOCK_HEAD], segment: u64, offset: u64) -> Option<Self> {
        let number = |at: usize| head.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes);
        let small = |at: usize| head.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes);
        let is_right =
            small(0)? == BLOCK_MAGIC && number(24)? == xxh3_64_with_seed(head.get(..24)?, segment ^ offset);
        is_right.then_some(Self { rows: small(4)?, length: number(8)?, hash: number(16)? })
    }
}

/// A file of a folder of segments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) number: u32,
    pub(crate) kind: &'static str,
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
}

/// Returns the files of a folder of segments in the order of their numbers. A missing folder has none.
pub(crate) fn entries(folder: &Path) -> io::Result<Vec<Entry>> {
    let listed = match fs::read_dir(folder) {
        Ok(listed) => listed,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut found = Vec::new();
    for entry in listed {
        let entry = entry?;
        let name = entry.file_name();
        let Some((digits, extension)) = name.to_str().and_then(|name| name.split_once('.')) else { continue };
        let Some(kind) = [FINISHED, OPEN, DAMAGED].into_iter().find(|kind| *kind == extension) else {
            continue;
        };
        let Some(number) =
            digits.parse().ok().filter(|number| file_name(*number, "") == format!("{digits}."))
        else {
            continue;
        };
        // The file may have been removed meanwhile.
        let Ok(metadata) = entry.metadata() else { continue };
        found.push(Entry { number, kind, path: entry.path(), bytes: metadata.len() });
    }
    found.sort_by_key(|entry| (entry.number, entry.kind));
    Ok(found)
}

fn file_name(number: u32, kind: &str) -> String {
    format!("{number:08}.{kind}")
}

pub(crate) fn path_of(folder: &Path, number: u32, kind: &str) -> PathBuf {
    folder.join(file_name(number, kind))
}
