//! Options that accept one value or a list of values.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Error, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A list. A single value without brackets is a list of one element. It has at least `LEAST` elements.
///
/// An untagged enum was rejected: its error names neither the element nor the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct List<T, const LEAST: usize = 0>(Vec<T>);

impl<T, const LEAST: usize> List<T, LEAST> {
    /// Returns the elements.
    pub fn into_vec(self) -> Vec<T> {
        self.0
    }
}

impl<T> Default for List<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T, const LEAST: usize> From<Vec<T>> for List<T, LEAST> {
    fn from(elements: Vec<T>) -> Self {
        Self(elements)
    }
}

impl<T, const LEAST: usize> FromIterator<T> for List<T, LEAST> {
    fn from_iter<I: IntoIterator<Item = T>>(elements: I) -> Self {
        Self(elements.into_iter().collect())
    }
}

impl<T, const LEAST: usize> Deref for List<T, LEAST> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T, const LEAST: usize> IntoIterator for List<T, LEAST> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a, T, const LEAST: usize> IntoIterator for &'a List<T, LEAST> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl<T: Serialize, const LEAST: usize> Serialize for List<T, LEAST> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de, T: Deserialize<'de>, const LEAST: usize> Deserialize<'de> for List<T, LEAST> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let elements = deserializer.deserialize_any(OneOrMany(PhantomData))?;
        match elements.len() {
            count if count < LEAST => Err(D::Error::invalid_length(count, &"a longer list")),
            _ => Ok(Self(elements)),
        }
    }
}

struct OneOrMany<T>(PhantomData<T>);

/// Reads a scalar as the only element.
macro_rules! visit_scalar {
    ($($method:ident $scalar:ty;)*) => {$(
        fn $method<E: Error>(self, value: $scalar) -> Result<Vec<T>, E> {
            T::deserialize(value.into_deserializer()).map(|element| vec![element])
        }
    )*};
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for OneOrMany<T> {
    type Value = Vec<T>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a value or a list of values")
    }

    visit_scalar! {
        visit_bool bool;
        visit_i64 i64;
        visit_u64 u64;
        visit_f64 f64;
        visit_str &str;
    }

    fn visit_seq<A: SeqAccess<'de>>(self, elements: A) -> Result<Vec<T>, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(elements))
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<Vec<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(entries)).map(|element| vec![element])
    }
}

impl<T: JsonSchema, const LEAST: usize> JsonSchema for List<T, LEAST> {
    fn schema_name() -> Cow<'static, str> {
        format!("List_of_{}_{LEAST}", T::schema_name()).into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let element = generator.subschema_for::<T>();
        let mut list = json_schema!({ "type": "array", "items": element });
        if LEAST > 0 {
            list.insert("minItems".to_owned(), LEAST.into());
        }
        json_schema!({ "anyOf": [element, list] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ByteRange;
    use crate::testing::{options, refused};

    #[derive(Debug, Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "the ranges are only decoded")]
    struct Options {
        #[serde(default)]
        names: List<String>,
        ranges: Option<List<ByteRange, 1>>,
    }

    #[test]
    fn one_value_is_a_list_of_one() {
        for (text, expected) in [
            ("names: a", vec!["a"]),
            ("names: 5", vec!["5"]),
            ("names: [a, 5]", vec!["a", "5"]),
            ("names: []", vec![]),
            ("{}", vec![]),
        ] {
            assert_eq!(options::<Options>(text).names.into_vec(), expected, "{text}");
        }
    }

    #[test]
    fn a_mistake_in_an_element_is_explained() {
        assert_eq!(refused::<Options>("ranges: [\"0:9\", x]"), refused::<Options>("ranges: x"));
        assert!(refused::<Options>("ranges: x").starts_with("`x` is not a range."));
        assert_eq!(refused::<Options>("ranges: []"), "`ranges` needs at least 1 element, but it is empty.");
    }
}
