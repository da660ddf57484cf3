//! The exact order in which the blocks of a file were last used: a number for each block.
//!
//! A pool does not need it: it records the use of chunks. It serves callers that want the number of each
//! block and evict whole blocks. It costs about fifty bytes per block, and a lock that all reads and writes
//! of the file wait for.

use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub(crate) struct Touches {
    next: u64,
    by_start: BTreeMap<u64, u64>,
    by_touch: BTreeMap<u64, u64>,
}

impl Touches {
    pub fn next(&self) -> u64 {
        self.next
    }

    pub fn blocks(&self) -> usize {
        self.by_start.len()
    }

    /// Returns the touch and the start of each block, the least recent first.
    pub fn list(&self) -> Vec<(u64, u64)> {
        self.by_touch.iter().map(|(touch, start)| (*touch, *start)).collect()
    }

    pub fn least_recent(&self) -> Option<u64> {
        self.by_touch.first_key_value().map(|(_, start)| *start)
    }

    /// Returns the start of the block that contains `position`, or `position` if none does.
    pub fn start(&self, position: u64) -> u64 {
        self.by_start.range(..=position).next_back().map_or(position, |(start, _)| *start)
    }

    /// Records a use of the block that starts at `start`. Blocks that start after it, up to and including
    /// `end`, have become part of it.
    pub fn touch(&mut self, start: u64, end: u64) {
        while let Some((absorbed, _)) = self.by_start.range(start + 1..=end.max(start + 1)).next() {
            let absorbed = *absorbed;
            self.forget(absorbed);
        }
        self.forget(start);
        self.by_start.insert(start, self.next);
        self.by_touch.insert(self.next, start);
        self.next += 1;
    }

    pub fn forget(&mut self, start: u64) {
        if let Some(touch) = self.by_start.remove(&start) {
            self.by_touch.remove(&touch);
        }
    }

    /// Updates the blocks after `from..to` was erased. A block that began before the range keeps its touch. A
    /// block that continues after the range (`goes_on`) keeps its touch under its new start.
    pub fn erased(&mut self, from: u64, to: u64, goes_on: bool) {
        let last = self.by_start.range(..to).next_back().map(|(_, touch)| *touch);
        let gone: Vec<u64> = self.by_start.range(from..to).map(|(start, _)| *start).collect();
        let split = gone.is_empty();
        gone.into_iter().for_each(|start| self.forget(start));
        if let (true, Some(touch)) = (goes_on, last) {
            // A block that was split in the middle is now two blocks, and no two blocks may have the same
            // touch.
            let touch = if split { self.next } else { touch };
            self.next += u64::from(split);
            self.by_start.insert(to, touch);
            self.by_touch.insert(touch, to);
        }
    }

    pub fn clear(&mut self) {
        *self = Self::default();
    }
}
