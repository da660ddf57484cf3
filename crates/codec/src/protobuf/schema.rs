//! The types of messages, as a decoder needs them: names are resolved, fields are in the order of their
//! numbers, and the well-known types are recognised.

use std::collections::HashMap;

use thalweg_config::nearest;

use super::defaults::Missing;
use super::descriptor;
use super::kind::Kind;
use super::resolve::Resolver;

/// How to write a descriptor set.
const HOW: &str = "write it with `protoc --include_imports --descriptor_set_out=FILE`";

/// The types that a descriptor set declares. `protoc --descriptor_set_out` and `buf build` write one.
#[derive(Debug)]
pub struct Schema {
    pub(super) messages: Vec<Message>,
    pub(super) enums: Vec<Enum>,
    /// The numbers of the message types by their full names.
    pub(super) by_name: HashMap<String, usize>,
    /// The number of `oneof`s in all messages.
    pub(super) oneofs: usize,
}

/// A message type.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) name: String,
    /// The fields in the order of their numbers.
    pub(super) fields: Vec<Field>,
    /// The indexes of the fields that must not be missing, in ascending order.
    pub(super) required: Vec<u32>,
    pub(super) has_oneofs: bool,
    pub(super) form: Form,
}

/// How the values of a message type are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// As an object.
    Object,
    /// `google.protobuf.Timestamp`: as a time.
    Time,
    /// `google.protobuf.Duration`: as seconds.
    Duration,
    /// A wrapper of a value, such as `google.protobuf.Int64Value`: as that value.
    Wrapper,
    /// A type of `google/protobuf/struct.proto`: as the field that is set, or as this JSON if none is.
    Json(&'static str),
}

/// A field of a message type.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) number: u32,
    pub(super) name: String,
    /// The name in quotes, with a colon after it.
    pub(super) key: Vec<u8>,
    pub(super) kind: Kind,
    pub(super) label: Label,
    /// The number of the `oneof` among those of all messages.
    pub(super) oneof: Option<usize>,
    /// The value of a message that lacks the field.
    pub(super) missing: Missing,
}

/// How often a field occurs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Label {
    Single,
    List,
    /// A list of entries, which are messages with a key and a value.
    Map,
}

/// An enumeration.
#[derive(Debug)]
pub(super) struct Enum {
    /// The names of values, in the order of the values.
    names: Vec<(i32, String)>,
    /// The name of the first value, which is the default.
    first: String,
}

impl Enum {
    /// Creates an enumeration of these values. Of two names of one value, the first is used.
    pub(super) fn new(values: &[(i32, String)]) -> Self {
        let mut names = values.to_vec();
        names.sort_by_key(|(number, _)| *number);
        names.dedup_by_key(|(number, _)| *number);
        Self { names, first: values.first().map(|(_, name)| name.clone()).unwrap_or_default() }
    }

    /// Returns the name of a value.
    pub(super) fn name_of(&self, value: i32) -> Option<&str> {
        let at = self.names.binary_search_by_key(&value, |(number, _)| *number).ok()?;
        self.names.get(at).map(|(_, name)| name.as_str())
    }

    /// Returns the name of the default value.
    pub(super) fn first(&self) -> &str {
        &self.first
    }
}

impl Message {
    /// Returns the index of the field of this number. `expected` is the index that is tried first.
    #[inline]
    pub(super) fn index_of(&self, number: u32, expected: usize) -> Option<usize> {
        match self.fields.get(expected) {
            Some(field) if field.number == number => Some(expected),
            _ => self.fields.binary_search_by_key(&number, |field| field.number).ok(),
        }
    }
}

impl Schema {
    /// Reads a `FileDescriptorSet`.
    ///
    /// # Errors
    /// The reason why it cannot be used: it is none, or lacks types.
    pub fn read(bytes: &[u8]) -> Result<Self, String> {
        if u32::try_from(bytes.len()).is_err() {
            return Err("it is longer than 4 GiB".to_owned());
        }
        let files = descriptor::files(bytes)
            .map_err(|fault| format!("{fault}, so it is no descriptor set: {HOW}"))?;
        let schema = Resolver::new(&files).schema()?;
        match schema.messages.is_empty() {
            true => Err(format!("it declares no message: {HOW}")),
            false => Ok(schema),
        }
    }

    /// Returns the number of the message type of this full name.
    ///
    /// # Errors
    /// The reason, with the name that was probably meant.
    pub(super) fn find(&self, name: &str) -> Result<usize, String> {
        let name = name.strip_prefix('.').unwrap_or(name);
        if let Some(index) = self.by_name.get(name) {
            return Ok(*index);
        }
        let names = || self.messages.iter().map(|message| message.name.as_str());
        let is_end = |known: &&str| known.strip_suffix(name).is_some_and(|rest| rest.ends_with('.'));
        let mut ends = names().filter(is_end);
        let meant = match (ends.next(), ends.next()) {
            (Some(only), None) => Some(only),
            _ => nearest(name, names()),
        };
        Err(match meant {
            Some(meant) => format!("`{name}` is not a message in it; did you mean `{meant}`?"),
            None => format!("`{name}` is not a message in it: write the full name, with the package"),
        })
    }

    pub(super) fn message(&self, index: usize) -> &Message {
        &self.messages[index]
    }

    pub(super) fn field(&self, message: usize, field: u32) -> &Field {
        &self.messages[message].fields[field as usize]
    }

    /// Returns the name of a value of an enumeration.
    pub(super) fn name_of(&self, enumeration: usize, value: i32) -> Option<&str> {
        self.enums.get(enumeration)?.name_of(value)
    }
}
