//! Renames fields without touching messages: the schema changes once for all batches that share it.

use std::sync::Arc;

use arrow_schema::{FieldRef, Schema};
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_engine::{Component, Context, Error, KnownFields, Mistake, Outputs, Transform, TransformConfig};
use thalweg_record::{Batch, INTRINSIC, PAYLOAD};

use thalweg_codec::columns::{FieldType, Layout};
use thalweg_codec::keys::{bytes_of, present};
use thalweg_codec::names::{Projection, group, renamed_fields};
use thalweg_codec::ordered::Ordered;

/// Renames fields: `{old: new}`.
///
/// All fields are renamed at once, so `{a: b, b: a}` swaps two fields. An existing field with the new name is
/// replaced. A field that does not exist is ignored.
///
/// Names that end in `.*` rename all fields whose names begin so: `{"a.*": "b.*"}` renames `a.x` to `b.x`. An
/// entry for a single field takes precedence.
///
/// `payload` is the message itself: `{payload: message}` copies it to a text field, and the payload stays.
/// `{message: payload}` makes a field the payload, and NULL becomes empty.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Rename(Ordered<String>);

impl Component for Rename {
    const NAME: &'static str = "rename";
    const EXAMPLE: &'static str = r#"
sources:
  numbers: { generate: { message: "level=info msg=hello", count: 3 } }
pipelines:
  main:
    from: numbers
    transforms:
      - parse_logfmt: {}
      - rename: { msg: message, level: severity }
    to: screen
sinks:
  screen: { stdout: { encode: json } }
"#;

    fn check(&self) -> Vec<Mistake> {
        let mistake = |message: String| Mistake::new("", message);
        let entries = &self.0.0;
        let doubles = entries.iter().enumerate().filter_map(|(at, (_, new))| {
            let (first, _) = entries.iter().take(at).find(|(_, other)| other == new)?;
            if group(new).is_some() {
                return None;
            }
            let second = &entries.get(at)?.0;
            Some(mistake(format!("`{first}` and `{second}` cannot both be called `{new}`.")))
        });
        let nameless = entries
            .iter()
            .filter(|(_, new)| new.is_empty())
            .map(|(old, _)| mistake(format!("`{old}` needs a new name that is not empty.")));
        let halves = entries.iter().filter(|(old, new)| group(old).is_some() != group(new).is_some());
        let halves = halves.map(|(old, new)| {
            mistake(format!("Both `{old}` and `{new}` must end in `.*`, or neither."))
                .help("For example `{\"a.*\": \"b.*\"}`.")
        });
        doubles.chain(nameless).chain(halves).collect()
    }
}

impl TransformConfig for Rename {
    fn names_intrinsic(&self) -> bool {
        self.0.0.iter().any(|(old, _)| INTRINSIC.contains(&old.as_str()))
    }

    fn fields(&self) -> Vec<String> {
        self.0.0.iter().map(|(old, _)| old.clone()).collect()
    }

    fn fields_after(&self, before: KnownFields) -> KnownFields {
        if self.0.0.iter().any(|(old, _)| group(old).is_some()) {
            return before.with_others();
        }
        // All names change at once: `{a: b, b: a}` exchanges two fields.
        let kind = |(old, new): &(String, String)| Some(before.kind(old)?.clone().with_name(new));
        let kinds: Vec<_> = self.0.0.iter().map(kind).collect();
        let rest = self.0.0.iter().fold(before, |known, (old, _)| known.without(old));
        self.0.0.iter().zip(kinds).fold(rest, |known, ((_, new), kind)| known.with(new, kind))
    }

    fn build(&self, _: &Context) -> Result<Box<dyn Transform>, Error> {
        let mut entries = self.0.0.clone();
        entries.retain(|(old, new)| old != new);
        let mut take = |found: &dyn Fn(&(String, String)) -> bool| {
            entries.iter().position(found).map(|at| entries.remove(at))
        };
        let from_payload = take(&|(old, _)| old == PAYLOAD).map(|(_, new)| {
            let field = FieldType::Text.field(&new);
            (new, Layout::new(vec![Arc::new(field)]))
        });
        let to_payload = take(&|(_, new)| new == PAYLOAD).map(|(old, _)| old);
        Ok(Box::new(Renamer { names: entries, from_payload, to_payload, projection: Projection::default() }))
    }
}

struct Renamer {
    names: Vec<(String, String)>,
    from_payload: Option<(String, Layout)>,
    to_payload: Option<String>,
    projection: Projection,
}

impl Transform for Renamer {
    fn apply(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
        let text = match &self.from_payload {
            Some(_) => batch.column(PAYLOAD),
            None => None,
        };
        let mut batch = batch;
        let mut moved = None;
        if let Some(field) = &self.to_payload
            && batch.fields().column_by_name(field).is_some()
            && let Some(column) = bytes_of(&batch, field)
        {
            batch = batch.with_payload(present(column))?;
            moved = Some(field.as_str());
        }
        let names = &self.names;
        // A field called `payload` hides the payload and is renamed like any other.
        let hidden = batch.fields().column_by_name(PAYLOAD).is_some();
        let from_field =
            self.from_payload.as_ref().filter(|_| hidden).map(|(new, _)| (PAYLOAD, new.as_str()));
        let has_projection = !names.is_empty() || moved.is_some() || hidden;
        if has_projection {
            batch = self.projection.apply(batch, |schema| renamed(schema, names, from_field, moved))?;
        }
        if let (Some((_, layout)), Some(text), false) = (&mut self.from_payload, text, hidden) {
            batch = layout.extend(batch, vec![text])?;
        }
        out.send(batch);
        Ok(())
    }
}

fn renamed(
    schema: &Schema,
    names: &[(String, String)],
    from_field: Option<(&str, &str)>,
    moved: Option<&str>,
) -> Vec<(usize, FieldRef)> {
    let new_name = |name: &str| -> Option<String> {
        let listed = names.iter().find(|(old, _)| old == name).map(|(_, new)| new.as_str());
        let listed = listed.or_else(|| from_field.filter(|(old, _)| *old == name).map(|(_, new)| new));
        listed.map(str::to_owned).or_else(|| {
            names
                .iter()
                .find_map(|(old, new)| Some(format!("{}{}", group(new)?, name.strip_prefix(group(old)?)?)))
        })
    };
    renamed_fields(schema, |field| moved != Some(field), new_name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_engine::{Output, testing};

    use crate::testing::with_text;

    #[test]
    fn it_conforms() {
        testing::transform_conforms::<Rename>("{payload: message, a: b}", &["a", "", "b"]);
    }

    fn renamed_row(yaml: &str) -> String {
        let batch = with_text(&["x"], &[("a", &[Some("1")]), ("b", &[Some("2")]), ("c", &[None])]);
        testing::apply::<Rename>(yaml, [batch]).main()[0].to_string()
    }

    #[test]
    fn all_are_renamed_at_once_and_what_has_the_name_is_replaced() {
        assert_eq!(renamed_row("{a: x}"), r#"{"x":"1","b":"2"}"#);
        assert_eq!(renamed_row("{a: b}"), r#"{"b":"1"}"#);
        assert_eq!(renamed_row("{a: b, b: a}"), r#"{"b":"1","a":"2"}"#);
        assert_eq!(renamed_row("{nothing: b}"), r#"{"a":"1","b":"2"}"#);
        assert_eq!(renamed_row("{a: a}"), r#"{"a":"1","b":"2"}"#);
    }

    #[test]
    fn the_payload_can_become_a_field_and_a_field_the_payload() {
        assert_eq!(renamed_row("{payload: b}"), r#"{"a":"1","b":"x"}"#);
        let batch = with_text(&["x", "y"], &[("a", &[Some("a long text that is not inline"), None])]);
        let given = testing::apply::<Rename>("{a: payload, payload: old}", [batch]);
        assert_eq!(given.payloads(Output::Main), ["a long text that is not inline", ""]);
        assert_eq!(given.main()[0].to_string(), r#"{"old":"x"}"#);
    }

    #[test]
    fn names_that_begin_alike_are_renamed_together() {
        let names = |yaml: &str| {
            let columns = ["a", "a.x", "a.y.z", "ab", "b.x"];
            let columns = columns.map(|name| (name, [Some(name)]));
            let columns: Vec<(&str, &[Option<&str>])> =
                columns.iter().map(|(name, value)| (*name, value.as_slice())).collect();
            testing::apply::<Rename>(yaml, [with_text(&["x"], &columns)]).main()[0].to_string()
        };
        assert_eq!(names("{'a.*': 'b.*'}"), r#"{"a":"a","b.x":"a.x","b.y.z":"a.y.z","ab":"ab"}"#);
        assert_eq!(
            names("{'a.*': 'c.*', 'b.*': 'c.*', a.y.z: q}"),
            r#"{"a":"a","q":"a.y.z","ab":"ab","c.x":"b.x"}"#
        );
    }

    #[test]
    fn two_fields_of_one_name_are_a_mistake() {
        let config: Rename = testing::options("{a: c, b: c}");
        assert_eq!(config.check()[0].message, "`a` and `b` cannot both be called `c`.");
        assert_eq!(
            testing::messages(testing::options::<Rename>("{'a.*': c}").check()),
            ["Both `a.*` and `c` must end in `.*`, or neither."]
        );
    }
}
