//! Splits a text into fields by position.
//!
//! The fields are views of the same bytes. A text field is known to be UTF-8, and so is the delimiter. So the
//! parts are UTF-8 too, and need no check.

use std::collections::HashSet;

use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::List;
use thalweg_engine::{Component, Context, Error, KnownFields, Mistake, Outputs, Transform, TransformConfig};
use thalweg_record::Batch;

use thalweg_codec::columns::{Columns, RowParser, Typing, parse_rows};
use thalweg_codec::delimiter::Delimiter;
use thalweg_codec::target::Input;

/// Splits a text into fields by position.
///
/// The first part becomes the first field of the list, and so on. Fields without a part are NULL; parts
/// without a field are dropped. All fields are text: `cast` gives them other types. The text itself stays. A
/// text that is not UTF-8 leaves by the `errors` output.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SplitFields {
    #[serde(flatten)]
    input: Input,
    /// The text between the parts. The default is a comma.
    #[serde(default = "crate::comma")]
    #[schemars(length(min = 1))]
    delimiter: String,
    /// The names of the fields, in the order of the parts. An empty name skips its part.
    fields: List<String, 1>,
    /// A prefix for the name of each field. The default is empty.
    #[serde(default)]
    prefix: String,
}

impl Component for SplitFields {
    const NAME: &'static str = "split_fields";
    const EXAMPLE: &'static str = r#"
sources:
  readings: { generate: { message: "sensor-%2d|%2f|celsius", count: 3 } }
pipelines:
  main:
    from: readings
    transforms:
      - split_fields: { delimiter: "|", fields: [sensor, value, unit] }
      - cast: { value: float }
    to: screen
sinks:
  screen: { stdout: { encode: json } }
"#;

    fn check(&self) -> Vec<Mistake> {
        let mut seen = HashSet::new();
        let twice = self.fields.iter().find(|name| !name.is_empty() && !seen.insert(name.as_str()));
        twice.map(|name| Mistake::new("fields", format!("`{name}` is named twice."))).into_iter().collect()
    }
}

impl TransformConfig for SplitFields {
    fn fields(&self) -> Vec<String> {
        vec![self.input.field.clone()]
    }

    fn fields_after(&self, before: KnownFields) -> KnownFields {
        let named = self.fields.iter().filter(|name| !name.is_empty());
        named.fold(before, |known, name| known.with(&format!("{}{name}", self.prefix), None))
    }

    fn build(&self, _: &Context) -> Result<Box<dyn Transform>, Error> {
        let named = self.fields.iter().filter(|name| !name.is_empty());
        let names = named.map(|name| format!("{}{name}", self.prefix));
        let mut number = 0..;
        let columns = self.fields.iter().map(|name| if name.is_empty() { None } else { number.next() });
        Ok(Box::new(Splitter {
            input: self.input.clone(),
            delimiter: Delimiter::new(&self.delimiter),
            columns_of_parts: columns.collect(),
            columns: Columns::new(Typing::new(&Default::default(), None), names),
        }))
    }
}

struct Splitter {
    input: Input,
    delimiter: Delimiter,
    /// For each part, its column, if it has one.
    columns_of_parts: Vec<Option<usize>>,
    columns: Columns,
}

impl RowParser for Splitter {
    fn input(&self) -> &Input {
        &self.input
    }

    fn columns(&mut self) -> &mut Columns {
        &mut self.columns
    }

    #[inline]
    fn parse(&mut self, text: &str) -> Result<(), String> {
        let mut rest = Some(text);
        for column in &self.columns_of_parts {
            let part = rest.map(|text| match self.delimiter.find(text.as_bytes()) {
                Some(at) => (text.get(..at).unwrap_or_default(), text.get(at + self.delimiter.len()..)),
                None => (text, None),
            });
            rest = part.and_then(|(_, rest)| rest);
            let Some(column) = *column else { continue };
            self.columns.push_if_any(column, part.map(|(part, _)| part))?;
        }
        Ok(())
    }
}

impl Transform for Splitter {
    fn apply(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
        Ok(parse_rows(self, batch, out)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::Array;
    use serde_json::json;
    use thalweg_engine::{Output, testing};

    use crate::testing::with_text;

    #[test]
    fn it_conforms() {
        testing::transform_conforms::<SplitFields>("fields: [a, b]", &["1,2", "", ",", "1,2,3"]);
        testing::transform_conforms::<SplitFields>("{field: nothing, fields: [a]}", &["1,2", ""]);
    }

    #[test]
    fn parts_become_fields_and_what_is_missing_is_null() {
        let yaml = "{delimiter: ' | ', fields: [a, '', c], prefix: x_}";
        let given =
            testing::apply::<SplitFields>(yaml, [testing::batch(["1 | 2 | é | 4", "1", "", " | | "])]);
        assert_eq!(
            given.main(),
            [json!({"x_a": "1", "x_c": "é"}), json!({"x_a": "1"}), json!({"x_a": ""}), json!({"x_a": ""})]
        );
    }

    #[test]
    fn parts_of_a_field_are_views_of_it() {
        let long = "the first part, that is long|the second part, that is long";
        let batch = with_text(&["x", "y"], &[("t", &[Some(long), None])]);
        let there = batch.fields().column(0).to_data().buffers()[1].as_ptr();
        let given = testing::apply::<SplitFields>("{field: t, delimiter: '|', fields: [a, b]}", [batch]);
        assert_eq!(given.main()[0]["b"], "the second part, that is long");
        assert_eq!(given.main()[1], json!({}));
        let column = given.outputs[&Output::Main][0].fields().column_by_name("b").unwrap().to_data();
        assert_eq!(column.buffers()[1].as_ptr(), there);
    }

    #[test]
    fn what_is_not_text_is_rejected_and_what_is_empty_can_be_skipped() {
        let batch = || testing::batch([&b"\xff,a"[..], b"", b"a,b"]);
        let given = testing::apply::<SplitFields>("fields: [a, b]", [batch()]);
        assert_eq!(given.errors()[0].1, "is not UTF-8, at byte 0");
        assert_eq!(given.main(), [json!({"a": ""}), json!({"a": "a", "b": "b"})]);
        let given = testing::apply::<SplitFields>("{fields: [a, b], skip_empty: true}", [batch()]);
        assert_eq!(given.main(), [json!({}), json!({"a": "a", "b": "b"})]);
    }

    #[test]
    fn mistakes() {
        assert_eq!(
            testing::messages(testing::options::<SplitFields>("fields: [a, a, '', '']").check()),
            ["`a` is named twice."]
        );
        assert_eq!(testing::refused::<SplitFields>("{fields: [a], delimiter: ''}"), "`delimiter` is empty.");
        assert_eq!(
            testing::refused::<SplitFields>("{fields: [a], delimter: ','}"),
            "Unknown option `delimter`. Did you mean `delimiter`?"
        );
        let valid = testing::options::<SplitFields>("{fields: [a], prefix: x, field: y}");
        assert_eq!(testing::messages(valid.check()), [""; 0]);
    }
}
