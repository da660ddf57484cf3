//! Counters of the operations on a file.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::SystemTime;

/// The operations on a file since it was created or cleared. Only successful operations are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Reads of at least one byte.
    pub reads: u64,
    /// Writes of at least one byte.
    pub writes: u64,
    /// Bytes that were read.
    pub bytes_read: u64,
    /// Bytes that were passed to writes, including those that were held already.
    pub bytes_written: u64,
    /// The time of the last read, as exact as [`Clock`](crate::Clock).
    pub last_read: Option<SystemTime>,
    /// The time of the last write.
    pub last_write: Option<SystemTime>,
    /// Blocks that were erased, evicted ones included. A block that was erased in part counts.
    pub blocks_erased: u64,
    /// Bytes that were erased, evicted ones included.
    pub bytes_erased: u64,
    /// Blocks that were evicted to stay within a limit. A pool evicts one range at a time.
    pub blocks_evicted: u64,
    /// Bytes that were evicted to stay within a limit.
    pub bytes_evicted: u64,
}

const COUNT: u64 = 1 << 40;
const BYTES: u64 = COUNT - 1;
/// A longer read, in bytes, is counted in the wide counters instead of the word.
const LONG: u64 = 1 << 32;
/// The upper bit of each half: once set, the word must be emptied, long before the half overflows.
const FULL: u64 = 1 << 63 | 1 << 39;

/// Reads and their bytes, counted by one thread only, and therefore without atomic additions.
#[derive(Debug, Default)]
pub(crate) struct OwnReads {
    count: AtomicU64,
    bytes: AtomicU64,
    near: AtomicUsize,
}

impl OwnReads {
    #[inline]
    pub fn add(&self, bytes: u64) {
        let more = |counter: &AtomicU64, by: u64| {
            counter.store(counter.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
        };
        more(&self.count, 1);
        more(&self.bytes, bytes);
    }

    /// Returns where in its chunk the thread's last search ended.
    pub fn near(&self) -> &AtomicUsize {
        &self.near
    }

    /// Returns how many reads there were, and their bytes.
    pub fn totals(&self) -> (u64, u64) {
        (self.count.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }

    /// Resets the counters. Must not run while the thread counts.
    pub fn reset(&self) {
        self.count.store(0, Ordering::Relaxed);
        self.bytes.store(0, Ordering::Relaxed);
    }
}

/// Reads and their bytes, counted by any number of threads.
///
/// Both are in one word, because an atomic addition costs as much as looking up a chunk. When one half fills
/// up, the word is emptied into wider counters.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    word: AtomicU64,
    count: AtomicU64,
    bytes: AtomicU64,
}

impl Reads {
    #[inline]
    pub fn add(&self, bytes: u64) {
        if bytes > LONG {
            self.count.fetch_add(1, Ordering::Relaxed);
            self.bytes.fetch_add(bytes, Ordering::Relaxed);
        } else if self.word.fetch_add(COUNT | bytes, Ordering::Relaxed) & FULL != 0 {
            self.empty();
        }
    }

    /// Adds what was counted elsewhere.
    pub fn add_totals(&self, count: u64, bytes: u64) {
        self.count.fetch_add(count, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    #[cold]
    fn empty(&self) {
        let word = self.word.swap(0, Ordering::Relaxed);
        self.count.fetch_add(word >> 40, Ordering::Relaxed);
        self.bytes.fetch_add(word & BYTES, Ordering::Relaxed);
    }

    /// Returns how many reads there were, and their bytes.
    pub fn totals(&self) -> (u64, u64) {
        self.empty();
        (self.count.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }

    pub fn reset(&self) {
        self.word.store(0, Ordering::Relaxed);
        self.count.store(0, Ordering::Relaxed);
        self.bytes.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_go_on_beyond_what_the_word_holds() {
        let reads = Reads::default();
        let long = LONG - 1;
        for _ in 0..3000 {
            reads.add(long);
        }
        reads.add(LONG * 7);
        assert_eq!(reads.totals(), (3001, 3000 * long + LONG * 7));
        for _ in 0..(1 << 24) + 5 {
            reads.add(1);
        }
        assert_eq!(reads.totals(), (3001 + (1 << 24) + 5, 3000 * long + LONG * 7 + (1 << 24) + 5));
    }
}
