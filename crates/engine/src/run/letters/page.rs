//! Letters that are stored in one write.

use thalweg_record::{Budget, Lease};

use super::Rejected;
use crate::store::DeadLetter;

/// A page with this many bytes of letters is stored before more are made.
const FULL: usize = 1 << 20;
/// The memory of a letter until it is stored, as a multiple of its size: the letter, its text, and the text
/// in the write and in the database.
const COPIES: usize = 4;

/// Letters that are stored in one write, in groups that can be stored alone.
#[derive(Default)]
pub(super) struct Page {
    pub(super) groups: Vec<Group>,
    count: usize,
    bytes: usize,
    /// Charges the letters to the budget.
    _leases: Vec<Lease>,
}

/// Letters that are stored together.
pub(super) struct Group {
    pub(super) letters: Vec<DeadLetter>,
    /// Rejected messages or files that have no letters after these.
    pub(super) ends: Vec<Rejected>,
}

impl Page {
    /// Adds a group of letters.
    pub(super) fn add(&mut self, letters: Vec<DeadLetter>, budget: &Budget) {
        let bytes = letters.iter().map(DeadLetter::size).sum::<usize>();
        self._leases.push(budget.claim(bytes.saturating_mul(COPIES)));
        self.count += letters.len();
        self.bytes += bytes;
        self.groups.push(Group { letters, ends: Vec::new() });
    }

    /// Notes that all letters of `rejected` were added. Returns it if the page has none of them.
    pub(super) fn end(&mut self, rejected: Rejected) -> Option<Rejected> {
        match self.groups.last_mut() {
            Some(group) => {
                group.ends.push(rejected);
                None
            }
            None => Some(rejected),
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.bytes >= FULL
    }

    pub(super) fn letters(&self) -> impl Iterator<Item = &DeadLetter> {
        self.groups.iter().flat_map(|group| &group.letters)
    }
}
