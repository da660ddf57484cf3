//! A bound for the memtables of a keyspace.
//!
//! The database asks its worker to begin a new memtable when the present one is full. The worker does so only
//! between two flushes. If entries come faster than it flushes, the memtable grows without a bound. So a new
//! memtable is begun here, and the next entries wait for the flush.
//!
//! The own limit of a keyspace of notes is never reached. Above it, each write sends the worker a message, of
//! which 1000 may wait. The worker answers one of them with a message to itself, and waits for ever if 1000
//! others are there, which only it takes. Thousands of notes during one of its merges are enough.
//!
//! (Rejected: the database's own bound for all memtables. It never counts those of deleted keyspaces as gone,
//! so every write would wait after enough of them.)

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fjall::Keyspace;

/// The size of the entries in a memtable, in bytes.
const MOST: u64 = 2 << 20;
/// The own limit of a keyspace of notes, in bytes.
pub(super) const KEYSPACE_LIMIT: u64 = 4 * MOST;
/// The bytes that a memtable counts for an entry beside its key and its value.
const ENTRY: u64 = 64;
/// The maximum wait for a flush. The database has a bound of four memtables that wait for theirs.
const TIMEOUT: Duration = Duration::from_secs(1);

/// The size of the entries that were added since the last flush.
#[derive(Default)]
pub(super) struct Unflushed(AtomicU64);

impl Unflushed {
    /// Counts entries that were written to a keyspace, and whose keys and values have this many bytes.
    /// Flushes them if there are many.
    ///
    /// # Errors
    /// If the database fails.
    pub(super) fn add(&self, keyspace: &Keyspace, entries: usize, bytes: u64) -> Result<(), fjall::Error> {
        let bytes = bytes + entries as u64 * ENTRY;
        if self.0.fetch_add(bytes, Ordering::Relaxed) + bytes < MOST {
            return Ok(());
        }
        self.0.store(0, Ordering::Relaxed);
        keyspace.rotate_memtable()?;
        let start = Instant::now();
        while keyspace.sealed_memtable_count() > 0 && start.elapsed() < TIMEOUT {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}
