//! Quantiles of numbers, by DDSketch (Masson, Rim and Lee, 2019).
//!
//! Numbers are counted in buckets whose bounds grow by a factor. So a quantile has a bounded relative error,
//! whatever the numbers are. t-digest was rejected: its error is a part of the ranks, so a p99 of a long tail
//! may be far off.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The largest relative error of a quantile.
pub(super) const ERROR: f64 = 0.01;
/// The factor between the bounds of a bucket.
const FACTOR: f64 = (1.0 + ERROR) / (1.0 - ERROR);
/// The most buckets of a sign. They span a factor of 10^17. Beyond it, those of the smallest numbers are
/// merged.
const BUCKETS: usize = 2000;
/// The memory of a bucket in a map, in bytes.
const BUCKET: usize = 32;

/// Counts numbers by their size.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Sketch {
    positive: BTreeMap<i32, u64>,
    negative: BTreeMap<i32, u64>,
    zeros: u64,
}

/// The bucket of a positive number.
fn bucket(number: f64) -> i32 {
    (number.ln() / FACTOR.ln()).ceil() as i32
}

/// The number that stands for those of a bucket.
fn middle(bucket: i32) -> f64 {
    // The upper bound of the last bucket is larger than all numbers.
    let bound = (f64::from(bucket) * FACTOR.ln()).exp().min(f64::MAX);
    bound * (2.0 / (FACTOR + 1.0))
}

/// Adds numbers to their bucket.
fn add(buckets: &mut BTreeMap<i32, u64>, bucket: i32, numbers: u64) {
    let count = buckets.entry(bucket).or_default();
    *count = count.saturating_add(numbers);
    if buckets.len() > BUCKETS
        && let Some((_, least)) = buckets.pop_first()
        && let Some(mut next) = buckets.first_entry()
    {
        *next.get_mut() = next.get().saturating_add(least);
    }
}

impl Sketch {
    /// Adds a finite number.
    pub(super) fn add(&mut self, number: f64) {
        if number > 0.0 {
            add(&mut self.positive, bucket(number), 1);
        } else if number < 0.0 {
            add(&mut self.negative, bucket(-number), 1);
        } else {
            self.zeros = self.zeros.saturating_add(1);
        }
    }

    /// Adds the numbers of another sketch.
    pub(super) fn merge(&mut self, other: &Self) {
        self.zeros = self.zeros.saturating_add(other.zeros);
        other.positive.iter().for_each(|(bucket, count)| add(&mut self.positive, *bucket, *count));
        other.negative.iter().for_each(|(bucket, count)| add(&mut self.negative, *bucket, *count));
    }

    /// Returns the number below which this part of the numbers lies, if there are any.
    pub(super) fn quantile(&self, part: f64) -> Option<f64> {
        let counts = self.positive.values().chain(self.negative.values());
        let count = counts.fold(self.zeros, |sum, count| sum.saturating_add(*count));
        let rank = (part * count.checked_sub(1)? as f64) as u64;
        let negative = self.negative.iter().rev().map(|(&bucket, &count)| (-middle(bucket), count));
        let positive = self.positive.iter().map(|(&bucket, &count)| (middle(bucket), count));
        let mut seen = 0_u64;
        let mut last = None;
        for (number, count) in negative.chain([(0.0, self.zeros)]).chain(positive) {
            if count == 0 {
                continue;
            }
            last = Some(number);
            seen = seen.saturating_add(count);
            if seen > rank {
                break;
            }
        }
        last
    }

    /// The bytes on the heap.
    pub(super) fn heap(&self) -> usize {
        (self.positive.len() + self.negative.len()) * BUCKET
    }

    /// True if it can be used: a state may be damaged.
    pub(super) fn is_valid(&self) -> bool {
        self.positive.len() <= BUCKETS && self.negative.len() <= BUCKETS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_quantile_is_the_number_of_its_rank_within_a_hundredth(
            numbers in prop::collection::vec(prop_oneof![-1e6..1e6, Just(0.0), 1e-6..1e-3], 1..200),
            part in 0.0..=1.0,
        ) {
            let mut sketch = Sketch::default();
            numbers.iter().for_each(|number| sketch.add(*number));
            let mut sorted = numbers.clone();
            sorted.sort_by(f64::total_cmp);
            let exact = sorted[(part * (sorted.len() - 1) as f64) as usize];
            let found = sketch.quantile(part).unwrap();
            prop_assert!((found - exact).abs() <= exact.abs() * ERROR * 1.000_001, "{} for {}", found, exact);
            let saved = serde_json::to_value(&sketch).unwrap().to_string();
            prop_assert_eq!(serde_json::from_str::<Sketch>(&saved).unwrap(), sketch);
        }
    }

    #[test]
    fn the_buckets_are_bounded_and_those_of_large_numbers_stay() {
        let mut sketch = Sketch::default();
        for exponent in -300..300 {
            for step in 0..100 {
                sketch.add(10_f64.powi(exponent) * (1.0 + f64::from(step) * 0.09));
            }
        }
        assert!(sketch.is_valid() && sketch.heap() == BUCKETS * BUCKET);
        let most = sketch.quantile(1.0).unwrap();
        assert!((most / 9.91e299 - 1.0).abs() <= ERROR * 1.000_001, "{most}");
        assert_eq!(Sketch::default().quantile(0.5), None);
    }

    #[test]
    fn the_largest_and_least_numbers_have_quantiles() {
        for number in [f64::MAX, f64::MIN, f64::MAX / 1.5, f64::MIN_POSITIVE] {
            let mut sketch = Sketch::default();
            sketch.add(number);
            let found = sketch.quantile(0.5).unwrap();
            assert!((found / number - 1.0).abs() <= ERROR * 1.000_001, "{found} for {number}");
        }
    }
}
