//! Extracts text by a regular expression.
//!
//! If the result is one group of the expression, it is a view of the same bytes.

use regex::bytes::{CaptureLocations, Regex};
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::Pattern;
use thalweg_engine::{Component, Context, Error, KnownFields, Mistake, Outputs, Transform, TransformConfig};
use thalweg_record::Batch;

use crate::expansion::{Expansion, unknown_group};
use thalweg_codec::columns::FieldType;
use thalweg_codec::target::{Edit, Editor, Target};

/// Extracts text by a regular expression.
///
/// Only the first match counts. Use `parse_regex` to make fields of several groups at once.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Extract {
    #[serde(flatten)]
    target: Target,
    /// The regular expression. Without `^` and `$` it may match anywhere in the text.
    pattern: Pattern,
    /// The result: `$1` or `$name` is replaced by the text of a group. Before a letter, a digit or `_`, write
    /// `$${1}` (with two `$`, because `${...}` is a variable in configurations). Write `$$$$` for a `$`
    /// itself. A group that takes no part in the match is empty. The default is `$1`.
    #[serde(default = "first_group")]
    template: String,
    /// How a message without a match is treated. `reject` (the default) sends it to the `errors` output,
    /// `keep` leaves it unchanged, and `empty` gives it the template with empty groups.
    #[serde(default)]
    no_match: NoMatch,
}

fn first_group() -> String {
    "$1".to_owned()
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum NoMatch {
    /// The message leaves by the `errors` output.
    #[default]
    Reject,
    /// The message stays unchanged.
    Keep,
    /// The message gets the template with empty groups.
    Empty,
}

impl Component for Extract {
    const NAME: &'static str = "extract";
    const EXAMPLE: &'static str = r#"
sources:
  service: { generate: { message: "user=%4d logged in", count: 3 } }
pipelines:
  main:
    from: service
    transforms:
      - extract: { pattern: 'user=(\d+)', into: user }
    to: screen
sinks:
  screen: { stdout: { encode: json } }
"#;

    fn check(&self) -> Vec<Mistake> {
        let unknown = Expansion::parse(&self.template, self.pattern.regex()).err();
        unknown.map(|name| unknown_group("template", &name)).into_iter().collect()
    }
}

impl TransformConfig for Extract {
    fn fields(&self) -> Vec<String> {
        vec![self.target.input().field]
    }

    fn fields_after(&self, before: KnownFields) -> KnownFields {
        before.with(self.target.output(), None)
    }

    fn build(&self, context: &Context) -> Result<Box<dyn Transform>, Error> {
        let regex = self.pattern.regex().clone();
        crate::captures::check(&regex, context.memory.budget())?;
        let template = Expansion::parse(&self.template, &regex)
            .map_err(|name| Error::permanent(format!("there is no group `{name}`")))?;
        Ok(Box::new(Extractor {
            editor: self.target.editor(FieldType::Text),
            locations: regex.capture_locations(),
            regex,
            template,
            no_match: self.no_match,
        }))
    }
}

struct Extractor {
    editor: Editor,
    regex: Regex,
    locations: CaptureLocations,
    template: Expansion,
    no_match: NoMatch,
}

impl Transform for Extractor {
    fn apply(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
        let Self { editor, regex, locations, template, no_match } = self;
        let only = template.only();
        Ok(editor.edit(batch, out, |value, buffer| {
            if regex.captures_read(locations, value).is_some() {
                if let Some(group) = only {
                    let place = locations.get(group);
                    let piece = place.and_then(|(start, end)| value.get(start..end));
                    return Ok(Edit::Piece(piece.unwrap_or_default()));
                }
                template.write(value, Some(locations), buffer);
                return Ok(Edit::Written);
            }
            match no_match {
                NoMatch::Reject => Err("does not match the pattern".to_owned()),
                NoMatch::Keep => Ok(Edit::Keep),
                NoMatch::Empty => {
                    template.write(value, None, buffer);
                    Ok(Edit::Written)
                }
            }
        })?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use thalweg_engine::{Output, testing};

    #[test]
    fn it_conforms() {
        for yaml in [
            "pattern: '(a)'",
            "{pattern: '(a)', no_match: keep}",
            "{pattern: a, template: x, no_match: empty}",
        ] {
            testing::transform_conforms::<Extract>(yaml, &["a", "", "ba"]);
        }
    }

    fn extracted(yaml: &str, text: &[&str]) -> Vec<String> {
        testing::apply::<Extract>(yaml, [testing::batch(text)]).payloads(Output::Main)
    }

    #[test]
    fn the_first_match_is_taken() {
        assert_eq!(extracted("pattern: 'b(\\w+)'", &["a bcd bxy", "b"]), ["cd"]);
        let yaml = "{pattern: '^(\\d+) (?<host>\\w+)?', template: 'time: ${1}, host: $host$$'}";
        assert_eq!(extracted(yaml, &["12 web: x", "12  x"]), ["time: 12, host: web$", "time: 12, host: $"]);
    }

    #[test]
    fn what_does_not_match_is_rejected_kept_or_empty() {
        let given = testing::apply::<Extract>("pattern: '(a)'", [testing::batch(["b", "a"])]);
        assert_eq!(given.errors(), [("b".to_owned(), "does not match the pattern".to_owned())]);
        assert_eq!(extracted("{pattern: '(a)', no_match: keep}", &["b", "xa"]), ["b", "a"]);
        assert_eq!(
            extracted("{pattern: '(a)', template: '<$1>', no_match: empty}", &["b", "xa"]),
            ["<>", "<a>"]
        );
        let given = testing::apply::<Extract>(
            "{pattern: '(a)', no_match: keep, into: x}",
            [testing::batch(["b", "xa"])],
        );
        assert_eq!(given.main(), [json!({}), json!({"x": "a"})]);
    }

    #[test]
    fn unknown_groups_are_mistakes() {
        assert_eq!(
            testing::messages(testing::options::<Extract>("pattern: a").check()),
            ["The regular expression has no group `1`."]
        );
        assert_eq!(
            testing::messages(testing::options::<Extract>("{pattern: a, template: '$0'}").check()),
            [""; 0]
        );
    }
}
