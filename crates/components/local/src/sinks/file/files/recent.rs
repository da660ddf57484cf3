//! Files that the run finished before its end, the oldest first.
//!
//! The saved state has them until a checkpoint covers them: their notes in the journal are needed until then.
//! Some are kept longer, for a run that continues them. A time limit of the sink finishes files at any
//! moment, so the files that a checkpoint covers are counted when the state is taken for it.

use std::collections::VecDeque;

use super::resuming::Saved;

/// Files that the run finished before its end. `None` stands for one that is written to again.
#[derive(Default)]
pub(super) struct Recent {
    entries: VecDeque<Option<Saved>>,
    /// How many of them, from the oldest, a checkpoint covers.
    covered: usize,
    /// How many of them the durable state has.
    safe: usize,
    /// How many of them the state has that was taken last.
    taken: usize,
}

impl Recent {
    /// Adds files. Without checkpoints, they count as covered.
    pub(super) fn extend(&mut self, files: Vec<Saved>, has_checkpoints: bool) {
        self.entries.extend(files.into_iter().map(Some));
        if !has_checkpoints {
            self.covered = self.entries.len();
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Saved> {
        self.entries.iter().flatten()
    }

    /// Removes the files of a name, which is written to again. Their places stay, because they are counted.
    pub(super) fn remove(&mut self, name: &str) {
        for entry in &mut self.entries {
            if entry.as_ref().is_some_and(|entry| !entry.is_not_of(name)) {
                *entry = None;
            }
        }
    }

    /// Records that the durable state is that of now.
    pub(super) fn note_safe(&mut self) {
        self.safe = self.entries.len();
    }

    /// Records that the state is taken: the durable one, or that of now.
    pub(super) fn note_state(&mut self, is_safe: bool) {
        self.taken = if is_safe { self.safe } else { self.entries.len() };
    }

    /// Returns the number of files that the state has which was taken last, and that no checkpoint covers.
    /// Zero if no more files than `most` are known.
    pub(super) fn uncovered(&self, most: usize) -> usize {
        if self.entries.len() > most { self.taken.saturating_sub(self.covered) } else { 0 }
    }

    /// Records that a checkpoint covers the first of these files.
    pub(super) fn cover(&mut self, count: usize) {
        self.covered = (self.covered + count).min(self.entries.len());
    }

    /// Drops the oldest file, if there are more than `most` and a checkpoint covers it.
    pub(super) fn pop_covered(&mut self, most: usize) -> Option<Saved> {
        while self.entries.len() > most && self.covered > 0 {
            let oldest = self.entries.pop_front()?;
            for count in [&mut self.covered, &mut self.safe, &mut self.taken] {
                *count = count.saturating_sub(1);
            }
            if oldest.is_some() {
                return oldest;
            }
        }
        None
    }
}
