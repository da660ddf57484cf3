//! Messages kept on disk on their way: what the sink `spool` writes and the source `spool` reads.
//!
//! A spool is a folder of *segments*, numbered files. A segment is a head, which tells it from every other, and *blocks*, each
//! a batch ([`block`]) with its length and its checksum before it. The one that is being written is called `.open` and locked by
//! whoever writes it; when it is full or old enough it is called `.spool`, and may be read. The lock is the system's
//! own: it goes with the process, however that ends. So an `.open` file that is not locked was left behind by a crash: whoever
//! reads cuts off the block that was not written to its end (nobody was told that it is safe) and takes the rest.
//!
//! Blocks are Arrow's own IPC streams, so that fields keep their types, what was written by one version is read by the next, and
//! reading copies nothing but the file into memory. A database was rejected: this is written once, read once and removed
//! in whole files, which a folder does better.

mod block;
pub(crate) mod read;
#[cfg(test)]
mod tests;
pub(crate) mod write;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// What a segment may be read by.
const FINISHED: &str = "spool";
/// What one that is being written is called.
const OPEN: &str = "open";
/// One that could not be read whole is kept under this name.
const DAMAGED: &str = "damaged";

/// What each segment begins with.
const MAGIC: &[u8; 16] = b"thalweg spool 1\n";
/// The magic, and the number that tells a segment from others that had its name before.
const HEAD: usize = 24;

/// What each block begins with.
const BLOCK_MAGIC: u32 = 0x4b4c_4253;
/// Before each block: the magic, the messages in it, its length, its checksum, and the checksum of these.
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

    /// Bound to its segment and its place there: what an old file left on the disk cannot be taken for it.
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

/// A file of a spool.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    number: u32,
    kind: &'static str,
    path: PathBuf,
    bytes: u64,
}

/// The files of a spool, in the order of their numbers. A folder that is not there has none.
fn entries(folder: &Path) -> io::Result<Vec<Entry>> {
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
        // It may have gone meanwhile.
        let Ok(metadata) = entry.metadata() else { continue };
        found.push(Entry { number, kind, path: entry.path(), bytes: metadata.len() });
    }
    found.sort_by_key(|entry| (entry.number, entry.kind));
    Ok(found)
}

fn file_name(number: u32, kind: &str) -> String {
    format!("{number:08}.{kind}")
}

fn path_of(folder: &Path, number: u32, kind: &str) -> PathBuf {
    folder.join(file_name(number, kind))
}
