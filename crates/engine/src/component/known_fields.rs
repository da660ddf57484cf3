//! The fields that messages can have, as far as a configuration says it.
//!
//! Messages have the fields that were found in them, so in general nothing is known before a run. But lines
//! of a file have none, and `parse_csv` with `columns` adds exactly those. After such components a misspelled
//! name is a mistake that need not wait for messages.

use std::collections::BTreeMap;

use arrow_schema::{Field, Schema};
use thalweg_config::{FormatError, nearest};
use thalweg_record::{INTRINSIC, name_matches};

/// The fields that messages can have, with their types, as far as a configuration says it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KnownFields {
    /// The type of a field is None if it is not known.
    fields: BTreeMap<String, Option<Field>>,
    is_complete: bool,
}

/// A mistake that follows from the fields of the messages, such as an expression whose types do not fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldMistake {
    /// The text in the options that is wrong.
    pub text: String,
    /// The mistake in it.
    pub error: FormatError,
}

/// How a component uses the fields that it names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FieldUse {
    /// It has no effect without them.
    #[default]
    Needed,
    /// It has no effect without them, and names them in expressions: a text without its quotes is read as a
    /// name.
    InExpressions,
    /// They may be missing. Only a name that is similar to that of a field is probably misspelled.
    Optional,
    /// It has no effect without them, and finds no part of one, such as `user.name` of a field `user`.
    Whole,
}

impl KnownFields {
    /// Messages with any fields: nothing is known.
    pub fn unknown() -> Self {
        Self::default()
    }

    /// Messages without fields.
    pub fn none() -> Self {
        Self { is_complete: true, ..Self::default() }
    }

    /// Messages with these fields.
    pub fn of(fields: impl IntoIterator<Item = Field>) -> Self {
        fields.into_iter().fold(Self::none(), |known, field| {
            let name = field.name().clone();
            known.with(&name, Some(field))
        })
    }

    /// These messages, or those of another output.
    #[must_use]
    pub fn or(mut self, other: KnownFields) -> Self {
        let is_complete = self.is_complete && other.is_complete;
        for (name, kind) in other.fields {
            match self.fields.get(&name) {
                None if self.is_complete => _ = self.fields.insert(name, kind),
                Some(known) if *known == kind => {}
                _ => _ = self.fields.insert(name, None),
            }
        }
        if !other.is_complete {
            // The other output may have fields of the same names with other types.
            self.fields.values_mut().for_each(|kind| *kind = None);
        }
        self.is_complete = is_complete;
        self
    }

    /// Adds a field. Its type is None if it is not known. The payload and metadata are no fields.
    #[must_use]
    pub fn with(mut self, name: &str, kind: Option<Field>) -> Self {
        if !is_intrinsic(name) {
            self.fields.insert(name.to_owned(), kind);
        }
        self
    }

    /// Adds fields that a parser found: a message keeps the value that it had if the parser found none.
    #[must_use]
    pub fn parsed(self, fields: impl IntoIterator<Item = Field>) -> Self {
        fields.into_iter().fold(self, |known, field| {
            let is_same = match known.fields.get(field.name()) {
                Some(before) => before.as_ref() == Some(&field),
                None => known.is_complete,
            };
            let name = field.name().clone();
            known.with(&name, is_same.then_some(field))
        })
    }

    /// Adds fields of any names.
    #[must_use]
    pub fn with_others(mut self) -> Self {
        self.fields.values_mut().for_each(|kind| *kind = None);
        self.is_complete = false;
        self
    }

    /// Removes a field, or all fields that match a name with `*`.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        self.fields.retain(|field, _| !name_matches(name, field));
        self
    }

    /// Keeps only these fields, which are then all that messages can have. A name may have `*`.
    #[must_use]
    pub fn only(self, names: &[String]) -> Self {
        let has_pattern = names.iter().any(|name| name.contains('*'));
        let is_complete = self.is_complete || !has_pattern;
        let mut fields = self.fields;
        if !self.is_complete {
            names.iter().filter(|name| !name.contains('*') && !is_intrinsic(name)).for_each(|name| {
                fields.entry(name.clone()).or_default();
            });
        }
        fields.retain(|field, _| names.iter().any(|name| name_matches(name, field)));
        Self { fields, is_complete }
    }

    /// Returns the type of a field, if it is known.
    pub fn kind(&self, name: &str) -> Option<&Field> {
        self.fields.get(name)?.as_ref()
    }

    /// True if no message has a field of this name. A name may be that of a part, such as `user.name` of a
    /// field `user`, or have `*`.
    pub fn lacks(&self, name: &str) -> bool {
        self.is_complete && !is_intrinsic(name) && !has(self.names(), name)
    }

    /// Returns the field that a name is a part of, such as `user` of `user.name`, if no message has a field
    /// of the whole name.
    pub(crate) fn whole_of(&self, name: &str) -> Option<&str> {
        if !self.is_complete || self.fields.contains_key(name) || name.contains('*') || is_intrinsic(name) {
            return None;
        }
        self.names().find(|field| name.strip_prefix(*field).is_some_and(|rest| rest.starts_with('.')))
    }

    /// Returns the names of the known fields.
    pub fn names(&self) -> impl Iterator<Item = &str> + Clone {
        self.fields.keys().map(String::as_str)
    }

    /// Returns the types of those among these columns that messages can have. None if the type of one is not
    /// known.
    pub fn schema_of<'a>(&self, columns: impl IntoIterator<Item = &'a String>) -> Option<Schema> {
        let mut fields = Vec::new();
        for column in columns {
            match self.fields.get(column) {
                Some(kind) => fields.push(kind.clone()?),
                None if self.is_complete || is_intrinsic(column) => {}
                None => return None,
            }
        }
        Some(Schema::new(fields))
    }
}

/// True if a name is among these, or that of a part of one: `a.b.c` is there if `a` is. A pattern such as
/// `http_*` is there if it matches one.
pub(crate) fn has<'a>(mut names: impl Iterator<Item = &'a str>, name: &str) -> bool {
    if name.contains('*') {
        return names.any(|field| name_matches(name, field));
    }
    names.any(|field| name.strip_prefix(field).is_some_and(|rest| rest.is_empty() || rest.starts_with('.')))
}

/// Returns the name among these fields, the payload and the metadata that another one probably meant.
pub(crate) fn similar<'a>(name: &str, fields: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    nearest(name, fields.chain(INTRINSIC))
}

pub(crate) fn is_intrinsic(name: &str) -> bool {
    INTRINSIC.contains(&name)
}

#[cfg(test)]
mod tests {
    use arrow_schema::DataType;

    use super::*;

    fn field(name: &str, kind: DataType) -> Field {
        Field::new(name, kind, true)
    }

    fn names(known: &KnownFields) -> Vec<&str> {
        known.names().collect()
    }

    #[test]
    fn the_fields_of_a_source_are_known_with_their_types_and_the_payload_is_none() {
        let fields = [field("status", DataType::Int64), field("payload", DataType::BinaryView)];
        let expected = KnownFields::none().with("status", Some(field("status", DataType::Int64)));
        assert_eq!(KnownFields::of(fields), expected);
    }

    #[test]
    fn what_no_component_adds_is_lacking() {
        let known =
            KnownFields::none().parsed([field("status", DataType::Int64), field("user", DataType::Utf8View)]);
        for (name, lacks) in [
            ("status", false),
            ("user.name", false),
            ("us*", false),
            ("payload", false),
            ("meta.path", false),
            ("meta.paht", true),
            ("statsu", true),
            ("statu", true),
            ("h*", true),
        ] {
            assert_eq!(known.lacks(name), lacks, "{name}");
        }
        assert!(!known.with_others().lacks("statsu"));
        assert!(!KnownFields::unknown().lacks("a"));
    }

    #[test]
    fn a_part_is_told_from_a_field_of_its_own() {
        let known = KnownFields::none().with("line", None).with("line.net", None);
        for (name, whole) in [
            ("line.sku", Some("line")),
            ("line.net", None),
            ("line", None),
            ("lines.sku", None),
            ("line.*", None),
            ("meta.path", None),
        ] {
            assert_eq!(known.whole_of(name), whole, "{name}");
        }
        assert_eq!(known.with_others().whole_of("line.sku"), None);
    }

    #[test]
    fn fields_that_are_kept_are_all() {
        let known = KnownFields::unknown().only(&["a".to_owned(), "payload".to_owned()]);
        assert_eq!(names(&known), ["a"]);
        assert!(known.lacks("b"));
        let known = KnownFields::unknown().only(&["a".to_owned(), "b*".to_owned()]);
        assert!(!known.lacks("c"));
        let known =
            KnownFields::none().with("ab", None).with("b", None).only(&["a*".to_owned(), "x".to_owned()]);
        assert_eq!(names(&known), ["ab"]);
    }

    #[test]
    fn two_outputs_have_the_fields_of_both() {
        let one = KnownFields::none().parsed([field("a", DataType::Int64), field("b", DataType::Int64)]);
        let other = KnownFields::none().parsed([field("b", DataType::Utf8View), field("c", DataType::Int64)]);
        let both = one.clone().or(other);
        assert_eq!(names(&both), ["a", "b", "c"]);
        assert_eq!(both.kind("b"), None);
        assert_eq!(both.kind("c"), Some(&field("c", DataType::Int64)));
        assert!(both.lacks("d"));
        let any = one.or(KnownFields::unknown());
        assert!(!any.lacks("d"));
        assert_eq!(any.kind("a"), None);
    }

    #[test]
    fn the_type_of_a_field_is_known_if_every_message_has_it_from_the_same_parser() {
        let int = || field("a", DataType::Int64);
        assert_eq!(KnownFields::none().parsed([int()]).kind("a"), Some(&int()));
        assert_eq!(KnownFields::unknown().parsed([int()]).kind("a"), None);
        let twice = KnownFields::none().parsed([field("a", DataType::Utf8View)]).parsed([int()]);
        assert_eq!(twice.kind("a"), None);
        let known = KnownFields::none().parsed([int()]);
        assert_eq!(known.schema_of(&["a".to_owned(), "x".to_owned()]), Some(Schema::new(vec![int()])));
        assert_eq!(known.with("b", None).schema_of(&["b".to_owned()]), None);
    }
}
