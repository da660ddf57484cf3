//! Parses keys and values between any delimiters: `a: 1; b: "two words"`.
//!
//! `parse_logfmt` stays apart, since its fixed syntax is read faster. The module `pairs` makes columns of the
//! keys of both.

use std::collections::BTreeMap;
use std::ops::Range;

use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_codec::columns::{FieldType, Typing};
use thalweg_codec::delimiter::Delimiter;
use thalweg_config::List;
use thalweg_engine::{Component, Context, Error, KnownFields, Mistake, Transform, TransformConfig};

use crate::pairs::{PairParser, Pairs, Syntax, Value};
use crate::quoted::quoted;

/// Parses keys and values between any delimiters.
///
/// Keys and values may be in quotes, with the escapes `\"`, `\\`, `\n`, `\t`, `\r` and `\u0041`; within
/// quotes, delimiters are text. If a key occurs twice, the last value counts. Each key becomes a field, which
/// is text unless `types` gives another type. A message without the key has NULL in that field. A malformed
/// message leaves by the `errors` output. For `key=value` between spaces, `parse_logfmt` is faster.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ParseKeyValue {
    /// The text between a key and its value. The default is `=`.
    #[schemars(length(min = 1))]
    key_value_delimiter: String,
    /// The text between two pairs. The default is a space.
    #[schemars(length(min = 1))]
    field_delimiter: String,
    /// The characters that may surround keys and values, each an ASCII character. The default is `"`. Empty
    /// for none.
    quotes: String,
    /// White space around keys and values. The default is `lenient`.
    whitespace: Whitespace,
    /// True if a key may stand alone; its value is `true`. If not, such a message leaves by the `errors`
    /// output. The default is `true`.
    bare_keys: bool,
    /// The types of fields that are not text: `{status: int, took: float}`. A message with a value that does
    /// not fit its type leaves by the `errors` output.
    types: BTreeMap<String, FieldType>,
    /// The texts that mean NULL. By default these are `-` and the empty text, in fields with a type other
    /// than text.
    null_values: Option<List<String>>,
    /// The maximum number of different keys. A message with a further key leaves by the `errors` output. The
    /// default is 1024.
    #[schemars(range(min = 1))]
    max_fields: usize,
    /// The field to parse. The default is the payload.
    field: String,
}

/// The treatment of white space around keys and values.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Whitespace {
    /// It is removed.
    #[default]
    Lenient,
    /// It is a part of keys and values.
    Strict,
}

impl Default for ParseKeyValue {
    fn default() -> Self {
        Self {
            key_value_delimiter: "=".to_owned(),
            field_delimiter: " ".to_owned(),
            quotes: "\"".to_owned(),
            whitespace: Whitespace::Lenient,
            bare_keys: true,
            types: BTreeMap::new(),
            null_values: None,
            max_fields: 1024,
            field: crate::payload(),
        }
    }
}

impl Component for ParseKeyValue {
    const NAME: &'static str = "parse_key_value";
    const EXAMPLE: &'static str = r#"
sources:
  device: { generate: { message: 'level: info; status: 200; text: "ready; steady"; cached', count: 3 } }
pipelines:
  main:
    from: device
    transforms:
      - parse_key_value: { key_value_delimiter: ":", field_delimiter: ";", types: { status: int } }
    to: screen
sinks:
  screen: { stdout: { encode: json } }
"#;

    fn check(&self) -> Vec<Mistake> {
        let mut mistakes = Vec::new();
        if self.key_value_delimiter == self.field_delimiter {
            let message = "`key_value_delimiter` and `field_delimiter` are the same, so no text has pairs.";
            mistakes.push(Mistake::new("field_delimiter", message));
        } else if self.is_divided() {
            let message = "`key_value_delimiter` contains `field_delimiter`, which ends a key before it.";
            let help =
                "Leave out white space around `key_value_delimiter`: it is removed from keys and values.";
            mistakes.push(Mistake::new("key_value_delimiter", message).help(help));
        }
        if let Some(quote) = self.quotes.chars().find(|quote| !quote.is_ascii() || *quote == '\\') {
            let message =
                format!("`{quote}` cannot be a quote: a quote is an ASCII character other than `\\`.");
            mistakes.push(Mistake::new("quotes", message));
        }
        mistakes
    }
}

impl ParseKeyValue {
    /// True if a key without quotes ends within the text that should follow it. A key may end where that text
    /// begins, if white space counts.
    fn is_divided(&self) -> bool {
        let is_found = self.whitespace == Whitespace::Strict
            && self.key_value_delimiter.starts_with(&self.field_delimiter);
        self.key_value_delimiter.contains(&self.field_delimiter) && !is_found
    }
}

impl TransformConfig for ParseKeyValue {
    fn fields(&self) -> Vec<String> {
        vec![self.field.clone()]
    }

    fn fields_after(&self, before: KnownFields) -> KnownFields {
        before.with_others()
    }

    fn build(&self, _: &Context) -> Result<Box<dyn Transform>, Error> {
        let typing = Typing::new(&self.types, self.null_values.as_deref());
        let syntax = KeyValue {
            equals: Delimiter::new(&self.key_value_delimiter),
            equals_text: self.key_value_delimiter.as_str().into(),
            between: Delimiter::new(&self.field_delimiter),
            between_text: self.field_delimiter.as_str().into(),
            quotes: self.quotes.as_bytes().into(),
            trims: self.whitespace == Whitespace::Lenient,
            bare_keys: self.bare_keys,
            keys: String::new(),
        };
        Ok(Box::new(PairParser::new(syntax, typing, self.max_fields, &self.field)))
    }
}

struct KeyValue {
    equals: Delimiter,
    equals_text: Box<str>,
    between: Delimiter,
    between_text: Box<str>,
    quotes: Box<[u8]>,
    trims: bool,
    bare_keys: bool,
    /// Keys that contained escapes, decoded.
    keys: String,
}

impl Syntax for KeyValue {
    fn read(&mut self, text: &str, pairs: &mut Pairs) -> Result<(), String> {
        let mut at = 0;
        while at < text.len() {
            at = self.pair(text, at, pairs)?;
        }
        Ok(())
    }
}

impl KeyValue {
    /// Reads the pair at byte `at`. Returns the offset after it and its delimiter.
    fn pair(&mut self, text: &str, at: usize, pairs: &mut Pairs) -> Result<usize, String> {
        let start = self.skip(text, at);
        // Nothing between two delimiters is no pair.
        if start >= text.len() || follows(text, start, &self.between_text) {
            return Ok(start + self.between.len());
        }
        let mut end = start;
        self.keys.clear();
        let is_quoted = self.is_quote(text, start);
        let key = if is_quoted {
            quoted(text, &mut end, &mut self.keys)?
        } else {
            end = self.end_of(text, start);
            let found = text.get(start..end).and_then(|rest| self.equals.find(rest.as_bytes()));
            end = found.map_or(end, |found| start + found);
            Value::Raw(self.trimmed(text, start..end))
        };
        let key = match key {
            Value::Raw(range) => text.get(range).unwrap_or_default(),
            _ => self.keys.as_str(),
        };
        if key.is_empty() {
            return Err(format!("there is no key at byte {start}"));
        }
        let equals = self.skip(text, end);
        if follows(text, equals, &self.equals_text) {
            let value = equals + self.equals.len();
            // In `a= b=1` the space is the delimiter, in `a = 1` it is not.
            let is_spaced = !self.between_text.trim().is_empty() || equals > end;
            return self.value(text, key, if is_spaced { self.skip(text, value) } else { value }, pairs);
        }
        if !self.bare_keys {
            return Err(format!("the key at byte {start} has no value"));
        }
        pairs.set(key, Value::True)?;
        if is_quoted { self.after_quote(text, end) } else { Ok(end + self.between.len()) }
    }

    /// Reads the value at byte `at`. Returns the offset after it and its delimiter.
    fn value(&self, text: &str, key: &str, mut at: usize, pairs: &mut Pairs) -> Result<usize, String> {
        if self.is_quote(text, at) {
            let value = quoted(text, &mut at, &mut pairs.decoded)?;
            pairs.set(key, value)?;
            return self.after_quote(text, at);
        }
        let end = self.end_of(text, at);
        pairs.set(key, Value::Raw(self.trimmed(text, at..end)))?;
        Ok(end + self.between.len())
    }

    /// Returns the offset after the delimiter that follows the quote closed before byte `at`.
    fn after_quote(&self, text: &str, at: usize) -> Result<usize, String> {
        let next =
            [at, self.skip(text, at)].into_iter().find(|&next| follows(text, next, &self.between_text));
        match next {
            Some(next) => Ok(next + self.between.len()),
            None if self.skip(text, at) >= text.len() => Ok(text.len()),
            None => {
                Err(format!("a quote is closed before byte {at}, but no `{}` follows", self.between_text))
            }
        }
    }

    /// Returns the offset of the delimiter of pairs after byte `at`, or of the end.
    fn end_of(&self, text: &str, at: usize) -> usize {
        let rest = text.as_bytes().get(at..).unwrap_or_default();
        at + self.between.find(rest).unwrap_or(rest.len())
    }

    fn is_quote(&self, text: &str, at: usize) -> bool {
        text.as_bytes().get(at).is_some_and(|byte| self.quotes.contains(byte))
    }

    /// Returns the offset of the first character that is no white space, unless white space counts.
    fn skip(&self, text: &str, at: usize) -> usize {
        let rest = text.get(at..).unwrap_or_default();
        if self.trims { text.len() - rest.trim_ascii_start().len() } else { at }
    }

    /// Returns the range without white space around it, unless white space counts.
    fn trimmed(&self, text: &str, range: Range<usize>) -> Range<usize> {
        if !self.trims {
            return range;
        }
        let piece = text.get(range.clone()).unwrap_or_default();
        let start = range.end - piece.trim_ascii_start().len();
        start..start + piece.trim_ascii().len()
    }
}

fn follows(text: &str, at: usize, what: &str) -> bool {
    text.get(at..).is_some_and(|rest| rest.starts_with(what))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;
    use thalweg_engine::testing;

    use crate::testing::no_line_is_lost;

    const COLONS: &str = "{ key_value_delimiter: ':', field_delimiter: '; ', types: { n: int } }";

    fn parsed(yaml: &str, lines: &[&str]) -> testing::Given {
        testing::apply::<ParseKeyValue>(yaml, [testing::batch(lines)])
    }

    #[test]
    fn it_conforms() {
        testing::transform_conforms::<ParseKeyValue>("{}", &["a=1", "", "=", "b", "a=\"", "c=3 a=4"]);
        testing::transform_conforms::<ParseKeyValue>(COLONS, &["a:1; b:2", "", ":", "b", "a:\"x"]);
    }

    #[test]
    fn delimiters_are_free() {
        let given = parsed(COLONS, &["a: x=1 ; n:5;  b:\"y; \\\"z:\"; c", "\"k: 1\":v", "", "a:; n: -"]);
        assert_eq!(
            given.main(),
            [
                json!({"a": "x=1", "n": 5, "b": "y; \"z:", "c": "true"}),
                json!({"k: 1": "v"}),
                json!({}),
                json!({"a": ""}),
            ]
        );
        let given = parsed("{ key_value_delimiter: '=>', field_delimiter: '||' }", &["a=>1||||b=>2||"]);
        assert_eq!(given.main(), [json!({"a": "1", "b": "2"})]);
    }

    #[test]
    fn white_space_is_removed_or_counts() {
        let given = parsed("{}", &["  a = 1\tb=  c=\"x y\"  d "]);
        assert_eq!(given.main(), [json!({"a": "1\tb=", "c": "x y", "d": "true"})]);
        let given = parsed("field_delimiter: \"\\t\"", &["a= 1\tb=\tc=x y\td"]);
        assert_eq!(given.main(), [json!({"a": "1", "b": "", "c": "x y", "d": "true"})]);
        let given = parsed("{ field_delimiter: ',', whitespace: strict }", &[" a = 1 ,b=\"c\""]);
        assert_eq!(given.main(), [json!({" a ": " 1 ", "b": "c"})]);
    }

    #[test]
    fn quotes_are_as_configured() {
        let given = parsed("quotes: \"'|\"", &["a='x y' b=|c 'd'| e=\"f"]);
        assert_eq!(given.main(), [json!({"a": "x y", "b": "c 'd'", "e": "\"f"})]);
        assert_eq!(parsed("quotes: ''", &["a=\"x y"]).main(), [json!({"a": "\"x", "y": "true"})]);
    }

    #[test]
    fn what_is_not_of_this_form_says_where() {
        let given = parsed("bare_keys: false", &["a=\"x", "b =x=y c", "=x", "a=\"x\"y", "a=\"\\u12\""]);
        assert_eq!(
            given.reasons(),
            [
                "the quote at byte 2 is not closed",
                "the key at byte 7 has no value",
                "there is no key at byte 0",
                "a quote is closed before byte 5, but no ` ` follows",
                "the escape at byte 3 does not have four hexadecimal digits",
            ]
        );
        let mistakes = testing::options::<ParseKeyValue>("{ field_delimiter: '=', quotes: 'é' }").check();
        assert_eq!(
            testing::messages(mistakes),
            [
                "`key_value_delimiter` and `field_delimiter` are the same, so no text has pairs.",
                "`é` cannot be a quote: a quote is an ASCII character other than `\\`.",
            ]
        );
    }

    #[test]
    fn a_delimiter_within_the_other_is_a_mistake() {
        let mistakes = |yaml: &str| testing::messages(testing::options::<ParseKeyValue>(yaml).check());
        let message = "`key_value_delimiter` contains `field_delimiter`, which ends a key before it.";
        assert_eq!(mistakes("key_value_delimiter: ': '"), [message]);
        assert_eq!(mistakes("{ key_value_delimiter: ': ', field_delimiter: ';' }"), [""; 0]);
        let strict = "{ key_value_delimiter: ' = ', whitespace: strict }";
        assert_eq!(mistakes(strict), [""; 0]);
        assert_eq!(parsed(strict, &["a = 1 b = 2"]).main(), [json!({"a": "1", "b": "2"})]);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(
            record in prop::collection::btree_map("[a-e: ]{1,3}", "[a-z\"\\\\:; é\n]{0,20}", 0..5),
        ) {
            let text = |text: &str| {
                let text = text.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n");
                format!("\"{text}\"")
            };
            let pairs: Vec<String> =
                record.iter().map(|(key, value)| format!("{}: {}", text(key), text(value))).collect();
            let given = parsed(COLONS, &[&pairs.join("; ")]);
            prop_assert_eq!(given.main(), [json!(record)]);
        }

        #[test]
        fn without_options_it_reads_what_logfmt_reads(
            record in prop::collection::btree_map("[a-e]{1,2}", "[a-z\"\\\\ é]{0,20}", 0..5),
        ) {
            let pair = |(key, value): (&String, &String)| match value.contains(['"', '\\', ' ']) {
                true => format!("{key}=\"{}\"", value.replace('\\', r"\\").replace('"', "\\\"")),
                false => format!("{key}={value}"),
            };
            let line = record.iter().map(pair).collect::<Vec<_>>().join(" ");
            let logfmt = testing::apply::<crate::parse_logfmt::ParseLogfmt>("{}", [testing::batch([&line])]);
            prop_assert_eq!(parsed("{}", &[&line]).main(), logfmt.main());
        }

        #[test]
        fn every_line_leaves(lines in prop::collection::vec("[ab=:;\" \\\\u]{0,12}", 1..20)) {
            no_line_is_lost::<ParseKeyValue>("types: { b: int }", &lines)?;
            no_line_is_lost::<ParseKeyValue>(COLONS, &lines)?;
        }
    }
}
