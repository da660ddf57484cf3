//! Jobs that become due, in the order of time, and in the order of creation where times are equal.
//!
//! Waits for the next turn are due at once, and are most of all. They arrive in the order of time, so they
//! stand in a queue of their own. All others are in a balanced tree, from which a cancelled one is removed at
//! once. A heap as asyncio has was rejected: it keeps cancelled timers until they are due, and has no order
//! among equal times.

use std::cmp::Ordering;
use std::collections::{BTreeMap, VecDeque};

/// When something is due, and its number in the order of creation.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    /// In seconds of `time.monotonic()`.
    pub due: f64,
    number: u64,
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Key {}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        self.due.total_cmp(&other.due).then(self.number.cmp(&other.number))
    }
}

/// Things that become due.
pub struct Timers<T> {
    at_once: VecDeque<(Key, Option<T>)>,
    later: BTreeMap<Key, T>,
    made: u64,
}

impl<T> Default for Timers<T> {
    fn default() -> Self {
        Self { at_once: VecDeque::new(), later: BTreeMap::new(), made: 0 }
    }
}

impl<T> Timers<T> {
    fn key(&mut self, due: f64) -> Key {
        self.made += 1;
        Key { due, number: self.made }
    }

    /// Adds something that is due later.
    pub fn add(&mut self, due: f64, what: T) -> Key {
        let key = self.key(due);
        self.later.insert(key, what);
        key
    }

    /// Adds something that is due now. The clock is only asked if something else is due at a time.
    pub fn add_due(&mut self, clock: impl FnOnce() -> f64, what: T) -> Key {
        let now = match self.at_once.back() {
            _ if !self.is_timeless() => clock(),
            Some((last, _)) => last.due,
            None => f64::NEG_INFINITY,
        };
        let key = self.key(now);
        // A clock of a test may go back.
        if self.at_once.back().is_some_and(|(last, _)| *last > key) {
            self.later.insert(key, what);
        } else {
            self.at_once.push_back((key, Some(what)));
        }
        key
    }

    /// Removes something, and returns it if it was still there.
    pub fn remove(&mut self, key: Key) -> Option<T> {
        if let Some(found) = self.later.remove(&key) {
            return Some(found);
        }
        let at = self.at_once.binary_search_by(|(other, _)| other.cmp(&key)).ok()?;
        self.at_once.get_mut(at)?.1.take()
    }

    /// The number of the last thing that was added.
    pub fn made(&self) -> u64 {
        self.made
    }

    /// Removes and returns the first thing that is due, unless it was added after the one with the number
    /// `last`.
    pub fn fire(&mut self, now: f64, last: u64) -> Option<T> {
        loop {
            let is_due = |key: &Key| key.due <= now && key.number <= last;
            let soon = self.at_once.front().map(|(key, _)| *key).filter(is_due);
            let later = self.later.first_key_value().map(|(key, _)| *key).filter(is_due);
            match (soon, later) {
                (Some(soon), later) if later.is_none_or(|later| soon < later) => {
                    if let Some((_, Some(what))) = self.at_once.pop_front() {
                        return Some(what);
                    }
                }
                (_, Some(_)) => return self.later.pop_first().map(|(_, what)| what),
                _ => return None,
            }
        }
    }

    /// When the first thing is due.
    pub fn next_due(&self) -> Option<f64> {
        let soon = self.at_once.iter().find(|(_, what)| what.is_some()).map(|(key, _)| key.due);
        let later = self.later.first_key_value().map(|(key, _)| key.due);
        match (soon, later) {
            (Some(soon), Some(later)) => Some(soon.min(later)),
            (soon, later) => soon.or(later),
        }
    }

    /// True if all things are due at once.
    pub fn is_timeless(&self) -> bool {
        self.later.is_empty()
    }

    /// True if there is nothing.
    pub fn is_empty(&self) -> bool {
        self.at_once.is_empty() && self.later.is_empty()
    }

    /// All things, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.at_once.iter().filter_map(|(_, what)| what.as_ref()).chain(self.later.values())
    }
}
