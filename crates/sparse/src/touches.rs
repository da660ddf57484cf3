//! In which order the blocks of a file were last used, exactly, a number for each.
//!
//! A pool needs no such thing: it notes the use of chunks. This is for those who want each block's number, and
//! want whole blocks to go. It costs about fifty bytes a block and a lock that all reads and writes of the file
//! wait for.

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

    /// The touch of each block and where the block starts, the least recent first.
    pub fn list(&self) -> Vec<(u64, u64)> {
        self.by_touch.iter().map(|(touch, start)| (*touch, *start)).collect()
    }

    pub fn least_recent(&self) -> Option<u64> {
        self.by_touch.first_key_value().map(|(_, start)| *start)
    }

    /// The start of the block that `position` is in, if it is in one.
    pub fn start(&self, position: u64) -> u64 {
        self.by_start.range(..=position).next_back().map_or(position, |(start, _)| *start)
    }

    /// The block that starts at `start` was used; those that start behind it up to and with `end` are part of it now.
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

    /// What is left of the blocks in `from..to` after that range was erased: a block that began before it keeps its
    /// touch, and one that goes on behind it has the touch that it had.
    pub fn erased(&mut self, from: u64, to: u64, goes_on: bool) {
        let last = self.by_start.range(..to).next_back().map(|(_, touch)| *touch);
        let gone: Vec<u64> = self.by_start.range(from..to).map(|(start, _)| *start).collect();
        let split = gone.is_empty();
        gone.into_iter().for_each(|start| self.forget(start));
        if let (true, Some(touch)) = (goes_on, last) {
            // A block of which both ends are left is two now, and no two have the same touch.
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
