//! The order in which blocks were used.
//!
//! Each use has a number, and a block the number of its last use. Nothing is looked up when a block is used: where it was used is
//! put at the end of a list, and only when someone asks, or the list has become long, the last use of each block is found out from it.
//! That is right since blocks only grow together by a use, whose number is higher than any before. (The sparse file can keep
//! the order itself, in two trees: a read takes twice as long then.)

use thalweg_sparse::Span;

/// The list is not looked through before it has so many entries.
const SHORTEST: usize = 1 << 16;

#[derive(Default)]
pub struct Touches {
    /// For each block that was there then, where it was used last and the number of that use; in the order of positions.
    settled: Vec<(u64, u64)>,
    /// Where blocks were used since, in order.
    since: Vec<u64>,
    /// The number of the first of these uses.
    first: u64,
}

impl Touches {
    /// The block at a position is used.
    #[inline]
    pub fn note(&mut self, position: u64) {
        self.since.push(position);
    }

    /// Whether it is time to settle.
    #[inline]
    pub fn is_long(&self) -> bool {
        self.since.len() >= SHORTEST && self.since.len() / 2 >= self.settled.len()
    }

    /// The number that the next use will have.
    pub fn next(&self) -> u64 {
        self.first + self.since.len() as u64
    }

    /// The memory that it takes, in bytes.
    pub fn heap(&self) -> usize {
        self.settled.capacity() * size_of::<(u64, u64)>() + self.since.capacity() * size_of::<u64>()
    }

    /// Finds out the last use of each of the `blocks`, which are all that there are, and gives them in the same order: where it
    /// was, and its number.
    pub fn settle(&mut self, blocks: &[Span]) -> &[(u64, u64)] {
        let mut since: Vec<(u64, u64)> = self.since.drain(..).zip(self.first..).collect();
        self.first += since.len() as u64;
        // Stable, which keeps the order of uses, and is quick where positions ascend already, as they do for who reads in order.
        since.sort_by_key(|(position, _)| *position);
        let (mut before, mut since) = (self.settled.iter().peekable(), since.iter().peekable());
        let mut settled = Vec::with_capacity(blocks.len());
        for block in blocks {
            let mut last = None;
            // What was used in a place where no block is any more is forgotten.
            while let Some(used) = before.next_if(|(position, _)| *position < block.end()) {
                last = last.max((used.0 >= block.position).then_some(used.1));
            }
            while let Some(used) = since.next_if(|(position, _)| *position < block.end()) {
                last = last.max((used.0 >= block.position).then_some(used.1));
            }
            settled.extend(last.map(|number| (block.position, number)));
        }
        self.settled = settled;
        &self.settled
    }
}
