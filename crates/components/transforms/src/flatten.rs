//! Turns the members of fields that hold JSON objects into fields.
//!
//! Each such field is parsed as `parse_json` parses payloads. Values other than objects (an array, a number)
//! stay in the field.

use std::collections::BTreeMap;

use arrow_array::{Array, BinaryViewArray, StringViewArray, cast::AsArray};
use arrow_buffer::{BooleanBuffer, NullBuffer};
use arrow_schema::{DataType, FieldRef, SchemaRef};
use hashbrown::HashMap;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::List;
use thalweg_engine::{Component, Context, Error, Outputs, Transform, TransformConfig};
use thalweg_record::Batch;

use thalweg_codec::columns::{FieldType, Layout};
use thalweg_codec::json_columns::{JsonColumns, Nulls, Wanted};
use thalweg_codec::names::{Projection, covers, renamed_fields, same};

/// The maximum number of fields that one field may become; see `parse_json`.
const MOST: usize = 1024;

/// Turns the members of fields that hold JSON objects into fields.
///
/// A field `a` with `{"b": {"c": 1}}` becomes the field `a.b.c`. Arrays and objects without members stay as
/// they are.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Flatten {
    /// The text between the parts of a name. The default is a dot. With another separator, the dots in the
    /// names of all chosen fields are replaced by it, also those that `parse_json` made with `flatten`.
    #[schemars(length(min = 1))]
    separator: String,
    /// The fields to flatten. A name also chooses the fields whose names begin with it and a dot. `*` matches
    /// any characters. The default is all fields.
    fields: Option<List<String, 1>>,
    /// True to keep the nested fields beside the flattened ones, which then have another separator. With the
    /// separator `\.`, `encode: json` writes names with dots. The default is `false`.
    keep: bool,
    /// With `keep`: the text before the names of the flattened fields. The default is empty.
    prefix: String,
}

impl Default for Flatten {
    fn default() -> Self {
        Self { separator: ".".to_owned(), fields: None, keep: false, prefix: String::new() }
    }
}

impl Component for Flatten {
    const NAME: &'static str = "flatten";
    const EXAMPLE: &'static str = r#"
sources:
  service: { generate: { lines: ['{"user": {"name": "ann", "roles": ["a", "b"]}}'] } }
pipelines:
  main:
    from: service
    transforms:
      - parse_json: {}
      - flatten: { separator: "_" }
    to: screen
sinks:
  screen: { stdout: { encode: json } }
"#;
}

impl TransformConfig for Flatten {
    fn names_intrinsic(&self) -> bool {
        false
    }

    fn build(&self, _: &Context) -> Result<Box<dyn Transform>, Error> {
        Ok(Box::new(Flattener {
            options: self.clone(),
            parsers: HashMap::new(),
            renamed: Projection::default(),
            dropped: BTreeMap::new(),
        }))
    }
}

impl Flatten {
    /// Adds the flattened fields beside the nested ones.
    fn with_copies(&self, batch: Batch) -> Result<Batch, Error> {
        let schema = batch.fields().schema();
        let columns = schema.fields().iter().zip(batch.fields().columns());
        let copies = columns.filter(|(field, _)| field.name().contains('.') && self.is_chosen(field.name()));
        let copies: Vec<_> = copies
            .map(|(field, column)| {
                let name = format!("{}{}", self.prefix, field.name().replace('.', &self.separator));
                (field.as_ref().clone().with_name(name), column.clone())
            })
            .collect();
        Ok(batch.set_fields(copies)?)
    }

    fn is_chosen(&self, name: &str) -> bool {
        let Some(fields) = &self.fields else { return true };
        fields.iter().any(|pattern| covers(pattern, name))
    }
}

struct Flattener {
    options: Flatten,
    /// The parsers by the name of their field.
    parsers: HashMap<String, JsonColumns>,
    renamed: Projection,
    /// Per field: how to remove it, or how to replace it by its remaining values.
    dropped: BTreeMap<String, Rest>,
}

/// The schema without a field, and the layout with it.
struct Rest {
    without: Projection,
    layout: Layout,
}

impl Flattener {
    /// Parses one field. Returns the batch without the messages that were rejected. Messages that must be
    /// parsed separately are added to `later`.
    fn field(
        &mut self,
        batch: Batch,
        field: &FieldRef,
        later: &mut Vec<Batch>,
        out: &mut Outputs,
    ) -> Result<Option<Batch>, Error> {
        let name = field.name();
        let has_objects =
            |batch: &Batch| objects(batch, name).is_some_and(|objects| objects.null_count() < batch.rows());
        if !has_objects(&batch) {
            return Ok(Some(batch));
        }
        let parser = self.parsers.entry_ref(name.as_str()).or_insert_with(|| {
            JsonColumns::new(Wanted {
                fields: None,
                types: BTreeMap::new(),
                flatten: true,
                prefix: format!("{name}."),
                nulls: Nulls::Omit,
                max_fields: MOST,
            })
        });
        let parsed = parser.parse(batch, out, |batch| objects(batch, name))?;
        later.extend(parsed.rest);
        let Some(batch) = parsed.batch else { return Ok(None) };
        // The objects are removed from the field itself. If it held nothing else, the field is removed too.
        let Some(column) = text(&batch, name) else { return Ok(Some(batch)) };
        let others = (0..column.len()).map(|row| column.is_valid(row) && !is_object(column.value(row)));
        let others: BooleanBuffer = others.collect();
        let is_empty = others.count_set_bits() == 0;
        let rest = self.dropped.entry(name.clone()).or_insert_with(|| Rest {
            without: Projection::default(),
            layout: Layout::new(vec![field.clone()]),
        });
        let batch = if is_empty {
            let all = |_: &str| None;
            rest.without.apply(batch, |schema| renamed_fields(schema, |other| other != name, all))?
        } else {
            let (views, buffers, _) = column.into_parts();
            let column = StringViewArray::try_new(views, buffers, Some(NullBuffer::new(others)))?;
            rest.layout.extend(batch, vec![std::sync::Arc::new(column)])?
        };
        Ok(Some(batch))
    }

    fn flatten(&mut self, batch: Batch, later: &mut Vec<Batch>, out: &mut Outputs) -> Result<(), Error> {
        let schema: SchemaRef = batch.fields().schema();
        let json = FieldType::Json.field("");
        let mut batch = batch;
        for field in schema.fields() {
            if field.extension_type_name() == json.extension_type_name()
                && self.options.is_chosen(field.name())
            {
                match self.field(batch, field, later, out)? {
                    Some(rest) => batch = rest,
                    None => return Ok(()),
                }
            }
        }
        let Self { options, renamed, .. } = self;
        let has_dots = |schema: &SchemaRef| schema.fields().iter().any(|field| field.name().contains('.'));
        let now = batch.fields().schema();
        if options.keep {
            batch = options.with_copies(batch)?;
        } else if options.separator != "." && (!same(&now, &schema) || has_dots(&now)) {
            batch = renamed.apply(batch, |schema| {
                let new_name = |name: &str| {
                    let is_affected = name.contains('.') && options.is_chosen(name);
                    is_affected.then(|| name.replace('.', &options.separator))
                };
                renamed_fields(schema, |_| true, new_name)
            })?;
        }
        out.send(batch);
        Ok(())
    }
}

impl Transform for Flattener {
    fn apply(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
        let mut later = vec![batch];
        while let Some(batch) = later.pop() {
            self.flatten(batch, &mut later, out)?;
        }
        Ok(())
    }
}

fn text(batch: &Batch, name: &str) -> Option<StringViewArray> {
    let column = batch.fields().column_by_name(name)?;
    (*column.data_type() == DataType::Utf8View).then(|| column.as_string_view().clone())
}

/// Returns the objects with members that a field holds, and NULL for other values.
fn objects(batch: &Batch, name: &str) -> Option<BinaryViewArray> {
    let column = text(batch, name)?;
    let found =
        BooleanBuffer::collect_bool(column.len(), |row| column.is_valid(row) && is_object(column.value(row)));
    let (views, buffers, _) = column.to_binary_view().into_parts();
    BinaryViewArray::try_new(views, buffers, Some(NullBuffer::new(found))).ok()
}

/// True if a JSON text is an object with members.
fn is_object(text: &str) -> bool {
    let inside = text.trim_ascii_start().strip_prefix('{');
    inside.is_some_and(|inside| !inside.trim_ascii_start().starts_with('}'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use thalweg_engine::{Output, testing};

    use crate::parse_json::ParseJsonConfig;
    use thalweg_stream::encode::EncodeConfig;

    fn flattened(yaml: &str, lines: &[&str]) -> Vec<String> {
        let parsed = testing::apply::<ParseJsonConfig>("{}", [testing::batch(lines)]);
        let given = testing::apply::<Flatten>(yaml, parsed.outputs.into_values().flatten());
        assert_eq!(given.errors(), []);
        testing::apply::<EncodeConfig>("json", given.outputs.into_values().flatten()).payloads(Output::Main)
    }

    #[test]
    fn it_conforms() {
        testing::transform_conforms::<Flatten>("{}", &["a", ""]);
        testing::transform_conforms::<Flatten>("separator: _", &["a", ""]);
    }

    #[test]
    fn members_of_objects_become_fields_and_all_else_stays() {
        let lines = [
            r#"{"a":{"b":{"c":1}},"n":1,"o":{}}"#,
            r#"{"a":[1,{"x":2}],"n":2,"o":{}}"#,
            r#"{"a":{"b":2,"d":"x"},"n":3}"#,
            r#"{"a":5}"#,
        ];
        assert_eq!(
            flattened("{}", &lines),
            [
                r#"{"n":1,"o":{},"a.b.c":1}"#,
                r#"{"a":[1,{"x":2}],"n":2,"o":{}}"#,
                r#"{"n":3,"a.b":2,"a.d":"x"}"#,
                r#"{"a":5}"#
            ]
        );
        assert_eq!(flattened("separator: _", &lines[..1]), [r#"{"n":1,"o":{},"a_b_c":1}"#]);
        let two = [r#"{"a":{"x":1},"b":{"x":{"y":2}}}"#];
        assert_eq!(flattened("fields: [b]", &two), [r#"{"a":{"x":1},"b.x.y":2}"#]);
        assert_eq!(flattened("{fields: [b], separator: '/'}", &two), [r#"{"a":{"x":1},"b/x/y":2}"#]);
        assert_eq!(flattened("{}", &[r#"{"a":1}"#]), [r#"{"a":1}"#]);
    }

    #[test]
    fn dots_of_names_become_the_separator() {
        let parsed =
            testing::apply::<ParseJsonConfig>("flatten: true", [testing::batch([r#"{"a":{"b":1}}"#])]);
        let given = testing::apply::<Flatten>("separator: '/'", parsed.outputs.into_values().flatten());
        assert_eq!(given.main(), [json!({"a/b": 1})]);
    }

    #[test]
    fn nested_fields_are_kept_beside_the_flattened_ones() {
        let options = r#"{separator: '\.', fields: [r], keep: true, prefix: t.}"#;
        let parsed = testing::apply::<ParseJsonConfig>(
            "flatten: true",
            [testing::batch([r#"{"r":{"a":{"b":1},"c":"x"},"o":{"p":2}}"#])],
        );
        let given = testing::apply::<Flatten>(options, parsed.outputs.into_values().flatten());
        let json = "{format: json, nested: true}";
        let written = testing::apply::<EncodeConfig>(json, given.outputs.into_values().flatten());
        assert_eq!(
            written.payloads(Output::Main),
            [r#"{"r":{"a":{"b":1},"c":"x"},"o":{"p":2},"t":{"r.a.b":1,"r.c":"x"}}"#]
        );
    }

    #[test]
    fn what_is_called_json_and_is_none_is_rejected() {
        let column: arrow_array::ArrayRef =
            std::sync::Arc::new(StringViewArray::from(vec!["{x", "{\"a\":1}"]));
        let batch = testing::batch(["1", "2"]).set_fields([(FieldType::Json.field("j"), column)]).unwrap();
        let given = testing::apply::<Flatten>("{}", [batch]);
        assert_eq!(given.errors()[0].0, "1");
        assert_eq!(given.main(), [json!({"j.a": 1})]);
    }
}
