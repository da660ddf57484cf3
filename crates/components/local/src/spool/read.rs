//! Reading segments.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use arrow_buffer::Buffer;
use xxhash_rust::xxh3::xxh3_64;

pub(crate) use super::block::Messages;
use super::{BLOCK_HEAD, BlockHead, DAMAGED, FINISHED, HEAD, MAGIC, OPEN, entries, path_of};

/// A segment being read.
pub(crate) struct Segment {
    file: File,
    number: u32,
    path: PathBuf,
    id: u64,
    /// Where the next block begins.
    offset: u64,
    length: u64,
    is_damaged: bool,
}

/// What comes next in a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// A block, of so many bytes and messages.
    Block { bytes: usize, rows: usize },
    /// Bytes that are no block; there is nothing after them that could be read.
    Rubbish { bytes: u64 },
    /// Nothing.
    End,
}

impl Segment {
    /// Opens one that may be read.
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
            // Whoever began it got no further: there is nothing in it.
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

    /// What positions in it are saved under. Another segment may get its number when it is gone.
    pub(crate) fn partition(&self) -> String {
        format!("{:08}-{:016x}", self.number, self.id)
    }

    /// Where the next block begins.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Where the first block begins; one that ends before has none.
    pub(crate) fn first() -> u64 {
        HEAD as u64
    }

    /// Goes back to where a block began, to read it again.
    pub(crate) fn back_to(&mut self, offset: u64) {
        self.offset = offset.min(self.offset);
    }

    /// Goes on to where a block begins.
    pub(crate) fn seek(&mut self, offset: u64) {
        self.offset = offset.clamp(self.offset, self.length);
    }

    /// Looks what comes next.
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

    /// The head of the next block, if that is there whole.
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

    /// Passes over the next block, whose body was read; gives what is in it, or says what is wrong with it.
    pub(crate) fn decode(&mut self, body: Buffer) -> io::Result<Result<Messages, String>> {
        let Some(head) = self.head()? else { return Ok(Err("it is not there any more".to_owned())) };
        self.offset += BLOCK_HEAD as u64 + head.length;
        if xxh3_64(&body) != head.hash {
            self.is_damaged = true;
            return Ok(Err("its checksum is wrong".to_owned()));
        }
        let decoded = Messages::decode(body).map_err(|error| error.to_string());
        self.is_damaged |= decoded.is_err();
        Ok(decoded)
    }

    /// Passes over all that is left.
    pub(crate) fn give_up(&mut self) {
        self.is_damaged = true;
        self.offset = self.length;
    }

    /// Whether a part of it could not be read.
    pub(crate) fn is_damaged(&self) -> bool {
        self.is_damaged
    }
}

/// Removes a segment all of which is in safety. One that is damaged is kept under another name.
pub(crate) fn dispose(path: &Path, is_damaged: bool) -> io::Result<()> {
    let gone =
        if is_damaged { fs::rename(path, path.with_extension(DAMAGED)) } else { fs::remove_file(path) };
    match gone {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        gone => gone,
    }
}

/// What there is to read in a spool.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Listing {
    /// The segments that may be read, in order.
    pub(crate) finished: Vec<u32>,
    /// Whether others are being written.
    pub(crate) is_written: bool,
}

/// Looks what there is to read. What a crash left behind is made readable.
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

/// Makes a segment readable that nobody writes any more; says whether it is.
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
    // Its writer may have finished it between opening and locking, and another have begun one of this name.
    match fs::metadata(&path) {
        Ok(found) if found.ino() == file.metadata()?.ino() => {}
        Ok(_) => return Ok(false),
        Err(error) => return missing(error),
    }
    let mut segment = Segment::begin(file, number, path.clone())?;
    let sound = sound_length(&mut segment)?;
    if sound < segment.length {
        tracing::warn!(
            "`{}` was left behind by a process that was killed: its last {} bytes, which were not written to their end, \
             are cut off",
            path.display(),
            segment.length - sound
        );
        segment.file.set_len(sound)?;
    }
    fs::rename(&path, path_of(folder, number, FINISHED))?;
    Ok(true)
}

/// Where the last block ends that was written whole.
fn sound_length(segment: &mut Segment) -> io::Result<u64> {
    if segment.is_damaged {
        // Not one of ours; whoever reads it says so.
        return Ok(segment.length);
    }
    let mut last = None;
    while let Some(head) = segment.head()? {
        last = Some((segment.offset, head));
        segment.offset += BLOCK_HEAD as u64 + head.length;
    }
    let Some((offset, head)) = last else { return Ok(segment.offset) };
    // A machine that lost power may have written the head and not the body; of the blocks before, each is told of when it
    // is read.
    let end = std::mem::replace(&mut segment.offset, offset);
    let mut body = vec![0; usize::try_from(head.length).unwrap_or(0)];
    segment.fill(&mut body)?;
    Ok(if xxh3_64(&body) == head.hash { end } else { offset })
}
