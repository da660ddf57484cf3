//! Writing: changes to the chunks that a write touches.

use super::*;
use crate::chunk::{Chunk, NEAR, Room};
use crate::{Error, Overlap};

/// The changes of a write, to be settled after the locks are released.
#[derive(Default)]
struct Written {
    change: isize,
    created: Option<(u64, u64)>,
    /// The room that a new chunk gets.
    room: Option<Room>,
}

impl Directory {
    pub fn write(&self, position: u64, bytes: &[u8], overlap: Overlap) -> Result<(), Error> {
        let (key, from) = split(position);
        if bytes.len() <= (CHUNK - from) as usize {
            self.write_within(key, from, bytes, overlap)
        } else {
            self.write_across(position, bytes, overlap)
        }
    }

    #[inline]
    fn write_within(&self, key: u64, from: u32, bytes: &[u8], overlap: Overlap) -> Result<(), Error> {
        let mut state = self.write_one(key);
        let State { chunks, held, .. } = &mut *state;
        if let Some(chunk) = chunks.get_mut(&key) {
            let free = chunk.write_free(from, bytes);
            let same = || overlap == Overlap::Agree && chunk.get(from, bytes.len(), None) == Some(bytes);
            if free || same() {
                if let Some(member) = &self.member {
                    member.used(&chunk.used);
                }
                *held += if free { bytes.len() as u64 } else { 0 };
                state.note_write(bytes.len(), self.clock);
                return Ok(());
            }
            if self.member.is_none() {
                self.put(&mut state, key, from, bytes, overlap, &mut Written::default())?;
                state.note_write(bytes.len(), self.clock);
                return Ok(());
            }
        }
        drop(state);
        self.write_slowly(key, from, bytes, overlap)
    }

    /// Writes to a new chunk, or to a chunk that may take memory from the pool.
    fn write_slowly(&self, key: u64, from: u32, bytes: &[u8], overlap: Overlap) -> Result<(), Error> {
        let mut granted = 0;
        let mut written = Written { room: self.expected(key, from), ..Written::default() };
        let result = loop {
            let mut state = self.write_one(key);
            if self.many.get().is_none() && !state.chunks.is_empty() && !state.chunks.contains_key(&key) {
                drop(state);
                self.divide();
                continue;
            }
            if let Some(member) = &self.member {
                let needed = growth(&state, key, bytes.len());
                if needed > granted && !member.try_take(needed - granted) {
                    drop(state);
                    member.take(needed - granted);
                    granted = needed;
                    continue;
                }
                granted = granted.max(needed);
            }
            let result = self.put(&mut state, key, from, bytes, overlap, &mut written);
            if result.is_ok() {
                state.note_write(bytes.len(), self.clock);
            }
            break result;
        };
        self.settle(granted, &written);
        result
    }

    /// Returns the room that a new chunk will need if the file is written forwards: that of the chunk before
    /// it. With a pool, a chunk takes only what it needs.
    fn expected(&self, key: u64, from: u32) -> Option<Room> {
        let before = key.checked_sub(1).filter(|_| self.member.is_none() && from < NEAR)?;
        let (_, _, state) = self.read_one(before);
        state.chunks.get(&before)?.room()
    }

    fn write_across(&self, position: u64, bytes: &[u8], overlap: Overlap) -> Result<(), Error> {
        let (first, last) = (split(position).0, split(position + (bytes.len() as u64 - 1)).0);
        let mut granted = 0;
        let is_short = bytes.len() <= NEAR as usize;
        let room = if is_short { self.expected(last, 0) } else { None };
        let mut written = Written { room, ..Written::default() };
        self.divide();
        let mut guards = loop {
            let guards = self.write_several(first, last);
            let Some(member) = &self.member else { break guards };
            let needed = pieces(position, bytes.len())
                .map(|(key, _, part)| guards.get(key).map_or(0, |state| growth(state, key, part.len())))
                .sum::<usize>();
            if needed <= granted || member.try_take(needed - granted) {
                granted = granted.max(needed);
                break guards;
            }
            drop(guards);
            member.take(needed - granted);
            granted = needed;
        };
        let result = self.put_several(&mut guards, position, bytes, overlap, &mut written);
        if let (Ok(()), Some(state)) = (&result, guards.get_mut(first)) {
            state.note_write(bytes.len(), self.clock);
        }
        drop(guards);
        self.settle(granted, &written);
        result
    }

    fn put_several(
        &self,
        guards: &mut Guards<RwLockWriteGuard<'_, State>>,
        position: u64,
        bytes: &[u8],
        overlap: Overlap,
        written: &mut Written,
    ) -> Result<(), Error> {
        let mut skip = 0;
        match overlap {
            // Everything is compared before anything is written.
            Overlap::Agree => {
                for (key, from, part) in pieces(position, bytes.len()) {
                    if let Some(chunk) = guards.get(key).and_then(|state| state.chunks.get(&key)) {
                        agree(chunk, key, from, &bytes[part])?;
                    }
                }
            }
            Overlap::KeepFirst => {
                for (key, from, part) in pieces(position, bytes.len()) {
                    let run = guards.get(key).and_then(|state| state.run_at(key, from));
                    let Some((_, end)) = run else { break };
                    skip = part.end.min(part.start + (end - from) as usize);
                    if skip < part.end {
                        break;
                    }
                }
            }
            Overlap::Replace | Overlap::Keep => {}
        }
        let how = if overlap == Overlap::Keep { Overlap::Keep } else { Overlap::Replace };
        let bytes = &bytes[skip..];
        for (key, from, part) in pieces(position + skip as u64, bytes.len()) {
            if let Some(state) = guards.get_mut(key) {
                self.put(state, key, from, &bytes[part], how, written)?;
            }
        }
        Ok(())
    }

    /// Writes within one chunk, whose shard is locked.
    #[inline]
    fn put(
        &self,
        state: &mut State,
        key: u64,
        from: u32,
        bytes: &[u8],
        overlap: Overlap,
        written: &mut Written,
    ) -> Result<(), Error> {
        let State { chunks, held, .. } = state;
        let Some(chunk) = chunks.get_mut(&key) else {
            let chunk = self.create(key, from, bytes, written);
            *held += u64::from(chunk.held());
            chunks.insert(key, chunk);
            return Ok(());
        };
        let before = (chunk.held(), self.member.as_ref().map_or(0, |_| chunk.heap()));
        match overlap {
            Overlap::Agree => {
                agree(chunk, key, from, bytes)?;
                chunk.write(from, bytes, self.wipe);
            }
            Overlap::Replace => chunk.write(from, bytes, self.wipe),
            Overlap::Keep => {
                for (start, end) in gaps(chunk, from, from + bytes.len() as u32) {
                    chunk.write(start, &bytes[(start - from) as usize..(end - from) as usize], self.wipe);
                }
            }
            Overlap::KeepFirst => {
                let skip = chunk.run_at(from).map_or(0, |(_, end)| bytes.len().min((end - from) as usize));
                if skip < bytes.len() {
                    chunk.write(from + skip as u32, &bytes[skip..], self.wipe);
                }
            }
        }
        *held += u64::from(chunk.held() - before.0);
        if let Some(member) = &self.member {
            written.change += chunk.heap() as isize - before.1 as isize;
            member.used(&chunk.used);
        }
        Ok(())
    }

    fn create(&self, key: u64, from: u32, bytes: &[u8], written: &mut Written) -> Box<Chunk> {
        let mut chunk = Box::new(match written.room {
            Some(room) => Chunk::with_room(room, bytes.len()),
            None => Chunk::for_first(bytes.len()),
        });
        chunk.write(from, bytes, self.wipe);
        if let Some(member) = &self.member {
            chunk.listed = member.list(key);
            *chunk.used.get_mut() = chunk.listed;
            written.change += (chunk.heap() + ENTRY) as isize;
        }
        *self.numbers.write().entry(key / 64).or_default() |= 1 << (key % 64);
        let (first, last) = written.created.unwrap_or((key, key));
        written.created = Some((first.min(key), last.max(key)));
        chunk
    }

    /// Runs after the locks are released: corrects the account with the pool, and trims the neighbours of a
    /// new chunk.
    ///
    /// A chunk keeps spare capacity while it is being written. A writer that proceeds forwards or backwards
    /// is done with a chunk when it begins the next. Trimming at each change of chunk was rejected: with
    /// scattered writes, every write would cost a copy.
    #[inline]
    fn settle(&self, granted: usize, written: &Written) {
        if let Some((first, last)) = written.created {
            for key in [first.checked_sub(1), last.checked_add(1)].into_iter().flatten() {
                self.trim(key, false);
            }
        }
        if let Some(member) = &self.member {
            member.settle(granted, written.change);
        }
    }

    fn trim(&self, key: u64, wait: bool) {
        let shards = self.shards();
        let shard = &shards[place(key, shards.len())];
        let Some(mut state) = (if wait { Some(shard.write()) } else { shard.try_write() }) else { return };
        if let Some(chunk) = state.chunks.get_mut(&key) {
            let before = chunk.heap();
            chunk.trim(self.wipe);
            let change = chunk.heap() as isize - before as isize;
            drop(state);
            if let Some(member) = &self.member {
                member.settle(0, change);
            }
        }
    }

    /// Frees all spare capacity.
    pub fn compact(&self) {
        self.each_key(0, u64::MAX, &mut |key| {
            self.trim(key, true);
            true
        });
    }
}

/// Returns how many bytes of memory a write of `bytes` bytes to a chunk may take.
fn growth(state: &State, key: u64, bytes: usize) -> usize {
    match state.chunks.get(&key) {
        Some(chunk) => chunk.growth(bytes),
        None => ENTRY + Chunk::first_heap(bytes),
    }
}

fn agree(chunk: &Chunk, key: u64, from: u32, bytes: &[u8]) -> Result<(), Error> {
    match chunk.difference(from, bytes) {
        None => Ok(()),
        Some(found) => {
            Err(Error::Differs { position: join(key, found.at), held: found.held, given: found.given })
        }
    }
}

/// Returns the parts of `from..to` that a chunk does not hold.
fn gaps(chunk: &Chunk, from: u32, to: u32) -> Vec<(u32, u32)> {
    let mut gaps = Vec::new();
    let mut at = from;
    chunk.visit(from, to, &mut |start, bytes| {
        if start > at {
            gaps.push((at, start));
        }
        at = start + bytes.len() as u32;
        true
    });
    if at < to {
        gaps.push((at, to));
    }
    gaps
}
