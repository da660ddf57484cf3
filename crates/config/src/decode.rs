//! Decodes a node into a Rust value with `serde`, after the check found no mistakes.
//!
//! The deserializer is as lenient as the check. A number can be read as text, as it was written. A text that
//! spells a number can be read as a number, since a variable in quotes is always text.
//!
//! See docs/decisions/025-the-document-is-walked-its-options-are-decoded.md.

use std::fmt;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::de::{
    self, DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, MapAccess,
    SeqAccess, VariantAccess, Visitor,
};

use crate::{Diagnostics, Key, Node, Span, Value, check, scalar};

/// Checks `node` against the JSON schema of `T` and decodes it.
///
/// Every mistake is added to `diagnostics`: unknown and missing keys, wrong types, wrong names, numbers out
/// of range, texts that do not have their format. With any mistake in the node, there is no value.
pub fn decode<T: DeserializeOwned + JsonSchema>(node: &Node, diagnostics: &mut Diagnostics) -> Option<T> {
    let schema =
        SchemaSettings::draft2020_12().for_deserialize().into_generator().into_root_schema_for::<T>();
    let retyped = check::retyping(node, &schema, diagnostics).ok()?;
    let node = retyped.as_ref().unwrap_or(node);
    match T::deserialize(node) {
        Ok(value) => Some(value),
        Err(error) => {
            let span = error.span.unwrap_or(node.span);
            let message = check::without_secret(node, &sentence(&error.message), diagnostics.text());
            diagnostics.error(span, message);
            None
        }
    }
}

/// Turns a phrase into a sentence: `serde` and `FromStr` return phrases.
pub(crate) fn sentence(message: &str) -> String {
    let mut sentence: String = message.trim().to_owned();
    if let Some(first) = sentence.get(..1) {
        let upper = first.to_uppercase();
        sentence.replace_range(..1, &upper);
    }
    if !sentence.ends_with(['.', '!', '?']) {
        sentence.push('.');
    }
    sentence
}

/// An error of `serde`, with the position of the innermost node where it occurred.
#[derive(Debug)]
pub struct DecodeError {
    span: Option<Span>,
    message: String,
}

impl DecodeError {
    /// Returns the position of the error, if it is known.
    pub fn span(&self) -> Option<Span> {
        self.span
    }

    fn at(mut self, span: Span) -> Self {
        self.span.get_or_insert(span);
        self
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for DecodeError {}

impl de::Error for DecodeError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self { span: None, message: message.to_string() }
    }
}

type Result<T> = std::result::Result<T, DecodeError>;

impl Node {
    /// Passes the value to the visitor as the type it has.
    fn visit<'de, V: Visitor<'de>>(&'de self, visitor: V) -> Result<V::Value> {
        match &self.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Integer(value) => visitor.visit_i64(*value),
            Value::Float(value) => match self.as_u64() {
                Some(value) => visitor.visit_u64(value),
                None => visitor.visit_f64(*value),
            },
            Value::String(text) => visitor.visit_str(text),
            Value::Sequence(items) => visitor.visit_seq(Elements(items.iter())),
            Value::Mapping(entries) => visitor.visit_map(Entries { entries: entries.iter(), value: None }),
        }
    }

    /// Passes a text as the number or boolean it spells. Called when the visitor wants such a type.
    fn visit_retyped<'de, V: Visitor<'de>>(&'de self, visitor: V) -> Result<V::Value> {
        let Value::String(text) = &self.value else { return self.visit(visitor) };
        match scalar::typed(text.trim()) {
            Value::Bool(value) => visitor.visit_bool(value),
            Value::Integer(value) => visitor.visit_i64(value),
            Value::Float(value) => match text.trim().parse() {
                Ok(value) => visitor.visit_u64(value),
                Err(_) => visitor.visit_f64(value),
            },
            _ => visitor.visit_str(text),
        }
    }

    /// Passes a whole number, even one written as `1e6`.
    fn visit_whole<'de, V: Visitor<'de>>(&'de self, visitor: V) -> Result<V::Value> {
        if let Value::Float(value) = self.value
            && self.as_u64().is_none()
            && value.fract() == 0.0
            && value.abs() <= 9_007_199_254_740_992.0
        {
            return visitor.visit_i64(value as i64);
        }
        self.visit_retyped(visitor)
    }
}

macro_rules! deserialize_with {
    ($visit:ident: $($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
            self.$visit(visitor).map_err(|error| error.at(self.span))
        }
    )*};
}

impl<'de> Deserializer<'de> for &'de Node {
    type Error = DecodeError;

    deserialize_with!(visit: deserialize_any deserialize_seq deserialize_byte_buf deserialize_bytes);
    deserialize_with!(visit_retyped: deserialize_bool deserialize_f32 deserialize_f64);
    deserialize_with!(visit_whole: deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128);

    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.deserialize_str(visitor)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.deserialize_str(visitor)
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.deserialize_str(visitor)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        let value = match self.text() {
            Some(text) => visitor.visit_str(text),
            None => self.visit(visitor),
        };
        value.map_err(|error| error.at(self.span))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        let value = if self.is_null() { visitor.visit_none() } else { visitor.visit_some(self) };
        value.map_err(|error| error.at(self.span))
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.visit(visitor).map_err(|error| error.at(self.span))
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value> {
        self.deserialize_unit(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value> {
        visitor.visit_newtype_struct(self).map_err(|error| error.at(self.span))
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        let value = match self.value {
            // `stdout:` with nothing after it has no options: it is an empty mapping.
            Value::Null => visitor.visit_map(Entries { entries: [].iter(), value: None }),
            _ => self.visit(visitor),
        };
        value.map_err(|error| error.at(self.span))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        self.deserialize_map(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        let value = match (&self.value, self.text()) {
            (Value::Mapping(entries), _) => match entries.as_slice() {
                [(key, value)] => {
                    visitor.visit_enum(Variant { name: &key.name, span: key.span, value: Some(value) })
                }
                _ => Err(de::Error::custom("a mapping with exactly one key is expected")),
            },
            (_, Some(name)) => visitor.visit_enum(Variant { name, span: self.span, value: None }),
            _ => self.visit(visitor),
        };
        value.map_err(|error| error.at(self.span))
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        visitor.visit_unit()
    }
}

impl<'de> IntoDeserializer<'de, DecodeError> for &'de Node {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

struct Elements<'de>(std::slice::Iter<'de, Node>);

impl<'de> SeqAccess<'de> for Elements<'de> {
    type Error = DecodeError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>> {
        self.0.next().map(|node| seed.deserialize(node).map_err(|error| error.at(node.span))).transpose()
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.0.len())
    }
}

struct Entries<'de> {
    entries: std::slice::Iter<'de, (Key, Node)>,
    value: Option<&'de Node>,
}

impl<'de> MapAccess<'de> for Entries<'de> {
    type Error = DecodeError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>> {
        let Some((key, value)) = self.entries.next() else { return Ok(None) };
        self.value = Some(value);
        let name: Name<'de> = Name(&key.name);
        seed.deserialize(name).map(Some).map_err(|error| error.at(key.span))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value> {
        match self.value.take() {
            Some(value) => seed.deserialize(value).map_err(|error| error.at(value.span)),
            None => Err(de::Error::custom("a value was requested before its key")),
        }
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.entries.len())
    }
}

/// A key. It is text unless the visitor wants another type, as in a map with numeric keys.
struct Name<'de>(&'de str);

macro_rules! deserialize_key {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
            match scalar::typed(self.0) {
                Value::Bool(value) => visitor.visit_bool(value),
                Value::Integer(value) => visitor.visit_i64(value),
                Value::Float(value) => visitor.visit_f64(value),
                _ => visitor.visit_str(self.0),
            }
        }
    )*};
}

impl<'de> Deserializer<'de> for Name<'de> {
    type Error = DecodeError;

    deserialize_key!(deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64
        deserialize_i128 deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128
        deserialize_f32 deserialize_f64);

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        visitor.visit_str(self.0)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        visitor.visit_some(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        visitor.visit_enum(self.0.into_deserializer())
    }

    serde::forward_to_deserialize_any! {
        char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

/// A variant of an enum: `name`, or `name: value`.
struct Variant<'de> {
    name: &'de str,
    span: Span,
    value: Option<&'de Node>,
}

impl<'de> EnumAccess<'de> for Variant<'de> {
    type Error = DecodeError;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self)> {
        let variant = seed.deserialize(Name(self.name)).map_err(|error| error.at(self.span))?;
        Ok((variant, self))
    }
}

impl<'de> Variant<'de> {
    fn value(&self) -> Result<&'de Node> {
        self.value.ok_or_else(|| {
            let error: DecodeError =
                de::Error::custom(format!("`{}` needs a value: write `{}: ...`", self.name, self.name));
            error.at(self.span)
        })
    }
}

impl<'de> VariantAccess<'de> for Variant<'de> {
    type Error = DecodeError;

    fn unit_variant(self) -> Result<()> {
        match self.value {
            Some(node) if !node.is_null() => {
                let error: DecodeError = de::Error::custom(format!("`{}` takes no value", self.name));
                Err(error.at(node.span))
            }
            _ => Ok(()),
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value> {
        let value = self.value()?;
        seed.deserialize(value).map_err(|error| error.at(value.span))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value> {
        self.value()?.deserialize_seq(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(self, _: &'static [&'static str], visitor: V) -> Result<V::Value> {
        self.value()?.deserialize_map(visitor)
    }
}
