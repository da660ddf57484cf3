//! The state of a function for one group.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};
use thalweg_codec::columns::FieldType;
use thalweg_codec::keys::hash_bytes;

use super::distinct::Distinct;
use super::function::Kind;
use super::list::List;
use super::moments::Moments;
use super::sketch::Sketch;
use super::top::Top;
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
    First(Placed),
    Last(Placed),
    Any(bool),
    Variance(Moments),
    Deviation(Moments),
    List(List),
    Top(Top),
}

/// A value, and the place of its message in the order of messages.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Placed {
    at: i64,
    value: Scalar,
}

/// Memory for adding values, and a count of those left out.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    /// Memory for the time of a call.
    bytes: Vec<u8>,
    /// The number of values that lists do not have, because they have their maximum.
    pub(super) omitted: u64,
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
            Kind::First => Self::First(Placed::default()),
            Kind::Last => Self::Last(Placed::default()),
            Kind::Any => Self::Any(false),
            Kind::Variance => Self::Variance(Moments::default()),
            Kind::Deviation => Self::Deviation(Moments::default()),
            Kind::List(most) => Self::List(List::new(most)),
            Kind::Top(most) => Self::Top(Top::new(most)),
        }
    }

    /// Adds a value that is not NULL. `at` is the place of its message in the order of messages: of those
    /// with the same place, the order is that of the calls.
    pub(super) fn add(&mut self, value: View<'_>, at: i64, scratch: &mut Scratch) {
        match self {
            Self::Count(count) => *count = count.saturating_add(1),
            Self::Sum(sum) | Self::Mean(sum) => value.number().into_iter().for_each(|number| sum.add(number)),
            Self::Min(least) => replace_if(least, value, Ordering::Less),
            Self::Max(most) => replace_if(most, value, Ordering::Greater),
            Self::Distinct(distinct) => distinct.add(hash(value, &mut scratch.bytes)),
            Self::Quantile(sketch) => {
                value.number().into_iter().for_each(|number| sketch.add(number.as_float()));
            }
            Self::First(first) => {
                if first.value.view().is_null() || at < first.at {
                    *first = Placed { at, value: value.to_scalar() };
                }
            }
            Self::Last(last) => {
                if last.value.view().is_null() || at >= last.at {
                    *last = Placed { at, value: value.to_scalar() };
                }
            }
            // The values are those for which the condition is true.
            Self::Any(is_any) => *is_any = true,
            Self::Variance(moments) | Self::Deviation(moments) => {
                value.number().into_iter().for_each(|number| moments.add(number.as_float()));
            }
            Self::List(list) => scratch.omitted = scratch.omitted.saturating_add(list.add(value, at)),
            Self::Top(top) => top.add(value, hash(value, &mut scratch.bytes)),
        }
    }

    /// Adds the values of another accumulator of the same function.
    pub(super) fn merge(&mut self, other: Self, scratch: &mut Scratch) {
        match (self, other) {
            (Self::Count(count), Self::Count(other)) => *count = count.saturating_add(other),
            (Self::Sum(sum), Self::Sum(other)) | (Self::Mean(sum), Self::Mean(other)) => sum.merge(&other),
            (Self::Min(least), Self::Min(other)) => replace_if(least, other.view(), Ordering::Less),
            (Self::Max(most), Self::Max(other)) => replace_if(most, other.view(), Ordering::Greater),
            (Self::Distinct(distinct), Self::Distinct(other)) => distinct.merge(other),
            (Self::Quantile(sketch), Self::Quantile(other)) => sketch.merge(&other),
            (Self::First(first), Self::First(other)) => {
                let is_first = first.value.view().is_null() || other.at < first.at;
                if is_first && !other.value.view().is_null() {
                    *first = other;
                }
            }
            (Self::Last(last), Self::Last(other)) => {
                let is_last = last.value.view().is_null() || other.at >= last.at;
                if is_last && !other.value.view().is_null() {
                    *last = other;
                }
            }
            (Self::Any(is_any), Self::Any(other)) => *is_any |= other,
            (Self::Variance(moments), Self::Variance(other))
            | (Self::Deviation(moments), Self::Deviation(other)) => moments.merge(&other),
            (Self::List(list), Self::List(other)) => {
                scratch.omitted = scratch.omitted.saturating_add(list.merge(other));
            }
            (Self::Top(top), Self::Top(other)) => top.merge(other),
            // All groups of a transform have the same functions.
            _ => {}
        }
    }

    /// Returns the result.
    pub(super) fn result(&self, kind: Kind) -> Scalar {
        match self {
            Self::Count(count) => Scalar::Int(i64::try_from(*count).unwrap_or(i64::MAX)),
            Self::Sum(sum) => sum.sum(),
            Self::Mean(sum) => sum.mean(),
            Self::Min(value) | Self::Max(value) => value.clone(),
            Self::First(placed) | Self::Last(placed) => placed.value.clone(),
            Self::Distinct(distinct) => Scalar::Int(distinct.count()),
            Self::Quantile(sketch) => {
                let part = if let Kind::Quantile(part) = kind { part } else { 1.0 };
                sketch.quantile(part).map_or(Scalar::Null, Scalar::Float)
            }
            Self::Any(is_any) => Scalar::Bool(*is_any),
            Self::Variance(moments) => moments.variance(),
            Self::Deviation(moments) => moments.deviation(),
            Self::List(list) => list.result(),
            Self::Top(top) => top.result(),
        }
    }

    /// The bytes on the heap.
    pub(super) fn heap(&self) -> usize {
        match self {
            Self::Count(_) | Self::Sum(_) | Self::Mean(_) => 0,
            Self::Any(_) | Self::Variance(_) | Self::Deviation(_) => 0,
            Self::Min(value) | Self::Max(value) => value.view().heap(),
            Self::First(placed) | Self::Last(placed) => placed.value.view().heap(),
            Self::List(list) => list.heap(),
            Self::Top(top) => top.heap(),
            Self::Distinct(distinct) => distinct.heap(),
            Self::Quantile(sketch) => sketch.heap(),
        }
    }

    /// True if it is of this function and can be used: a state may be damaged.
    pub(super) fn is_valid(&self, kind: Kind) -> bool {
        let is_same = std::mem::discriminant(self) == std::mem::discriminant(&Self::new(kind));
        is_same
            && match (self, kind) {
                (Self::Distinct(distinct), _) => distinct.is_valid(),
                (Self::Quantile(sketch), _) => sketch.is_valid(),
                (Self::List(list), Kind::List(most)) => list.is_valid(most),
                (Self::Top(top), Kind::Top(most)) => top.is_valid(most),
                _ => true,
            }
    }
}

/// The type of the results of a function without values.
pub(super) fn result_type(kind: Kind) -> FieldType {
    match kind {
        Kind::Count | Kind::CountIf | Kind::Distinct | Kind::Sum => FieldType::Int,
        Kind::Mean | Kind::Quantile(_) | Kind::Variance | Kind::Deviation => FieldType::Float,
        Kind::Min | Kind::Max | Kind::First | Kind::Last => FieldType::Text,
        Kind::Any => FieldType::Bool,
        Kind::List(_) | Kind::Top(_) => FieldType::Json,
    }
}

/// True if the memory of a group may grow with its values.
pub(super) fn grows(kind: Kind) -> bool {
    match kind {
        Kind::Count | Kind::CountIf | Kind::Any => false,
        Kind::Sum | Kind::Mean | Kind::Variance | Kind::Deviation => false,
        Kind::Min | Kind::Max | Kind::First | Kind::Last => true,
        Kind::Distinct | Kind::Quantile(_) | Kind::List(_) | Kind::Top(_) => true,
    }
}

fn replace_if(kept: &mut Scalar, value: View<'_>, wanted: Ordering) {
    if !value.is_null() && (kept.view().is_null() || value.compare(kept.view()) == wanted) {
        *kept = value.to_scalar();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn result(kind: Kind, values: &[Scalar]) -> Scalar {
        let mut accumulator = Accumulator::new(kind);
        for value in values {
            // A state in between changes nothing.
            let saved = serde_json::to_value(&accumulator).unwrap().to_string();
            accumulator = serde_json::from_str(&saved).unwrap();
            assert!(accumulator.is_valid(kind));
            accumulator.add(value.view(), 0, &mut Scratch::default());
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

    proptest! {
        /// All functions, however the values are divided between two accumulators.
        #[test]
        fn merged_accumulators_have_the_result_of_all_values(
            values in prop::collection::vec((-50..50_i64, any::<bool>()), 0..40),
            is_float in any::<bool>(),
        ) {
            let kinds = [
                Kind::Count, Kind::CountIf, Kind::Sum, Kind::Mean, Kind::Min, Kind::Max, Kind::Distinct,
                Kind::Quantile(0.5), Kind::First, Kind::Last, Kind::Any, Kind::List(7), Kind::Top(3),
            ];
            for kind in kinds {
                let mut scratch = Scratch::default();
                let mut all = Accumulator::new(kind);
                let mut parts = [Accumulator::new(kind), Accumulator::new(kind)];
                for (place, (value, is_second)) in values.iter().enumerate() {
                    let view = if is_float { View::Float(*value as f64 / 4.0) } else { View::Int(*value) };
                    all.add(view, place as i64, &mut scratch);
                    parts[usize::from(*is_second)].add(view, place as i64, &mut scratch);
                }
                let [mut first, second] = parts;
                first.merge(second, &mut scratch);
                prop_assert!(first.is_valid(kind));
                prop_assert_eq!(first.result(kind), all.result(kind), "{:?}", kind);
            }
        }
    }

    #[test]
    fn many_different_values_are_merged_as_if_they_were_added() {
        let mut scratch = Scratch::default();
        let of = |values: std::ops::Range<i64>, scratch: &mut Scratch| {
            let mut accumulator = Accumulator::new(Kind::Distinct);
            values.for_each(|value| accumulator.add(View::Int(value), 0, scratch));
            accumulator
        };
        let all = of(0..3000, &mut scratch);
        for (first, rest) in [(0..900, 800..3000), (0..2000, 1900..3000), (0..2500, 2400..3000)] {
            let mut merged = of(first, &mut scratch);
            merged.merge(of(rest, &mut scratch), &mut scratch);
            assert_eq!(merged, all);
        }
        let mut few = of(0..600, &mut scratch);
        few.merge(of(500..1000, &mut scratch), &mut scratch);
        assert_eq!(few.result(Kind::Distinct), Scalar::Int(1000));
    }

    #[test]
    fn the_state_of_another_function_is_found() {
        assert!(!Accumulator::new(Kind::Sum).is_valid(Kind::Mean));
        assert!(Accumulator::new(Kind::CountIf).is_valid(Kind::Count));
        assert!(!Accumulator::new(Kind::Variance).is_valid(Kind::Deviation));
        assert!(!Accumulator::new(Kind::List(5)).is_valid(Kind::List(6)));
    }
}
