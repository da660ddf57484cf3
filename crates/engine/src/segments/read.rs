//! Reading segments.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use arrow_buffer::Buffer;
use thalweg_runtime::Failpoint;
use xxhash_rust::xxh3::xxh3_64;

pub use super::block::Messages;
use super::{BLOCK_HEAD, BlockHead, DAMAGED, FINISHED, HEAD, MAGIC, OPEN, entries, path_of};

/// A segment being read.
pub struct Segment {
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
pub enum Next {
    /// A block.
    Block {
        /// The length of its body in bytes.
        bytes: usize,
        /// The number of its messages.
        rows: usize,
    },
    /// Bytes that are not a block; nothing after them can be read.
    Rubbish {
        /// Their number.
        bytes: u64,
    },
    /// The end of the segment.
    End,
}

impl Segment {
    /// Opens a finished segment.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open(folder: &Path, number: u32) -> io::Result<Self> {
        let path = path_of(folder, number, FINISHED);
        let file = File::open(&path)?;
        Self::begin(file, number, path)
    }

    /// Opens a segment that is finished or still written, and reads as far as its writer has got: see
    /// [`grow`](Self::grow).
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open_growing(folder: &Path, number: u32, length: u64) -> io::Result<Self> {
        let path = path_of(folder, number, OPEN);
        let mut segment = match File::open(&path) {
            Ok(file) => Self::begin(file, number, path)?,
            // Its writer has finished it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::open(folder, number)?,
            Err(error) => return Err(error),
        };
        segment.length = length.max(segment.offset).min(segment.length);
        Ok(segment)
    }

    /// Notes that the writer has got further.
    pub fn grow(&mut self, length: u64) {
        self.length = self.length.max(length);
    }

    /// Opens a segment in any state, as it is now.
    pub(crate) fn open_path(path: &Path, number: u32) -> io::Result<Self> {
        Self::begin(File::open(path)?, number, path.to_owned())
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

    /// Returns its number.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns the path that it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the partition of its checkpoints. It contains the id, since a later segment may get the same
    /// number.
    pub fn partition(&self) -> String {
        format!("{:08}-{:016x}", self.number, self.id)
    }

    /// Returns the offset of the next block.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the offset of the first block; a shorter segment has no blocks.
    pub fn first() -> u64 {
        HEAD as u64
    }

    /// Returns to the offset of an earlier block, to read it again.
    pub fn back_to(&mut self, offset: u64) {
        self.offset = offset.min(self.offset);
    }

    /// Skips to the offset of a block.
    pub fn seek(&mut self, offset: u64) {
        self.offset = offset.clamp(self.offset, self.length);
    }

    /// Skips to the offset of a block. Returns the number of messages before it.
    ///
    /// # Errors
    /// If the segment cannot be read.
    pub fn skip_to(&mut self, offset: u64) -> io::Result<u64> {
        let end = offset.min(self.length);
        let mut rows = 0;
        while self.offset < end {
            let Some(head) = self.head()? else {
                self.offset = end;
                break;
            };
            self.offset += BLOCK_HEAD as u64 + head.length;
            rows += u64::from(head.rows);
        }
        Ok(rows)
    }

    /// Looks at the next part without moving.
    ///
    /// # Errors
    /// If the segment cannot be read.
    pub fn next(&self) -> io::Result<Next> {
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
    ///
    /// # Errors
    /// If the segment cannot be read.
    pub fn fill(&self, body: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(body, self.offset + BLOCK_HEAD as u64)
    }

    /// Skips the next block, whose body the caller has read. Returns its messages, or the reason why it is
    /// damaged.
    ///
    /// # Errors
    /// If the segment cannot be read.
    pub fn decode(&mut self, body: Buffer) -> io::Result<Result<Messages, String>> {
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
    pub fn skip_rest(&mut self) {
        self.is_damaged = true;
        self.offset = self.length;
    }

    /// True if a part of it could not be read.
    pub fn is_damaged(&self) -> bool {
        self.is_damaged
    }
}

/// Removes a segment whose messages are all committed. A damaged segment is renamed and kept.
///
/// # Errors
/// If it cannot be removed or renamed.
pub fn dispose(path: &Path, is_damaged: bool) -> io::Result<()> {
    Failpoint::RemoveBefore.check()?;
    let gone =
        if is_damaged { fs::rename(path, path.with_extension(DAMAGED)) } else { fs::remove_file(path) };
    Failpoint::RemoveAfter.pass();
    match gone {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        gone => gone,
    }
}

/// The content of a folder of segments.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// The numbers of the segments that may be read, in order.
    pub finished: Vec<u32>,
    /// True if other segments are being written.
    pub is_written: bool,
}

/// Lists the segments. Those left behind by a crash are made readable.
///
/// # Errors
/// If the folder cannot be read, or a segment that was left behind cannot be cut.
pub fn list(folder: &Path) -> io::Result<Listing> {
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
