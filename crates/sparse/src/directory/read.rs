//! Reading the held bytes, and questions about them.

use super::*;
use crate::shard::Reader;
use crate::{Counters, Error};

impl Directory {
    #[inline]
    pub fn read(&self, position: u64, into: &mut [u8]) -> Result<(), Error> {
        let (key, from) = split(position);
        if into.len() > (CHUNK - from) as usize {
            return self.read_across(position, into);
        }
        let (shards, shard, state) = self.read_one(key);
        let reader = Reader::new(shards, shard);
        let found = state
            .chunks
            .get(&key)
            .and_then(|chunk| Some((chunk, chunk.get(from, into.len(), reader.near())?)));
        let Some((chunk, bytes)) = found else {
            drop(state);
            return Err(self.missing(position, into.len()));
        };
        match (&mut *into, bytes) {
            // Copying one byte directly is faster than a call that copies any number.
            ([to], [from]) => *to = *from,
            _ => into.copy_from_slice(bytes),
        }
        if let Some(member) = &self.member {
            member.used(&chunk.used);
        }
        reader.note(into.len(), self.clock);
        Ok(())
    }

    /// Passes the bytes of a range to `with`, if they are held in one chunk.
    #[inline]
    pub fn look<T>(&self, position: u64, length: usize, with: impl FnOnce(&[u8]) -> T) -> Option<T> {
        let (key, from) = split(position);
        if length > (CHUNK - from) as usize {
            return None;
        }
        let (shards, shard, state) = self.read_one(key);
        let reader = Reader::new(shards, shard);
        let chunk = state.chunks.get(&key)?;
        let made = with(chunk.get(from, length, reader.near())?);
        if let Some(member) = &self.member {
            member.used(&chunk.used);
        }
        reader.note(length, self.clock);
        Some(made)
    }

    fn read_across(&self, position: u64, into: &mut [u8]) -> Result<(), Error> {
        self.read_pieces(position, into.len(), |part, bytes| into[part].copy_from_slice(bytes))
    }

    /// Passes the bytes of a range of at least one byte to `with`, with their places in the range, in order.
    /// After an error, a part of them may have been passed.
    pub fn read_pieces(
        &self,
        position: u64,
        length: usize,
        mut with: impl FnMut(std::ops::Range<usize>, &[u8]),
    ) -> Result<(), Error> {
        let (first, last) = (split(position).0, split(position + (length as u64 - 1)).0);
        let (shards, guards) = self.read_several(first, last);
        for (key, from, part) in pieces(position, length) {
            let chunk = guards.get(key).and_then(|state| state.chunks.get(&key));
            let found = chunk.and_then(|chunk| Some((chunk, chunk.get(from, part.len(), None)?)));
            let Some((chunk, bytes)) = found else {
                drop(guards);
                return Err(self.missing(position, length));
            };
            with(part, bytes);
            if let Some(member) = &self.member {
                member.used(&chunk.used);
            }
        }
        Reader::new(shards, &shards[place(first, shards.len())]).note(length, self.clock);
        Ok(())
    }

    #[cold]
    fn missing(&self, position: u64, length: usize) -> Error {
        let wanted = Span::new(position, length as u64);
        let mut missing = Vec::new();
        self.need(wanted, &mut missing);
        // The missing bytes may have arrived meanwhile; then the whole range is reported.
        Error::Missing { wanted, missing: missing.first().copied().unwrap_or(wanted) }
    }

    // Queries

    /// Passes the numbers of the chunks from `first` to `last` to `visit`, in order, until `visit` returns
    /// false. For a short range, some of those chunks may not exist.
    pub(super) fn each_key(&self, first: u64, last: u64, visit: &mut dyn FnMut(u64) -> bool) -> bool {
        if last - first < 4 {
            return (first..=last).all(visit);
        }
        // Copied, because locks of shards are taken during the visit.
        let words: Vec<(u64, u64)> =
            self.numbers.read().range(first / 64..=last / 64).map(|(key, word)| (*key, *word)).collect();
        for (number, mut word) in words {
            while word != 0 {
                let key = number * 64 + u64::from(word.trailing_zeros());
                word &= word - 1;
                if (first..=last).contains(&key) && !visit(key) {
                    return false;
                }
            }
        }
        true
    }

    /// Passes the held parts of `span` to `visit`, in order, until `visit` returns false. Parts may touch.
    #[inline]
    fn each_held(&self, span: Span, visit: &mut impl FnMut(u64, u64) -> bool) {
        if span.length == 0 {
            return;
        }
        let ((first, from), (last, to)) = (split(span.position), split(span.end() - 1));
        if first == last {
            self.each_held_in(first, (from, to + 1), visit);
            return;
        }
        self.each_key(first, last, &mut |key| {
            let from = if key == first { from } else { 0 };
            let to = if key == last { to + 1 } else { CHUNK };
            self.each_held_in(key, (from, to), visit)
        });
    }

    /// As [`each_held`](Self::each_held), for a part of a chunk.
    #[inline]
    fn each_held_in(&self, key: u64, part: (u32, u32), visit: &mut impl FnMut(u64, u64) -> bool) -> bool {
        let (shards, shard, state) = self.read_one(key);
        let Some(chunk) = state.chunks.get(&key) else { return true };
        let reader = Reader::new(shards, shard);
        let base = join(key, 0);
        chunk.each(part.0, part.1, reader.near(), &mut |start, end| {
            visit(base + u64::from(start), base.saturating_add(u64::from(end)))
        })
    }

    /// Appends the parts of `span` that are not held to `missing`.
    #[inline]
    pub fn need(&self, span: Span, missing: &mut Vec<Span>) {
        self.each_missing(span, |span| missing.push(span));
    }

    /// Passes the parts of `span` that are not held to `visit`, in order.
    #[inline]
    pub fn each_missing(&self, span: Span, mut visit: impl FnMut(Span)) {
        let mut at = span.position;
        self.each_held(span, &mut |start, end| {
            if start > at {
                visit(Span::between(at, start));
            }
            at = end;
            true
        });
        if at < span.end() {
            visit(Span::between(at, span.end()));
        }
    }

    pub fn has(&self, span: Span) -> bool {
        let (key, from) = split(span.position);
        if span.length <= u64::from(CHUNK - from) && span.length > 0 {
            let (shards, shard, state) = self.read_one(key);
            let reader = Reader::new(shards, shard);
            let chunk = state.chunks.get(&key);
            return chunk.is_some_and(|chunk| chunk.get(from, span.length as usize, reader.near()).is_some());
        }
        let mut at = span.position;
        self.each_held(span, &mut |start, end| {
            let goes_on = start == at;
            if goes_on {
                at = end;
            }
            goes_on
        });
        at == span.end()
    }

    pub fn blocks(&self) -> Vec<Span> {
        let mut blocks: Vec<Span> = Vec::new();
        self.each_held(Span::between(0, u64::MAX), &mut |start, end| {
            match blocks.last_mut() {
                Some(last) if last.end() == start => last.length += end - start,
                _ => blocks.push(Span::between(start, end)),
            }
            true
        });
        blocks
    }

    pub fn count_blocks(&self) -> u64 {
        let mut count = 0;
        let mut before = None;
        self.each_key(0, u64::MAX, &mut |key| {
            let (_, _, state) = self.read_one(key);
            if let Some(chunk) = state.chunks.get(&key) {
                let joined = before == Some(key) && chunk.run_at(0).is_some();
                count += chunk.runs() as u64 - u64::from(joined);
                before = chunk.run_at(CHUNK - 1).map(|_| key + 1);
            }
            true
        });
        count
    }

    pub fn block_at(&self, position: u64) -> Option<Span> {
        block_in(&|key, at| self.read_one(key).2.run_at(key, at), position)
    }

    /// Returns the position after the last held byte.
    pub fn end(&self) -> u64 {
        loop {
            let last = self.numbers.read().last_key_value().map(|(number, word)| (*number, *word));
            let Some((number, word)) = last else { return 0 };
            let key = number * 64 + 63 - u64::from(word.leading_zeros());
            let mut end = 0;
            if let Some(chunk) = self.read_one(key).2.chunks.get(&key) {
                chunk.each(0, CHUNK, None, &mut |_, last| {
                    end = last;
                    true
                });
                return join(key, end);
            }
        }
    }

    pub fn held(&self) -> u64 {
        self.shards().iter().map(|shard| shard.read().held).sum()
    }

    pub fn heap(&self) -> usize {
        let shards = self.shards();
        let table = |state: &State| state.chunks.capacity().div_ceil(7) * 8 * (size_of::<(u64, usize)>() + 1);
        let chunks = |state: &State| state.chunks.values().map(|chunk| chunk.heap()).sum::<usize>();
        let of = |shard: &Shard| {
            let state = shard.read();
            table(&state) + chunks(&state)
        };
        let numbers = self.numbers.read().len() * 24;
        size_of::<Self>()
            + numbers
            + shards.iter().map(of).sum::<usize>()
            + if shards.len() > 1 { size_of_val(shards) } else { 0 }
    }

    pub fn counters(&self) -> Counters {
        let mut total = Counters {
            blocks_erased: self.blocks_erased.load(Ordering::Relaxed),
            bytes_erased: self.bytes_erased.load(Ordering::Relaxed),
            blocks_evicted: self.blocks_evicted.load(Ordering::Relaxed),
            bytes_evicted: self.bytes_evicted.load(Ordering::Relaxed),
            ..Counters::default()
        };
        let (mut last_read, mut last_write) = (0, 0);
        for shard in self.every_shard() {
            let state = shard.read();
            total.writes += state.writes;
            total.bytes_written += state.bytes_written;
            last_write = last_write.max(state.written_at.micros());
            let (reads, bytes, at) = shard.reads();
            total.reads += reads;
            total.bytes_read += bytes;
            last_read = last_read.max(at);
        }
        total.last_read = crate::clock::time(last_read);
        total.last_write = crate::clock::time(last_write);
        total
    }

    /// Returns all shards. The first one keeps its counts after the chunks were divided.
    pub(super) fn every_shard(&self) -> impl Iterator<Item = &Shard> {
        std::iter::once(&self.one).chain(self.many.get().into_iter().flatten())
    }
}

/// Returns the block that contains `position`. `run_at` returns the run at an offset in a chunk.
pub(super) fn block_in(run_at: &dyn Fn(u64, u32) -> Option<(u32, u32)>, position: u64) -> Option<Span> {
    let (key, at) = split(position);
    let (start, end) = run_at(key, at)?;
    let (mut first, mut start, mut last, mut end) = (key, start, key, end);
    while start == 0
        && let Some(before) = first.checked_sub(1)
        && let Some((earlier, _)) = run_at(before, CHUNK - 1)
    {
        (first, start) = (before, earlier);
    }
    while end == CHUNK
        && let Some((_, later)) = run_at(last + 1, 0)
    {
        (last, end) = (last + 1, later);
    }
    Some(Span::between(join(first, start), join(last, end)))
}
