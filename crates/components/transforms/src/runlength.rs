//! Puts the length of a text before it.

use std::sync::Arc;

use arrow_array::{Array, Int64Array};
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_engine::{Component, Context, Error, Outputs, Transform, TransformConfig};
use thalweg_record::{Batch, PAYLOAD};

use thalweg_codec::columns::{FieldType, Layout};
use thalweg_codec::target::{Editor, Input, Target};

/// Puts the length of a text, in bytes, before it.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Runlength {
    #[serde(flatten)]
    target: Target,
    /// The text between the length and the value. The default is a colon.
    #[serde(default = "colon")]
    separator: String,
    /// True to write only the length; in a field it is a whole number. The default is `false`.
    #[serde(default)]
    only: bool,
}

fn colon() -> String {
    ":".to_owned()
}

impl Component for Runlength {
    const NAME: &'static str = "runlength";
    const EXAMPLE: &'static str = r#"
sources:
  service: { generate: { message: "message %4d", count: 3 } }
pipelines:
  main:
    from: service
    transforms:
      - runlength: { only: true, into: length }
      - runlength: { separator: " " }
    to: screen
sinks:
  screen: { stdout: { encode: { format: json, fields: [length, payload] } } }
"#;
}

impl TransformConfig for Runlength {
    fn build(&self, _: &Context) -> Result<Box<dyn Transform>, Error> {
        if self.only && self.target.output() != PAYLOAD {
            let field = FieldType::Int.field(self.target.output());
            let layout = Layout::new(vec![Arc::new(field)]);
            return Ok(Box::new(Measurer { input: self.target.input(), layout }));
        }
        Ok(Box::new(Prefixer {
            editor: self.target.editor(FieldType::Text),
            separator: (!self.only).then(|| self.separator.clone().into_bytes()),
        }))
    }
}

/// Writes lengths into a field.
struct Measurer {
    input: Input,
    layout: Layout,
}

impl Transform for Measurer {
    fn apply(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
        let Some(input) = self.input.read(&batch) else {
            out.send(batch);
            return Ok(());
        };
        let lengths = input.lengths().map(i64::from).collect::<Vec<_>>();
        let lengths = Int64Array::new(lengths.into(), input.nulls().cloned());
        out.send(self.layout.extend(batch, vec![Arc::new(lengths)])?);
        Ok(())
    }
}

struct Prefixer {
    editor: Editor,
    /// The text between length and value; `None` to leave out the value.
    separator: Option<Vec<u8>>,
}

impl Transform for Prefixer {
    fn apply(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
        let Self { editor, separator } = self;
        Ok(editor.write(batch, out, |value, out| {
            out.extend_from_slice(itoa::Buffer::new().format(value.len()).as_bytes());
            if let Some(separator) = separator {
                out.extend_from_slice(separator);
                out.extend_from_slice(value);
            }
            Ok(())
        })?)
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
        for yaml in ["{}", "only: true", "{only: true, into: a}"] {
            testing::transform_conforms::<Runlength>(yaml, &["a", "", "abc"]);
        }
    }

    #[test]
    fn lengths_are_those_of_bytes() {
        let given = |yaml: &str| testing::apply::<Runlength>(yaml, [testing::batch(["éa", ""])]);
        assert_eq!(given("{}").payloads(Output::Main), ["3:éa", "0:"]);
        assert_eq!(given("only: true").payloads(Output::Main), ["3", "0"]);
        assert_eq!(given("{only: true, into: n}").main(), [json!({"n": 3}), json!({"n": 0})]);
        let batch = with_text(&["x", "y"], &[("a", &[Some("abc"), None])]);
        let given = testing::apply::<Runlength>("{field: a, only: true, into: n}", [batch]);
        assert_eq!(given.main(), [json!({"a": "abc", "n": 3}), json!({})]);
    }
}
