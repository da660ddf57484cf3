//! Reduces a text to the part between two marks, as a view of the same bytes.

use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_engine::{Component, Context, Error, Outputs, Transform, TransformConfig};
use thalweg_record::Batch;

use thalweg_codec::columns::FieldType;
use thalweg_codec::delimiter::Delimiter;
use thalweg_codec::target::{Edit, Editor, Target};

/// Reduces a text to the part between two marks.
///
/// The result begins after the first `left` and ends before the last `right`. Between `[` and `]`,
/// `foo[bar[foo]bar]foo` becomes `bar[foo]bar`. A mark that is not found removes nothing. If the marks
/// overlap, the result is empty.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[derive(Default)]
pub struct TrimToBounds {
    #[serde(flatten)]
    target: Target,
    /// The left mark. The default is none.
    left: String,
    /// The right mark. The default is none.
    right: String,
    /// The number of bytes at the beginning in which `left` is not searched. Without `left`, this number of
    /// bytes is removed. The default is 0.
    left_offset: usize,
    /// The number of bytes at the end in which `right` is not searched. Without `right`, this number of bytes
    /// is removed. The default is 0.
    right_offset: usize,
}

impl Component for TrimToBounds {
    const NAME: &'static str = "trim_to_bounds";
    const EXAMPLE: &'static str = r#"
sources:
  service: { generate: { lines: ["foo[bar[foo]bar]foo"] } }
pipelines:
  main:
    from: service
    transforms:
      - trim_to_bounds: { left: "[", right: "]" }
    to: screen
sinks:
  screen: { stdout: {} }
"#;
}

impl TransformConfig for TrimToBounds {
    fn build(&self, _: &Context) -> Result<Box<dyn Transform>, Error> {
        let Self { target, left, right, left_offset, right_offset } = self;
        Ok(Box::new(Trimmer {
            editor: target.editor(FieldType::Text),
            left: Delimiter::new(left),
            right: Delimiter::new(right),
            left_offset: *left_offset,
            right_offset: *right_offset,
        }))
    }
}

struct Trimmer {
    editor: Editor,
    left: Delimiter,
    right: Delimiter,
    left_offset: usize,
    right_offset: usize,
}

impl Transform for Trimmer {
    fn apply(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
        let Self { editor, left, right, left_offset, right_offset } = self;
        Ok(editor.edit(batch, out, |value, _| {
            let from = (*left_offset).min(value.len());
            let until = value.len().saturating_sub(*right_offset);
            let start = match left.len() {
                0 => from,
                length => left.find(value.get(from..).unwrap_or_default()).map_or(0, |at| from + at + length),
            };
            let end = match right.len() {
                0 => until,
                _ => right.rfind(value.get(..until).unwrap_or_default()).unwrap_or(value.len()),
            };
            Ok(Edit::Piece(value.get(start..end).unwrap_or_default()))
        })?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_engine::{Output, testing};

    #[test]
    fn it_conforms() {
        let yaml = "{left: '[', right: ']', left_offset: 1, right_offset: 2}";
        testing::transform_conforms::<TrimToBounds>(yaml, &["[a]", "", "]["]);
    }

    fn trimmed(yaml: &str, text: &str) -> String {
        testing::apply::<TrimToBounds>(yaml, [testing::batch([text])]).payloads(Output::Main)[0].clone()
    }

    #[test]
    fn what_is_between_the_marks_is_left() {
        let bars = "{left: '|', right: '|'}";
        assert_eq!(trimmed(bars, "|foo bar|second|x"), "foo bar|second");
        assert_eq!(trimmed(bars, "||"), "");
        assert_eq!(trimmed(bars, "|"), "");
        assert_eq!(trimmed(bars, "none"), "none");
        assert_eq!(trimmed("{left: '<<', right: '>>'}", "a<<b>>c"), "b");
        let offsets = "{left: '|', right: '|', left_offset: 1, right_offset: 1}";
        assert_eq!(trimmed(offsets, "||a||"), "a");
        assert_eq!(trimmed(offsets, "|a|"), "");
        assert_eq!(trimmed(offsets, "abc"), "abc");
        assert_eq!(trimmed("{left_offset: 2, right_offset: 1}", "abcdef"), "cde");
        assert_eq!(trimmed("{left_offset: 20, right_offset: 10}", "abcdef"), "");
        assert_eq!(trimmed("{left: x, left_offset: 20}", "abcdef"), "abcdef");
    }

    #[test]
    fn what_is_cut_inside_a_character_is_no_text() {
        let yaml = "{left_offset: 1, into: a}";
        let given = testing::apply::<TrimToBounds>(yaml, [testing::batch(["é", "ab"])]);
        assert_eq!(given.reasons(), ["the field `a` is not UTF-8, at byte 0"]);
    }
}
