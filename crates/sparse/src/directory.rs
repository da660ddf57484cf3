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

use crate::chunk::{CHUNK, Chunk};
use crate::clock::Clock;
use crate::pool::Member;
use crate::shard::{Guards, SHARDS, Shard, State, place};
use crate::{Counters, Error, Overlap, Span};
use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a chunk costs in the tables, about.
const ENTRY: usize = 48;

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

/// What a write has done, to be settled when the locks are given back.
#[derive(Default)]
struct Written {
    change: isize,
    created: Option<(u64, u64)>,
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
    fn read_one(&self, key: u64) -> (&Shard, RwLockReadGuard<'_, State>) {
        loop {
            let shards = self.shards();
            let shard = &shards[place(key, shards.len())];
            let state = shard.read();
            if self.is_current(shards) {
                return (shard, state);
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

    fn read_several(&self, first: u64, last: u64) -> Guards<RwLockReadGuard<'_, State>> {
        loop {
            let shards = self.shards();
            let guards = Guards::lock(shards, first, last, Shard::read);
            if self.is_current(shards) {
                return guards;
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

    // Writing

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
            let same = || overlap == Overlap::Agree && chunk.get(from, bytes.len()) == Some(bytes);
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

    /// A write to a new chunk, or one that may take memory of the pool.
    fn write_slowly(&self, key: u64, from: u32, bytes: &[u8], overlap: Overlap) -> Result<(), Error> {
        let mut granted = 0;
        let mut written = Written::default();
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

    fn write_across(&self, position: u64, bytes: &[u8], overlap: Overlap) -> Result<(), Error> {
        let (first, last) = (split(position).0, split(position + (bytes.len() as u64 - 1)).0);
        let mut granted = 0;
        let mut written = Written::default();
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
            // All is compared before anything is written.
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
        let mut chunk = Box::new(Chunk::for_first(bytes.len()));
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

    /// After the locks were given back: sets the pool's account right, and trims the neighbours of a new chunk.
    ///
    /// A chunk keeps room to grow while it is being written. Whoever writes from the front (or from the
    /// back) is done with one when he begins the next. Trimming at each change of chunk was rejected: it
    /// makes every write cost a copy when writes are scattered.
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

    /// Gives back all memory that is kept for more.
    pub fn compact(&self) {
        self.each_key(0, u64::MAX, &mut |key| {
            self.trim(key, true);
            true
        });
    }

    // Reading

    #[inline]
    pub fn read(&self, position: u64, into: &mut [u8]) -> Result<(), Error> {
        let (key, from) = split(position);
        if into.len() > (CHUNK - from) as usize {
            return self.read_across(position, into);
        }
        let (shard, state) = self.read_one(key);
        let found = state.chunks.get(&key).and_then(|chunk| Some((chunk, chunk.get(from, into.len())?)));
        let Some((chunk, bytes)) = found else {
            drop(state);
            return Err(self.missing(position, into.len()));
        };
        into.copy_from_slice(bytes);
        if let Some(member) = &self.member {
            member.used(&chunk.used);
        }
        shard.note_read(into.len(), self.clock);
        Ok(())
    }

    fn read_across(&self, position: u64, into: &mut [u8]) -> Result<(), Error> {
        let (first, last) = (split(position).0, split(position + (into.len() as u64 - 1)).0);
        let guards = self.read_several(first, last);
        for (key, from, part) in pieces(position, into.len()) {
            let chunk = guards.get(key).and_then(|state| state.chunks.get(&key));
            let found = chunk.and_then(|chunk| Some((chunk, chunk.get(from, part.len())?)));
            let Some((chunk, bytes)) = found else {
                drop(guards);
                return Err(self.missing(position, into.len()));
            };
            into[part].copy_from_slice(bytes);
            if let Some(member) = &self.member {
                member.used(&chunk.used);
            }
        }
        drop(guards);
        let shards = self.shards();
        shards[place(first, shards.len())].note_read(into.len(), self.clock);
        Ok(())
    }

    #[cold]
    fn missing(&self, position: u64, length: usize) -> Error {
        let wanted = Span::new(position, length as u64);
        let mut missing = Vec::new();
        self.need(wanted, &mut missing);
        // What was missing may have come meanwhile; then all of it was, in a way.
        Error::Missing { wanted, missing: missing.first().copied().unwrap_or(wanted) }
    }

    // Asking

    /// Shows the numbers of the chunks from `first` to `last`, in order, until `visit` says false. When there are few,
    /// some may not be there.
    fn each_key(&self, first: u64, last: u64, visit: &mut dyn FnMut(u64) -> bool) -> bool {
        if last - first < 4 {
            return (first..=last).all(visit);
        }
        // Copied, since locks of shards are taken while they are visited.
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

    /// Shows what is held of `span`, in order, in pieces that may touch, until `visit` says false.
    #[inline]
    fn each_held(&self, span: Span, visit: &mut impl FnMut(u64, u64) -> bool) {
        if span.length == 0 {
            return;
        }
        let ((first, from), (last, to)) = (split(span.position), split(span.end() - 1));
        let mut one = |key: u64| {
            let from = if key == first { from } else { 0 };
            let to = if key == last { to + 1 } else { CHUNK };
            let (_, state) = self.read_one(key);
            state.chunks.get(&key).is_none_or(|chunk| {
                chunk.visit(from, to, &mut |start, bytes| {
                    let start = join(key, start);
                    visit(start, start + bytes.len() as u64)
                })
            })
        };
        if first == last {
            one(first);
        } else {
            self.each_key(first, last, &mut one);
        }
    }

    /// Adds the parts of `span` that are not held.
    #[inline]
    pub fn need(&self, span: Span, missing: &mut Vec<Span>) {
        let mut at = span.position;
        self.each_held(span, &mut |start, end| {
            if start > at {
                missing.push(Span::between(at, start));
            }
            at = end;
            true
        });
        if at < span.end() {
            missing.push(Span::between(at, span.end()));
        }
    }

    pub fn has(&self, span: Span) -> bool {
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
            let (_, state) = self.read_one(key);
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
        block_in(&|key, at| self.read_one(key).1.run_at(key, at), position)
    }

    /// The position after the last byte.
    pub fn end(&self) -> u64 {
        loop {
            let last = self.numbers.read().last_key_value().map(|(number, word)| (*number, *word));
            let Some((number, word)) = last else { return 0 };
            let key = number * 64 + 63 - u64::from(word.leading_zeros());
            let mut end = 0;
            if let Some(chunk) = self.read_one(key).1.chunks.get(&key) {
                chunk.visit(0, CHUNK, &mut |start, bytes| {
                    end = start + bytes.len() as u32;
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

    /// The first one keeps what it counted after the chunks were divided.
    fn every_shard(&self) -> impl Iterator<Item = &Shard> {
        std::iter::once(&self.one).chain(self.many.get().into_iter().flatten())
    }

    // Letting go

    /// Takes a chunk that has left its table out of everything else, and says what memory that gives back.
    fn discard(&self, key: u64, mut chunk: Box<Chunk>) -> usize {
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

    /// Lets go of what is held of `span`, and says how many bytes that was.
    pub fn erase(&self, span: Span) -> u64 {
        if span.length == 0 {
            return 0;
        }
        let (first, last) = (split(span.position).0, split(span.end() - 1).0);
        let mut guards = self.write_several(first, last);
        self.erase_locked(&mut guards, span)
    }

    /// Lets go of the block that starts at `position`, and says how long it was.
    pub fn erase_block(&self, position: u64) -> Result<u64, Error> {
        // All locks, since how far the block goes is not known before it is locked.
        let mut guards = self.write_several(0, u64::MAX);
        let lookup = |key: u64, at: u32| guards.get(key).and_then(|state| state.run_at(key, at));
        match block_in(&lookup, position) {
            Some(block) if block.position == position => Ok(self.erase_locked(&mut guards, block)),
            _ => Err(Error::NotABlock { position }),
        }
    }

    fn erase_locked(&self, guards: &mut Guards<RwLockWriteGuard<'_, State>>, span: Span) -> u64 {
        let ((first, from), (last, to)) = (split(span.position), split(span.end() - 1));
        let (mut bytes, mut blocks, mut heap, mut behind) = (0, 0, 0isize, None);
        self.each_key(first, last, &mut |key| {
            let from = if key == first { from } else { 0 };
            let to = if key == last { to + 1 } else { CHUNK };
            let Some(state) = guards.get_mut(key) else { return true };
            let State { chunks, held, .. } = &mut **state;
            let Some(chunk) = chunks.get_mut(&key) else { return true };
            chunk.visit(from, to, &mut |start, data| {
                blocks += u64::from(behind != Some(join(key, start)));
                behind = Some(join(key, start + data.len() as u32));
                true
            });
            let before = chunk.heap();
            let removed = u64::from(chunk.remove(from, to, self.wipe));
            bytes += removed;
            *held -= removed;
            heap += before as isize - chunk.heap() as isize;
            if chunk.is_empty()
                && let Some(chunk) = chunks.remove(&key)
            {
                heap += self.discard(key, chunk) as isize;
            }
            true
        });
        if let Some(member) = &self.member {
            member.settle(0, -heap);
        }
        self.blocks_erased.fetch_add(blocks, Ordering::Relaxed);
        self.bytes_erased.fetch_add(bytes, Ordering::Relaxed);
        bytes
    }

    /// Counts as evicted what has been counted as erased already.
    pub fn note_evicted(&self, blocks: u64, bytes: u64) {
        self.blocks_evicted.fetch_add(blocks, Ordering::Relaxed);
        self.bytes_evicted.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Lets go of everything, and counts from zero.
    pub fn clear(&self) {
        let mut guards = self.write_several(0, u64::MAX);
        let mut heap = 0;
        for state in guards.all() {
            let state = &mut **state;
            heap += std::mem::take(&mut state.chunks)
                .into_iter()
                .map(|(key, chunk)| self.discard(key, chunk))
                .sum::<usize>();
            *state = State::default();
        }
        // What was counted before the chunks were divided is in the first shard, which is locked already if it is in use.
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

    /// Lets a chunk go for the pool, which has it in its list under `tick`, and says how many bytes of the file were in
    /// it. Not if it was used since (it is moved in the list then), is pinned, or is another by now.
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
        if self.pins.lock().spans.iter().any(|(_, pin)| pin.position < end && pin.end() > start) {
            return None;
        }
        let bytes = u64::from(chunk.held());
        *held -= bytes;
        let heap = chunks.remove(&key).map_or(0, |chunk| self.discard(key, chunk));
        drop(state);
        member.settle(0, -(heap as isize));
        self.blocks_erased.fetch_add(1, Ordering::Relaxed);
        self.bytes_erased.fetch_add(bytes, Ordering::Relaxed);
        self.note_evicted(1, bytes);
        Some(bytes)
    }

    /// Keeps the chunks of `span` from being evicted, until `unpin` with the number that it gives.
    pub fn pin(&self, span: Span) -> u64 {
        let mut pins = self.pins.lock();
        pins.next += 1;
        let number = pins.next;
        pins.spans.push((number, span));
        number
    }

    pub fn unpin(&self, number: u64) {
        self.pins.lock().spans.retain(|(pin, _)| *pin != number);
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

/// How much memory a write of `bytes` bytes to a chunk may take.
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

/// The parts of `from..to` that a chunk does not hold.
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

/// The block that `position` is in, followed through the chunks with what `run_at` says of each.
fn block_in(run_at: &dyn Fn(u64, u32) -> Option<(u32, u32)>, position: u64) -> Option<Span> {
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
