//! The format of an entry's journal on disk: a head, then notes of 32 bytes, in the order in which the pieces
//! arrived.

use super::disk::EntryPaths;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use thalweg_runtime::private::private_file;
use thalweg_store::Fingerprint;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

const MAGIC: &[u8; 8] = b"thalweg1";
/// The length in bytes of the fixed part of the head: the magic, the number, and the length of the variable
/// part.
const FIXED: usize = 24;
/// The maximum length of a head in bytes. A file that claims more is not a journal.
const LONGEST_HEAD: u64 = 1 << 20;
/// The length of a note in bytes.
pub(super) const NOTE: usize = 32;

/// The head of a journal. It identifies the file and its state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Header {
    /// Random for each journal. Notes are valid only in the journal with their number.
    pub number: u64,
    pub name: String,
    pub fingerprint: Fingerprint,
    /// The length of the head in the file, in bytes.
    pub bytes: u64,
}

/// The record of a piece that is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Note {
    pub position: u64,
    pub length: u32,
    /// The checksum of its bytes.
    pub sum: u64,
}

impl Note {
    pub fn of(position: u64, bytes: &[u8]) -> Self {
        Self { position, length: bytes.len() as u32, sum: xxh3_64(bytes) }
    }

    pub fn matches(&self, bytes: &[u8]) -> bool {
        bytes.len() == self.length as usize && xxh3_64(bytes) == self.sum
    }

    pub fn encode(&self, number: u64) -> [u8; NOTE] {
        let mut note = [0; NOTE];
        note[..8].copy_from_slice(&self.position.to_le_bytes());
        note[8..12].copy_from_slice(&self.length.to_le_bytes());
        note[16..24].copy_from_slice(&self.sum.to_le_bytes());
        let sum = xxh3_64_with_seed(&note[..24], number);
        note[24..].copy_from_slice(&sum.to_le_bytes());
        note
    }

    fn decode(note: &[u8], number: u64) -> Option<Self> {
        let valid = xxh3_64_with_seed(&note[..24], number) == u64_at(note, 24)?;
        let length = u32::from_le_bytes(note.get(8..12)?.try_into().ok()?);
        valid.then_some(Self { position: u64_at(note, 0)?, length, sum: u64_at(note, 16)? })
    }
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

impl Header {
    /// Returns the head of a new journal.
    pub fn new(name: &str, fingerprint: &Fingerprint) -> Self {
        let mut header = Self {
            number: fastrand::u64(..),
            name: name.to_owned(),
            fingerprint: fingerprint.clone(),
            bytes: 0,
        };
        header.bytes = header.encode().len() as u64;
        header
    }

    fn encode(&self) -> Vec<u8> {
        let mut rest = Vec::new();
        rest.extend(self.fingerprint.length.to_le_bytes());
        rest.push(u8::from(self.fingerprint.modified.is_some()));
        rest.extend(self.fingerprint.modified.unwrap_or(0).to_le_bytes());
        rest.push(u8::from(self.fingerprint.etag.is_some()));
        for text in [self.fingerprint.etag.as_deref().unwrap_or(""), &self.name] {
            rest.extend((text.len() as u32).to_le_bytes());
            rest.extend(text.as_bytes());
        }
        let mut header = MAGIC.to_vec();
        header.extend(self.number.to_le_bytes());
        header.extend((rest.len() as u64).to_le_bytes());
        header.extend(rest);
        let sum = xxh3_64(&header);
        header.extend(sum.to_le_bytes());
        header
    }

    fn decode(header: &[u8]) -> Option<Self> {
        let (inner, sum) = header.split_at_checked(header.len().checked_sub(8)?)?;
        if xxh3_64(inner) != u64_at(sum, 0)? {
            return None;
        }
        let mut rest = inner.get(FIXED..)?;
        let mut take = |count: usize| -> Option<&[u8]> {
            let (taken, left) = rest.split_at_checked(count)?;
            rest = left;
            Some(taken)
        };
        let length = u64_at(take(8)?, 0)?;
        let has_time = take(1)? == [1];
        let time = u64_at(take(8)?, 0)?.cast_signed();
        let has_tag = take(1)? == [1];
        let mut text = || -> Option<String> {
            let length = u32::from_le_bytes(take(4)?.try_into().ok()?);
            String::from_utf8(take(length as usize)?.to_vec()).ok()
        };
        let (tag, name) = (text()?, text()?);
        let fingerprint =
            Fingerprint { length, etag: has_tag.then_some(tag), modified: has_time.then_some(time) };
        Some(Self { number: u64_at(header, 8)?, name, fingerprint, bytes: header.len() as u64 })
    }

    /// Decodes a head without its checksum, for the fuzz target.
    pub(super) fn sealed(inner: &[u8]) -> Option<Self> {
        Self::decode(&[inner, &xxh3_64(inner).to_le_bytes()].concat())
    }

    /// Reads the head of an open journal. Returns `None` if the head is incomplete.
    pub fn read(file: &File) -> io::Result<Option<Self>> {
        let mut fixed = [0; FIXED];
        let length = file.metadata()?.len();
        if length < FIXED as u64 {
            return Ok(None);
        }
        file.read_exact_at(&mut fixed, 0)?;
        let rest = u64_at(&fixed, 16).unwrap_or(u64::MAX);
        if fixed[..8] != *MAGIC || rest > LONGEST_HEAD || length < FIXED as u64 + rest + 8 {
            return Ok(None);
        }
        let mut header = vec![0; FIXED + rest as usize + 8];
        file.read_exact_at(&mut header, 0)?;
        Ok(Self::decode(&header))
    }
}

/// Returns the valid notes from the offset `from` on, and where they end.
pub(super) fn notes(file: &File, number: u64, from: u64) -> io::Result<(Vec<Note>, u64)> {
    let length = file.metadata()?.len().saturating_sub(from) as usize / NOTE * NOTE;
    let mut bytes = vec![0; length];
    match file.read_exact_at(&mut bytes, from) {
        // A writer has just cut off the half note of a killed process. The next read finds the note that
        // replaces it.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok((Vec::new(), from)),
        other => other?,
    }
    let notes: Vec<Note> = bytes.chunks_exact(NOTE).map_while(|note| Note::decode(note, number)).collect();
    let end = from + (notes.len() * NOTE) as u64;
    Ok((notes, end))
}

/// Reads the journal of an entry, if there is one.
pub(super) fn load(places: &EntryPaths) -> io::Result<Option<(Header, Vec<Note>)>> {
    let file = match File::open(&places.ranges) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let Some(header) = Header::read(&file)? else { return Ok(None) };
    let notes = notes(&file, header.number, header.bytes)?.0;
    Ok(Some((header, notes)))
}

/// Replaces the journal of an entry atomically by one with these notes. Requires the lock.
pub(super) fn replace(
    places: &EntryPaths,
    header: &Header,
    notes: impl Iterator<Item = Note>,
) -> io::Result<()> {
    let mut bytes = header.encode();
    notes.for_each(|note| bytes.extend(note.encode(header.number)));
    private_file().write(true).create(true).truncate(true).open(&places.new)?.write_all(&bytes)?;
    fs::rename(&places.new, &places.ranges)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_note_and_one_of_another_journal_are_not_believed() {
        let folder = tempfile::tempdir().unwrap();
        let places = EntryPaths::new(folder.path(), "x");
        let fingerprint = Fingerprint { length: 77, etag: Some("\"t\"".to_owned()), modified: Some(-5) };
        let header = Header::new("name", &fingerprint);
        let list = [Note::of(0, b"abc"), Note::of(100, b"defg")];
        replace(&places, &header, list.into_iter()).unwrap();
        assert_eq!(load(&places).unwrap(), Some((header.clone(), list.to_vec())));

        let whole = fs::read(&places.ranges).unwrap();
        for cut in 0..whole.len() {
            fs::write(&places.ranges, &whole[..cut]).unwrap();
            let left = load(&places).unwrap().map(|(_, notes)| notes.len());
            let expected = (cut >= whole.len() - 64).then(|| (cut + 64 - whole.len()) / 32);
            assert_eq!(left, expected, "cut at {cut}");
        }
        let other = [&whole[..], &list[0].encode(header.number ^ 1), &list[0].encode(header.number)].concat();
        fs::write(&places.ranges, other).unwrap();
        assert_eq!(load(&places).unwrap().unwrap().1.len(), 2);
    }
}
