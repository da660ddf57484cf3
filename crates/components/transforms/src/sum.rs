//! Sums of numbers: of `aggregate` and `reduce`.

use serde::{Deserialize, Serialize};

use crate::scalar::{Number, Scalar, bits};

/// The sum of numbers. That of integers is exact, that of floats is compensated (Neumaier).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Sum {
    count: u64,
    /// The sum of the integers: its upper and lower 64 bits.
    upper: i64,
    lower: u64,
    has_floats: bool,
    #[serde(with = "bits")]
    floats: f64,
    #[serde(with = "bits")]
    compensation: f64,
}

impl Sum {
    fn whole(&self) -> i128 {
        (i128::from(self.upper) << 64) | i128::from(self.lower)
    }

    fn add_whole(&mut self, value: i128) {
        let sum = self.whole().saturating_add(value);
        (self.upper, self.lower) = ((sum >> 64) as i64, sum as u64);
    }

    fn add_float(&mut self, value: f64) {
        self.has_floats = true;
        let sum = self.floats + value;
        if sum.is_finite() {
            self.compensation += match self.floats.abs() >= value.abs() {
                true => (self.floats - sum) + value,
                false => (value - sum) + self.floats,
            };
        } else {
            self.compensation = 0.0;
        }
        self.floats = sum;
    }

    /// Adds a number.
    pub(crate) fn add(&mut self, number: Number) {
        self.count = self.count.saturating_add(1);
        match number {
            Number::Int(value) => self.add_whole(i128::from(value)),
            Number::Float(value) => self.add_float(value),
        }
    }

    /// Adds the numbers of another sum.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.count = self.count.saturating_add(other.count);
        self.add_whole(other.whole());
        if other.has_floats {
            self.add_float(other.floats);
            if self.floats.is_finite() {
                self.compensation += other.compensation;
            }
        }
    }

    fn as_float(&self) -> f64 {
        self.whole() as f64 + (self.floats + self.compensation)
    }

    /// Returns the sum. NULL if nothing was added.
    pub(crate) fn sum(&self) -> Scalar {
        match i64::try_from(self.whole()) {
            _ if self.count == 0 => Scalar::Null,
            Ok(sum) if !self.has_floats => Scalar::Int(sum),
            _ => Scalar::Float(self.as_float()),
        }
    }

    /// Returns the mean. NULL if nothing was added.
    pub(crate) fn mean(&self) -> Scalar {
        match self.count {
            0 => Scalar::Null,
            count => Scalar::Float(self.as_float() / count as f64),
        }
    }
}
