//! Removing bytes: erasing, clearing, eviction, pins.

use super::read::block_in;
use super::*;
use crate::Error;
use crate::chunk::Chunk;

impl Directory {
    /// Removes a chunk that has left its table from everything else. Returns the memory that this frees, in
    /// bytes.
    fn discard(&self, key: u64, chunk: &mut Chunk) -> usize {
        let heap = chunk.heap() + ENTRY;
        if self.wipe {
            chunk.wipe();
        }
        if let Some(member) = &self.member {
            member.unlist(chunk.listed);
        }
        let mut numbers = self.numbers.write();
        if let Some(word) = numbers.get_mut(&(key / 64)) {
            *word &= !(1 << (key % 64));
            if *word == 0 {
                numbers.remove(&(key / 64));
            }
        }
        heap
    }

    /// Erases what is held of `span`. Returns how many bytes were erased.
    pub fn erase(&self, span: Span) -> u64 {
        if span.length == 0 {
            return 0;
        }
        let (first, last) = (split(span.position).0, split(span.end() - 1).0);
        let mut guards = self.write_several(first, last);
        self.erase_locked(&mut guards, span)
    }

    /// Erases the block that starts at `position`. Returns its length.
    pub fn erase_block(&self, position: u64) -> Result<u64, Error> {
        loop {
            let block = self.block_at(position).filter(|block| block.position == position);
            let block = block.ok_or(Error::NotABlock { position })?;
            // With the positions before and behind it: a write there would change what the block is.
            let (first, last) = (split(position.saturating_sub(1)).0, split(block.end()).0);
            let mut guards = self.write_several(first, last);
            let lookup = |key: u64, at: u32| guards.get(key).and_then(|state| state.run_at(key, at));
            if block_in(&lookup, position) == Some(block) {
                return Ok(self.erase_locked(&mut guards, block));
            }
        }
    }

    /// Erases `blocks`, which are sorted and do not overlap. Each counts as one block. Returns how many bytes
    /// were erased. Each chunk is locked and compacted once, however many blocks it has.
    pub fn erase_blocks(&self, blocks: &[Span]) -> u64 {
        let mut pieces =
            blocks.iter().flat_map(|block| pieces(block.position, block.length as usize)).peekable();
        let (mut bytes, mut heap, mut ranges) = (0, 0, Vec::new());
        while let Some((key, from, part)) = pieces.next() {
            ranges.clear();
            ranges.push((from, from + part.len() as u32));
            while let Some((_, from, part)) = pieces.next_if(|(other, ..)| *other == key) {
                ranges.push((from, from + part.len() as u32));
            }
            let mut state = self.write_one(key);
            let removed = self.remove(&mut state, key, |chunk| chunk.remove_several(&ranges, self.wipe));
            bytes += removed.0;
            heap += removed.1;
        }
        self.note_erased(blocks.len() as u64, bytes, heap);
        bytes
    }

    fn erase_locked(&self, guards: &mut Guards<RwLockWriteGuard<'_, State>>, span: Span) -> u64 {
        let ((first, from), (last, to)) = (split(span.position), split(span.end() - 1));
        let (mut bytes, mut blocks, mut heap, mut behind) = (0, 0, 0, None);
        self.each_key(first, last, &mut |key| {
            let from = if key == first { from } else { 0 };
            let to = if key == last { to + 1 } else { CHUNK };
            let Some(state) = guards.get_mut(key) else { return true };
            let removed = self.remove(state, key, |chunk| {
                chunk.visit(from, to, &mut |start, data| {
                    blocks += u64::from(behind != Some(join(key, start)));
                    behind = Some(join(key, start + data.len() as u32));
                    true
                });
                chunk.remove(from, to, self.wipe)
            });
            bytes += removed.0;
            heap += removed.1;
            true
        });
        self.note_erased(blocks, bytes, heap);
        bytes
    }

    /// Removes bytes of a chunk, if it exists, with `from`. Returns how many bytes were removed, and how much
    /// memory that freed.
    fn remove(&self, state: &mut State, key: u64, from: impl FnOnce(&mut Chunk) -> u32) -> (u64, isize) {
        let State { chunks, held, .. } = state;
        let Some(chunk) = chunks.get_mut(&key) else { return (0, 0) };
        let before = chunk.heap();
        let removed = u64::from(from(chunk));
        *held -= removed;
        let mut heap = before as isize - chunk.heap() as isize;
        if chunk.is_empty()
            && let Some(mut chunk) = chunks.remove(&key)
        {
            heap += self.discard(key, &mut chunk) as isize;
            if chunks.is_empty() {
                // An empty file takes no more memory than a new one.
                *chunks = Default::default();
            }
        }
        (removed, heap)
    }

    fn note_erased(&self, blocks: u64, bytes: u64, heap: isize) {
        if let Some(member) = &self.member {
            member.settle(0, -heap);
        }
        self.blocks_erased.fetch_add(blocks, Ordering::Relaxed);
        self.bytes_erased.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts bytes as evicted that were counted as erased already.
    pub fn note_evicted(&self, blocks: u64, bytes: u64) {
        self.blocks_evicted.fetch_add(blocks, Ordering::Relaxed);
        self.bytes_evicted.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Erases everything and resets the counters.
    pub fn clear(&self) {
        let mut guards = self.write_several(0, u64::MAX);
        let mut heap = 0;
        for state in guards.all() {
            let state = &mut **state;
            heap += std::mem::take(&mut state.chunks)
                .into_iter()
                .map(|(key, mut chunk)| self.discard(key, &mut chunk))
                .sum::<usize>();
            *state = State::default();
        }
        // The counts from before the chunks were divided are in the first shard. If that is still in use, it
        // is locked already.
        if self.many.get().is_some() {
            *self.one.write() = State::default();
        }
        self.every_shard().for_each(Shard::reset_reads);
        for counter in [&self.blocks_erased, &self.bytes_erased, &self.blocks_evicted, &self.bytes_evicted] {
            counter.store(0, Ordering::Relaxed);
        }
        if let Some(member) = &self.member {
            member.settle(0, -(heap as isize));
        }
    }

    /// Frees the tables of an empty file, as if its chunks had never been divided. The counters stay.
    pub fn undivide(&mut self) {
        if self.held() > 0 {
            return;
        }
        for shard in self.many.take().into_iter().flatten() {
            self.one.absorb(shard);
        }
    }

    /// Evicts a chunk for the pool, whose list contains it under `tick`. Returns how many bytes of the file
    /// it held. Returns `None` if the chunk was used since (then it moves in the list), is pinned, or was
    /// replaced.
    pub fn evict(&self, key: u64, tick: u64) -> Option<u64> {
        let member = self.member.as_ref()?;
        let mut state = self.write_one(key);
        let State { chunks, held, .. } = &mut *state;
        let chunk = chunks.get_mut(&key).filter(|chunk| chunk.listed == tick)?;
        let used = *chunk.used.get_mut();
        if used > tick {
            chunk.listed = used;
            member.unlist(tick);
            member.list_at(used, key);
            return None;
        }
        let (start, end) = (join(key, 0), join(key, CHUNK));
        if self.pins.lock().spans.values().any(|pin| pin.position < end && pin.end() > start) {
            return None;
        }
        let bytes = u64::from(chunk.held());
        *held -= bytes;
        let heap = chunks.remove(&key).map_or(0, |mut chunk| self.discard(key, &mut chunk));
        drop(state);
        member.settle(0, -(heap as isize));
        self.blocks_erased.fetch_add(1, Ordering::Relaxed);
        self.bytes_erased.fetch_add(bytes, Ordering::Relaxed);
        self.note_evicted(1, bytes);
        Some(bytes)
    }

    /// Protects the chunks of `span` from eviction until `unpin` is called with the returned number.
    pub fn pin(&self, span: Span) -> u64 {
        let mut pins = self.pins.lock();
        pins.next += 1;
        let number = pins.next;
        pins.spans.insert(number, span);
        number
    }

    pub fn unpin(&self, number: u64) {
        self.pins.lock().spans.remove(&number);
    }
}
