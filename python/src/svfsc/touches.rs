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

    /// Whether it is time to settle. That takes longer the more blocks there are, and so it comes more seldom: for a million blocks
    /// of one byte it takes 15 ns of each read. The list takes 32 bytes a block then.
    #[inline]
    pub fn is_long(&self) -> bool {
        self.since.len() >= SHORTEST && self.since.len() / 4 >= self.settled.len()
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
        // One more than the number of its last use, for each block.
        let mut last = vec![0; blocks.len()];
        let mut at = 0;
        let mut note = |position: u64, number: u64| {
            // What was used in a place where no block is any more is forgotten.
            if let Some(found) = find(blocks, position, at)
                && let Some(last) = last.get_mut(found)
            {
                at = found;
                *last = number.wrapping_add(1).max(*last);
            }
        };
        self.settled.iter().for_each(|(position, number)| note(*position, *number));
        let numbered = self.since.iter().copied().zip(self.first..);
        // To go forth is quick, and to sort what goes to and fro is quicker than to look for each.
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
        let used = blocks.iter().zip(last).filter(|(_, last)| *last > 0);
        self.settled.clear();
        self.settled.extend(used.map(|(block, last)| (block.position, last - 1)));
        &self.settled
    }
}

/// The number of the block that a position is in, which is looked for from the block `at` on, if it may be there.
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
