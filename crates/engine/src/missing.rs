//! The fields that a transform reads and no message had: probably misspelled.
//!
//! A missing field is mostly no mistake before a run, because fields are only known when messages arrive
//! (what is known before is in [`KnownFields`](crate::KnownFields)), and none for a single message, because
//! the next one may have it. So `filter: "statsu >= 500"` passes nothing, without a word. Each worker
//! therefore notes which of the named fields it has seen, and the counters name the others at the end.
//!
//! The cost is one branch per batch once all fields were seen, and one comparison of pointers while batches
//! share a schema.

use std::collections::BTreeSet;

use arrow_schema::SchemaRef;
use parking_lot::Mutex;
use serde::Serialize;
use thalweg_record::Batch;

use crate::component::{FieldUse, has, is_intrinsic, similar};

/// At most this many names of fields are kept for suggestions: messages may bring any number of names.
const SUGGESTIONS: usize = 1000;

/// A field that a transform reads, and that no message had.
#[derive(Debug, Clone, Serialize, PartialEq, Eq)]
pub struct MissingField {
    /// The name in the configuration.
    pub name: String,
    /// A similar name that messages had.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub similar: Option<String>,
    /// True if it may be a text without its quotes.
    #[serde(skip)]
    pub may_be_text: bool,
}

/// The fields that one worker of a transform has not seen.
#[derive(Debug, Default)]
pub(crate) struct FieldWatch {
    field_use: FieldUse,
    missing: Vec<String>,
    present: BTreeSet<String>,
    /// The schema of the last batch.
    last: Option<SchemaRef>,
}

impl FieldWatch {
    /// Watches for these fields. The payload and metadata are always there.
    pub(crate) fn new(mut fields: Vec<String>, field_use: FieldUse) -> Self {
        fields.retain(|field| !is_intrinsic(field));
        Self { field_use, missing: fields, ..Self::default() }
    }

    /// Notes the fields of a batch.
    pub(crate) fn note(&mut self, batch: &Batch) {
        if self.missing.is_empty() {
            return;
        }
        let schema = batch.fields().schema_ref();
        if !self.last.as_ref().is_some_and(|last| std::sync::Arc::ptr_eq(last, schema)) {
            self.last = Some(schema.clone());
            let names = schema.fields().iter().map(|field| field.name());
            let is_whole = self.field_use == FieldUse::Whole;
            self.missing.retain(|field| match is_whole && !field.contains('*') {
                true => !names.clone().any(|name| name == field),
                false => !has(names.clone().map(String::as_str), field),
            });
            let room = SUGGESTIONS.saturating_sub(self.present.len());
            self.present.extend(names.take(room).cloned());
        }
    }
}

/// The fields that no worker of a transform has seen.
#[derive(Debug, Default)]
pub(crate) struct MissingFields(Mutex<Option<FieldWatch>>);

impl MissingFields {
    /// Adds a worker that has ended.
    pub(crate) fn add(&self, watch: FieldWatch) {
        // A worker that no batch reached has seen nothing.
        if watch.last.is_none() {
            return;
        }
        let mut all = self.0.lock();
        match all.as_mut() {
            Some(all) => {
                all.missing.retain(|field| watch.missing.contains(field));
                all.present.extend(watch.present);
            }
            None => *all = Some(watch),
        }
    }

    /// Returns the fields that no worker has seen.
    pub(crate) fn found(&self) -> Vec<MissingField> {
        let all = self.0.lock();
        let Some(FieldWatch { field_use, missing, present, .. }) = all.as_ref() else { return Vec::new() };
        let found = missing.iter().map(|name| MissingField {
            name: name.clone(),
            similar: similar(name, present.iter().map(String::as_str)).map(str::to_owned),
            may_be_text: *field_use == FieldUse::InExpressions,
        });
        found.filter(|field| *field_use != FieldUse::Optional || field.similar.is_some()).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::Int64Array;
    use arrow_schema::{DataType, Field};

    use super::*;
    use crate::testing;

    fn batch(names: &[&str]) -> Batch {
        let column = |name: &&str| {
            let values = Arc::new(Int64Array::from(vec![1])) as arrow_array::ArrayRef;
            (Field::new(*name, DataType::Int64, true), values)
        };
        testing::batch(["a"]).set_fields(names.iter().map(column)).unwrap()
    }

    fn watched(fields: &[&str], batches: &[&[&str]]) -> FieldWatch {
        using(FieldUse::Needed, fields, batches)
    }

    fn using(field_use: FieldUse, fields: &[&str], batches: &[&[&str]]) -> FieldWatch {
        let mut watch = FieldWatch::new(fields.iter().map(ToString::to_string).collect(), field_use);
        batches.iter().for_each(|names| watch.note(&batch(names)));
        watch
    }

    fn found(watches: impl IntoIterator<Item = FieldWatch>) -> Vec<(String, Option<String>)> {
        let all = MissingFields::default();
        watches.into_iter().for_each(|watch| all.add(watch));
        all.found().into_iter().map(|field| (field.name, field.similar)).collect()
    }

    #[test]
    fn a_field_that_no_message_had_is_named_with_a_similar_one() {
        let watch = watched(&["statsu", "host", "payload", "meta.path"], &[&["status"], &["host", "status"]]);
        assert_eq!(found([watch]), [("statsu".to_owned(), Some("status".to_owned()))]);
    }

    #[test]
    fn the_payload_and_metadata_may_be_meant() {
        let watch = watched(&["paylod", "meta.paht"], &[&["status"]]);
        let expected = [("paylod", "payload"), ("meta.paht", "meta.path")];
        assert_eq!(
            found([watch]),
            expected.map(|(name, similar)| (name.to_owned(), Some(similar.to_owned())))
        );
    }

    #[test]
    fn a_field_that_may_be_missing_is_named_only_if_another_one_is_similar() {
        let watch = using(FieldUse::Optional, &["x", "z_*", "statsu"], &[&["status"]]);
        assert_eq!(found([watch]), [("statsu".to_owned(), Some("status".to_owned()))]);
    }

    #[test]
    fn a_path_into_json_is_there_if_its_column_is() {
        let watch = watched(&["user.name", "a.b.c", "other.x", "group.*"], &[&["user", "a.b", "group.y"]]);
        assert_eq!(found([watch]), [("other.x".to_owned(), None)]);
    }

    #[test]
    fn a_part_is_missing_where_only_whole_fields_are_found() {
        let watch =
            using(FieldUse::Whole, &["user", "user.name", "a.b", "group.*"], &[&["user", "a.b", "group.y"]]);
        assert_eq!(found([watch]), [("user.name".to_owned(), Some("user".to_owned()))]);
    }

    #[test]
    fn what_one_worker_has_seen_is_not_missing() {
        let one = watched(&["x", "y"], &[&["x"]]);
        let other = watched(&["x", "y"], &[&["y"]]);
        assert_eq!(found([one, other]), []);
        let idle = watched(&["x", "y"], &[]);
        let busy = watched(&["x", "y"], &[&["x"]]);
        assert_eq!(found([idle, busy]), [("y".to_owned(), None)]);
    }

    #[test]
    fn without_messages_nothing_is_missing() {
        assert_eq!(found([watched(&["x"], &[])]), []);
    }
}
