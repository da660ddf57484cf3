//! The tree a document is read into: values, each with the place it was written at.

use std::ops::Range;

use crate::scalar;

/// A place in a document: a range of bytes of its text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// The first byte.
    pub start: usize,
    /// The byte after the last.
    pub end: usize,
}

impl Span {
    /// The place from byte `start` up to, not including, byte `end`.
    pub fn new(start: usize, end: usize) -> Self {
        Self { start, end: end.max(start) }
    }
}

impl From<Range<usize>> for Span {
    fn from(range: Range<usize>) -> Self {
        Self::new(range.start, range.end)
    }
}

/// A value and its place.
///
/// A value that an alias (`*name`) stands for has the place of its definition, since that is where a
/// mistake in it is put right.
#[derive(Clone, Debug)]
pub struct Node {
    /// Where it was written. A block mapping or list reaches to the end of its last entry.
    pub span: Span,
    /// What was written.
    pub value: Value,
    /// The text of a plain (unquoted) scalar as it was written, after substitution.
    pub(crate) raw: Option<Box<str>>,
    /// Whether a variable was put in, so that the value may be a secret and is not to be shown.
    pub(crate) substituted: bool,
}

/// What a node holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Nothing: `null`, `~`, or no value at all after a key.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Integer(i64),
    /// A number with a fraction or an exponent, or a whole number that needs more than 64 bits.
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
    /// Where it was written.
    pub span: Span,
}

/// Keys are equal if their texts are, wherever they were written.
impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Key {}

/// Nodes are equal if their values are, wherever they were written.
impl PartialEq for Node {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl Node {
    /// A node with a value that was made rather than read, at the place to show if it is wrong.
    pub fn new(span: Span, value: Value) -> Self {
        Self { span, value, raw: None, substituted: false }
    }

    /// A plain (unquoted) scalar, typed by the rules of the YAML 1.2 core schema.
    pub fn plain(span: Span, text: &str) -> Self {
        Self { span, value: scalar::typed(text), raw: Some(text.into()), substituted: false }
    }

    /// The value under the key `name`, if this is a mapping that has it.
    pub fn get(&self, name: &str) -> Option<&Node> {
        self.entries().iter().find(|(key, _)| key.name == name).map(|(_, value)| value)
    }

    /// The key `name` itself, which has a place of its own, if this is a mapping that has it.
    pub fn key(&self, name: &str) -> Option<&Key> {
        self.entries().iter().find(|(key, _)| key.name == name).map(|(key, _)| key)
    }

    /// The keys and values of a mapping; none for anything else.
    pub fn entries(&self) -> &[(Key, Node)] {
        match &self.value {
            Value::Mapping(entries) => entries,
            _ => &[],
        }
    }

    /// The elements of a list; none for anything else.
    pub fn items(&self) -> &[Node] {
        match &self.value {
            Value::Sequence(items) => items,
            _ => &[],
        }
    }

    /// What this is, in words that fit "expected a number, found ...".
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

    /// Whether nothing was written.
    pub fn is_null(&self) -> bool {
        matches!(self.value, Value::Null)
    }

    /// The text of a text. For a scalar of any type as it was written, see [`Node::text`].
    pub fn as_str(&self) -> Option<&str> {
        match &self.value {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    /// The text of a text, or of a plain number or boolean as it was written: `007` is `007`.
    pub fn text(&self) -> Option<&str> {
        match &self.value {
            Value::String(text) => Some(text),
            Value::Bool(_) | Value::Integer(_) | Value::Float(_) => self.raw.as_deref(),
            _ => None,
        }
    }

    /// `true` or `false`.
    pub fn as_bool(&self) -> Option<bool> {
        match self.value {
            Value::Bool(value) => Some(value),
            _ => None,
        }
    }

    /// A whole number.
    pub fn as_i64(&self) -> Option<i64> {
        match self.value {
            Value::Integer(value) => Some(value),
            _ => None,
        }
    }

    /// A whole number that is not negative, up to the last `u64`.
    pub fn as_u64(&self) -> Option<u64> {
        match self.value {
            Value::Integer(value) => u64::try_from(value).ok(),
            Value::Float(_) => self.raw.as_deref()?.parse().ok(),
            _ => None,
        }
    }

    /// A number.
    pub fn as_f64(&self) -> Option<f64> {
        match self.value {
            Value::Integer(value) => Some(value as f64),
            Value::Float(value) => Some(value),
            _ => None,
        }
    }

    /// The elements, if this is a list.
    pub fn as_sequence(&self) -> Option<&[Node]> {
        match &self.value {
            Value::Sequence(items) => Some(items),
            _ => None,
        }
    }

    /// The keys and values, if this is a mapping.
    pub fn as_mapping(&self) -> Option<&[(Key, Node)]> {
        match &self.value {
            Value::Mapping(entries) => Some(entries),
            _ => None,
        }
    }
}
