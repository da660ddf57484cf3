//! Reading segments.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use arrow_buffer::Buffer;
use thalweg_runtime::Failpoint;
use xxhash_rust::xxh3::xxh3_64;

pub(crate) use super::block::Messages;
use super::{BLOCK_HEAD, BlockHead, DAMAGED, FINISHED, HEAD, MAGIC, OPEN, entries, path_of};

/// A segment being read.
pub(crate) struct Segment {
    file: File,
    number: u32,
    path: PathBuf,
    id: u64,
    /// The offset of the next block.
    offset: u64,
    length: u64,
    is_damaged: bool,
}

/// The next part of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// A block, with its length in bytes and its number of messages.
    Block { bytes: usize, rows: usize },
    /// Bytes that are not a block; nothing after them can be read.
    Rubbish { bytes: u64 },
    /// The end of the segment.
    End,
}

impl Segment {
    /// Opens a finished segment.
    pub(crate) fn open(folder: &Path, number: u32) -> io::Result<Self> {
        let path = path_of(folder, number, FINISHED);
        let file = File::open(&path)?;
        Self::begin(file, number, path)
    }

    fn begin(file: File, number: u32, path: PathBuf) -> io::Result<Self> {
        let length = file.metadata()?.len();
        let mut segment = Self { file, number, path, id: 0, offset: HEAD as u64, length, is_damaged: false };
        let mut head = [0; HEAD];
        if length < HEAD as u64 {
            // Its writer stopped before the head was complete: the segment is empty.
            segment.offset = length;
            return Ok(segment);
        }
        segment.file.read_exact_at(&mut head, 0)?;
        let (magic, id) = head.split_at(MAGIC.len());
        if magic != MAGIC {
            segment.offset = 0;
            segment.is_damaged = true;
        }
        segment.id = id.try_into().map_or(0, u64::from_le_bytes);
        Ok(segment)
    }

    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the partition of its checkpoints. It contains the id, since a later segment may get the same
    /// number.
    pub(crate) fn partition(&self) -> String {
        format!("{:08}-{:016x}", self.number, self.id)
    }

    /// Returns the offset of the next block.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the offset of the first block; a shorter segment has no blocks.
    pub(crate) fn first() -> u64 {
        HEAD as u64
    }

    /// Returns to the offset of an earlier block, to read it again.
    pub(crate) fn back_to(&mut self, offset: u64) {
        self.offset = offset.min(self.offset);
    }

    /// Skips to the offset of a block.
    pub(crate) fn seek(&mut self, offset: u64) {
        self.offset = offset.clamp(self.offset, self.length);
    }

    /// Looks at the next part without moving.
    pub(crate) fn next(&self) -> io::Result<Next> {
        let left = self.length - self.offset;
        if left == 0 {
            return Ok(Next::End);
        }
        Ok(match self.head()? {
            Some(head) => Next::Block {
                bytes: usize::try_from(head.length).unwrap_or(usize::MAX),
                rows: head.rows as usize,
            },
            None => Next::Rubbish { bytes: left },
        })
    }

    /// Returns the head of the next block, if the block is complete.
    fn head(&self) -> io::Result<Option<BlockHead>> {
        let left = self.length - self.offset;
        if self.is_damaged && self.offset < HEAD as u64 || left < BLOCK_HEAD as u64 {
            return Ok(None);
        }
        let mut head = [0; BLOCK_HEAD];
        self.file.read_exact_at(&mut head, self.offset)?;
        let head = BlockHead::read(&head, self.id, self.offset);
        Ok(head.filter(|head| head.length <= left - BLOCK_HEAD as u64))
    }

    /// Reads the body of the next block into memory of its size.
    pub(crate) fn fill(&self, body: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(body, self.offset + BLOCK_HEAD as u64)
    }

    /// Skips the next block, whose body the caller has read. Returns its messages, or the reason why it is
    /// damaged.
    pub(crate) fn decode(&mut self, body: Buffer) -> io::Result<Result<Messages, String>> {
        let Some(head) = self.head()? else { return Ok(Err("it is gone".to_owned())) };
        self.offset += BLOCK_HEAD as u64 + head.length;
        if xxh3_64(&body) != head.hash {
            self.is_damaged = true;
            return Ok(Err("its checksum is wrong".to_owned()));
        }
        let decoded = Messages::decode(body).map_err(|error| error.to_string());
        self.is_damaged |= decoded.is_err();
        Ok(decoded)
    }

    /// Skips the rest of the segment.
    pub(crate) fn skip_rest(&mut self) {
        self.is_damaged = true;
        self.offset = self.length;
    }

    /// True if a part of it could not be read.
    pub(crate) fn is_damaged(&self) -> bool {
        self.is_damaged
    }
}

/// Removes a segment whose messages are all committed. A damaged segment is renamed and kept.
pub(crate) fn dispose(path: &Path, is_damaged: bool) -> io::Result<()> {
    Failpoint::RemoveBefore.check()?;
    let gone =
        if is_damaged { fs::rename(path, path.with_extension(DAMAGED)) } else { fs::remove_file(path) };
    Failpoint::RemoveAfter.pass();
    match gone {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        gone => gone,
    }
}

/// The content of a spool.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Listing {
    /// The numbers of the segments that may be read, in order.
    pub(crate) finished: Vec<u32>,
    /// True if other segments are being written.
    pub(crate) is_written: bool,
}

/// Lists the segments. Those left behind by a crash are made readable.
pub(crate) fn list(folder: &Path) -> io::Result<Listing> {
    let mut listing = Listing::default();
    for entry in entries(folder)? {
        if entry.kind == FINISHED || (entry.kind == OPEN && adopt(folder, entry.number)?) {
            listing.finished.push(entry.number);
        } else if entry.kind == OPEN {
            listing.is_written = true;
        }
    }
    listing.finished.sort_unstable();
    listing.finished.dedup();
    Ok(listing)
}

/// Makes a segment readable if it has no writer any more. Returns true if it is readable.
fn adopt(folder: &Path, number: u32) -> io::Result<bool> {
    let path = path_of(folder, number, OPEN);
    let missing = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => Ok(false),
        _ => Err(error),
    };
    let file = match OpenOptions::new().read(true).write(true).open(&path) {
        Ok(file) => file,
        Err(error) => return missing(error),
    };
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(false),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    // Between opening and locking, its writer may have finished it, and another writer may have created a
    // segment with this name.
    match fs::metadata(&path) {
        Ok(found) if found.ino() == file.metadata()?.ino() => {}
        Ok(_) => return Ok(false),
        Err(error) => return missing(error),
    }
    let mut segment = Segment::begin(file, number, path.clone())?;
    let sound = sound_length(&mut segment)?;
    if sound < segment.length {
        tracing::warn!(
            "`{}` was left behind by a process that was killed: its last {} bytes, which are incomplete, \
             are cut off",
            path.display(),
            segment.length - sound
        );
        segment.file.set_len(sound)?;
    }
    fs::rename(&path, path_of(folder, number, FINISHED))?;
    Ok(true)
}

/// Returns the offset at which the last complete block ends.
fn sound_length(segment: &mut Segment) -> io::Result<u64> {
    if segment.is_damaged {
        // This is not a segment; reading it reports that.
        return Ok(segment.length);
    }
    let mut last = None;
    while let Some(head) = segment.head()? {
        last = Some((segment.offset, head));
        segment.offset += BLOCK_HEAD as u64 + head.length;
    }
    let Some((offset, head)) = last else { return Ok(segment.offset) };
    // After a power failure the head may be on the disk without the body. Only the last block is checked
    // here: reading reports damage in earlier ones.
    let end = std::mem::replace(&mut segment.offset, offset);
    let mut body = vec![0; usize::try_from(head.length).unwrap_or(0)];
    segment.fill(&mut body)?;
    Ok(if xxh3_64(&body) == head.hash { end } else { offset })
}
