//! The most frequent values, by Space-Saving (Metwally, Agrawal and El Abbadi, 2005).
//!
//! A number of values have counters. A value without one takes the counter of the least frequent value, and
//! its count plus one: so a count is never too low, and too high by at most the count that was taken over.
//! The counts add up to no more than the number of values, so that is at most this number divided by that of
//! counters. The bound also holds for merged counters: a value that only one side has gets the least count of
//! the other side, and the greatest counts of both stay.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

use crate::scalar::{Scalar, View};

/// The most values of a result.
pub(super) const LONGEST: usize = 100;
/// The counters for each value of a result, and the least number of counters.
const PER_VALUE: usize = 10;
const LEAST: usize = 100;

/// Counts the most frequent values.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Top {
    /// The number of values in a result.
    most: usize,
    /// The hashes of the values, apart from the counters: they are searched for each message.
    hashes: Vec<u64>,
    counters: Vec<Counter>,
    /// The bytes of all texts.
    text: usize,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Counter {
    value: Scalar,
    count: u64,
    /// By how much the count may be too high.
    error: u64,
}

impl Top {
    pub(super) fn new(most: usize) -> Self {
        Self { most, hashes: Vec::new(), counters: Vec::new(), text: 0 }
    }

    fn size(&self) -> usize {
        (self.most * PER_VALUE).max(LEAST)
    }

    /// The place of the least count.
    fn least(&self) -> Option<usize> {
        let places = self.counters.iter().enumerate();
        places.min_by_key(|(_, counter)| counter.count).map(|(place, _)| place)
    }

    /// How often a value without a counter may have come.
    fn floor(&self) -> u64 {
        let least = self.least().filter(|_| self.counters.len() >= self.size());
        least.map_or(0, |place| self.counters[place].count)
    }

    /// The place of the counter of a value among the first ones. Values are compared, too: a sender could
    /// make two with one hash.
    fn place(&self, value: View<'_>, hash: u64, first: usize) -> Option<usize> {
        let is_it = |(known, counter): (&u64, &Counter)| {
            *known == hash && counter.value.view().compare(value) == Ordering::Equal
        };
        self.hashes.iter().zip(&self.counters).take(first).position(is_it)
    }

    /// Adds a value, which has this hash.
    pub(super) fn add(&mut self, value: View<'_>, hash: u64) {
        if let Some(place) = self.place(value, hash, self.counters.len()) {
            let counter = &mut self.counters[place];
            counter.count = counter.count.saturating_add(1);
            return;
        }
        let floor = self.floor();
        let counter = Counter { value: value.to_scalar(), count: floor.saturating_add(1), error: floor };
        self.text += value.heap();
        if self.counters.len() < self.size() {
            self.hashes.push(hash);
            self.counters.push(counter);
        } else if let Some(place) = self.least() {
            self.hashes[place] = hash;
            let former = std::mem::replace(&mut self.counters[place], counter);
            self.text -= former.value.view().heap();
        }
    }

    /// Adds the values of another one.
    pub(super) fn merge(&mut self, other: Self) {
        let (floor, its_floor) = (self.floor(), other.floor());
        let own = self.hashes.len();
        let mut is_in_both = vec![false; own];
        for (hash, mut counter) in other.hashes.into_iter().zip(other.counters) {
            match self.place(counter.value.view(), hash, own) {
                Some(place) => {
                    is_in_both[place] = true;
                    self.counters[place].raise(counter.count, counter.error);
                }
                None => {
                    counter.raise(floor, floor);
                    self.hashes.push(hash);
                    self.counters.push(counter);
                }
            }
        }
        let only_here = self.counters.iter_mut().zip(&is_in_both).filter(|(_, is_in_both)| !**is_in_both);
        only_here.for_each(|(counter, _)| counter.raise(its_floor, its_floor));
        let size = self.size();
        let mut counted: Vec<(u64, Counter)> =
            std::mem::take(&mut self.hashes).into_iter().zip(std::mem::take(&mut self.counters)).collect();
        if counted.len() > size {
            counted.sort_by(|(hash, one), (other_hash, other)| {
                other.count.cmp(&one.count).then(hash.cmp(other_hash))
            });
            counted.truncate(size);
        }
        (self.hashes, self.counters) = counted.into_iter().unzip();
        self.text = self.texts();
    }

    fn texts(&self) -> usize {
        self.counters.iter().map(|counter| counter.value.view().heap()).sum()
    }

    /// Returns a JSON array, the most frequent value first, or NULL if there is no value.
    pub(super) fn result(&self) -> Scalar {
        if self.counters.is_empty() {
            return Scalar::Null;
        }
        let mut sorted: Vec<&Counter> = self.counters.iter().collect();
        sorted.sort_by(|one, other| {
            let counts = other.count.cmp(&one.count).then(one.error.cmp(&other.error));
            counts.then_with(|| one.value.view().compare(other.value.view()))
        });
        let mut text = String::new();
        for Counter { value, count, error } in sorted.into_iter().take(self.most) {
            text.push(if text.is_empty() { '[' } else { ',' });
            let value = value.to_json().unwrap_or_else(|| "null".to_owned());
            text.push_str(&format!("{{\"value\":{value},\"count\":{count},\"error\":{error}}}"));
        }
        text.push(']');
        Scalar::Json(text.into())
    }

    /// The bytes on the heap.
    pub(super) fn heap(&self) -> usize {
        self.hashes.capacity() * size_of::<u64>()
            + self.counters.capacity() * size_of::<Counter>()
            + self.text
    }

    /// True if it can be used: a state may be damaged.
    pub(super) fn is_valid(&self, most: usize) -> bool {
        self.most == most
            && self.counters.len() <= self.size()
            && self.hashes.len() == self.counters.len()
            && self.text == self.texts()
    }
}

impl Counter {
    fn raise(&mut self, count: u64, error: u64) {
        self.count = self.count.saturating_add(count);
        self.error = self.error.saturating_add(error);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use proptest::prelude::*;
    use thalweg_codec::keys::hash_bytes;

    fn of(values: &[i64]) -> Top {
        let mut top = Top::new(2);
        values.iter().for_each(|value| top.add(View::Int(*value), hash_bytes(&value.to_le_bytes())));
        top
    }

    proptest! {
        #[test]
        fn counts_are_within_their_bound_however_they_are_merged(
            // More values than counters, of which few are frequent.
            values in prop::collection::vec(prop_oneof![0..3_i64, 0..400_i64], 0..900),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
        ) {
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(values.len() + 1)).collect();
            cuts.sort_unstable();
            let (mut merged, mut start) = (of(&[]), 0);
            for end in cuts.into_iter().chain([values.len()]) {
                merged.merge(of(&values[start..end]));
                start = end;
            }
            let mut exact: HashMap<i64, u64> = HashMap::new();
            values.iter().for_each(|value| *exact.entry(*value).or_default() += 1);
            for top in [merged, of(&values)] {
                prop_assert!(top.is_valid(2));
                let bound = values.len() as u64 / top.size() as u64;
                prop_assert!(top.floor() <= bound);
                for counter in &top.counters {
                    let Scalar::Int(value) = counter.value else { panic!("{:?}", counter.value) };
                    let real = exact.get(&value).copied().unwrap_or_default();
                    prop_assert!(counter.error <= bound);
                    prop_assert!(real <= counter.count && counter.count <= real + counter.error);
                }
                // A value that is more frequent than the bound has a counter.
                let known = |value: &i64| top.counters.iter().any(|counter| counter.value == Scalar::Int(*value));
                prop_assert!(exact.iter().all(|(value, count)| *count <= bound || known(value)));
                let saved = serde_json::to_value(&top).unwrap().to_string();
                prop_assert_eq!(serde_json::from_str::<Top>(&saved).unwrap(), top);
            }
        }
    }

    #[test]
    fn a_result_has_the_most_frequent_values_first() {
        assert_eq!(of(&[]).result(), Scalar::Null);
        let expected = "[{\"value\":7,\"count\":2,\"error\":0},{\"value\":1,\"count\":1,\"error\":0}]";
        assert_eq!(of(&[3, 7, 1, 7]).result(), Scalar::Json(expected.into()));
    }

    /// The second value was counted for the first one.
    #[test]
    fn values_that_are_made_to_have_one_hash_have_a_counter_each() {
        let of = |value: &str| {
            let mut top = Top::new(2);
            top.add(View::Text(value), 5);
            top.add(View::Text(value), 5);
            top
        };
        let mut top = of("a");
        top.add(View::Text("b"), 5);
        top.merge(of("b"));
        let expected =
            "[{\"value\":\"b\",\"count\":3,\"error\":0},{\"value\":\"a\",\"count\":2,\"error\":0}]";
        assert_eq!(top.result(), Scalar::Json(expected.into()));
    }

    #[test]
    fn the_memory_is_that_of_the_present_texts_and_a_damaged_state_is_found() {
        let mut top = Top::new(1);
        for number in 0..300_u64 {
            top.add(View::Text(&"x".repeat(number as usize)), number);
        }
        assert!(top.is_valid(1) && !top.is_valid(2));
        assert_eq!((top.counters.len(), top.text), (LEAST, top.texts()));
        top.hashes.pop();
        assert!(!top.is_valid(1));
    }
}
