//! Sets of sequence numbers, as ranges.
//!
//! A consumer delivers the messages of a stream nearly in order, so that thousands of numbers are few ranges.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// A set of numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Sequences {
    /// The last number of each range, by its first. Ranges do not touch each other.
    ranges: BTreeMap<u64, u64>,
}

impl Sequences {
    /// Adds all numbers from `first` to `last`.
    pub(super) fn add(&mut self, mut first: u64, mut last: u64) {
        // The ranges that begin within it or just after it, and the one that reaches into it from before.
        while let Some((&begin, &end)) = self.ranges.range(..=last.saturating_add(1)).next_back() {
            if end.saturating_add(1) < first {
                break;
            }
            self.ranges.remove(&begin);
            (first, last) = (first.min(begin), last.max(end));
        }
        self.ranges.insert(first, last);
    }

    /// Removes a number.
    pub(super) fn remove(&mut self, number: u64) {
        let Some((&begin, &end)) = self.ranges.range(..=number).next_back() else { return };
        if end < number {
            return;
        }
        self.ranges.remove(&begin);
        if begin < number {
            self.ranges.insert(begin, number - 1);
        }
        if number < end {
            self.ranges.insert(number + 1, end);
        }
    }

    /// Removes all numbers up to `last`.
    pub(super) fn remove_through(&mut self, last: u64) {
        while let Some((&begin, &end)) = self.ranges.range(..=last).next() {
            self.ranges.remove(&begin);
            if last < end {
                self.ranges.insert(last + 1, end);
            }
        }
    }

    /// Returns the number of ranges.
    pub(super) fn ranges(&self) -> usize {
        self.ranges.len()
    }

    /// True if the set has the number.
    pub(super) fn contains(&self, number: u64) -> bool {
        self.ranges.range(..=number).next_back().is_some_and(|(_, end)| *end >= number)
    }

    /// Returns the set for a checkpoint: pairs of a first and a last number.
    pub(super) fn to_value(&self) -> Value {
        self.ranges.iter().map(|(first, last)| json!([first, last])).collect()
    }

    /// Returns the set that [`to_value`](Self::to_value) wrote. Other values are ignored.
    pub(super) fn from_value(value: &Value) -> Self {
        let mut sequences = Self::default();
        for range in value.as_array().into_iter().flatten() {
            if let (Some(first), Some(last)) = (range[0].as_u64(), range[1].as_u64())
                && first <= last
            {
                sequences.add(first, last);
            }
        }
        sequences
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[derive(Debug, Clone)]
    enum Step {
        Add(u64, u64),
        Remove(u64),
        RemoveThrough(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            (0..60_u64, 0..8_u64).prop_map(|(first, more)| Step::Add(first, first + more)),
            (0..70_u64).prop_map(Step::Remove),
            (0..20_u64).prop_map(Step::RemoveThrough),
        ];
        proptest::collection::vec(step, 0..40)
    }

    proptest! {
        #[test]
        fn it_has_the_numbers_of_a_plain_set_and_no_ranges_that_touch(steps in steps()) {
            let mut model = BTreeSet::new();
            let mut sequences = Sequences::default();
            for step in steps {
                match step {
                    Step::Add(first, last) => {
                        model.extend(first..=last);
                        sequences.add(first, last);
                    }
                    Step::Remove(number) => {
                        model.remove(&number);
                        sequences.remove(number);
                    }
                    Step::RemoveThrough(last) => {
                        model.retain(|number| *number > last);
                        sequences.remove_through(last);
                    }
                }
                let found: BTreeSet<u64> = (0..80).filter(|number| sequences.contains(*number)).collect();
                prop_assert_eq!(&found, &model);
                let gaps = model.iter().filter(|number| !model.contains(&(*number + 1))).count();
                prop_assert_eq!(sequences.ranges.len(), gaps);
            }
            prop_assert_eq!(Sequences::from_value(&sequences.to_value()), sequences);
        }
    }

    #[test]
    fn the_largest_number_and_values_that_are_no_ranges_do_no_harm() {
        let mut sequences = Sequences::default();
        sequences.add(u64::MAX, u64::MAX);
        sequences.add(u64::MAX - 1, u64::MAX);
        assert!(sequences.contains(u64::MAX) && sequences.contains(u64::MAX - 1));
        sequences.remove(u64::MAX);
        assert_eq!(sequences.to_value(), json!([[u64::MAX - 1, u64::MAX - 1]]));
        sequences.remove_through(u64::MAX);
        assert_eq!(sequences, Sequences::default());
        let odd = json!([[5, 4], [1], "a", [-1, 3], [2, 3], null]);
        assert_eq!(Sequences::from_value(&odd).to_value(), json!([[2, 3]]));
    }
}
