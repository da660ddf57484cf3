//! The order in which blocks were used.
//!
//! Each use has a number, and each block has the number of its last use. A use does no lookup: it only
//! appends its position to a list. The last use of each block is computed from the list on request, or when
//! the list has become long.
//!
//! This is correct because blocks only merge through a use, whose number is higher than all earlier ones.
//! (The sparse file can keep the order itself, in two trees, but then a read takes twice as long.)
//!
//! A program that drops a block at each step would settle all blocks at each step. So a drop makes a queue of
//! all blocks once, and a later drop only adds the uses since then. Entries of the queue that have become
//! wrong are skipped when they come up.

use std::collections::BTreeMap;

use thalweg_sparse::{Span, SparseFile};

/// The minimum number of entries before the list is settled.
const SHORTEST: usize = 1 << 16;

#[derive(Default)]
pub struct Touches {
    /// For each block at the last settling: the position and number of its last use, in order of position.
    settled: Vec<(u64, u64)>,
    /// The positions of the uses since then, in order of time.
    since: Vec<u64>,
    /// The number of the first of these uses.
    first: u64,
    /// The blocks in the order of their last use, once some were dropped.
    queue: Option<Queue>,
}

/// Blocks in the order of their last use.
#[derive(Default)]
struct Queue {
    /// The blocks when the queue was made, the least recently used last.
    old: Vec<Span>,
    /// The blocks that were used since then, by their start: the number of the use, and the end.
    new: BTreeMap<u64, (u64, u64)>,
    /// The starts of the blocks that were used since then, by the number of the use.
    used: BTreeMap<u64, u64>,
    /// How many of the uses since the last settling are in the queue.
    seen: usize,
    /// True until the first punt has ended: the blocks are as when the queue was made.
    is_whole: bool,
}

impl Queue {
    /// Records a use. Blocks that are now a part of the used one are removed.
    fn note(&mut self, block: Span, number: u64) {
        while let Some((start, (old, _))) = self.new.range(block.position..block.end()).next() {
            let (start, old) = (*start, *old);
            self.new.remove(&start);
            self.used.remove(&old);
        }
        self.new.insert(block.position, (number, block.end()));
        self.used.insert(number, block.position);
    }

    /// True if the block at `start` was used since the queue was made, or has become a part of one that was.
    fn is_new(&self, start: u64) -> bool {
        self.new.range(..=start).next_back().is_some_and(|(_, (_, end))| *end > start)
    }

    /// Removes the least recently used block, and returns it. Blocks that were erased meanwhile are skipped.
    fn take(&mut self, file: &SparseFile) -> Option<Span> {
        while let Some(block) = self.old.pop() {
            if !self.is_new(block.position) && (self.is_whole || file.block_at(block.position) == Some(block))
            {
                return Some(block);
            }
        }
        while let Some((_, start)) = self.used.pop_first() {
            self.new.remove(&start);
            if let Some(block) = file.block_at(start).filter(|block| block.position == start) {
                return Some(block);
            }
        }
        None
    }
}

impl Touches {
    /// Records a use of the block at a position.
    #[inline]
    pub fn note(&mut self, position: u64) {
        self.since.push(position);
    }

    /// True if it is time to settle. Settling takes longer with more blocks, and is therefore done less
    /// often. With a million blocks of one byte it costs 15 ns per read; the list then takes 32 bytes per
    /// block.
    #[inline]
    pub fn is_long(&self) -> bool {
        self.since.len() >= SHORTEST && self.since.len() / 4 >= self.settled.len()
    }

    /// Returns the number that the next use gets.
    pub fn next(&self) -> u64 {
        self.first + self.since.len() as u64
    }

    /// Returns the memory in use, in bytes.
    pub fn heap(&self) -> usize {
        let queue = self.queue.as_ref();
        let queue = queue.map_or(0, |queue| queue.old.capacity() * 16 + queue.new.len() * 72);
        self.settled.capacity() * size_of::<(u64, u64)>() + self.since.capacity() * size_of::<u64>() + queue
    }

    /// Forgets the uses of blocks that do not exist any more: all of them. Later uses have higher numbers.
    pub fn forget(&mut self) {
        *self = Self { first: self.next(), ..Self::default() };
    }

    /// Returns the least recently used blocks of `file`, such that without them it holds fewer than `bound`
    /// bytes or only one block. The caller drops them.
    pub fn oldest(&mut self, file: &SparseFile, bound: u64) -> Vec<Span> {
        let mut held = file.bytes();
        let mut oldest = Vec::new();
        if held < bound {
            return oldest;
        }
        let pending = self.since.len() - self.queue.as_ref().map_or(0, |queue| queue.seen);
        let is_far_behind = pending / 4 > self.settled.len();
        let mut queue = match self.queue.take() {
            Some(queue) if !is_far_behind => self.followed(queue, file),
            _ => self.queued(file),
        };
        while held >= bound
            && let Some(block) = queue.take(file)
        {
            if block.length >= held {
                // The last block stays.
                queue.old.push(block);
                break;
            }
            held -= block.length;
            oldest.push(block);
        }
        queue.is_whole = false;
        self.queue = Some(queue);
        oldest
    }

    /// Frees what is stored of dropped blocks, which are sorted, if they were most of all.
    pub fn dropped(&mut self, blocks: &[Span]) {
        if blocks.len() < self.settled.len() / 2 {
            return;
        }
        let mut blocks = blocks.iter().map(|block| block.position).peekable();
        self.settled.retain(|(position, _)| {
            while blocks.next_if(|dropped| dropped < position).is_some() {}
            blocks.peek() != Some(position)
        });
        self.settled.shrink_to_fit();
        if let Some(queue) = &mut self.queue {
            queue.old.shrink_to_fit();
        }
    }

    /// Adds the uses that a queue has not seen.
    fn followed(&self, mut queue: Queue, file: &SparseFile) -> Queue {
        for (position, number) in self.since.iter().zip(self.first..).skip(queue.seen) {
            if let Some(block) = file.block_at(*position) {
                queue.note(block, number);
            }
        }
        queue.seen = self.since.len();
        queue
    }

    /// Returns a queue of all blocks.
    fn queued(&mut self, file: &SparseFile) -> Queue {
        let blocks = file.blocks();
        self.settle(&blocks);
        let numbers = self.settled.iter().map(|(_, number)| *number);
        // The order of use is often that of position.
        if numbers.clone().is_sorted() {
            return Queue { old: blocks.into_iter().rev().collect(), is_whole: true, ..Queue::default() };
        }
        let mut order: Vec<_> = numbers.zip(blocks).collect();
        order.sort_unstable_by_key(|(number, _)| std::cmp::Reverse(*number));
        Queue { old: order.into_iter().map(|(_, block)| block).collect(), is_whole: true, ..Queue::default() }
    }

    /// Computes the last use of each of `blocks`, which must be all blocks. Returns position and number of
    /// the uses in the same order.
    pub fn settle(&mut self, blocks: &[Span]) -> &[(u64, u64)] {
        // For each block, one more than the number of its last use.
        let mut last = vec![0; blocks.len()];
        let mut at = 0;
        let mut note = |position: u64, number: u64| {
            // Uses at positions that no longer have a block are forgotten.
            if let Some(found) = find(blocks, position, at)
                && let Some(last) = last.get_mut(found)
            {
                at = found;
                *last = number.wrapping_add(1).max(*last);
            }
        };
        self.settled.iter().for_each(|(position, number)| note(*position, *number));
        let numbered = self.since.iter().copied().zip(self.first..);
        // A forward search is quick. For positions that jump back and forth, sorting is quicker than a search
        // for each.
        let back = self.since.windows(2).filter(|two| two.first() > two.last()).count();
        if back > self.since.len() / 16 {
            let mut sorted: Vec<_> = numbered.collect();
            sorted.sort_unstable();
            sorted.into_iter().for_each(|(position, number)| note(position, number));
        } else {
            numbered.for_each(|(position, number)| note(position, number));
        }
        self.first += self.since.len() as u64;
        self.since.clear();
        self.queue = None;
        let used = blocks.iter().zip(last).filter(|(_, last)| *last > 0);
        self.settled.clear();
        self.settled.extend(used.map(|(block, last)| (block.position, last - 1)));
        &self.settled
    }
}

/// Returns the index of the block that contains a position. The search starts at block `at`, unless the
/// position is before it.
#[inline]
fn find(blocks: &[Span], position: u64, at: usize) -> Option<usize> {
    let starts_before = |block: &Span| block.position <= position;
    let from = if blocks.get(at).is_some_and(starts_before) { at } else { 0 };
    let mut width = 1;
    while blocks.get(from + width).is_some_and(starts_before) {
        width *= 2;
    }
    let near = blocks.get(from + width / 2..blocks.len().min(from + width))?;
    let found = (from + width / 2 + near.partition_point(starts_before)).checked_sub(1)?;
    blocks.get(found).is_some_and(|block| position < block.end()).then_some(found)
}
