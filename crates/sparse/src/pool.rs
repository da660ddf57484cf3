//! A limit in bytes on the memory of many files: ranges that were not used for long make way for new ones.
//!
//! A write frees memory before it takes more, instead of exceeding the limit first. The limit applies to
//! memory with all overhead, not only to the bytes of the files.
//!
//! The unit of eviction is a chunk of 64 KiB of a file. All chunks of all files are in one list, ordered by
//! the pool's tick of their last known use. A use only stores the current tick in the chunk. The list learns
//! of it when the chunk would be evicted next, and moves the chunk back. A use therefore costs no lock, the
//! next victim is found in logarithmic time, and the order is that of true use. Moving a chunk to the front
//! of a linked list at each use was rejected: all readers of all files would wait for one lock.
//!
//! See docs/decisions/040-sparse-files-are-chunks.md.

use crate::directory::Directory;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// Counts the memory of a [`Pool`] a second time, for instance on the memory budget of the process.
pub trait Account: Send + Sync {
    /// The pool has taken `bytes` more bytes.
    fn take(&self, bytes: usize);
    /// The pool has returned `bytes` bytes.
    fn give_back(&self, bytes: usize);
}

/// A limit in bytes that files share. Cloning returns another handle to the same pool.
///
/// ```
/// use thalweg_sparse::{Options, Pool, SparseFile};
///
/// let pool = Pool::new(2 << 20);
/// let file = SparseFile::with_options("file", 0.0, Options { pool: Some(pool.clone()), ..Options::default() });
/// for mebibyte in 0..16u64 {
///     file.write(mebibyte << 20, &vec![1; 1 << 20])?;
///     assert!(pool.statistics().used <= 2 << 20);
/// }
/// assert!(!file.has(0, 1) && file.has((16 << 20) - 1, 1));
/// # Ok::<(), thalweg_sparse::Error>(())
/// ```
#[derive(Clone)]
pub struct Pool(Arc<Shared>);

struct Shared {
    limit: AtomicUsize,
    used: AtomicUsize,
    peak: AtomicUsize,
    account: Option<Box<dyn Account>>,
    /// Incremented at each use that counts as a new one.
    ticks: AtomicU64,
    /// A chunk that was used at most this many ticks ago keeps its tick when it is used again.
    grace: AtomicU64,
    list: Mutex<List>,
    next_file: AtomicU64,
    evicted_ranges: AtomicU64,
    evicted_bytes: AtomicU64,
    exceeded: AtomicU64,
}

#[derive(Default)]
struct List {
    chunks: BTreeMap<u64, (u64, u64)>,
    files: HashMap<u64, Weak<Directory>>,
}

/// The state of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolStatistics {
    /// The limit, in bytes.
    pub limit: usize,
    /// The bytes of memory that its files take.
    pub used: usize,
    /// The maximum of `used` so far.
    pub peak: usize,
    /// How many ranges (of at most 64 KiB) are held.
    pub ranges: usize,
    /// How many ranges were evicted.
    pub evicted_ranges: u64,
    /// How many bytes of files the evicted ranges contained.
    pub evicted_bytes: u64,
    /// How often memory was taken beyond the limit, because everything held was pinned or just being written.
    pub exceeded: u64,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.statistics().fmt(f)
    }
}

impl Pool {
    /// Creates a pool of `limit` bytes. A write needs some memory to work in: with much less than 256 KiB the
    /// limit is exceeded at times, and `exceeded` counts that. The same happens for a single write that is
    /// larger than the limit.
    pub fn new(limit: usize) -> Self {
        Self::make(limit, None)
    }

    /// Creates a pool of `limit` bytes whose memory `account` counts as well.
    pub fn with_account(limit: usize, account: impl Account + 'static) -> Self {
        Self::make(limit, Some(Box::new(account)))
    }

    fn make(limit: usize, account: Option<Box<dyn Account>>) -> Self {
        Self(Arc::new(Shared {
            limit: AtomicUsize::new(limit),
            used: AtomicUsize::new(0),
            peak: AtomicUsize::new(0),
            account,
            ticks: AtomicU64::new(1),
            grace: AtomicU64::new(0),
            list: Mutex::default(),
            next_file: AtomicU64::new(0),
            evicted_ranges: AtomicU64::new(0),
            evicted_bytes: AtomicU64::new(0),
            exceeded: AtomicU64::new(0),
        }))
    }

    /// Returns what the pool holds and what it has evicted.
    pub fn statistics(&self) -> PoolStatistics {
        let shared = &*self.0;
        PoolStatistics {
            limit: shared.limit.load(Ordering::Relaxed),
            used: shared.used.load(Ordering::Relaxed),
            peak: shared.peak.load(Ordering::Relaxed),
            ranges: shared.list.lock().chunks.len(),
            evicted_ranges: shared.evicted_ranges.load(Ordering::Relaxed),
            evicted_bytes: shared.evicted_bytes.load(Ordering::Relaxed),
            exceeded: shared.exceeded.load(Ordering::Relaxed),
        }
    }

    /// Sets another limit, and evicts what exceeds it.
    pub fn set_limit(&self, limit: usize) {
        self.0.limit.store(limit, Ordering::Relaxed);
        self.shrink_to(limit);
    }

    /// Evicts the least recently used ranges until at most `bytes` bytes are taken, or everything left is
    /// pinned. Returns how many bytes of memory that freed. The limit stays.
    pub fn shrink_to(&self, bytes: usize) -> usize {
        let before = self.0.used.load(Ordering::Relaxed);
        while self.0.used.load(Ordering::Relaxed) > bytes && self.evict_one() {}
        before.saturating_sub(self.0.used.load(Ordering::Relaxed))
    }

    fn try_take(&self, bytes: usize) -> bool {
        let limit = self.0.limit.load(Ordering::Relaxed);
        let fits = |used: usize| used.checked_add(bytes).filter(|used| *used <= limit);
        let taken = self.0.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok();
        if taken {
            self.taken(bytes);
        }
        taken
    }

    fn taken(&self, bytes: usize) {
        self.0.peak.fetch_max(self.0.used.load(Ordering::Relaxed), Ordering::Relaxed);
        if let Some(account) = &self.0.account {
            account.take(bytes);
        }
    }

    /// Evicts the least recently used range. Returns false if no range may be evicted.
    fn evict_one(&self) -> bool {
        let mut from = 0;
        loop {
            let (tick, key, directory) = {
                let list = self.0.list.lock();
                let Some((tick, (file, key))) = list.chunks.range(from..).next() else { return false };
                (*tick, *key, list.files.get(file).and_then(Weak::upgrade))
            };
            // Outside the lock of the list: where both are held, the lock of the shard comes first.
            if let Some(bytes) = directory.and_then(|directory| directory.evict(key, tick)) {
                self.0.evicted_ranges.fetch_add(1, Ordering::Relaxed);
                self.0.evicted_bytes.fetch_add(bytes, Ordering::Relaxed);
                return true;
            }
            from = tick + 1;
        }
    }
}

/// The membership of a file in a pool.
pub(crate) struct Member {
    pool: Pool,
    file: u64,
}

impl Member {
    pub fn new(pool: &Pool) -> Self {
        Self { pool: pool.clone(), file: pool.0.next_file.fetch_add(1, Ordering::Relaxed) }
    }

    pub fn join(&self, directory: Weak<Directory>) {
        self.pool.0.list.lock().files.insert(self.file, directory);
    }

    pub fn leave(&self) {
        self.pool.0.list.lock().files.remove(&self.file);
    }

    /// Takes `bytes` bytes if they fit under the limit. Returns true if it did.
    pub fn try_take(&self, bytes: usize) -> bool {
        self.pool.try_take(bytes)
    }

    /// Takes `bytes` bytes, and evicts until they fit. The caller must hold no lock of a file.
    pub fn take(&self, bytes: usize) {
        while !self.pool.try_take(bytes) {
            if !self.pool.evict_one() {
                self.pool.0.exceeded.fetch_add(1, Ordering::Relaxed);
                self.pool.0.used.fetch_add(bytes, Ordering::Relaxed);
                self.pool.taken(bytes);
                return;
            }
        }
    }

    /// Corrects the account after `granted` bytes were taken and the memory has changed by `change` bytes.
    pub fn settle(&self, granted: usize, change: isize) {
        let more = change - granted as isize;
        let shared = &*self.pool.0;
        if more > 0 {
            shared.used.fetch_add(more as usize, Ordering::Relaxed);
            self.pool.taken(more as usize);
        } else if more < 0 {
            shared.used.fetch_sub(more.unsigned_abs(), Ordering::Relaxed);
            if let Some(account) = &shared.account {
                account.give_back(more.unsigned_abs());
            }
        }
    }

    fn tick(&self) -> u64 {
        self.pool.0.ticks.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Records a use of a chunk. A chunk that was used recently keeps its tick, because writing a contended
    /// word is not worth it. The grace is a sixteenth of the number of chunks, and zero while there are few.
    #[inline]
    pub fn used(&self, used: &AtomicU64) {
        let shared = &*self.pool.0;
        let ago = shared.ticks.load(Ordering::Relaxed).saturating_sub(used.load(Ordering::Relaxed));
        if ago > shared.grace.load(Ordering::Relaxed) {
            used.store(self.tick(), Ordering::Relaxed);
        }
    }

    /// Puts a chunk in the list under a new tick, and returns that tick.
    pub fn list(&self, key: u64) -> u64 {
        let tick = self.tick();
        self.list_at(tick, key);
        tick
    }

    /// Puts a chunk in the list under the tick of its last use.
    pub fn list_at(&self, tick: u64, key: u64) {
        let mut list = self.pool.0.list.lock();
        list.chunks.insert(tick, (self.file, key));
        self.pool.0.grace.store(list.chunks.len() as u64 / 16, Ordering::Relaxed);
    }

    /// Removes a chunk from the list.
    pub fn unlist(&self, tick: u64) {
        let mut list = self.pool.0.list.lock();
        list.chunks.remove(&tick);
        self.pool.0.grace.store(list.chunks.len() as u64 / 16, Ordering::Relaxed);
    }
}
