//! How the values of a field become one.

use std::cmp::Ordering;
use std::collections::HashSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::scalar::{Scalar, View};
use crate::sum::Sum;

/// How the values of a field become one. NULL is no value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// The first value.
    First,
    /// The last value.
    Last,
    /// The sum of numbers, and of texts that are numbers. A message with another value leaves by `errors`.
    Sum,
    /// The least of numbers, times, texts (by their bytes) or booleans.
    Min,
    /// The greatest of them.
    Max,
    /// All values as one text, with `separator` between them.
    Concat,
    /// All values as one text, with a line feed between them.
    ConcatNewline,
    /// All values, as a JSON array.
    List,
    /// The different values, each once, as a JSON array.
    Distinct,
    /// The longest text, in bytes. Of texts of the same length the first one.
    Longest,
    /// The shortest text, in bytes.
    Shortest,
    /// None: the field is left out.
    Drop,
}

impl Strategy {
    /// True if it can make a payload of payloads.
    pub(super) fn is_of_bytes(self) -> bool {
        !matches!(self, Self::Sum | Self::Min | Self::Max | Self::List | Self::Distinct)
    }

    /// Returns what is between two texts, if texts are joined.
    pub(super) fn between(self, separator: &str) -> Option<&str> {
        match self {
            Self::Concat => Some(separator),
            Self::ConcatNewline => Some("\n"),
            _ => None,
        }
    }
}

/// The merged values of a field.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) enum Merged {
    /// One of the values.
    One(Scalar),
    Sum(Sum),
    /// Texts, joined.
    Joined(String),
    /// The elements of a JSON array, without its end.
    List(String),
    /// As `List`, with the elements. Hashes of them were rejected: a sender could choose values with one
    /// hash, of which the first would be left.
    Distinct(String, HashSet<Box<str>>),
}

/// Adds an element to a JSON array without its end.
fn push(list: &mut String, element: &str) {
    list.push(if list.is_empty() { '[' } else { ',' });
    list.push_str(element);
}

impl Merged {
    /// Begins with the first value. Without a strategy, numbers are added up, and of others the first one is
    /// kept.
    pub(super) fn new(strategy: Option<Strategy>, first: View<'_>, separator: &str) -> Self {
        let mut merged = match strategy {
            None if matches!(first, View::Int(_) | View::Float(_)) => Self::Sum(Sum::default()),
            Some(Strategy::Sum) => Self::Sum(Sum::default()),
            Some(Strategy::Concat | Strategy::ConcatNewline) => {
                return Self::Joined(first.text().unwrap_or_default().into_owned());
            }
            Some(Strategy::List) => Self::List(String::new()),
            Some(Strategy::Distinct) => Self::Distinct(String::new(), HashSet::new()),
            _ => return Self::One(first.to_scalar()),
        };
        merged.add(strategy, first, separator);
        merged
    }

    /// Adds a value that is not NULL.
    pub(super) fn add(&mut self, strategy: Option<Strategy>, value: View<'_>, separator: &str) {
        match self {
            Self::One(kept) => {
                if replaces(strategy, kept.view(), value) {
                    *kept = value.to_scalar();
                }
            }
            // Without a strategy, a value that is no number is left out, as all but the first text are.
            Self::Sum(sum) => value.number().into_iter().for_each(|number| sum.add(number)),
            Self::Joined(text) => {
                text.push_str(strategy.and_then(|strategy| strategy.between(separator)).unwrap_or_default());
                text.push_str(&value.text().unwrap_or_default());
            }
            Self::List(list) => {
                if let Some(json) = value.to_scalar().to_json() {
                    push(list, &json);
                }
            }
            Self::Distinct(list, seen) => {
                if let Some(json) = value.to_scalar().to_json()
                    && !seen.contains(json.as_str())
                {
                    push(list, &json);
                    seen.insert(json.into());
                }
            }
        }
    }

    /// Returns the result.
    pub(super) fn result(self) -> Scalar {
        match self {
            Self::One(value) => value,
            Self::Sum(sum) => sum.sum(),
            Self::Joined(text) => Scalar::Text(text.into()),
            Self::List(mut list) | Self::Distinct(mut list, _) => {
                list.push(']');
                Scalar::Json(list.into())
            }
        }
    }

    /// The bytes on the heap.
    pub(super) fn heap(&self) -> usize {
        match self {
            Self::One(value) => value.view().heap(),
            Self::Sum(_) => 0,
            Self::Joined(text) | Self::List(text) => text.len(),
            Self::Distinct(list, seen) => 2 * list.len() + seen.len() * 2 * size_of::<Box<str>>(),
        }
    }

    /// About the number of bytes that a value adds at most.
    pub(super) fn growth(&self, strategy: Option<Strategy>, value: View<'_>) -> usize {
        match self {
            Self::One(kept) if replaces(strategy, kept.view(), value) => {
                value.heap().saturating_sub(kept.view().heap())
            }
            Self::One(_) | Self::Sum(_) => 0,
            Self::Joined(_) | Self::List(_) => added(value),
            Self::Distinct(..) => 2 * (added(value) + size_of::<Box<str>>()),
        }
    }

    /// True if it is of this strategy: a state may be damaged.
    pub(super) fn is_of(&self, strategy: Option<Strategy>) -> bool {
        match self {
            Self::One(value) => {
                let is_one = !matches!(
                    strategy,
                    Some(
                        Strategy::Sum
                            | Strategy::Concat
                            | Strategy::ConcatNewline
                            | Strategy::List
                            | Strategy::Distinct
                            | Strategy::Drop
                    )
                );
                is_one && !value.view().is_null()
            }
            Self::Sum(_) => matches!(strategy, None | Some(Strategy::Sum)),
            Self::Joined(_) => matches!(strategy, Some(Strategy::Concat | Strategy::ConcatNewline)),
            Self::List(list) => strategy == Some(Strategy::List) && list.starts_with('['),
            Self::Distinct(list, _) => strategy == Some(Strategy::Distinct) && list.starts_with('['),
        }
    }
}

/// The bytes of a value in a text, without its escapes.
pub(super) fn added(value: View<'_>) -> usize {
    /// A separator, quotes, or a number.
    const FEW: usize = 24;
    value.heap() + FEW
}

/// True if a value takes the place of the one that is kept.
fn replaces(strategy: Option<Strategy>, kept: View<'_>, value: View<'_>) -> bool {
    let length = |view: View<'_>| view.text().map_or(0, |text| text.len());
    match strategy {
        Some(Strategy::Last) => true,
        Some(Strategy::Min) => value.compare(kept) == Ordering::Less,
        Some(Strategy::Max) => value.compare(kept) == Ordering::Greater,
        Some(Strategy::Longest) => length(value) > length(kept),
        Some(Strategy::Shortest) => length(value) < length(kept),
        _ => false,
    }
}

/// The merged payloads.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Payload(#[serde(with = "saved_bytes")] pub(super) Vec<u8>);

impl Payload {
    /// Adds a payload to those of `count` messages.
    pub(super) fn add(&mut self, strategy: Strategy, payload: &[u8], count: u64, separator: &str) {
        let Self(kept) = self;
        if let Some(between) = strategy.between(separator) {
            if count > 0 {
                kept.extend_from_slice(between.as_bytes());
            }
            kept.extend_from_slice(payload);
            return;
        }
        let is_new = match strategy {
            Strategy::Drop => false,
            Strategy::Last => true,
            Strategy::Longest => count == 0 || payload.len() > kept.len(),
            Strategy::Shortest => count == 0 || payload.len() < kept.len(),
            _ => count == 0,
        };
        if is_new {
            payload.clone_into(kept);
        }
    }

    /// The number of bytes that a payload after the first one adds at most.
    pub(super) fn growth(&self, strategy: Strategy, payload: &[u8], separator: &str) -> usize {
        match (strategy.between(separator), strategy) {
            (Some(between), _) => between.len() + payload.len(),
            (None, Strategy::Last | Strategy::Longest) => payload.len().saturating_sub(self.0.len()),
            (None, _) => 0,
        }
    }
}

/// Bytes in JSON: as text if they are, and otherwise in base64.
mod saved_bytes {
    use std::borrow::Cow;

    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    /// The first letter of each form.
    const TEXT: char = 't';
    const BASE64: char = 'b';

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(bytes) {
            Ok(text) => serializer.serialize_str(&format!("{TEXT}{text}")),
            Err(_) => serializer.serialize_str(&format!("{BASE64}{}", STANDARD.encode(bytes))),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let saved = Cow::<str>::deserialize(deserializer)?;
        match (saved.strip_prefix(TEXT), saved.strip_prefix(BASE64)) {
            (Some(text), _) => Ok(text.as_bytes().to_vec()),
            (None, Some(base64)) => STANDARD.decode(base64).map_err(D::Error::custom),
            (None, None) => Err(D::Error::custom("a payload is missing")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(strategy: Option<Strategy>, values: &[Scalar]) -> Scalar {
        let mut rest = values.iter();
        let mut merged = Merged::new(strategy, rest.next().unwrap().view(), "-");
        for value in rest {
            // A state in between changes nothing.
            let saved = serde_json::to_value(&merged).unwrap().to_string();
            merged = serde_json::from_str(&saved).unwrap();
            assert!(merged.is_of(strategy), "{strategy:?}");
            merged.add(strategy, value.view(), "-");
        }
        merged.result()
    }

    #[test]
    fn each_strategy_makes_one_value_of_many() {
        let texts = ["bb", "a", "cc", "a"].map(|text| Scalar::Text(text.into()));
        let text = |text: &str| Scalar::Text(text.into());
        for (strategy, expected) in [
            (None, text("bb")),
            (Some(Strategy::First), text("bb")),
            (Some(Strategy::Last), text("a")),
            (Some(Strategy::Min), text("a")),
            (Some(Strategy::Max), text("cc")),
            (Some(Strategy::Concat), text("bb-a-cc-a")),
            (Some(Strategy::ConcatNewline), text("bb\na\ncc\na")),
            (Some(Strategy::List), Scalar::Json(r#"["bb","a","cc","a"]"#.into())),
            (Some(Strategy::Distinct), Scalar::Json(r#"["bb","a","cc"]"#.into())),
            (Some(Strategy::Longest), text("bb")),
            (Some(Strategy::Shortest), text("a")),
        ] {
            assert_eq!(merged(strategy, &texts), expected, "{strategy:?}");
        }
    }

    #[test]
    fn numbers_are_added_up_and_of_others_the_first_one_stays() {
        let int = Scalar::Int;
        assert_eq!(merged(None, &[int(1), int(2), Scalar::Text("x".into())]), int(3));
        assert_eq!(merged(None, &[Scalar::Float(0.5), int(2)]), Scalar::Float(2.5));
        assert_eq!(merged(None, &[Scalar::Bool(false), Scalar::Bool(true)]), Scalar::Bool(false));
        assert_eq!(merged(None, &[Scalar::Time(5), Scalar::Time(1)]), Scalar::Time(5));
        assert_eq!(merged(None, &[Scalar::Text("1".into()), int(2)]), Scalar::Text("1".into()));
        assert_eq!(merged(Some(Strategy::Sum), &[Scalar::Text("1".into()), int(2)]), int(3));
        assert_eq!(merged(Some(Strategy::List), &[int(1), int(1)]), Scalar::Json("[1,1]".into()));
        let mixed = [int(1), Scalar::Time(0), Scalar::Json("{}".into())];
        assert_eq!(merged(Some(Strategy::Concat), &mixed), Scalar::Text("1-1970-01-01T00:00:00Z-{}".into()));
    }

    #[test]
    fn payloads_of_any_bytes_survive_a_state() {
        for bytes in [&b""[..], b"text", b"\xff\x00", "é".as_bytes()] {
            let payload = Payload(bytes.to_vec());
            let saved = serde_json::to_string(&payload).unwrap();
            assert_eq!(serde_json::from_str::<Payload>(&saved).unwrap(), payload);
        }
        assert!(serde_json::from_str::<Payload>(r#""x""#).is_err());
    }
}
