//! Replaces text.
//!
//! A text without a match stays where it is; only other texts are copied.

use memchr::memmem::Finder;
use regex::bytes::{CaptureLocations, Regex};
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::Pattern;
use thalweg_engine::{Component, Context, Error, KnownFields, Mistake, Outputs, Transform, TransformConfig};
use thalweg_record::Batch;

use crate::expansion::{Expansion, unknown_group};
use thalweg_codec::columns::FieldType;
use thalweg_codec::target::{Edit, Editor, Target};

/// Replaces every occurrence of a text, or every match of a regular expression.
///
/// Give either `search` or `pattern`. With neither, the whole text is replaced.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Replace {
    #[serde(flatten)]
    target: Target,
    /// The text to search for.
    #[serde(default)]
    #[schemars(length(min = 1))]
    search: Option<String>,
    /// The regular expression to search for.
    #[serde(default)]
    pattern: Option<Pattern>,
    /// The replacement. With `pattern`, `$1` or `$name` is replaced by the text of a group. Before a letter,
    /// a digit or `_`, write `$${1}` (with two `$`, because `${...}` is a variable in configurations). Write
    /// `$$$$` for a `$` itself.
    with: String,
}

impl Component for Replace {
    const NAME: &'static str = "replace";
    const EXAMPLE: &'static str = r#"
sources:
  service: { generate: { message: "card 4111-1111-1111-1111 is accepted", count: 3 } }
pipelines:
  main:
    from: service
    transforms:
      - replace: { pattern: '\d{4}-\d{4}-\d{4}-(\d{4})', with: "...$1" }
      - replace: { search: "accepted", with: "fine" }
    to: screen
sinks:
  screen: { stdout: {} }
"#;

    fn check(&self) -> Vec<Mistake> {
        if self.search.is_some() && self.pattern.is_some() {
            let message = "There is both a `search` and a `pattern`.";
            return vec![Mistake::new("search", message).help("Leave out one of them.")];
        }
        let Some(pattern) = &self.pattern else { return Vec::new() };
        let unknown = Expansion::parse(&self.with, pattern.regex()).err();
        unknown.map(|name| unknown_group("with", &name)).into_iter().collect()
    }
}

impl TransformConfig for Replace {
    fn fields(&self) -> Vec<String> {
        vec![self.target.input().field]
    }

    fn fields_after(&self, before: KnownFields) -> KnownFields {
        before.with(self.target.output(), None)
    }

    fn build(&self, context: &Context) -> Result<Box<dyn Transform>, Error> {
        let with = self.with.clone().into_bytes();
        let search = match (&self.search, &self.pattern) {
            (Some(search), _) => Search::Text(Box::new(Finder::new(search.as_bytes()).into_owned()), with),
            (None, Some(pattern)) => {
                let regex = pattern.regex().clone();
                crate::captures::check(&regex, context.memory.budget())?;
                let with = Expansion::parse(&self.with, &regex)
                    .map_err(|name| Error::permanent(format!("there is no group `{name}`")))?;
                Search::Pattern(regex.capture_locations(), regex, with)
            }
            (None, None) => Search::All(with),
        };
        Ok(Box::new(Replacer { editor: self.target.editor(FieldType::Text), search }))
    }
}

struct Replacer {
    editor: Editor,
    search: Search,
}

/// The part of a text to replace, and its replacement.
enum Search {
    Text(Box<Finder<'static>>, Vec<u8>),
    Pattern(CaptureLocations, Regex, Expansion),
    All(Vec<u8>),
}

impl Search {
    /// Writes the text with its replacements. Returns true if there was a match.
    fn replace(&mut self, value: &[u8], out: &mut Vec<u8>) -> bool {
        let mut copied = 0;
        let mut found = false;
        let mut copy = |until: usize, next: usize, out: &mut Vec<u8>| {
            out.extend_from_slice(value.get(copied..until).unwrap_or_default());
            copied = next;
            found = true;
        };
        match self {
            Self::All(with) => {
                out.extend_from_slice(with);
                return true;
            }
            Self::Text(finder, with) => {
                for at in finder.find_iter(value) {
                    copy(at, at + finder.needle().len(), out);
                    out.extend_from_slice(with);
                }
            }
            Self::Pattern(locations, regex, with) => {
                let mut from = 0;
                let mut last_end = None;
                while let Some(found) = regex.captures_read_at(locations, value, from) {
                    let (start, end) = (found.start(), found.end());
                    // An empty match does not count directly after another match, nor inside a character.
                    let is_inside = value.get(start).is_some_and(|byte| byte & 0xc0 == 0x80);
                    if start < end || last_end != Some(end) && !is_inside {
                        copy(start, end, out);
                        with.write(value, Some(locations), out);
                        last_end = Some(end);
                    }
                    from = if start < end { end } else { end + 1 };
                    if from > value.len() {
                        break;
                    }
                }
            }
        }
        if found {
            out.extend_from_slice(value.get(copied..).unwrap_or_default());
        }
        found
    }
}

impl Transform for Replacer {
    fn apply(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
        let Self { editor, search } = self;
        Ok(editor.edit(batch, out, |value, buffer| {
            Ok(if search.replace(value, buffer) { Edit::Written } else { Edit::Piece(value) })
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
        for yaml in ["{search: a, with: b}", "{pattern: 'a*', with: '<$0>'}", "{with: x}"] {
            testing::transform_conforms::<Replace>(yaml, &["a", "", "ba"]);
        }
    }

    fn replaced(yaml: &str, text: &str) -> String {
        testing::apply::<Replace>(yaml, [testing::batch([text])]).payloads(Output::Main)[0].clone()
    }

    #[test]
    fn texts_patterns_or_all_is_replaced() {
        assert_eq!(replaced("{search: oo, with: '$0'}", "foo boo"), "f$0 b$0");
        assert_eq!(replaced("{pattern: '(\\w)o+', with: '${1}0'}", "foo boooo bar"), "f0 b0 bar");
        assert_eq!(replaced("with: x", "anything"), "x");
        assert_eq!(
            replaced("{search: z, with: y}", "a text without it, rather long"),
            "a text without it, rather long"
        );
    }

    #[test]
    fn mistakes() {
        let mistakes = |yaml: &str| testing::messages(testing::options::<Replace>(yaml).check());
        assert_eq!(
            mistakes("{search: a, pattern: a, with: b}"),
            ["There is both a `search` and a `pattern`."]
        );
        assert_eq!(mistakes("{pattern: a, with: $1}"), ["The regular expression has no group `1`."]);
        assert_eq!(mistakes("{search: a, with: $1}"), [""; 0]);
        assert_eq!(
            testing::refused::<Replace>("{search: a}"),
            "The option `with` is missing. The replacement."
        );
    }

    proptest! {
        #[test]
        fn patterns_replace_as_their_library_does(text in "[abé]{0,8}", pattern in prop::sample::select(vec!["a", "a*", "b+", "(a)b", "[^a]?", "$", "^"])) {
            let with = "<$0>";
            let expected = regex::Regex::new(pattern).unwrap().replace_all(&text, "<${0}>").into_owned();
            let yaml = format!("{{pattern: '{pattern}', with: '{with}'}}");
            prop_assert_eq!(replaced(&yaml, &text), expected);
        }
    }
}
