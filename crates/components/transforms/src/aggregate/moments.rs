//! Variances, by the algorithm of Welford. Two of them are merged by that of Chan, Golub and LeVeque.
//!
//! A sum of squares was rejected: if numbers are large and differ little, it has none of their difference.

use serde::{Deserialize, Serialize};

use crate::scalar::{Scalar, bits};

/// The number of numbers, their mean, and the sum of the squares of their differences from it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Moments {
    count: u64,
    #[serde(with = "bits")]
    mean: f64,
    #[serde(with = "bits")]
    squares: f64,
}

impl Moments {
    pub(super) fn add(&mut self, number: f64) {
        self.count = self.count.saturating_add(1);
        let before = number - self.mean;
        self.mean += before / self.count as f64;
        self.squares += before * (number - self.mean);
    }

    /// Adds the numbers of another one.
    pub(super) fn merge(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        if self.count == 0 {
            *self = other.clone();
            return;
        }
        let (own, its) = (self.count as f64, other.count as f64);
        let difference = other.mean - self.mean;
        self.mean += difference * (its / (own + its));
        self.squares += other.squares + difference * difference * (own * (its / (own + its)));
        self.count = self.count.saturating_add(other.count);
    }

    fn sample(&self) -> Option<f64> {
        (self.count > 1).then(|| self.squares / (self.count - 1) as f64)
    }

    /// Returns the variance of the sample, of at least two numbers.
    pub(super) fn variance(&self) -> Scalar {
        self.sample().map_or(Scalar::Null, Scalar::Float)
    }

    /// Returns the standard deviation of the sample, of at least two numbers.
    pub(super) fn deviation(&self) -> Scalar {
        self.sample().map_or(Scalar::Null, |variance| Scalar::Float(variance.sqrt()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(numbers: &[f64]) -> Moments {
        let mut moments = Moments::default();
        numbers.iter().for_each(|number| moments.add(*number));
        moments
    }

    fn exact(numbers: &[f64]) -> f64 {
        let mean = numbers.iter().sum::<f64>() / numbers.len() as f64;
        numbers.iter().map(|number| (number - mean).powi(2)).sum::<f64>() / (numbers.len() - 1) as f64
    }

    proptest! {
        #[test]
        fn a_variance_is_that_of_its_definition_however_it_is_merged(
            numbers in prop::collection::vec(-1e3..1e3_f64, 2..60),
            at in any::<prop::sample::Index>(),
        ) {
            let (first, rest) = numbers.split_at(at.index(numbers.len()));
            let mut merged = of(first);
            merged.merge(&of(rest));
            for moments in [merged, of(&numbers)] {
                let found = moments.sample().unwrap();
                prop_assert!((found - exact(&numbers)).abs() <= 1e-9 * (1.0 + exact(&numbers)), "{}", found);
                let saved = serde_json::to_value(&moments).unwrap().to_string();
                prop_assert_eq!(serde_json::from_str::<Moments>(&saved).unwrap(), moments);
            }
        }
    }

    #[test]
    fn one_number_has_no_variance_and_large_numbers_keep_theirs() {
        assert_eq!(of(&[]).variance(), Scalar::Null);
        assert_eq!(of(&[5.0]).deviation(), Scalar::Null);
        assert_eq!(of(&[5.0, 5.0]).variance(), Scalar::Float(0.0));
        assert_eq!(of(&[1e15 + 1.0, 1e15 + 3.0]).variance(), Scalar::Float(2.0));
        assert_eq!(of(&[1.0, 3.0, 5.0]).deviation(), Scalar::Float(2.0));
    }
}
