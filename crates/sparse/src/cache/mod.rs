//! A cache on disk, which processes share.
//!
//! Each file has an *entry*: three files in the folder of the cache, named after a hash of where it comes from.
//!
//! - `….data` has the bytes, each where it is in the origin, with holes where nothing was fetched: it takes as much of the disk
//!   as is held.
//! - `….ranges` is the [journal](journal): which state of the origin it is of, then a *note* for each piece of at most 64 KiB
//!   that is held: where, how long, and a checksum of its bytes.
//! - `….lock` is locked by whoever writes to the entry, and its time is that of the last use.
//!
//! # Why a crash does no harm
//!
//! Bytes are written before the note about them, and what is not noted is not believed: a process that is killed at any
//! moment leaves at worst bytes without a note, or half a note at the end, which does not match its own checksum, and which the next
//! writer cuts off. Its locks go with it. When the machine crashes, the system may have kept the note and lost the bytes. So
//! the checksum of a piece is compared each time that it is read; no call waits for the disk. What does not match is as
//! good as not there.
//!
//! The checksum is also why readers take no lock: whatever a writer does to the entry in the meantime, a piece that was read is right,
//! or is not used.
//!
//! Notes are valid for one journal only (its number goes into their checksums), so none survives that the file was begun anew.
//!
//! # The limit
//!
//! It is on what the cache takes of the disk. Who writes makes room before: the entries that were not used for longest go as a
//! whole; if the file that is written is alone too large, its own pieces go, those first that this process did not use, in the order in
//! which they came, then those that it used, the least recent first. What lies around between the pieces that stay is
//! given back to the disk as holes. With many processes writing at once the limit may be exceeded for a moment, since how much there is in
//! all is counted now and then only: before a quarter of what was free is written.

mod disk;
mod entry;
mod journal;
mod room;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;
use thalweg_store::Fingerprint;
use xxhash_rust::xxh3::xxh3_128;

pub use entry::CachedFile;

use disk::EntryPaths;
use room::Room;

/// A folder in which ranges of remote files are kept. Cloning gives another handle on the same cache; any number of
/// processes may use the folder at once.
#[derive(Debug, Clone)]
pub struct Cache(Arc<Folder>);

#[derive(Debug)]
struct Folder {
    path: PathBuf,
    limit: Option<u64>,
    room: parking_lot::Mutex<Room>,
}

/// What a cache has of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheEntry {
    /// Where it comes from, without what may be secret in it.
    pub name: String,
    /// Which state of the origin it is.
    pub fingerprint: Fingerprint,
    /// How many bytes are held.
    pub held: u64,
    /// In how many pieces.
    pub pieces: usize,
    /// How many bytes of the disk it takes.
    pub disk: u64,
    /// When it was last used.
    pub used: Option<SystemTime>,
}

impl Cache {
    /// The cache in the folder at `path`, which is made if it is not there, and at most `limit` bytes of the disk.
    ///
    /// # Errors
    /// If the folder cannot be made.
    pub fn new(path: impl Into<PathBuf>, limit: Option<u64>) -> io::Result<Self> {
        let path = path.into();
        std::fs::create_dir_all(&path)?;
        Ok(Self(Arc::new(Folder { path, limit, room: parking_lot::Mutex::default() })))
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// The entry for the file that is known as `key` and in the state that `fingerprint` says. What there is of another state is let go.
    /// `name` is shown to people. Whatever goes wrong only means that nothing is cached: see [`CachedFile::trouble`].
    pub fn open(&self, key: &str, name: &str, fingerprint: &Fingerprint) -> CachedFile {
        let places = EntryPaths::new(&self.0.path, &format!("{:032x}", xxh3_128(key.as_bytes())));
        CachedFile::open(self.clone(), places, name, fingerprint)
    }

    /// All that it has, the most recently used first.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn entries(&self) -> io::Result<Vec<CacheEntry>> {
        let mut entries = Vec::new();
        for places in disk::all(&self.0.path)? {
            // One that goes away while we look is not there.
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
