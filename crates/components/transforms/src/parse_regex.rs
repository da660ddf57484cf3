//! Parses text by a regular expression with named groups.
//!
//! Captured text is not copied: a text column holds views of the payload's bytes. The group offsets are
//! written into one array that is reused for every message, so nothing is allocated per message.
//!
//! A payload is checked to be UTF-8 once, as a whole, and then sliced as a `str`. Only if the payload is not
//! UTF-8, each captured piece is checked separately, since it may still be UTF-8.

use std::collections::BTreeMap;

use regex::bytes::{CaptureLocations, Regex};
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::{List, Pattern};
use thalweg_engine::{Component, Context, Error, KnownFields, Mistake, Outputs, Transform, TransformConfig};
use thalweg_record::Batch;

use thalweg_codec::columns::{ByteParser, Columns, FieldType, Typing, parse_required, unknown_types};

use crate::captures;

/// Parses text by a regular expression.
///
/// Each named group `(?<name>...)` becomes a field. A group that takes no part in the match is NULL. A
/// message that does not match leaves by the `errors` output.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ParseRegex {
    /// The regular expression. Without `^` and `$` it may match anywhere in the text.
    pattern: Pattern,
    /// The types of fields that are not text: `{status: int, seconds: float}`. A message with a value that
    /// does not fit its type leaves by the `errors` output.
    #[serde(default)]
    types: BTreeMap<String, FieldType>,
    /// The texts that mean NULL. By default these are `-` and the empty text, in fields with a type other
    /// than text.
    null_values: Option<List<String>>,
    /// The field to parse. The default is the payload.
    #[serde(default = "crate::payload")]
    field: String,
}

impl ParseRegex {
    fn groups(&self) -> impl Iterator<Item = &str> + Clone {
        self.pattern.regex().capture_names().flatten()
    }
}

impl Component for ParseRegex {
    const NAME: &'static str = "parse_regex";
    const EXAMPLE: &'static str = r#"
sources:
  access:
    generate:
      message: '10.0.0.1 - - [10/Oct/2000:13:55:36 -0700] "GET /index.html HTTP/1.0" 200 2326'
      count: 3
pipelines:
  main:
    from: access
    transforms:
      - parse_regex:
          pattern: '^(?<client>\S+) \S+ \S+ \[(?<time>[^\]]+)\] "(?<request>[^"]*)" (?<status>\d{3}) (?<size>\d+|-)'
          types: { status: int, size: int, time: timestamp }
    to: screen
sinks:
  screen: { stdout: { encode: json } }
"#;

    fn check(&self) -> Vec<Mistake> {
        if self.groups().next().is_none() {
            let message = "The regular expression has no named group, so it makes no field.";
            let help = "Name the parts that you want: `(?<status>\\d{3})`.";
            return vec![Mistake::new("pattern", message).help(help)];
        }
        unknown_types(&self.types, self.groups()).collect()
    }
}

impl TransformConfig for ParseRegex {
    fn fields(&self) -> Vec<String> {
        vec![self.field.clone()]
    }

    fn fields_after(&self, before: KnownFields) -> KnownFields {
        let kind = |name: &str| self.types.get(name).copied().unwrap_or(FieldType::Text);
        before.parsed(self.groups().map(|name| kind(name).field(name)))
    }

    fn build(&self, context: &Context) -> Result<Box<dyn Transform>, Error> {
        let regex = self.pattern.regex().clone();
        captures::check(&regex, context.memory.budget())?;
        let groups =
            regex.capture_names().enumerate().filter_map(|(group, name)| name.map(|_| group)).collect();
        let typing = Typing::new(&self.types, self.null_values.as_deref());
        Ok(Box::new(Parser {
            locations: regex.capture_locations(),
            regex,
            groups,
            columns: Columns::new(typing, self.groups()),
            field: self.field.clone(),
        }))
    }
}

struct Parser {
    regex: Regex,
    locations: CaptureLocations,
    groups: Vec<usize>,
    columns: Columns,
    field: String,
}

impl ByteParser for Parser {
    fn field(&self) -> &str {
        &self.field
    }

    fn columns(&mut self) -> &mut Columns {
        &mut self.columns
    }

    #[inline]
    fn parse(&mut self, _: usize, value: &[u8]) -> Result<(), String> {
        if self.regex.captures_read(&mut self.locations, value).is_none() {
            return Err("does not match the pattern".to_owned());
        }
        let text = simdutf8::basic::from_utf8(value).ok();
        for (column, &group) in self.groups.iter().enumerate() {
            let Some((start, end)) = self.locations.get(group) else { continue };
            let piece = match text {
                Some(text) => text.get(start..end),
                None => value.get(start..end).and_then(|piece| std::str::from_utf8(piece).ok()),
            };
            match piece {
                Some(piece) => self.columns.push(column, piece)?,
                None => {
                    let name = self.columns.name(column).unwrap_or_default();
                    return Err(format!("the field `{name}` is not UTF-8, at byte {start}"));
                }
            }
        }
        Ok(())
    }
}

impl Transform for Parser {
    fn apply(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
        Ok(parse_required(self, batch, out)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::cast::AsArray;
    use serde_json::json;
    use thalweg_engine::{Output, testing};

    use crate::testing::with_text;

    const COMMON: &str = r#"pattern: '^(?<client>\S+) \S+ \S+ \[(?<time>[^\]]+)\] "(?<request>[^"]*)" (?<status>\d{3}) (?<size>\d+|-)'
types: { status: int, size: int }"#;

    #[test]
    fn it_conforms() {
        let line = r#"10.0.0.1 - - [x] "GET /" 200 5"#;
        testing::transform_conforms::<ParseRegex>(COMMON, &[line, "", "no match", line]);
    }

    #[test]
    fn an_access_log_becomes_typed_fields() {
        let given = testing::apply::<ParseRegex>(
            COMMON,
            [testing::batch([
                r#"10.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /a HTTP/1.0" 200 2326"#,
                r#"::1 - - [10/Oct/2000:13:55:36 -0700] "" 304 -"#,
                "something else",
                "",
            ])],
        );
        assert_eq!(
            given.main(),
            [
                json!({"client": "10.0.0.1", "time": "10/Oct/2000:13:55:36 -0700", "request": "GET /a HTTP/1.0",
                    "status": 200, "size": 2326}),
                json!({"client": "::1", "time": "10/Oct/2000:13:55:36 -0700", "request": "", "status": 304}),
            ]
        );
        assert_eq!(
            given.errors(),
            [
                ("something else".to_owned(), "does not match the pattern".to_owned()),
                (String::new(), "does not match the pattern".to_owned()),
            ]
        );
    }

    #[test]
    fn text_is_not_copied() {
        let batch = testing::batch(["a long piece of text that is not inline"]);
        let payload = batch.payload().value(0).as_ptr() as usize;
        let given = testing::apply::<ParseRegex>("pattern: '^a (?<rest>.*)'", [batch]);
        let column = given.outputs[&Output::Main][0].fields().column(0).as_string_view().clone();
        assert_eq!(column.value(0).as_ptr() as usize, payload + 2);
    }

    #[test]
    fn a_group_that_takes_no_part_is_null_and_a_misfit_says_which_field() {
        let given = testing::apply::<ParseRegex>(
            "pattern: '^(?<a>a)?(?<n>.*)$'\ntypes: {n: int}",
            [testing::batch(["a1", "2", "a", "-", "x"])],
        );
        assert_eq!(given.main(), [json!({"a": "a", "n": 1}), json!({"n": 2}), json!({"a": "a"}), json!({})]);
        assert_eq!(given.errors()[0].1, "the field `n` is not a whole number of 64 bits: `x`");
    }

    #[test]
    fn null_values_hold_for_text_too_if_given() {
        let given = testing::apply::<ParseRegex>(
            "pattern: '^(?<a>.*) (?<n>.*)$'\ntypes: {n: int}\nnull_values: [none]",
            [testing::batch(["none 1", "- none", "x -"])],
        );
        assert_eq!(given.main(), [json!({"n": 1}), json!({"a": "-"})]);
        assert_eq!(given.reasons(), ["the field `n` is not a whole number of 64 bits: `-`"]);
    }

    #[test]
    fn bytes_that_are_not_utf8_harm_only_the_field_they_are_in() {
        let batch = testing::batch([&b"ok \xff"[..], b"\xff ok", "é ok".as_bytes()]);
        let given = testing::apply::<ParseRegex>(r"pattern: '(?-u)^(?<a>[^ ]*) '", [batch]);
        assert_eq!(given.main(), [json!({"a": "ok"}), json!({"a": "é"})]);
        assert_eq!(given.errors()[0].1, "the field `a` is not UTF-8, at byte 0");
        let batch = testing::batch(["é"]);
        let given = testing::apply::<ParseRegex>(r"pattern: '(?-u)^(?<a>.)'", [batch]);
        assert_eq!(given.errors()[0].1, "the field `a` is not UTF-8, at byte 0");
    }

    #[test]
    fn another_field_can_be_parsed() {
        let batch = || with_text(&["x", "y"], &[("message", &[Some("n=1"), None])]);
        let given = testing::apply::<ParseRegex>("{pattern: 'n=(?<n>.)', field: message}", [batch()]);
        assert_eq!(given.main(), [json!({"message": "n=1", "n": "1"})]);
        assert_eq!(given.errors(), [("y".to_owned(), "there is no field `message`".to_owned())]);
        let given = testing::apply::<ParseRegex>("{pattern: 'n=(?<n>.)', field: nothing}", [batch()]);
        assert_eq!(given.reasons(), ["there is no field `nothing`", "there is no field `nothing`"]);
    }

    #[test]
    fn a_pattern_without_names_and_types_of_nothing_are_mistakes() {
        let config: ParseRegex = testing::options(r"pattern: '(\d+)'");
        assert_eq!(config.check()[0].option, "pattern");
        let config: ParseRegex = testing::options("pattern: '(?<a>.)'\ntypes: {b: int}");
        assert_eq!(config.check()[0].message, "`b` is given a type, but there is no field of that name.");
        assert_eq!(
            testing::refused::<ParseRegex>("pattern: '(?<a>.'"),
            "The regular expression is wrong: unclosed group. Every `(` needs its `)`. For the character itself write `\\(` or `\\)`."
        );
        assert_eq!(
            testing::refused::<ParseRegex>("pattern: '(?<a>.)'\ntypes: {a: number}"),
            "`a` cannot be `number`. Did you mean `float`?"
        );
    }
}
