//! Splits a text and keeps one part, as a view of the same bytes.

use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_engine::{Component, Context, Error, Outputs, Transform, TransformConfig};
use thalweg_record::Batch;

use thalweg_codec::columns::FieldType;
use thalweg_codec::delimiter::Delimiter;
use thalweg_codec::target::{Edit, Editor, Target};

/// Splits a text and keeps one part.
///
/// If the text does not have that part, the result is empty.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SplitPick {
    #[serde(flatten)]
    target: Target,
    /// The text between the parts. The default is a comma.
    #[serde(default = "crate::comma")]
    #[schemars(length(min = 1))]
    delimiter: String,
    /// The index of the part: 0 is the first (the default), -1 the last, -2 the one before the last.
    #[serde(default)]
    index: i64,
}

impl Component for SplitPick {
    const NAME: &'static str = "split_pick";
    const EXAMPLE: &'static str = r#"
sources:
  service: { generate: { message: "a:%3d:c", count: 3 } }
pipelines:
  main:
    from: service
    transforms:
      - split_pick: { delimiter: ":", index: 1 }
    to: screen
sinks:
  screen: { stdout: {} }
"#;
}

impl TransformConfig for SplitPick {
    fn build(&self, _: &Context) -> Result<Box<dyn Transform>, Error> {
        let editor = self.target.editor(FieldType::Text);
        Ok(Box::new(Picker { editor, delimiter: Delimiter::new(&self.delimiter), index: self.index }))
    }
}

struct Picker {
    editor: Editor,
    delimiter: Delimiter,
    index: i64,
}

impl Transform for Picker {
    fn apply(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
        let Self { editor, delimiter, index } = self;
        Ok(editor.edit(batch, out, |value, _| {
            let part = match usize::try_from(*index) {
                Ok(index) => delimiter.parts(value).nth(index),
                Err(_) => from_right(delimiter, value, index.unsigned_abs()),
            };
            Ok(Edit::Piece(part.unwrap_or_default()))
        })?)
    }
}

/// Returns the part with this number, counted from the right; the last is 1.
fn from_right<'a>(delimiter: &Delimiter, value: &'a [u8], number: u64) -> Option<&'a [u8]> {
    // Delimiters are found from the left, because occurrences might overlap.
    let parts = delimiter.parts(value).count() as u64;
    let mut start = 0;
    for _ in 0..parts.checked_sub(number)? {
        start += delimiter.find(value.get(start..)?)? + delimiter.len();
    }
    let rest = value.get(start..)?;
    rest.get(..delimiter.find(rest).unwrap_or(rest.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_engine::{Output, testing};

    #[test]
    fn it_conforms() {
        for yaml in ["{}", "index: 3", "index: -1"] {
            testing::transform_conforms::<SplitPick>(yaml, &["a,b", "", ","]);
        }
    }

    #[test]
    fn a_part_is_taken_by_its_place() {
        let picked = |index: i64| {
            let yaml = format!("{{index: {index}, delimiter: '--'}}");
            testing::apply::<SplitPick>(&yaml, [testing::batch(["a---b--c", ""])]).payloads(Output::Main)
        };
        assert_eq!(picked(0), ["a", ""]);
        assert_eq!(picked(1), ["-b", ""]);
        assert_eq!(picked(3), ["", ""]);
        assert_eq!(picked(-1), ["c", ""]);
        assert_eq!(picked(-2), ["-b", ""]);
        assert_eq!(picked(-3), ["a", ""]);
        assert_eq!(picked(-4), ["", ""]);
        assert_eq!(picked(i64::MIN), ["", ""]);
    }
}
