//! The saved position of a file, and whether a file is the one that it belongs to.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thalweg_codec::framing::{JoinPosition, Skip, StreamPosition};
use thalweg_engine::{Checkpoint, SourceOutput};
use xxhash_rust::xxh3::xxh3_64;

/// The number of bytes in a fingerprint, once the file is long enough.
pub(super) const FINGERPRINT_BYTES: usize = 256;

/// The saved state of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Saved {
    /// The path at which it was last seen.
    pub path: String,
    /// The name of the sequence that its positions belong to.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub sequence: String,
    /// The offset of the next message in bytes, after decompression.
    pub offset: u64,
    /// The kind of data to skip at that offset.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub skip: Skip,
    /// True if a byte order mark tells that the units of `utf-16` begin with their high byte.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub big_endian: bool,
    /// The state of joining lines, if it is not that between two messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub join: Option<JoinPosition>,
    /// The hash of the first bytes, in hexadecimal.
    pub fingerprint: String,
    /// The number of bytes that the hash covers.
    pub fingerprint_bytes: usize,
    /// The hash of the last bytes before the offset, in hexadecimal. Empty in a compressed file.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub last: String,
    /// The number of bytes that it covers.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub last_bytes: usize,
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

fn is_nothing(skip: &Skip) -> bool {
    *skip == Skip::Nothing
}

impl Saved {
    /// Returns the state that an earlier run saved for a partition.
    pub fn of(out: &SourceOutput, partition: &str) -> Option<Self> {
        serde_json::from_value(out.saved(partition)?).ok()
    }

    /// Returns the state that the last checkpoint has of a partition.
    pub fn committed(out: &SourceOutput, partition: &str) -> Option<Self> {
        serde_json::from_value(out.committed(partition)?).ok()
    }

    /// Returns the position of the next message.
    pub(super) fn position(&self) -> StreamPosition {
        let Self { offset, skip, big_endian, join, .. } = *self;
        StreamPosition { offset, skip, big_endian, join }
    }
}

/// Some bytes of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fingerprint {
    hash: u64,
    /// The number of bytes that it covers.
    pub(super) bytes: usize,
}

impl Fingerprint {
    /// Reads the fingerprint of the first `bytes` bytes, or fewer if the file is shorter.
    pub(super) fn read(file: &File, bytes: usize) -> io::Result<Self> {
        Self::read_at(file, 0, bytes)
    }

    /// Reads the fingerprint of the last `bytes` bytes before an offset, or of fewer.
    pub(super) fn before(file: &File, offset: u64, bytes: usize) -> io::Result<Self> {
        let start = offset.saturating_sub(bytes.min(FINGERPRINT_BYTES) as u64);
        Self::read_at(file, start, usize::try_from(offset - start).unwrap_or_default())
    }

    fn read_at(file: &File, start: u64, bytes: usize) -> io::Result<Self> {
        let mut found = [0; FINGERPRINT_BYTES];
        let wanted = bytes.min(FINGERPRINT_BYTES);
        let read = read_some(file, start, found.get_mut(..wanted).unwrap_or_default())?;
        Ok(Self::of(found.get(..read).unwrap_or_default()))
    }

    /// Returns the fingerprint of the last of these bytes.
    pub(super) fn of(bytes: &[u8]) -> Self {
        let last = bytes.get(bytes.len().saturating_sub(FINGERPRINT_BYTES)..).unwrap_or_default();
        Self { hash: xxh3_64(last), bytes: last.len() }
    }

    /// True if the file still begins with these bytes.
    pub(super) fn fits(self, file: &File) -> io::Result<bool> {
        Ok(Self::read(file, self.bytes)? == self)
    }

    /// True if these bytes are still before an offset.
    pub(super) fn is_before(self, file: &File, offset: u64) -> io::Result<bool> {
        Ok(Self::before(file, offset, self.bytes)? == self)
    }

    pub(super) fn saved(hash: &str, bytes: usize) -> Option<Self> {
        Some(Self { hash: u64::from_str_radix(hash, 16).ok()?, bytes })
    }

    pub(super) fn text(self) -> String {
        format!("{:016x}", self.hash)
    }
}

impl Saved {
    /// True if it is the position of this file.
    pub(super) fn fits(&self, file: &File) -> io::Result<bool> {
        let is_same = match Fingerprint::saved(&self.fingerprint, self.fingerprint_bytes) {
            Some(fingerprint) => fingerprint.fits(file)?,
            None => false,
        };
        match Fingerprint::saved(&self.last, self.last_bytes) {
            // A file that is too short now was truncated: the caller warns of it.
            Some(last) if is_same && file.metadata()?.len() >= self.offset => {
                last.is_before(file, self.offset)
            }
            _ => Ok(is_same),
        }
    }
}

/// Creates the checkpoints of a file.
pub struct Checkpoints {
    pub(super) partition: Arc<str>,
    pub(super) sequence: Arc<str>,
    pub(super) shown: Arc<str>,
    pub(super) fingerprint: Fingerprint,
    /// The file, if it is not compressed.
    pub(super) file: Option<Arc<File>>,
}

impl Checkpoints {
    /// Returns the checkpoint of a position.
    pub fn checkpoint(&self, position: StreamPosition) -> Option<Checkpoint> {
        let offset = serde_json::to_value(self.saved(position)).ok()?;
        Some(Checkpoint { partition: self.partition.clone(), offset })
    }

    /// Returns the state to save for a position.
    pub(super) fn saved(&self, position: StreamPosition) -> Saved {
        let last = self.file.as_ref();
        let last = last.and_then(|file| Fingerprint::before(file, position.offset, FINGERPRINT_BYTES).ok());
        Saved {
            path: self.shown.to_string(),
            sequence: self.sequence.to_string(),
            offset: position.offset,
            skip: position.skip,
            big_endian: position.big_endian,
            join: position.join,
            fingerprint: self.fingerprint.text(),
            fingerprint_bytes: self.fingerprint.bytes,
            last: last.map(Fingerprint::text).unwrap_or_default(),
            last_bytes: last.map_or(0, |last| last.bytes),
        }
    }
}

/// Reads from an offset until the buffer is full or the file ends.
pub(super) fn read_some(file: &File, from: u64, into: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = into.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, from + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
