//! Removes characters from both ends of a text. The result is a view of the same bytes.

use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_engine::{Component, Context, Error, KnownFields, Outputs, Transform, TransformConfig};
use thalweg_record::Batch;

use thalweg_codec::columns::FieldType;
use thalweg_codec::target::{Edit, Editor, Target};

/// Removes characters from both ends of a text.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Trim {
    #[serde(flatten)]
    target: Target,
    /// The characters to remove, in any order. By default these are spaces, tabs and line ends.
    #[serde(default = "blanks")]
    #[schemars(length(min = 1))]
    characters: String,
}

fn blanks() -> String {
    " \t\r\n\u{b}\u{c}".to_owned()
}

impl Component for Trim {
    const NAME: &'static str = "trim";
    const EXAMPLE: &'static str = r#"
sources:
  service: { generate: { lines: ["  <a message>  "] } }
pipelines:
  main:
    from: service
    transforms:
      - trim: {}
      - trim: { characters: "<>" }
    to: screen
sinks:
  screen: { stdout: {} }
"#;
}

impl TransformConfig for Trim {
    fn fields(&self) -> Vec<String> {
        vec![self.target.input().field]
    }

    fn fields_after(&self, before: KnownFields) -> KnownFields {
        before.with(self.target.output(), None)
    }

    fn build(&self, _: &Context) -> Result<Box<dyn Transform>, Error> {
        let characters = self.characters.chars().map(|c| c.to_string().into_bytes()).collect();
        Ok(Box::new(Trimmer { editor: self.target.editor(FieldType::Text), characters }))
    }
}

struct Trimmer {
    editor: Editor,
    /// The bytes of each character in UTF-8.
    characters: Vec<Vec<u8>>,
}

impl Transform for Trimmer {
    fn apply(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
        let Self { editor, characters } = self;
        Ok(editor.edit(batch, out, |value, _| {
            let mut left = value;
            // In UTF-8 no character is part of another, so comparing bytes is enough.
            while let Some(rest) = characters.iter().find_map(|c| left.strip_prefix(c.as_slice())) {
                left = rest;
            }
            while let Some(rest) = characters.iter().find_map(|c| left.strip_suffix(c.as_slice())) {
                left = rest;
            }
            Ok(Edit::Piece(left))
        })?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use thalweg_engine::{Output, testing};

    #[test]
    fn it_conforms() {
        testing::transform_conforms::<Trim>("{}", &[" a ", "", "   "]);
    }

    fn trimmed(yaml: &str, texts: &[&str]) -> Vec<String> {
        testing::apply::<Trim>(yaml, [testing::batch(texts)]).payloads(Output::Main)
    }

    #[test]
    fn characters_go_from_both_ends() {
        assert_eq!(trimmed("{}", &[" \t\r\na b\u{b}\u{c} ", "", "  "]), ["a b", "", ""]);
        assert_eq!(trimmed("characters: 'é<'", &["<éaéb<é", "\u{a9}x"]), ["aéb", "\u{a9}x"]);
    }

    proptest! {
        #[test]
        fn it_trims_as_the_standard_library_does(text in "[aéß¡ ]{0,8}", characters in "[aéß¡ ]{1,3}") {
            let expected = text.trim_matches(|c| characters.contains(c));
            prop_assert_eq!(&trimmed(&format!("characters: '{characters}'"), &[&text])[0], expected);
        }
    }
}
