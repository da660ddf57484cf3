//! A shard: a part of a file's chunks behind one lock. Also locks several shards at once.

use crate::chunk::Chunk;
use crate::clock::{Clock, Latest};
use crate::counters::{OwnReads, Reads};
use crate::packed::Near;
use crate::readers;
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// The number of shards of a file that has more than one chunk.
pub(crate) const SHARDS: usize = 32;

/// Aligned to two cache lines, because processors fetch them in pairs and should not fetch a neighbour's
/// lock. The first line is the lock and the state behind it. The second line holds the shard's own read
/// counters. It also holds the counters of the reading thread with the shard's number, for the whole file:
/// there is space left, and no other thread writes there often.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub(crate) struct Shard {
    state: RwLock<State>,
    own: OwnReads,
    reads: Reads,
    read_at: Latest,
}

const _: () = assert!(size_of::<Shard>() == 128);

#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct State {
    pub chunks: HashMap<u64, Box<Chunk>, BuildHasherDefault<KeyHasher>>,
    pub held: u64,
    pub writes: u64,
    pub bytes_written: u64,
    pub written_at: Latest,
}

/// The numbers of chunks are consecutive. Multiplication spreads them, and the upper half of the product is
/// the best spread.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(self.0 ^ u64::from(*byte)));
    }

    #[inline]
    fn write_u64(&mut self, key: u64) {
        self.0 = spread(key).rotate_left(24);
    }
}

/// Multiplies by 2^64 over the golden ratio: neighbours move far apart, and so do multiples of powers of two.
#[inline]
fn spread(key: u64) -> u64 {
    key.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// Returns which of `shards` shards a chunk belongs to.
#[inline]
pub(crate) fn place(key: u64, shards: usize) -> usize {
    if shards == 1 { 0 } else { (spread(key) >> 59) as usize }
}

const _: () = assert!(SHARDS == 1 << (64 - 59));

impl Shard {
    #[inline]
    pub fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read()
    }

    #[inline]
    pub fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write()
    }

    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, State>> {
        self.state.try_write()
    }

    pub fn state_mut(&mut self) -> &mut State {
        self.state.get_mut()
    }

    /// Returns how many reads there were, of how many bytes, and the time of the last one in microseconds
    /// since 1970.
    pub fn reads(&self) -> (u64, u64, u64) {
        let ((own, own_bytes), (count, bytes)) = (self.own.totals(), self.reads.totals());
        (own + count, own_bytes + bytes, self.read_at.micros())
    }

    /// Adds the counts of an empty shard to this one's.
    pub fn absorb(&mut self, other: Self) {
        let (count, bytes, read_at) = other.reads();
        self.reads.add_totals(count, bytes);
        self.read_at.raise(read_at);
        let (state, other) = (self.state.get_mut(), other.state.into_inner());
        state.writes += other.writes;
        state.bytes_written += other.bytes_written;
        state.written_at.raise(other.written_at.micros());
    }

    /// Must not run while a thread reads.
    pub fn reset_reads(&self) {
        self.own.reset();
        self.reads.reset();
        self.read_at.reset();
    }
}

/// A search of a thread in a shard, perhaps for a read. The shard is locked meanwhile, so that no thread
/// resets the counters.
pub(crate) struct Reader<'a> {
    /// The shard with the counters of this thread, if there is one.
    own: Option<&'a Shard>,
    from: &'a Shard,
}

impl<'a> Reader<'a> {
    #[inline]
    pub fn new(shards: &'a [Shard], from: &'a Shard) -> Self {
        Self { own: shards.get(readers::number()), from }
    }

    /// Returns where this thread's previous search in the file ended.
    #[inline]
    pub fn near(&self) -> Near<'a> {
        self.own.map(|shard| shard.own.near())
    }

    /// Counts the read.
    #[inline]
    pub fn note(self, bytes: usize, clock: Clock) {
        let at = match self.own {
            Some(shard) => {
                shard.own.add(bytes as u64);
                &shard.read_at
            }
            None => {
                self.from.reads.add(bytes as u64);
                &self.from.read_at
            }
        };
        at.note(clock);
    }
}

impl State {
    #[inline]
    pub fn note_write(&mut self, bytes: usize, clock: Clock) {
        self.writes += 1;
        self.bytes_written += bytes as u64;
        self.written_at.note(clock);
    }

    /// Returns the run that contains the byte `at` of a chunk.
    pub fn run_at(&self, key: u64, at: u32) -> Option<(u32, u32)> {
        self.chunks.get(&key)?.run_at(at)
    }
}

/// The locks of all shards that contain a range of chunks. Every thread takes them in the order of the
/// shards, so that no two threads wait for each other.
pub(crate) struct Guards<G> {
    guards: [Option<G>; SHARDS],
    shards: usize,
}

impl<G> Guards<G> {
    /// Takes the locks for the chunks from `first` to `last`, with `lock`.
    pub fn lock<'a>(shards: &'a [Shard], first: u64, last: u64, lock: impl Fn(&'a Shard) -> G) -> Self {
        let mut wanted = [false; SHARDS];
        if last - first >= SHARDS as u64 {
            wanted = [true; SHARDS];
        } else {
            (first..=last).for_each(|key| wanted[place(key, shards.len())] = true);
        }
        let mut guards = [const { None }; SHARDS];
        for (at, shard) in shards.iter().enumerate() {
            if wanted[at] {
                guards[at] = Some(lock(shard));
            }
        }
        Self { guards, shards: shards.len() }
    }

    /// Returns the state of the shard that a chunk belongs to, if its lock was taken.
    #[inline]
    pub fn get(&self, key: u64) -> Option<&G> {
        self.guards[place(key, self.shards)].as_ref()
    }

    /// As [`get`](Self::get), but mutable.
    #[inline]
    pub fn get_mut(&mut self, key: u64) -> Option<&mut G> {
        self.guards[place(key, self.shards)].as_mut()
    }

    /// Returns all locks that were taken.
    pub fn all(&mut self) -> impl Iterator<Item = &mut G> {
        self.guards.iter_mut().flatten()
    }
}
