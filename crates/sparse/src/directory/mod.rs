//! The chunks of a file, and who may use them at the same time.
//!
//! Chunks are found by their number in hash tables: one table while there is one chunk, then thirty-two, each
//! behind a lock that readers share. Nearly all operations touch one chunk and take one lock. An operation on
//! several chunks takes all their locks in a fixed order. A write is therefore visible as a whole or not at
//! all, and a failed write changes nothing. The sorted numbers of the chunks are stored separately, for
//! questions about long ranges. They change only when a chunk is added or removed.
//!
//! The order of locks: the shards, in their order; then one of the leaves (numbers, pins, the list of the
//! pool), never two of them.

use crate::Span;
use crate::chunk::CHUNK;
use crate::clock::Clock;
use crate::pool::Member;
use crate::shard::{Guards, SHARDS, Shard, State, place};
use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// The approximate cost of a chunk in the tables, in bytes.
const ENTRY: usize = 48;

mod read;
mod release;
mod write;

pub(crate) struct Directory {
    one: Shard,
    many: OnceLock<Box<[Shard]>>,
    /// Which chunks exist: 64 of them per word, under the number of the first divided by 64.
    numbers: RwLock<BTreeMap<u64, u64>>,
    wipe: bool,
    clock: Clock,
    member: Option<Member>,
    pins: Mutex<Pins>,
    blocks_erased: AtomicU64,
    bytes_erased: AtomicU64,
    blocks_evicted: AtomicU64,
    bytes_evicted: AtomicU64,
}

#[derive(Default)]
struct Pins {
    next: u64,
    spans: BTreeMap<u64, Span>,
}

pub(crate) const fn split(position: u64) -> (u64, u32) {
    (position / CHUNK as u64, (position % CHUNK as u64) as u32)
}

const fn join(key: u64, at: u32) -> u64 {
    // The end of the last chunk is 2^64, which does not fit. No byte is held at 2^64 - 1, so no run ends
    // there.
    key.saturating_mul(CHUNK as u64).saturating_add(at as u64)
}

/// Returns the pieces of a range, chunk by chunk: the chunk, the offset in it, and the part of the bytes.
fn pieces(position: u64, length: usize) -> impl Iterator<Item = (u64, u32, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == length {
            return None;
        }
        let (key, from) = split(position + done as u64);
        let part = done..length.min(done + (CHUNK - from) as usize);
        done = part.end;
        Some((key, from, part))
    })
}

impl Directory {
    pub fn new(wipe: bool, clock: Clock, member: Option<Member>) -> Self {
        Self {
            one: Shard::default(),
            many: OnceLock::new(),
            numbers: RwLock::default(),
            wipe,
            clock,
            member,
            pins: Mutex::default(),
            blocks_erased: AtomicU64::new(0),
            bytes_erased: AtomicU64::new(0),
            blocks_evicted: AtomicU64::new(0),
            bytes_evicted: AtomicU64::new(0),
        }
    }

    pub fn member(&self) -> Option<&Member> {
        self.member.as_ref()
    }

    #[inline]
    fn shards(&self) -> &[Shard] {
        match self.many.get() {
            Some(many) => many,
            None => std::slice::from_ref(&self.one),
        }
    }

    /// True if `shards`, of which a lock was taken, are still in use: the first shard may have been replaced
    /// meanwhile.
    #[inline]
    fn is_current(&self, shards: &[Shard]) -> bool {
        shards.len() > 1 || self.many.get().is_none()
    }

    #[inline]
    fn read_one(&self, key: u64) -> (&[Shard], &Shard, RwLockReadGuard<'_, State>) {
        loop {
            let shards = self.shards();
            let shard = &shards[place(key, shards.len())];
            let state = shard.read();
            if self.is_current(shards) {
                return (shards, shard, state);
            }
        }
    }

    #[inline]
    fn write_one(&self, key: u64) -> RwLockWriteGuard<'_, State> {
        loop {
            let shards = self.shards();
            let state = shards[place(key, shards.len())].write();
            if self.is_current(shards) {
                return state;
            }
        }
    }

    fn read_several(&self, first: u64, last: u64) -> (&[Shard], Guards<RwLockReadGuard<'_, State>>) {
        loop {
            let shards = self.shards();
            let guards = Guards::lock(shards, first, last, Shard::read);
            if self.is_current(shards) {
                return (shards, guards);
            }
        }
    }

    fn write_several(&self, first: u64, last: u64) -> Guards<RwLockWriteGuard<'_, State>> {
        loop {
            let shards = self.shards();
            let guards = Guards::lock(shards, first, last, Shard::write);
            if self.is_current(shards) {
                return guards;
            }
        }
    }

    /// Divides the chunks of the file among many shards, if they are not divided yet.
    #[cold]
    fn divide(&self) {
        let mut state = self.one.write();
        if self.many.get().is_some() {
            return;
        }
        let mut many: Box<[Shard]> = (0..SHARDS).map(|_| Shard::default()).collect();
        for (key, chunk) in std::mem::take(&mut state.chunks) {
            let new = many[place(key, SHARDS)].state_mut();
            new.held += u64::from(chunk.held());
            new.chunks.insert(key, chunk);
        }
        state.held = 0;
        // Cannot fail: it is set only under the lock of `one`.
        let _ = self.many.set(many);
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if self.wipe || self.member.is_some() {
            self.clear();
        }
        if let Some(member) = &self.member {
            member.leave();
        }
    }
}
