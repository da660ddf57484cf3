//! Copies a field.
//!
//! Usually no bytes are copied: the column gets a second name, or becomes the payload as views of the same
//! bytes.

use std::sync::Arc;

use arrow_array::{Array, BinaryViewArray};
use arrow_schema::{Field, FieldRef, SchemaRef};
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_engine::{Component, Context, Error, KnownFields, Mistake, Outputs, Transform, TransformConfig};
use thalweg_record::{Batch, INTRINSIC, PAYLOAD, PayloadWriter, is_metadata};

use thalweg_codec::columns::{FieldType, Layout};
use thalweg_codec::keys::{bytes_of, present};
use thalweg_codec::names::{group, same};
use thalweg_codec::target::{Input, Slot};

/// Copies a field, or the payload.
///
/// The copy has the type of the field. With `skip_empty`, `append` or `prepend` it is text. A message without
/// the field does not get the copy; if the target is the payload, the payload becomes empty. Names that end
/// in `.*` copy all fields whose names begin so: `{from: "a.*", into: "b.*"}`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Copy {
    /// The field to copy. It may also be `payload`, `meta.source`, `meta.path`, `meta.time` or
    /// `meta.position`. The default is the payload. Bytes of the payload that are not UTF-8 become U+FFFD in
    /// a field.
    #[serde(default = "crate::payload")]
    #[schemars(length(min = 1))]
    from: String,
    /// The field to write. The default is the payload.
    #[serde(default = "crate::payload")]
    #[schemars(length(min = 1))]
    into: String,
    /// How the copy is combined with the field's present value. `replace` (the default) replaces it. `append`
    /// puts the copy after it, and `prepend` puts the copy before it; both join them as text. If either of
    /// the two is missing, the result is the other.
    #[serde(default)]
    existing: Existing,
    /// The text between two values that are joined. The default is empty.
    #[serde(default)]
    separator: String,
    /// True to leave messages unchanged whose field is empty or missing. The default is `false`.
    #[serde(default)]
    skip_empty: bool,
}

#[derive(Debug, Clone, std::marker::Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Existing {
    /// The copy replaces the present value.
    #[default]
    Replace,
    /// The copy is put after the present value.
    Append,
    /// The copy is put before the present value.
    Prepend,
}

impl Component for Copy {
    const NAME: &'static str = "copy";
    const EXAMPLE: &'static str = r#"
sources:
  service: { generate: { message: "level=info msg=hello", count: 3 } }
pipelines:
  main:
    from: service
    transforms:
      - parse_logfmt: {}
      - copy: { from: level, into: msg, existing: prepend, separator: ": " }
      - copy: { from: msg }
    to: screen
sinks:
  screen: { stdout: {} }
"#;

    fn check(&self) -> Vec<Mistake> {
        let mut mistakes = Vec::new();
        if group(&self.from).is_some() != group(&self.into).is_some() {
            let message = "Both names must end in `.*`, or neither.";
            mistakes
                .push(Mistake::new("into", message).help("For example `{from: \"a.*\", into: \"b.*\"}`."));
        } else if group(&self.from).is_some() && (self.existing != Existing::Replace || self.skip_empty) {
            let message = "A group of fields (`.*`) can only be copied unchanged.";
            mistakes.push(Mistake::new("existing", message).help("Leave out `existing` and `skip_empty`."));
        }
        if !self.separator.is_empty() && self.existing == Existing::Replace {
            let message = "`separator` has an effect only if texts are joined.";
            mistakes.push(
                Mistake::new("separator", message).help("Say `existing: append` or `existing: prepend`."),
            );
        }
        mistakes
    }
}

impl TransformConfig for Copy {
    fn names_intrinsic(&self) -> bool {
        INTRINSIC.contains(&self.from.as_str())
    }

    fn fields(&self) -> Vec<String> {
        vec![self.from.clone()]
    }

    fn fields_after(&self, before: KnownFields) -> KnownFields {
        match group(&self.into) {
            Some(_) => before.with_others(),
            None => before.with(&self.into, None),
        }
    }

    fn build(&self, _: &Context) -> Result<Box<dyn Transform>, Error> {
        let Self { from, into, existing, separator, skip_empty } = self.clone();
        let input = Input { field: from, skip_empty };
        if existing == Existing::Replace && !skip_empty {
            return Ok(Box::new(Copier { from: input.field, into, known: None }));
        }
        let slot = Slot::new(&into, FieldType::Text);
        Ok(Box::new(Joiner { input, into, existing, separator: separator.into_bytes(), slot }))
    }
}

/// Gives columns a second name.
struct Copier {
    from: String,
    into: String,
    /// The schema of the previous batch, the copied fields, and their layout.
    known: Option<(SchemaRef, Vec<FieldRef>, Layout)>,
}

impl Transform for Copier {
    fn apply(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
        if self.into == PAYLOAD {
            let payload = match bytes_of(&batch, &self.from) {
                Some(column) => present(column),
                None => nothing(batch.rows()),
            };
            out.send(batch.with_payload(payload)?);
            return Ok(());
        }
        let schema = batch.fields().schema();
        let copied = |name: &str| match (group(&self.from), group(&self.into)) {
            (Some(from), Some(into)) => name.strip_prefix(from).map(|rest| format!("{into}{rest}")),
            _ => (name == self.from && !is_metadata(name)).then(|| self.into.clone()),
        };
        let (mut columns, mut fields) = (Vec::new(), Vec::new());
        for (field, column) in schema.fields().iter().zip(batch.fields().columns()) {
            if let Some(name) = copied(field.name()) {
                fields.push(Arc::new(field.as_ref().clone().with_name(name)));
                columns.push(column.clone());
            }
        }
        if columns.is_empty() && group(&self.from).is_none() {
            // No field has this name: it is the payload, metadata, or missing.
            let nothing = || arrow_array::new_null_array(&FieldType::Text.data_type(), batch.rows());
            let column = batch.column(&self.from).unwrap_or_else(nothing);
            fields.push(Arc::new(Field::new(&self.into, column.data_type().clone(), true)));
            columns.push(column);
        }
        if !self.known.as_ref().is_some_and(|(known, copies, _)| same(known, &schema) && *copies == fields) {
            self.known = Some((schema, fields.clone(), Layout::new(fields)));
        }
        let batch = match &mut self.known {
            Some((_, _, layout)) => layout.extend(batch, columns)?,
            None => batch,
        };
        out.send(batch);
        Ok(())
    }
}

/// Returns empty payloads.
fn nothing(rows: usize) -> BinaryViewArray {
    let mut writer = PayloadWriter::with_capacity(0, rows);
    (0..rows).for_each(|_| writer.end());
    writer.finish()
}

/// Joins texts, or copies texts that are not empty.
struct Joiner {
    input: Input,
    into: String,
    existing: Existing,
    separator: Vec<u8>,
    slot: Slot,
}

impl Transform for Joiner {
    fn apply(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
        let Some(from) = self.input.read(&batch) else {
            out.send(batch);
            return Ok(());
        };
        if self.existing == Existing::Replace {
            return Ok(self.slot.put(batch, from, Vec::new(), out)?);
        }
        let into = bytes_of(&batch, &self.into);
        let bytes = from.lengths().chain(into.iter().flat_map(BinaryViewArray::lengths));
        let bytes = bytes.map(|length| length as usize + self.separator.len()).sum();
        let mut written = PayloadWriter::with_capacity(bytes, from.len());
        for row in 0..from.len() {
            if from.is_valid(row) {
                let added = from.value(row);
                let out = written.buffer();
                match into.as_ref().filter(|into| into.is_valid(row)).map(|into| into.value(row)) {
                    None => out.extend_from_slice(added),
                    Some(there) => {
                        let (first, second) =
                            if self.existing == Existing::Append { (there, added) } else { (added, there) };
                        out.extend_from_slice(first);
                        out.extend_from_slice(&self.separator);
                        out.extend_from_slice(second);
                    }
                }
            }
            written.end();
        }
        let joined = written.finish();
        let (views, buffers, _) = joined.into_parts();
        let joined = BinaryViewArray::try_new(views, buffers, from.nulls().cloned())?;
        Ok(self.slot.put(batch, joined, Vec::new(), out)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use thalweg_engine::{Output, testing};

    use crate::testing::with_text;

    #[test]
    fn it_conforms() {
        for yaml in
            ["into: a", "from: nothing", "{into: a, existing: append}", "{from: a, existing: prepend}"]
        {
            testing::transform_conforms::<Copy>(yaml, &["a", "", "b"]);
        }
    }

    fn example() -> Batch {
        let long = "a text that is longer than a view";
        with_text(
            &["p", "q", "r"],
            &[("a", &[Some(long), None, Some("")]), ("b", &[Some("x"), Some("y"), None])],
        )
    }

    #[test]
    fn a_field_is_copied_with_its_nulls() {
        let given = testing::apply::<Copy>("{from: a, into: b}", [example()]);
        assert_eq!(given.main()[1..], [json!({}), json!({"a": "", "b": ""})]);
        let given = testing::apply::<Copy>("{from: nothing, into: b}", [example()]);
        assert_eq!(given.main()[1..], [json!({}), json!({"a": ""})]);
        let given = testing::apply::<Copy>("{from: payload, into: c}", [example()]);
        assert_eq!(given.main()[1], json!({"b": "y", "c": "q"}));
        let given = testing::apply::<Copy>("{from: meta.source, into: c}", [example()]);
        assert_eq!(given.main()[1], json!({"b": "y", "c": "test"}));
        // A field does not hide metadata.
        let forged = with_text(&["p"], &[("meta.source", &[Some("x")])]);
        let given = testing::apply::<Copy>("{from: meta.source, into: c}", [forged]);
        assert_eq!(given.main(), [json!({"meta.source": "x", "c": "test"})]);
        let given = testing::apply::<Copy>("{from: a, into: b, skip_empty: true}", [example()]);
        assert_eq!(given.main()[1..], [json!({"b": "y"}), json!({"a": ""})]);
    }

    #[test]
    fn a_text_becomes_the_payload_where_it_is() {
        let batch = example();
        let bytes = batch.fields().column(0).to_data().buffers()[1].as_ptr();
        let given = testing::apply::<Copy>("from: a", [batch]);
        assert_eq!(given.payloads(Output::Main), ["a text that is longer than a view", "", ""]);
        let full = with_text(&["p"], &[("a", &[Some("a text that is longer than a view")])]);
        let there = full.fields().column(0).to_data().buffers()[1].as_ptr();
        let given = testing::apply::<Copy>("from: a", [full]);
        let payload = given.outputs[&Output::Main][0].payload();
        assert_eq!(payload.data_buffers()[0].as_ptr(), there);
        assert_ne!(bytes, there);
        let given = testing::apply::<Copy>("from: nothing", [example()]);
        assert_eq!(given.payloads(Output::Main), ["", "", ""]);
    }

    #[test]
    fn texts_are_joined() {
        let given = testing::apply::<Copy>("{from: b, existing: append, separator: ', '}", [example()]);
        assert_eq!(given.payloads(Output::Main), ["p, x", "q, y", "r"]);
        let given = testing::apply::<Copy>("{into: b, existing: prepend, separator: '-'}", [example()]);
        let joined: Vec<_> = given.main().into_iter().map(|row| row["b"].clone()).collect();
        assert_eq!(joined, ["p-x", "q-y", "r"]);
        let given =
            testing::apply::<Copy>("{from: b, into: c, existing: append, separator: '-'}", [example()]);
        assert_eq!(given.main()[1..], [json!({"b": "y", "c": "y"}), json!({"a": ""})]);
    }

    #[test]
    fn all_that_begins_alike_is_copied() {
        let batch =
            with_text(&["p"], &[("a.x", &[Some("1")]), ("a.y.z", &[Some("2")]), ("ab", &[Some("3")])]);
        let given = testing::apply::<Copy>("{from: 'a.*', into: 'b.*'}", [batch]);
        assert_eq!(given.main()[0], json!({"a.x": "1", "a.y.z": "2", "ab": "3", "b.x": "1", "b.y.z": "2"}));
    }

    #[test]
    fn what_does_not_go_together_is_refused() {
        let mistakes = |yaml: &str| testing::messages(testing::options::<Copy>(yaml).check());
        assert_eq!(mistakes("{from: 'a.*'}"), ["Both names must end in `.*`, or neither."]);
        assert_eq!(
            mistakes("{from: 'a.*', into: 'b.*', existing: append}"),
            ["A group of fields (`.*`) can only be copied unchanged."]
        );
        assert_eq!(mistakes("separator: x"), ["`separator` has an effect only if texts are joined."]);
        assert_eq!(mistakes("{from: a}"), [""; 0]);
        assert_eq!(testing::refused::<Copy>("into: ''"), "`into` is empty.");
    }
}
