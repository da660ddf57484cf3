//! What was done to a file, counted.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

/// What was done to a file since it was made or cleared. Only what succeeded is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Reads of at least one byte.
    pub reads: u64,
    /// Writes of at least one byte.
    pub writes: u64,
    /// Bytes that were read.
    pub bytes_read: u64,
    /// Bytes that were given to writes, those included that were held already.
    pub bytes_written: u64,
    /// When it was last read, as exactly as its clock is.
    pub last_read: Option<SystemTime>,
    /// When it was last written.
    pub last_write: Option<SystemTime>,
    /// Blocks of which something was let go, by whatever way.
    pub blocks_erased: u64,
    /// Bytes that were let go, by whatever way.
    pub bytes_erased: u64,
    /// Those of the blocks that were evicted, to stay within a limit. A pool evicts a range at a time.
    pub blocks_evicted: u64,
    /// Those of the bytes that were evicted.
    pub bytes_evicted: u64,
}

const COUNT: u64 = 1 << 40;
const BYTES: u64 = COUNT - 1;
/// A read of more than this does not go through the word.
const LONG: u64 = 1 << 32;
/// The upper bit of either half: time to empty the word, long before the half overflows.
const FULL: u64 = 1 << 63 | 1 << 39;

/// Reads and their bytes, counted by one thread only, so without an atomic addition.
#[derive(Debug, Default)]
pub(crate) struct OwnReads {
    count: AtomicU64,
    bytes: AtomicU64,
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

    /// How many, and how many bytes.
    pub fn totals(&self) -> (u64, u64) {
        (self.count.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }

    /// Not while the thread counts.
    pub fn reset(&self) {
        self.count.store(0, Ordering::Relaxed);
        self.bytes.store(0, Ordering::Relaxed);
    }
}

/// Reads and their bytes, counted by any number of threads.
///
/// Both are in one word, since an atomic addition costs as much as looking up a chunk. When a half of it fills,
/// the word is emptied into wider counters.
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

    #[cold]
    fn empty(&self) {
        let word = self.word.swap(0, Ordering::Relaxed);
        self.count.fetch_add(word >> 40, Ordering::Relaxed);
        self.bytes.fetch_add(word & BYTES, Ordering::Relaxed);
    }

    /// How many, and how many bytes.
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
