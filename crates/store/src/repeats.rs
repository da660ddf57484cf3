//! The names that a listing has returned, so that a name the server repeats is returned once.
//!
//! The folder of a WebDAV server is one answer: all its names are remembered, as hashes. The listing of other
//! stores has no end: only its latest names are. They cover pages that overlap. (Rejected: to skip each name
//! that is not greater than the last one. Directory buckets of S3 and hierarchical namespaces of Azure list
//! in another order, and their objects would be lost.)

use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasher, RandomState};

/// How many names of a store with pages are remembered: some four pages.
const LATEST: usize = 4096;

/// The names that were returned.
#[derive(Default)]
pub(crate) struct Returned {
    /// A name is hashed with a key of this process, so a server cannot choose names with the same hash.
    keys: RandomState,
    names: HashSet<u64>,
    /// The hashes of the latest names by age.
    latest: VecDeque<u64>,
}

/// How many of the returned names are remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Remembered {
    /// All, until [`Returned::forget`].
    All,
    /// The latest ones.
    Latest,
}

impl Returned {
    /// True if the name is among the remembered ones.
    pub(crate) fn contains(&self, name: &str) -> bool {
        self.names.contains(&self.keys.hash_one(name))
    }

    /// Adds a name that is returned now.
    pub(crate) fn add(&mut self, name: &str, remembered: Remembered) {
        let hash = self.keys.hash_one(name);
        if !self.names.insert(hash) || remembered == Remembered::All {
            return;
        }
        self.latest.push_back(hash);
        if self.latest.len() > LATEST
            && let Some(oldest) = self.latest.pop_front()
        {
            self.names.remove(&oldest);
        }
    }

    /// Forgets all names, and frees their memory.
    pub(crate) fn forget(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_names_are_remembered_or_all_of_them() {
        let names: Vec<String> = (0..LATEST + 10).map(|number| number.to_string()).collect();
        for (remembered, forgotten) in [(Remembered::Latest, 10), (Remembered::All, 0)] {
            let mut returned = Returned::default();
            names.iter().for_each(|name| returned.add(name, remembered));
            assert_eq!(names.iter().filter(|name| !returned.contains(name)).count(), forgotten);
            assert!(returned.contains(&names[10]) && !returned.contains("other"));
            returned.forget();
            assert!(!returned.contains(&names[10]));
        }
    }
}
