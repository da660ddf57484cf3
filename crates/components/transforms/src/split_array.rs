//! Splits a text into an array. The array is JSON: a column of lists could not be used in all places where
//! JSON text can (a payload, an expression, dead letters).

use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_engine::{Component, Context, Error, Outputs, Transform, TransformConfig};
use thalweg_record::Batch;

use thalweg_codec::columns::FieldType;
use thalweg_codec::delimiter::Delimiter;
use thalweg_codec::json;
use thalweg_codec::target::{Editor, Target};

/// Splits a text into an array of texts.
///
/// The result is a JSON field, which `encode: json` writes as an array. A text that is not UTF-8 leaves by
/// the `errors` output.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SplitArray {
    #[serde(flatten)]
    target: Target,
    /// The text between the parts. The default is a comma.
    #[serde(default = "crate::comma")]
    #[schemars(length(min = 1))]
    delimiter: String,
}

impl Component for SplitArray {
    const NAME: &'static str = "split_array";
    const EXAMPLE: &'static str = r#"
sources:
  service: { generate: { lines: ["red,green,blue"] } }
pipelines:
  main:
    from: service
    transforms:
      - split_array: { into: colours }
    to: screen
sinks:
  screen: { stdout: { encode: json } }
"#;
}

impl TransformConfig for SplitArray {
    fn build(&self, _: &Context) -> Result<Box<dyn Transform>, Error> {
        let editor = self.target.editor(FieldType::Json);
        Ok(Box::new(Splitter { editor, delimiter: Delimiter::new(&self.delimiter) }))
    }
}

struct Splitter {
    editor: Editor,
    delimiter: Delimiter,
}

impl Transform for Splitter {
    fn apply(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
        let Self { editor, delimiter } = self;
        Ok(editor.write(batch, out, |value, out| {
            out.push(b'[');
            for (number, part) in delimiter.parts(value).enumerate() {
                if number > 0 {
                    out.push(b',');
                }
                let text = simdutf8::basic::from_utf8(part).map_err(|_| thalweg_codec::not_utf8(value))?;
                json::write_text(text, out);
            }
            out.push(b']');
            Ok(())
        })?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use thalweg_engine::{Output, testing};

    use thalweg_stream::encode::EncodeConfig;

    #[test]
    fn it_conforms() {
        testing::transform_conforms::<SplitArray>("into: a", &["a,b", "", ","]);
        testing::transform_conforms::<SplitArray>("{}", &["a,b", "", ","]);
    }

    #[test]
    fn parts_become_an_array() {
        let given = testing::apply::<SplitArray>("into: a", [testing::batch(["x,\"y\",", ""])]);
        assert_eq!(given.main(), [json!({"a": r#"["x","\"y\"",""]"#}), json!({"a": r#"[""]"#})]);
        let batch = given.outputs.into_values().flatten().next().unwrap();
        let encoded = testing::apply::<EncodeConfig>("json", [batch]).payloads(Output::Main);
        assert_eq!(encoded[0], r#"{"a":["x","\"y\"",""]}"#);
        let given = testing::apply::<SplitArray>("delimiter: '|'", [testing::batch([&b"a|b"[..], b"\xff"])]);
        assert_eq!(given.payloads(Output::Main), [r#"["a","b"]"#]);
        assert_eq!(given.errors()[0].1, "is not UTF-8, at byte 0");
    }
}
