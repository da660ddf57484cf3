//! Where the chunks of a file are, and who may use them at the same time.
//!
//! Chunks are found by their number in hash tables: one while there is one chunk, then thirty-two, each behind a
//! lock that readers share. What is in one chunk, which is nearly all that happens, takes one lock; what is in several
//! takes the locks of all of them in a fixed order, so that a write is seen whole or not at all, and one that fails has
//! changed nothing. The numbers in order are kept beside, for what asks about long ranges; that is touched only
//! when a chunk comes or goes.
//!
//! The order in which locks are taken: shards, in their order; then one of the leaves (numbers, pins, the pool's
//! list), never two of them.

use crate::Span;
use crate::chunk::CHUNK;
use crate::clock::Clock;
use crate::pool::Member;
use crate::shard::{Guards, SHARDS, Shard, State, place};
use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a chunk costs in the tables, about.
const ENTRY: usize = 48;

mod read;
mod release;
mod write;

pub(crate) struct Directory {
    one: Shard,
    many: OnceLock<Box<[Shard]>>,
    /// Which chunks there are: 64 of them a word, under the number of the first divided by 64.
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
    spans: Vec<(u64, Span)>,
}

pub(crate) const fn split(position: u64) -> (u64, u32) {
    (position / CHUNK as u64, (position % CHUNK as u64) as u32)
}

const fn join(key: u64, at: u32) -> u64 {
    // The end of the last chunk is 2^64; nothing is held at 2^64 - 1, so no run ends there.
    key.saturating_mul(CHUNK as u64).saturating_add(at as u64)
}

/// The pieces of a range, chunk by chunk: the chunk, where in it, and which part of the bytes.
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

    /// Whether the shards that a lock was taken of are those in use: the first may have been replaced meanwhile.
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

    /// Divides the file's chunks among many shards, if they are not yet.
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
        // Set under the lock that alone guards `one`, so nobody else can have set it.
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
