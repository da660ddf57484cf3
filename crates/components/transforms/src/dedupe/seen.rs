//! The keys of the last new messages: the newest in memory, the older ones in files.
//!
//! Keys are numbered in the order of their first messages. All keys below a number are forgotten at once, so
//! nothing is ever removed from a file: a file goes when its last key is forgotten, and a key that comes
//! again after it was forgotten gets a new number. Eight files of a size are merged into one, so that few
//! files are looked into. The embedded database of the state was rejected: it counts nothing on the budget,
//! and it would have to delete each key that is forgotten.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use hashbrown::HashTable;
use thalweg_engine::Temporaries;
use thalweg_record::Share;

use super::run::Run;
use crate::kept::Kept;

/// The bytes of a key in memory: itself, and its place in a hash table that is half full.
const KEY: usize = 40;
/// The part of the budget for keys in memory: one in this many bytes.
const PART: usize = 8;
/// The number of files of a size that are merged into one.
const MERGED: usize = 8;
/// Times are kept to this part of the time for which keys are remembered.
const STEPS: u32 = 4096;

/// The keys of the last new messages.
pub(super) struct Seen {
    window: u64,
    within: Option<Duration>,
    /// The maximum number of keys in memory.
    most: usize,
    /// The newest keys, and for each the lower half of its number.
    recent: VecDeque<u128>,
    places: HashTable<u32>,
    /// Older keys, the oldest first.
    runs: VecDeque<Run>,
    /// The number of the next new key.
    next: u64,
    /// The lowest number that is remembered.
    least: u64,
    /// The first number of each span of time, and when it came, since 1970.
    times: VecDeque<(u64, Duration)>,
    temporary: Temporaries,
    kept: Kept,
}

impl Seen {
    /// Remembers the last `window` keys, for at most `within`.
    pub(super) fn new(
        window: usize,
        within: Option<Duration>,
        memory: &Share,
        temporary: Temporaries,
    ) -> Self {
        Self {
            window: window.max(1) as u64,
            within,
            most: (memory.budget().limit() / PART / KEY).clamp(1 << 12, 1 << 20),
            recent: VecDeque::new(),
            places: HashTable::new(),
            runs: VecDeque::new(),
            next: 0,
            least: 0,
            times: VecDeque::new(),
            temporary,
            kept: Kept::new(memory),
        }
    }

    /// Returns the number of the next new key.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Returns the lowest number that is remembered.
    pub(super) fn least(&self) -> u64 {
        self.least
    }

    /// Forgets all keys, and continues with this number.
    pub(super) fn begin_at(&mut self, number: u64) {
        (self.next, self.least) = (number, number);
        self.recent.clear();
        self.places.clear();
        self.runs.clear();
        self.times.clear();
    }

    /// Forgets the keys whose time is over, and counts the memory of the others.
    pub(super) fn expire(&mut self, now: Duration) {
        if let Some(within) = self.within {
            while let Some((_, time)) = self.times.front()
                && now.saturating_sub(*time) >= within
            {
                self.times.pop_front();
                let end = self.times.front().map_or(self.next, |(number, _)| *number);
                self.forget_below(end);
            }
        }
        let files: usize = self.runs.iter().map(Run::bytes).sum();
        let places = self.places.capacity() / 7 * 8 * (size_of::<u32>() + 1);
        self.kept.set(self.recent.capacity() * size_of::<u128>() + places + files);
    }

    /// Remembers the key. Returns true if it is new.
    pub(super) fn insert(&mut self, key: u128, now: Duration) -> io::Result<bool> {
        if self.has(key)? {
            return Ok(false);
        }
        self.push(key, now)?;
        Ok(true)
    }

    fn has(&self, key: u128) -> io::Result<bool> {
        let first = self.first_recent();
        let is_it = |&place: &u32| self.recent.get(place.wrapping_sub(first as u32) as usize) == Some(&key);
        if self.places.find(key as u64, is_it).is_some() {
            return Ok(true);
        }
        for run in self.runs.iter().rev() {
            if let Some(number) = run.get(key)? {
                return Ok(number >= self.least);
            }
        }
        Ok(false)
    }

    /// Returns the number of the first key in memory.
    fn first_recent(&self) -> u64 {
        self.next - self.recent.len() as u64
    }

    /// Remembers a key that is known to be new.
    pub(super) fn push(&mut self, key: u128, now: Duration) -> io::Result<()> {
        if let Some(within) = self.within {
            let step = within / STEPS;
            if self.times.back().is_none_or(|(_, time)| now.saturating_sub(*time) >= step) {
                self.times.push_back((self.next, now));
            }
        }
        if self.next - self.least >= self.window {
            self.forget_below(self.next + 1 - self.window);
        }
        if self.recent.len() >= self.most {
            self.spill()?;
        }
        self.recent.push_back(key);
        self.next += 1;
        self.place(self.next - 1, key);
        Ok(())
    }

    fn place(&mut self, number: u64, key: u128) {
        let Self { places, recent, next, .. } = self;
        let first = (*next - recent.len() as u64) as u32;
        let hash = |&place: &u32| recent.get(place.wrapping_sub(first) as usize).map_or(0, |&key| key as u64);
        places.insert_unique(key as u64, number as u32, hash);
    }

    fn forget_below(&mut self, number: u64) {
        self.least = self.least.max(number);
        while self.first_recent() < self.least {
            let place = self.first_recent() as u32;
            let Some(key) = self.recent.pop_front() else { break };
            if let Ok(found) = self.places.find_entry(key as u64, |&other| other == place) {
                found.remove();
            }
        }
        while self.runs.front().is_some_and(|run| run.last < self.least) {
            self.runs.pop_front();
        }
    }

    /// Moves the older half of the keys in memory to a file.
    fn spill(&mut self) -> io::Result<()> {
        let first = self.first_recent();
        let count = self.recent.len() / 2;
        let mut entries: Vec<_> = self.recent.drain(..count).zip(first..).collect();
        entries.sort_unstable();
        self.runs.push_back(Run::write(&self.temporary, 0, count, entries.into_iter().map(Ok))?);
        self.places.clear();
        for (at, number) in (first + count as u64..self.next).enumerate() {
            if let Some(&key) = self.recent.get(at) {
                self.place(number, key);
            }
        }
        self.merge()
    }

    fn merge(&mut self) -> io::Result<()> {
        while let Some(level) = self.runs.back().map(|run| run.level) {
            let alike = self.runs.iter().rev().take_while(|run| run.level == level).count();
            if alike < MERGED {
                break;
            }
            let parts: Vec<Run> = self.runs.drain(self.runs.len() - alike..).collect();
            self.runs.push_back(Run::merge(&self.temporary, &parts, self.least)?);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use thalweg_engine::testing::context;
    use thalweg_record::Budget;

    fn seen(window: usize, within: Option<Duration>) -> Seen {
        Seen::new(window, within, &context().memory, context().temporary)
    }

    #[test]
    fn a_key_passes_again_when_its_time_is_over() {
        let start = Duration::from_secs(1000);
        let mut seen = seen(10, Some(Duration::from_secs(5)));
        assert!(seen.insert(1, start).unwrap());
        for (seconds, is_new) in [(1, false), (4, false), (5, true), (9, false), (10, true)] {
            let now = start + Duration::from_secs(seconds);
            seen.expire(now);
            assert_eq!(seen.insert(1, now).unwrap(), is_new, "{seconds}");
        }
    }

    #[test]
    fn keys_that_do_not_fit_are_remembered_in_files_and_count_on_the_budget() {
        let budget = Budget::new(1 << 20);
        let mut seen = Seen::new(50_000, None, &budget.share(), context().temporary);
        let now = Duration::ZERO;
        let key = |n: u64| u128::from(n.wrapping_mul(0x9e37_79b9_7f4a_7c15)) << 64 | u128::from(n * 7);
        for n in 0..100_000 {
            assert!(seen.insert(key(n), now).unwrap(), "{n}");
            assert!(!seen.insert(key(n.saturating_sub(49_999)), now).unwrap(), "{n}");
        }
        seen.expire(now);
        assert!(seen.recent.len() <= 4096 && seen.runs.len() <= 2 * MERGED, "{}", seen.runs.len());
        assert!((100_000..400_000).contains(&budget.used()), "{}", budget.used());
        drop(seen);
        assert_eq!(budget.used(), 0);
    }

    proptest! {
        #[test]
        fn files_are_like_memory(
            keys in prop::collection::vec(0..60_u128, 0..400),
            window in 1..50_usize,
            most in 2..9_usize,
        ) {
            let now = Duration::ZERO;
            let (mut in_memory, mut in_files) = (seen(window, None), seen(window, None));
            in_files.most = most;
            for key in keys {
                let key = key.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
                prop_assert_eq!(in_files.insert(key, now).unwrap(), in_memory.insert(key, now).unwrap());
            }
        }
    }
}
