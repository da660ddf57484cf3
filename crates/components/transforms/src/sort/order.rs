//! The order of messages, as bytes.
//!
//! The key of a message has all its values, one after the other, so that comparing bytes compares messages.
//! No value is the beginning of another one. The rows of `arrow-row` were rejected: they need one type for
//! each field, but the types of parsed fields follow from the values of a batch.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::scalar::View;

/// A field to sort by.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum By {
    /// The field alone: the smallest value comes first.
    Field(String),
    /// The field with its direction: `{ amount: desc }`.
    Directed(BTreeMap<String, Direction>),
}

/// The value that comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// The smallest.
    Asc,
    /// The greatest.
    Desc,
}

impl By {
    /// Returns the field and its direction. None if it has not exactly one field.
    pub(super) fn field(&self) -> Option<(&str, Direction)> {
        match self {
            By::Field(name) => Some((name.as_str(), Direction::Asc)),
            By::Directed(fields) if fields.len() == 1 => {
                fields.iter().next().map(|(name, direction)| (name.as_str(), *direction))
            }
            By::Directed(_) => None,
        }
    }

    /// Returns the field and the direction of a text that seems to have both, as `amount desc` and `-amount`
    /// do. A field with such a name needs its direction: `{ "-amount": asc }`.
    pub(super) fn directed_text(&self) -> Option<(&str, &'static str)> {
        let By::Field(text) = self else { return None };
        let (field, direction) = match text.strip_prefix('-') {
            Some(field) => (field, "desc"),
            None => {
                let (field, last) = text.rsplit_once(' ')?;
                (field, ["asc", "desc"].into_iter().find(|word| last.eq_ignore_ascii_case(word))?)
            }
        };
        Some((field.trim(), direction)).filter(|(field, _)| !field.is_empty())
    }
}

/// The bytes of a text that count. Without a limit, the keys of long texts would take as much memory as the
/// messages, once for each file.
pub(super) const LONGEST: usize = 16 << 10;
/// The bit of the sign.
const SIGN: u64 = 1 << 63;
/// Follows a byte of a text that is zero, so that two zeros are the end.
const ESCAPED: u8 = 0xFF;

/// Appends a value to a key.
pub(super) fn write(value: View<'_>, direction: Direction, key: &mut Vec<u8>) {
    let start = key.len();
    match value {
        View::Null => {
            // Last in both directions.
            key.push(u8::MAX);
            return;
        }
        View::Bool(value) => key.extend([1, u8::from(value)]),
        View::Int(value) => {
            // Floats have not all integers: the rest decides between those of the same float.
            let float = value as f64;
            number(float, (i128::from(value) - float as i128) as i64, key);
        }
        View::Float(value) => number(value, 0, key),
        View::Time(value) => {
            key.push(3);
            key.extend(ordered(value));
        }
        View::Text(value) => text(4, value, key),
        View::Json(value) => text(5, value, key),
    }
    if direction == Direction::Desc {
        key.iter_mut().skip(start).for_each(|byte| *byte = !*byte);
    }
}

fn number(float: f64, rest: i64, key: &mut Vec<u8>) {
    // There are many NaNs, and two zeros.
    let bits = if float.is_nan() { f64::NAN.to_bits() & !SIGN } else { (float + 0.0).to_bits() };
    let bits = if bits & SIGN == 0 { bits | SIGN } else { !bits };
    key.push(2);
    key.extend(bits.to_be_bytes());
    key.extend(ordered(rest));
}

fn ordered(value: i64) -> [u8; 8] {
    (value.cast_unsigned() ^ SIGN).to_be_bytes()
}

fn text(kind: u8, value: &str, key: &mut Vec<u8>) {
    key.push(kind);
    for byte in value.bytes().take(LONGEST) {
        key.push(byte);
        if byte == 0 {
            key.push(ESCAPED);
        }
    }
    key.extend([0, 0]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scalar::Scalar;
    use proptest::prelude::*;
    use std::cmp::Ordering;

    fn key(values: &[(Scalar, Direction)]) -> Vec<u8> {
        let mut key = Vec::new();
        values.iter().for_each(|(value, direction)| write(value.view(), *direction, &mut key));
        key
    }

    #[test]
    fn values_are_in_the_order_of_their_types_and_null_is_last_in_both_directions() {
        let ascending = [
            Scalar::Bool(false),
            Scalar::Bool(true),
            Scalar::Float(f64::NEG_INFINITY),
            Scalar::Int(i64::MIN),
            Scalar::Int(i64::MIN + 1),
            Scalar::Float(-0.5),
            Scalar::Int(0),
            Scalar::Float(f64::MIN_POSITIVE),
            Scalar::Int(1),
            Scalar::Int((1 << 53) - 1),
            Scalar::Float(9_007_199_254_740_992.0),
            Scalar::Int((1 << 53) + 1),
            Scalar::Int((1 << 53) + 2),
            Scalar::Int(i64::MAX - 1),
            Scalar::Int(i64::MAX),
            Scalar::Float(9_223_372_036_854_775_808.0),
            Scalar::Float(f64::INFINITY),
            Scalar::Float(-f64::NAN),
            Scalar::Time(i64::MIN),
            Scalar::Time(0),
            Scalar::Text("".into()),
            Scalar::Text("\0".into()),
            Scalar::Text("\0\0".into()),
            Scalar::Text("\u{1}".into()),
            Scalar::Text("a".into()),
            Scalar::Text("a\0".into()),
            Scalar::Text("ab".into()),
            Scalar::Text("é".into()),
            Scalar::Json("[]".into()),
        ];
        let keys = |direction| ascending.iter().map(move |value| key(&[(value.clone(), direction)]));
        let null = key(&[(Scalar::Null, Direction::Asc)]);
        assert!(keys(Direction::Asc).chain([null.clone()]).is_sorted_by(|one, next| one < next));
        assert!(keys(Direction::Desc).is_sorted_by(|one, next| one > next));
        assert!(keys(Direction::Desc).all(|key| key < null));
        assert_eq!(null, key(&[(Scalar::Null, Direction::Desc)]));
        assert_eq!(key(&[(Scalar::Float(-0.0), Direction::Asc)]), key(&[(Scalar::Int(0), Direction::Asc)]));
        assert_eq!(
            key(&[(Scalar::Float(f64::NAN), Direction::Asc)]),
            key(&[(Scalar::Float(-f64::NAN), Direction::Asc)])
        );
    }

    fn scalar() -> impl Strategy<Value = Scalar> {
        prop_oneof![
            Just(Scalar::Null),
            any::<i64>().prop_map(Scalar::Int),
            (-3..3_i64).prop_map(Scalar::Int),
            any::<f64>().prop_filter("NaN", |value| !value.is_nan()).prop_map(Scalar::Float),
            "[\0a\u{ff}]{0,3}".prop_map(|text| Scalar::Text(text.into())),
        ]
    }

    /// The order of values in SQL, with NULL last.
    fn compare(one: &Scalar, other: &Scalar, direction: Direction) -> Ordering {
        let order = match (one, other) {
            (Scalar::Null, _) | (_, Scalar::Null) => {
                return one.view().is_null().cmp(&other.view().is_null());
            }
            (Scalar::Int(one), Scalar::Float(other)) => exact(*one, *other),
            (Scalar::Float(one), Scalar::Int(other)) => exact(*other, *one).reverse(),
            (one, other) => one.view().compare(other.view()),
        };
        if direction == Direction::Desc { order.reverse() } else { order }
    }

    /// Compares an integer with a float, without rounding.
    fn exact(one: i64, other: f64) -> Ordering {
        let whole = other.floor().clamp(-1e30, 1e30) as i128;
        i128::from(one).cmp(&whole).then(if other > other.floor() { Ordering::Less } else { Ordering::Equal })
    }

    proptest! {
        #[test]
        fn keys_are_in_the_order_of_their_values(
            rows in prop::collection::vec((scalar(), scalar()), 2),
            directions in prop::array::uniform2(prop::bool::ANY),
        ) {
            let [first, second] = directions.map(|down| if down { Direction::Desc } else { Direction::Asc });
            let keys: Vec<_> =
                rows.iter().map(|(a, b)| key(&[(a.clone(), first), (b.clone(), second)])).collect();
            let expected = compare(&rows[0].0, &rows[1].0, first)
                .then_with(|| compare(&rows[0].1, &rows[1].1, second));
            prop_assert_eq!(keys[0].cmp(&keys[1]), expected, "{:?}", rows);
        }
    }
}
