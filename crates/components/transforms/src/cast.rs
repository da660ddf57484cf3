//! Converts fields to other types.
//!
//! A field that already has the type keeps its column. Arrow's kernels convert between numeric types. All
//! other values are parsed from their text, with the rules of the parsers.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, cast::AsArray};
use arrow_schema::DataType;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_engine::{Component, Context, Error, KnownFields, Outputs, Transform, TransformConfig};
use thalweg_record::{Batch, INTRINSIC, PAYLOAD};

use thalweg_codec::columns::{Before, ColumnBuilder, FieldType, Layout, is_json_field};
use thalweg_codec::keys::bytes_of;
use thalweg_codec::ordered::Ordered;

/// Converts fields to other types: `{status: int, size: float}`.
///
/// The types are `text`, `int`, `float`, `bool`, `timestamp` and `json`, as in parsers. A message with a
/// value that does not fit leaves by the `errors` output. A field that does not exist is ignored. As `text`,
/// a JSON string is what it says, without quotes and escapes, and any other JSON value is as written. As
/// `json`, a text must be JSON, and any other value is as written. `payload` stays as it is: `cast` only
/// checks that it can be read as the type.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Cast(Ordered<FieldType>);

impl Component for Cast {
    const NAME: &'static str = "cast";
    const EXAMPLE: &'static str = r#"
sources:
  service: { generate: { message: "level=info status=%3d", count: 3 } }
pipelines:
  main:
    from: service
    transforms:
      - parse_logfmt: {}
      - cast: { status: int }
    to: screen
sinks:
  screen: { stdout: { encode: json } }
"#;
}

impl TransformConfig for Cast {
    fn names_intrinsic(&self) -> bool {
        self.0.0.iter().any(|(name, _)| INTRINSIC.contains(&name.as_str()))
    }

    fn fields(&self) -> Vec<String> {
        self.0.0.iter().map(|(name, _)| name.clone()).collect()
    }

    fn fields_after(&self, before: KnownFields) -> KnownFields {
        self.0.0.iter().fold(before, |known, (name, kind)| known.with(name, Some(kind.field(name))))
    }

    fn build(&self, _: &Context) -> Result<Box<dyn Transform>, Error> {
        let casts = self.0.0.iter().map(|(name, kind)| Casting {
            name: name.clone(),
            kind: *kind,
            layout: Layout::new(vec![Arc::new(kind.field(name))]),
        });
        Ok(Box::new(Caster { casts: casts.collect() }))
    }
}

struct Caster {
    casts: Vec<Casting>,
}

struct Casting {
    name: String,
    kind: FieldType,
    layout: Layout,
}

impl Casting {
    /// Returns the column in its new type, or `None` if it already has that type.
    fn column(&self, batch: &Batch, failed: &mut Vec<(u32, String)>) -> Result<Option<ArrayRef>, Error> {
        let wanted = self.kind.data_type();
        let found = batch.fields().schema_ref().column_with_name(&self.name);
        if let Some((place, field)) = found {
            let from = field.data_type();
            let is_json = is_json_field(field);
            let is_same = *from == wanted
                && (wanted != DataType::Utf8View || is_json == (self.kind == FieldType::Json));
            // A text among other values is read as it would be in a column of texts.
            if is_same && !(is_json && has_texts(batch.fields().column(place))) {
                return Ok(None);
            }
            let is_plain = match self.kind {
                FieldType::Float => from.is_integer(),
                FieldType::Timestamp => {
                    matches!(from, DataType::Timestamp(..) | DataType::Date32 | DataType::Date64)
                }
                FieldType::Int => matches!(from, DataType::Int8 | DataType::Int16 | DataType::Int32),
                _ => false,
            };
            if is_plain {
                return Ok(Some(arrow_cast::cast(batch.fields().column(place), &wanted)?));
            }
        } else if self.name != PAYLOAD {
            return Ok(None);
        }
        let Some(input) = bytes_of(batch, &self.name) else { return Ok(None) };
        // `null` among JSON values has no bytes, but it is JSON.
        let json = found.filter(|(_, field)| self.kind == FieldType::Json && is_json_field(field));
        let json = json.map(|(place, _)| batch.fields().column(place));
        let mut builder = ColumnBuilder::new(self.kind, input.data_buffers(), input.len());
        for row in 0..input.len() {
            if input.is_null(row) {
                let is_json_null = json.is_some_and(|json| json.is_valid(row));
                if !is_json_null || builder.push("null").is_err() {
                    builder.push_null();
                }
                continue;
            }
            let value = input.value(row);
            let read = match simdutf8::basic::from_utf8(value) {
                Ok(text) => self.read(text, &mut builder),
                Err(_) => Err(thalweg_codec::not_utf8(value)),
            };
            if let Err(reason) = read {
                builder.push_null();
                failed.push((row as u32, reason));
            }
        }
        Ok(Some(builder.finish()))
    }

    fn read(&self, text: &str, builder: &mut ColumnBuilder) -> Result<(), String> {
        // A float without a fraction is written `3.0`.
        let read = match (self.kind, text.strip_suffix(".0")) {
            (FieldType::Int, Some(whole)) => builder.push(whole),
            _ => builder.push(text),
        };
        read.map_err(|misfit| misfit.reason(&self.name, text))
    }
}

/// True if one of these JSON values is a text.
fn has_texts(column: &ArrayRef) -> bool {
    column.as_string_view_opt().is_some_and(|texts| texts.iter().flatten().any(|text| text.starts_with('"')))
}

impl Transform for Caster {
    fn apply(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
        let before = Before::of(&batch);
        let mut batch = batch;
        let mut all_failed: Vec<(u32, String)> = Vec::new();
        for casting in &mut self.casts {
            let Some(column) = casting.column(&batch, &mut all_failed)? else { continue };
            let is_field = casting.name != PAYLOAD || batch.fields().column_by_name(PAYLOAD).is_some();
            if is_field {
                batch = casting.layout.extend(batch, vec![column])?;
            }
        }
        // Of several reasons for one message, the first is reported.
        all_failed.sort_by_key(|(row, _)| *row);
        all_failed.dedup_by_key(|(row, _)| *row);
        let rest = before.reject(batch, all_failed, out)?;
        out.send(rest);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{Float64Array, Int64Array};
    use arrow_schema::Field;
    use serde_json::json;
    use thalweg_engine::testing;

    use crate::parse_json::ParseJsonConfig;
    use crate::testing::with_text;

    #[test]
    fn it_conforms() {
        for yaml in ["{a: int}", "{payload: int}", "{}"] {
            testing::transform_conforms::<Cast>(yaml, &["1", "", "x"]);
        }
    }

    #[test]
    fn texts_are_read_and_misfits_rejected_as_they_came() {
        let columns: [(&str, &[Option<&str>]); 2] = [
            ("a", &[Some("1"), Some("x"), None, Some("-7")]),
            ("b", &[Some("yes"), Some("no"), None, Some("?")]),
        ];
        let given = testing::apply::<Cast>("{a: int, b: bool, c: float}", [with_text(&["p"; 4], &columns)]);
        assert_eq!(given.main(), [json!({"a": 1, "b": true}), json!({})]);
        let reasons: Vec<String> = given.errors().into_iter().map(|(_, reason)| reason).collect();
        assert_eq!(
            reasons,
            [
                "the field `a` is not a whole number of 64 bits: `x`",
                "the field `b` is not true or false: `?`"
            ]
        );
        assert_eq!(given.rows(thalweg_engine::Output::Errors)[0]["a"], "x");
    }

    #[test]
    fn numbers_become_each_other_and_text() {
        let batch = || {
            let ints: ArrayRef = Arc::new(Int64Array::from(vec![Some(3), None, Some(-4)]));
            let floats: ArrayRef = Arc::new(Float64Array::from(vec![3.0, 1.5, -2.0]));
            let field = |name: &str, column: &ArrayRef| Field::new(name, column.data_type().clone(), true);
            let columns = [(field("i", &ints), ints.clone()), (field("f", &floats), floats.clone())];
            testing::batch(["a", "b", "c"]).set_fields(columns).unwrap()
        };
        let given = testing::apply::<Cast>("{i: float, f: int}", [batch()]);
        assert_eq!(given.main(), [json!({"i": 3.0, "f": 3}), json!({"i": -4.0, "f": -2})]);
        assert_eq!(given.errors()[0].1, "the field `f` is not a whole number of 64 bits: `1.5`");
        let given = testing::apply::<Cast>("{i: text, f: text}", [batch()]);
        assert_eq!(given.main()[1..], [json!({"f": "1.5"}), json!({"i": "-4", "f": "-2.0"})]);
        let given = testing::apply::<Cast>("{i: timestamp, f: json}", [batch()]);
        assert_eq!(given.main()[0], json!({"i": 3_000_000, "f": "3.0"}));
    }

    #[test]
    fn the_text_of_a_value_does_not_depend_on_the_values_beside_it() {
        let cast = |lines: &[&str]| {
            let parsed = testing::apply::<ParseJsonConfig>("{}", [testing::batch(lines)]);
            testing::apply::<Cast>("{a: text}", parsed.outputs.into_values().flatten()).main()
        };
        let lines = [r#"{"a":"x \"y\""}"#, r#"{"a":5}"#, r#"{"a":{"b":"c"}}"#, r#"{"a":"5"}"#];
        let alone: Vec<_> = lines.iter().flat_map(|line| cast(&[line])).collect();
        assert_eq!(
            alone,
            [json!({"a": "x \"y\""}), json!({"a": "5"}), json!({"a": r#"{"b":"c"}"#}), json!({"a": "5"})]
        );
        assert_eq!(cast(&lines), alone);
    }

    #[test]
    fn a_payload_is_checked_and_stays() {
        let given = testing::apply::<Cast>("{payload: int}", [testing::batch(["1", "x", ""])]);
        assert_eq!(given.payloads(thalweg_engine::Output::Main), ["1"]);
        assert_eq!(
            given.reasons(),
            [
                "the field `payload` is not a whole number of 64 bits: `x`",
                "the field `payload` is not a whole number of 64 bits: ``",
            ]
        );
        assert_eq!(given.main(), [json!({})]);
    }
}
