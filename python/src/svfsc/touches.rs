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
        self.since.len() >= SHORTEST && self.since.len() >= self.settled.len()
    }

    /// The number that the next use will have.
    pub fn next(&self) -> u64 {
        self.first + self.since.len() as u64
    }

    /// Finds out the last use of each of the `blocks`, which are all that there are, and gives them in the same order: where it
    /// was, and its number.
    pub fn settle(&mut self, blocks: &[Span]) -> &[(u64, u64)] {
        let numbered = self.since.iter().zip(self.first..).map(|(position, number)| (*position, number));
        let mut uses: Vec<(u64, u64)> = self.settled.drain(..).chain(numbered).collect();
        // Stable, which keeps the order of uses, and is quick where positions ascend already, as they do for who reads in order.
        uses.sort_by_key(|(position, _)| *position);
        self.first += self.since.len() as u64;
        self.since.clear();
        let mut uses = uses.into_iter().peekable();
        for block in blocks {
            let mut last = None;
            while let Some(used) = uses.next_if(|(position, _)| *position < block.end()) {
                // What was used in a place where no block is any more is forgotten.
                if used.0 >= block.position && last.is_none_or(|(_, number)| number < used.1) {
                    last = Some(used);
                }
            }
            self.settled.extend(last.map(|(_, number)| (block.position, number)));
        }
        &self.settled
    }
}
