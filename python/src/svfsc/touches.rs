//! The order in which blocks were used.
//!
//! Each use has a number, and each block has the number of its last use. A use does no lookup: it only
//! appends its position to a list. The last use of each block is computed from the list on request, or when
//! the list has become long.
//!
//! This is correct because blocks only merge through a use, whose number is higher than all earlier ones.
//! (The sparse file can keep the order itself, in two trees, but then a read takes twice as long.)

use thalweg_sparse::Span;

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
        self.settled.capacity() * size_of::<(u64, u64)>() + self.since.capacity() * size_of::<u64>()
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
