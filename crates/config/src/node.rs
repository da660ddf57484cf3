//! The tree of a document: values, each with the position where it was written.

use std::mem::discriminant;
use std::ops::Range;

use crate::scalar;

/// A position in a document: a range of bytes of its text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// The first byte.
    pub start: usize,
    /// The byte after the last.
    pub end: usize,
}

impl Span {
    /// Creates the range from byte `start` up to, but not including, byte `end`.
    pub fn new(start: usize, end: usize) -> Self {
        Self { start, end: end.max(start) }
    }
}

impl From<Range<usize>> for Span {
    fn from(range: Range<usize>) -> Self {
        Self::new(range.start, range.end)
    }
}

/// A value and its position.
///
/// A value inserted by an alias (`*name`) has the position of its definition, because a mistake in the value
/// is fixed there.
#[derive(Clone, Debug)]
pub struct Node {
    /// The position where the value was written. A block mapping or list extends to the end of its last
    /// entry.
    pub span: Span,
    /// The value.
    pub value: Value,
    /// The text of a plain (unquoted) scalar as it was written, after substitution.
    pub(crate) raw: Option<Box<str>>,
    /// True if a variable was substituted. The value may then be a secret and must not be shown.
    pub(crate) substituted: bool,
    /// True if the text is written as it is: it has variables, and each other `$` is doubled.
    pub(crate) has_variables: bool,
}

/// The value of a node.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// No value: `null`, `~`, or nothing after a key.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Integer(i64),
    /// A number with a fraction or an exponent, or a whole number that does not fit into `i64`.
    Float(f64),
    /// Text.
    String(String),
    /// A list.
    Sequence(Vec<Node>),
    /// Keys and values, in the order they were written.
    Mapping(Vec<(Key, Node)>),
}

/// A key of a mapping.
#[derive(Clone, Debug)]
pub struct Key {
    /// Its text.
    pub name: String,
    /// The position where it was written.
    pub span: Span,
}

/// Keys are equal if their texts are equal; positions do not matter.
impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Key {}

/// Nodes are equal if their values are equal; positions do not matter.
impl PartialEq for Node {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl Node {
    /// Creates a node from a computed value. Mistakes in it are shown at `span`.
    pub fn new(span: Span, value: Value) -> Self {
        Self { span, value, raw: None, substituted: false, has_variables: false }
    }

    /// Creates a text with variables, as a document writes them: `${NAME}`, and `$$` for a `$`. It is not to
    /// be run, but to be [written](crate::write).
    pub fn with_variables(span: Span, text: &str) -> Self {
        Self { has_variables: true, ..Self::new(span, Value::String(text.to_owned())) }
    }

    /// Creates a plain (unquoted) scalar, typed by the YAML 1.2 core schema.
    pub fn plain(span: Span, text: &str) -> Self {
        Self { raw: Some(text.into()), ..Self::new(span, scalar::typed(text)) }
    }

    /// Returns the value of the key `name`, if this is a mapping with that key.
    pub fn get(&self, name: &str) -> Option<&Node> {
        self.entries().iter().find(|(key, _)| key.name == name).map(|(_, value)| value)
    }

    /// Returns the key `name` itself, which has its own position, if this is a mapping with that key.
    pub fn key(&self, name: &str) -> Option<&Key> {
        self.entries().iter().find(|(key, _)| key.name == name).map(|(key, _)| key)
    }

    /// Returns the keys and values of a mapping; an empty slice for any other value.
    pub fn entries(&self) -> &[(Key, Node)] {
        match &self.value {
            Value::Mapping(entries) => entries,
            _ => &[],
        }
    }

    /// Returns the elements of a list; an empty slice for any other value.
    pub fn items(&self) -> &[Node] {
        match &self.value {
            Value::Sequence(items) => items,
            _ => &[],
        }
    }

    /// Returns the kind of value, in words that fit "expected a number, found ...".
    pub fn kind(&self) -> &'static str {
        match &self.value {
            Value::Null => "nothing",
            Value::Bool(_) => "a boolean",
            Value::Integer(_) | Value::Float(_) => "a number",
            Value::String(_) => "text",
            Value::Sequence(_) => "a list",
            Value::Mapping(_) => "a mapping",
        }
    }

    /// True if there is no value.
    pub fn is_null(&self) -> bool {
        matches!(self.value, Value::Null)
    }

    /// Returns a string value. [`Node::text`] also returns numbers and booleans as they were written.
    pub fn as_str(&self) -> Option<&str> {
        match &self.value {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    /// Returns a string, or a plain number or boolean as it was written: `007` is `007`.
    pub fn text(&self) -> Option<&str> {
        match &self.value {
            Value::String(text) => Some(text),
            Value::Bool(_) | Value::Integer(_) | Value::Float(_) => self.raw.as_deref(),
            _ => None,
        }
    }

    /// True if options read the same from both. Equal numbers may be different texts, such as `007` and `7`,
    /// and an option may want the text.
    pub fn reads_as(&self, other: &Self) -> bool {
        match (&self.value, &other.value) {
            (Value::Sequence(items), Value::Sequence(others)) => {
                items.len() == others.len()
                    && items.iter().zip(others).all(|(item, other)| item.reads_as(other))
            }
            (Value::Mapping(entries), Value::Mapping(others)) => {
                let is_same = |((key, node), (of_other, other)): (&(Key, Self), &(Key, Self))| {
                    key == of_other && node.reads_as(other)
                };
                entries.len() == others.len() && entries.iter().zip(others).all(is_same)
            }
            // Quotes make no difference.
            (Value::String(text), Value::String(other)) => text == other,
            (value, of_other) => match (&self.raw, &other.raw) {
                (Some(text), Some(other)) => text == other && discriminant(value) == discriminant(of_other),
                _ => value == of_other,
            },
        }
    }

    /// Returns the value of a boolean.
    pub fn as_bool(&self) -> Option<bool> {
        match self.value {
            Value::Bool(value) => Some(value),
            _ => None,
        }
    }

    /// Returns a whole number that fits into `i64`.
    pub fn as_i64(&self) -> Option<i64> {
        match self.value {
            Value::Integer(value) => Some(value),
            _ => None,
        }
    }

    /// Returns a whole number from 0 to `u64::MAX`.
    pub fn as_u64(&self) -> Option<u64> {
        match self.value {
            Value::Integer(value) => u64::try_from(value).ok(),
            Value::Float(_) => self.raw.as_deref()?.parse().ok(),
            _ => None,
        }
    }

    /// Returns a number, whole or not.
    pub fn as_f64(&self) -> Option<f64> {
        match self.value {
            Value::Integer(value) => Some(value as f64),
            Value::Float(value) => Some(value),
            _ => None,
        }
    }

    /// Returns the elements, if this is a list.
    pub fn as_sequence(&self) -> Option<&[Node]> {
        match &self.value {
            Value::Sequence(items) => Some(items),
            _ => None,
        }
    }

    /// Returns the keys and values, if this is a mapping.
    pub fn as_mapping(&self) -> Option<&[(Key, Node)]> {
        match &self.value {
            Value::Mapping(entries) => Some(entries),
            _ => None,
        }
    }
}
