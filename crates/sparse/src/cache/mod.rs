//! A cache on disk that processes share.
//!
//! Each file has an *entry*: three files in the folder of the cache, named after a hash of the file's origin.
//!
//! - `….data` contains the bytes, each at its position in the origin, with holes where nothing was fetched.
//!   It occupies only as much of the disk as is held.
//! - `….ranges` is the [journal](journal): the state of the origin, then a *note* for each held piece of at
//!   most 64 KiB with its position, its length, and a checksum of its bytes.
//! - `….lock` is locked by the process that writes to the entry. Its modification time is the time of the
//!   last use.
//!
//! # Why a crash does no harm
//!
//! Bytes are written before their note, and bytes without a note are ignored. A process that is killed at any
//! moment leaves at worst bytes without a note, or half a note at the end. Half a note does not match its own
//! checksum, and the next writer cuts it off. The locks of the process end with it. When the machine crashes,
//! the system may have kept the note and lost the bytes. The checksum of a piece is therefore compared at
//! each read, and no call waits for the disk (no fsync). A piece that does not match counts as missing.
//!
//! The checksum is also why readers take no lock: whatever a writer does to the entry meanwhile, a piece is
//! either right or not used.
//!
//! Notes are valid in one journal only, because their checksums include its number. No note survives a
//! restart of the entry.
//!
//! # The limit
//!
//! The limit applies to the disk space of the cache. A writer frees space before it writes. It removes whole
//! entries first, the least recently used first. If the file that is being written is too large by itself,
//! its own pieces go: first those that this process did not use, in the order in which they arrived, then the
//! used ones, the least recent first. Bytes between the pieces that stay are returned to the disk as holes.
//! With many processes that write at once the limit may be exceeded for a moment. The total is only recounted
//! now and then: before a quarter of the free space is written.
//!
//! See docs/decisions/039-cached-pieces-carry-checksums.md.

mod disk;
mod entry;
pub mod fuzzing;
mod journal;
mod room;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;
use thalweg_runtime::private::create_private;
use thalweg_store::Fingerprint;
use xxhash_rust::xxh3::xxh3_128;

pub use entry::CachedFile;

use disk::EntryPaths;
use room::Room;

/// A folder in which ranges of remote files are kept. Cloning returns another handle to the same cache. Any
/// number of processes may use the folder at once.
#[derive(Debug, Clone)]
pub struct Cache(Arc<Folder>);

#[derive(Debug)]
struct Folder {
    path: PathBuf,
    limit: Option<u64>,
    room: parking_lot::Mutex<Room>,
}

/// The description of one cached file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheEntry {
    /// Where the file comes from, without secrets such as passwords.
    pub name: String,
    /// The state of the origin to which the entry belongs.
    pub fingerprint: Fingerprint,
    /// How many bytes are held.
    pub held: u64,
    /// In how many pieces they are held.
    pub pieces: usize,
    /// How many bytes of disk the entry occupies.
    pub disk: u64,
    /// When the entry was last used.
    pub used: Option<SystemTime>,
}

impl Cache {
    /// Opens the cache in the folder at `path`, and creates the folder if needed. The cache occupies at most
    /// `limit` bytes of disk.
    ///
    /// # Errors
    /// If the folder cannot be created.
    pub fn new(path: impl Into<PathBuf>, limit: Option<u64>) -> io::Result<Self> {
        let path = path.into();
        create_private(&path)?;
        Ok(Self(Arc::new(Folder { path, limit, room: parking_lot::Mutex::default() })))
    }

    /// Returns the folder.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Returns the entry of the file with the key `key` in the state `fingerprint`. An entry of another state
    /// is discarded. `name` is shown to people. If anything fails, nothing is cached: see
    /// [`CachedFile::cache_error`].
    pub fn open(&self, key: &str, name: &str, fingerprint: &Fingerprint) -> CachedFile {
        let places = EntryPaths::new(&self.0.path, &format!("{:032x}", xxh3_128(key.as_bytes())));
        CachedFile::open(self.clone(), places, name, fingerprint)
    }

    /// Returns all entries, the most recently used first.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn entries(&self) -> io::Result<Vec<CacheEntry>> {
        let mut entries = Vec::new();
        for places in disk::all(&self.0.path)? {
            // An entry that disappears meanwhile is skipped.
            let Ok(Some((header, notes))) = journal::load(&places) else { continue };
            entries.push(CacheEntry {
                name: header.name,
                fingerprint: header.fingerprint,
                held: notes.iter().map(|note| u64::from(note.length)).sum(),
                pieces: notes.len(),
                disk: places.disk(),
                used: places.used(),
            });
        }
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.used));
        Ok(entries)
    }
}
