//! A part of a file's chunks behind one lock, and the locking of several parts at once.

use crate::chunk::Chunk;
use crate::clock::{Clock, Latest};
use crate::counters::{OwnReads, Reads};
use crate::readers;
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Into how many parts the chunks of a file are divided once it has more than one.
pub(crate) const SHARDS: usize = 32;

/// Aligned to two lines of the cache, since processors fetch them in pairs: a neighbour's lock is not to be fetched. The
/// first line is the lock and what is behind it. On the second, besides what it counts itself, is what the one thread
/// of its number reads of the whole file: there is room for it, and nobody else writes there often.
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

/// The numbers of chunks follow one another; multiplication spreads them, and the upper half of the product is best.
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

/// Multiplied by 2^64 over the golden ratio: neighbours go far apart, and so do multiples of powers of two.
#[inline]
fn spread(key: u64) -> u64 {
    key.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// Which of `shards` shards a chunk belongs to.
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

    /// How many reads there were, of how many bytes, and when the last.
    pub fn reads(&self) -> (u64, u64, u64) {
        let ((own, own_bytes), (count, bytes)) = (self.own.totals(), self.reads.totals());
        (own + count, own_bytes + bytes, self.read_at.micros())
    }

    /// While nobody reads.
    pub fn reset_reads(&self) {
        self.own.reset();
        self.reads.reset();
        self.read_at.reset();
    }
}

/// Counts a read from a shard, which is locked for it, so that nobody sets the counters back meanwhile.
#[inline]
pub(crate) fn note_read(shards: &[Shard], from: &Shard, bytes: usize, clock: Clock) {
    let at = match readers::number().and_then(|number| shards.get(number)) {
        Some(shard) => {
            shard.own.add(bytes as u64);
            &shard.read_at
        }
        None => {
            from.reads.add(bytes as u64);
            &from.read_at
        }
    };
    at.note(clock);
}

impl State {
    /// Counts a write.
    #[inline]
    pub fn note_write(&mut self, bytes: usize, clock: Clock) {
        self.writes += 1;
        self.bytes_written += bytes as u64;
        self.written_at.note(clock);
    }

    /// The run that the byte `at` of a chunk is in.
    pub fn run_at(&self, key: u64, at: u32) -> Option<(u32, u32)> {
        self.chunks.get(&key)?.run_at(at)
    }
}

/// The locks of all shards that a range of chunks is in. They are taken in the order of the shards by everyone,
/// so that no two wait for each other.
pub(crate) struct Guards<G> {
    guards: [Option<G>; SHARDS],
    shards: usize,
}

impl<G> Guards<G> {
    /// Takes, with `lock`, the locks for the chunks from `first` to `last`.
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

    /// The state of the shard that a chunk belongs to, if its lock was taken.
    #[inline]
    pub fn get(&self, key: u64) -> Option<&G> {
        self.guards[place(key, self.shards)].as_ref()
    }

    /// The same, to change.
    #[inline]
    pub fn get_mut(&mut self, key: u64) -> Option<&mut G> {
        self.guards[place(key, self.shards)].as_mut()
    }

    /// All that were taken.
    pub fn all(&mut self) -> impl Iterator<Item = &mut G> {
        self.guards.iter_mut().flatten()
    }
}
