//! The state of a function for one group.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};
use thalweg_codec::columns::FieldType;
use thalweg_codec::keys::hash_bytes;

use super::distinct::Distinct;
use super::function::Kind;
use super::sketch::Sketch;
use crate::scalar::{Scalar, View};
use crate::sum::Sum;

/// The state of a function for one group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) enum Accumulator {
    Count(u64),
    Sum(Sum),
    Mean(Sum),
    Min(Scalar),
    Max(Scalar),
    Distinct(Distinct),
    Quantile(Sketch),
    First(Scalar),
    Last(Scalar),
}

/// Returns a hash that equal values have. Integers are equal to floats of the same value.
fn hash(value: View<'_>, bytes: &mut Vec<u8>) -> u64 {
    bytes.clear();
    match value {
        View::Null => {}
        View::Bool(value) => bytes.extend([1, u8::from(value)]),
        View::Int(value) => number(value, bytes),
        View::Float(value) if value < i64::MAX as f64 && value as i64 as f64 == value => {
            number(value as i64, bytes);
        }
        View::Float(value) => {
            // There are many NaNs.
            let value = if value.is_nan() { f64::NAN } else { value };
            bytes.push(3);
            bytes.extend(value.to_bits().to_le_bytes());
        }
        View::Time(value) => {
            bytes.push(4);
            bytes.extend(value.to_le_bytes());
        }
        View::Text(value) => {
            bytes.push(5);
            bytes.extend(value.as_bytes());
        }
        View::Json(value) => {
            bytes.push(6);
            bytes.extend(value.as_bytes());
        }
    }
    hash_bytes(bytes)
}

fn number(value: i64, bytes: &mut Vec<u8>) {
    bytes.push(2);
    bytes.extend(value.to_le_bytes());
}

impl Accumulator {
    pub(super) fn new(kind: Kind) -> Self {
        match kind {
            Kind::Count | Kind::CountIf => Self::Count(0),
            Kind::Sum => Self::Sum(Sum::default()),
            Kind::Mean => Self::Mean(Sum::default()),
            Kind::Min => Self::Min(Scalar::Null),
            Kind::Max => Self::Max(Scalar::Null),
            Kind::Distinct => Self::Distinct(Distinct::new()),
            Kind::Quantile(_) => Self::Quantile(Sketch::default()),
            Kind::First => Self::First(Scalar::Null),
            Kind::Last => Self::Last(Scalar::Null),
        }
    }

    /// Adds a value that is not NULL. `bytes` is memory for the time of the call.
    pub(super) fn add(&mut self, value: View<'_>, bytes: &mut Vec<u8>) {
        match self {
            Self::Count(count) => *count = count.saturating_add(1),
            Self::Sum(sum) | Self::Mean(sum) => value.number().into_iter().for_each(|number| sum.add(number)),
            Self::Min(least) => replace_if(least, value, Ordering::Less),
            Self::Max(most) => replace_if(most, value, Ordering::Greater),
            Self::Distinct(distinct) => distinct.add(hash(value, bytes)),
            Self::Quantile(sketch) => {
                value.number().into_iter().for_each(|number| sketch.add(number.as_float()));
            }
            Self::First(first) => {
                if first.view().is_null() {
                    *first = value.to_scalar();
                }
            }
            Self::Last(last) => *last = value.to_scalar(),
        }
    }

    /// Returns the result.
    pub(super) fn result(&self, kind: Kind) -> Scalar {
        match self {
            Self::Count(count) => Scalar::Int(i64::try_from(*count).unwrap_or(i64::MAX)),
            Self::Sum(sum) => sum.sum(),
            Self::Mean(sum) => sum.mean(),
            Self::Min(value) | Self::Max(value) | Self::First(value) | Self::Last(value) => value.clone(),
            Self::Distinct(distinct) => Scalar::Int(distinct.count()),
            Self::Quantile(sketch) => {
                let part = if let Kind::Quantile(part) = kind { part } else { 1.0 };
                sketch.quantile(part).map_or(Scalar::Null, Scalar::Float)
            }
        }
    }

    /// The bytes on the heap.
    pub(super) fn heap(&self) -> usize {
        match self {
            Self::Count(_) | Self::Sum(_) | Self::Mean(_) => 0,
            Self::Min(value) | Self::Max(value) | Self::First(value) | Self::Last(value) => {
                value.view().heap()
            }
            Self::Distinct(distinct) => distinct.heap(),
            Self::Quantile(sketch) => sketch.heap(),
        }
    }

    /// True if it is of this function and can be used: a state may be damaged.
    pub(super) fn is_valid(&self, kind: Kind) -> bool {
        let is_same = std::mem::discriminant(self) == std::mem::discriminant(&Self::new(kind));
        is_same
            && match self {
                Self::Distinct(distinct) => distinct.is_valid(),
                Self::Quantile(sketch) => sketch.is_valid(),
                _ => true,
            }
    }
}

/// The type of the results of a function without values.
pub(super) fn result_type(kind: Kind) -> FieldType {
    match kind {
        Kind::Count | Kind::CountIf | Kind::Distinct | Kind::Sum => FieldType::Int,
        Kind::Mean | Kind::Quantile(_) => FieldType::Float,
        Kind::Min | Kind::Max | Kind::First | Kind::Last => FieldType::Text,
    }
}

/// True if the memory of a group may grow with its values.
pub(super) fn grows(kind: Kind) -> bool {
    !matches!(kind, Kind::Count | Kind::CountIf | Kind::Sum | Kind::Mean)
}

fn replace_if(kept: &mut Scalar, value: View<'_>, wanted: Ordering) {
    if kept.view().is_null() || value.compare(kept.view()) == wanted {
        *kept = value.to_scalar();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(kind: Kind, values: &[Scalar]) -> Scalar {
        let mut accumulator = Accumulator::new(kind);
        for value in values {
            // A state in between changes nothing.
            let saved = serde_json::to_value(&accumulator).unwrap().to_string();
            accumulator = serde_json::from_str(&saved).unwrap();
            assert!(accumulator.is_valid(kind));
            accumulator.add(value.view(), &mut Vec::new());
        }
        accumulator.result(kind)
    }

    #[test]
    fn sums_of_integers_are_exact_and_those_of_floats_are_compensated() {
        let int = Scalar::Int;
        assert_eq!(result(Kind::Sum, &[]), Scalar::Null);
        assert_eq!(result(Kind::Sum, &[int(-1), int(i64::MAX), int(-5)]), int(i64::MAX - 6));
        assert_eq!(result(Kind::Sum, &[int(i64::MAX), int(1), int(-1)]), int(i64::MAX));
        assert_eq!(result(Kind::Sum, &[int(i64::MAX), int(1)]), Scalar::Float(2_f64.powi(63)));
        let floats = [1.0, 1e100, 1.0, -1e100].map(Scalar::Float);
        assert_eq!(result(Kind::Sum, &floats), Scalar::Float(2.0));
        assert_eq!(
            result(Kind::Sum, &[int(1), Scalar::Float(0.5), Scalar::Text(" 2 ".into())]),
            Scalar::Float(3.5)
        );
        assert_eq!(result(Kind::Mean, &[int(1), int(2)]), Scalar::Float(1.5));
        for word in ["nan", "inf", "-Infinity", "1e999"] {
            assert_eq!(Scalar::Text(word.into()).view().number(), None);
        }
        let endless = [f64::INFINITY, 1.0].map(Scalar::Float);
        assert_eq!(result(Kind::Sum, &endless), Scalar::Float(f64::INFINITY));
    }

    #[test]
    fn values_are_compared_by_their_types() {
        let values =
            [Scalar::Int(2), Scalar::Float(1.5), Scalar::Text("10".into()), Scalar::Text("9".into())];
        assert_eq!(result(Kind::Min, &values), Scalar::Float(1.5));
        assert_eq!(result(Kind::Max, &values), Scalar::Text("9".into()));
        assert_eq!(result(Kind::First, &values), Scalar::Int(2));
        assert_eq!(result(Kind::Last, &values), Scalar::Text("9".into()));
        let values = [Scalar::Int(2), Scalar::Float(2.0), Scalar::Text("2".into()), Scalar::Int(2)];
        assert_eq!(result(Kind::Distinct, &values), Scalar::Int(2));
    }

    #[test]
    fn nan_is_one_value_and_the_greatest() {
        let values = [1.0, -f64::NAN, -2.0, f64::NAN].map(Scalar::Float);
        assert_eq!(result(Kind::Min, &values), Scalar::Float(-2.0));
        assert!(matches!(result(Kind::Max, &values), Scalar::Float(most) if most.is_nan()));
        assert_eq!(result(Kind::Distinct, &values), Scalar::Int(3));
        let zeros = [Scalar::Float(-0.0), Scalar::Float(0.0), Scalar::Int(0)];
        assert_eq!(result(Kind::Distinct, &zeros), Scalar::Int(1));
        let large = [Scalar::Int(i64::MAX), Scalar::Float(2_f64.powi(63))];
        assert_eq!(result(Kind::Distinct, &large), Scalar::Int(2));
    }

    #[test]
    fn the_state_of_another_function_is_found() {
        assert!(!Accumulator::new(Kind::Sum).is_valid(Kind::Mean));
        assert!(Accumulator::new(Kind::CountIf).is_valid(Kind::Count));
    }
}
