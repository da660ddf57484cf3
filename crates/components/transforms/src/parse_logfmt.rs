//! Parses `key=value` pairs, as Go services and Heroku write them.
//!
//! The module `pairs` makes columns of the keys.

use std::collections::BTreeMap;

use memchr::memchr3;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_codec::columns::{FieldType, Typing};
use thalweg_config::List;
use thalweg_engine::{Component, Context, Error, KnownFields, Mistake, Transform, TransformConfig};

use crate::pairs::{PairParser, Pairs, Syntax, Value};
use crate::quoted::quoted;

/// Parses `key=value` pairs.
///
/// Values may be in double quotes, with the escapes `\"`, `\\`, `\n`, `\t`, `\r` and `\u0041`. A key without
/// a value is `true`. If a key occurs twice, the last value counts. Each key becomes a field, which is text
/// unless `types` gives another type. A message without the key has NULL in that field. A malformed message
/// leaves by the `errors` output.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ParseLogfmt {
    /// The types of fields that are not text: `{status: int, took: float}`. A message with a value that does
    /// not fit its type leaves by the `errors` output.
    types: BTreeMap<String, FieldType>,
    /// The texts that mean NULL. By default these are `-` and the empty text, in fields with a type other
    /// than text.
    null_values: Option<List<String>>,
    /// The maximum number of different keys. A message with a further key leaves by the `errors` output. The
    /// default is 1024.
    max_fields: usize,
    /// The field to parse. The default is the payload.
    field: String,
}

impl Default for ParseLogfmt {
    fn default() -> Self {
        Self { types: BTreeMap::new(), null_values: None, max_fields: 1024, field: crate::payload() }
    }
}

impl Component for ParseLogfmt {
    const NAME: &'static str = "parse_logfmt";
    const EXAMPLE: &'static str = r#"
sources:
  service: { generate: { message: 'level=info status=200 msg="it went well" cached', count: 3 } }
pipelines:
  main:
    from: service
    transforms:
      - parse_logfmt: { types: { status: int, cached: bool } }
    to: screen
sinks:
  screen: { stdout: { encode: json } }
"#;

    fn check(&self) -> Vec<Mistake> {
        match self.max_fields {
            0 => vec![Mistake::new("max_fields", "`max_fields` must be at least 1.")],
            _ => Vec::new(),
        }
    }
}

impl TransformConfig for ParseLogfmt {
    fn fields(&self) -> Vec<String> {
        vec![self.field.clone()]
    }

    fn fields_after(&self, before: KnownFields) -> KnownFields {
        before.with_others()
    }

    fn build(&self, _: &Context) -> Result<Box<dyn Transform>, Error> {
        let typing = Typing::new(&self.types, self.null_values.as_deref());
        Ok(Box::new(PairParser::new(Logfmt, typing, self.max_fields, &self.field)))
    }
}

struct Logfmt;

impl Syntax for Logfmt {
    #[inline]
    fn read(&mut self, text: &str, pairs: &mut Pairs) -> Result<(), String> {
        let mut at = 0;
        while let Some((key, value)) = pair(text, &mut at, &mut pairs.decoded)? {
            pairs.set(key, value)?;
        }
        Ok(())
    }
}

/// Returns the next pair at or after byte `at`, if there is one.
fn pair<'a>(text: &'a str, at: &mut usize, decoded: &mut String) -> Result<Option<(&'a str, Value)>, String> {
    let bytes = text.as_bytes();
    let is_space = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t' | b'\r' | b'\n'));
    while is_space(bytes.get(*at)) {
        *at += 1;
    }
    let start = *at;
    while let Some(byte) = bytes.get(*at) {
        match byte {
            b'=' | b' ' | b'\t' | b'\r' | b'\n' => break,
            b'"' => return Err(format!("there is a quote in a key, at byte {at}")),
            _ => *at += 1,
        }
    }
    let key = text.get(start..*at).unwrap_or_default();
    if bytes.get(*at) != Some(&b'=') {
        return Ok((!key.is_empty()).then_some((key, Value::True)));
    }
    if key.is_empty() {
        return Err(format!("there is no key before the `=` at byte {start}"));
    }
    *at += 1;
    let start = *at;
    let rest = bytes.get(start..).unwrap_or_default();
    if rest.first() != Some(&b'"') {
        let length = memchr3(b' ', b'\t', b'\n', rest).unwrap_or(rest.len());
        *at += length;
        return Ok(Some((key, Value::Raw(start..*at))));
    }
    let value = quoted(text, at, decoded)?;
    if bytes.get(*at).is_some() && !is_space(bytes.get(*at)) {
        return Err(format!("a quote is closed before byte {at}, but no space follows"));
    }
    Ok(Some((key, value)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};
    use thalweg_engine::{Output, testing};

    use crate::testing::no_line_is_lost;

    fn parsed(yaml: &str, lines: &[&str]) -> testing::Given {
        testing::apply::<ParseLogfmt>(yaml, [testing::batch(lines)])
    }

    #[test]
    fn it_conforms() {
        testing::transform_conforms::<ParseLogfmt>("{}", &["a=1", "", "=", "b", "a=\"", "c=3 a=4"]);
    }

    #[test]
    fn keys_become_fields_as_they_appear() {
        let given = parsed(
            "types: {n: int, ok: bool}",
            &["a=x n=1", "", "  b=y ok  ", "n=- a=", "b=\"two words\" a=\"\"", "n=z", "a=1 a=2"],
        );
        assert_eq!(
            given.main(),
            [
                json!({"a": "x", "n": 1}),
                json!({}),
                json!({"b": "y", "ok": true}),
                json!({"a": ""}),
                json!({"a": "", "b": "two words"}),
                json!({"a": "2"}),
            ]
        );
        assert_eq!(given.errors()[0].1, "the field `n` is not a whole number of 64 bits: `z`");
    }

    #[test]
    fn a_column_once_seen_stays() {
        let given =
            testing::apply::<ParseLogfmt>("{}", [testing::batch(["a=1 b=2"]), testing::batch(["c=3"])]);
        let names: Vec<Vec<String>> = given.outputs[&Output::Main]
            .iter()
            .map(|batch| batch.fields().schema().fields().iter().map(|field| field.name().clone()).collect())
            .collect();
        assert_eq!(names, [vec!["a", "b"], vec!["a", "b", "c"]]);
    }

    #[test]
    fn the_keys_of_one_message_are_forgotten_when_they_do_not_come_again() {
        let wide: Vec<String> = (0..1000).map(|n| format!("k{n}={n}")).collect();
        let mut lines = vec!["a=1 b=2".to_owned(), wide.join(" ")];
        lines.extend(vec!["b=3 a=4".to_owned(); 20]);
        lines.push("k7=8 b=9".to_owned());
        let given = testing::apply::<ParseLogfmt>("{}", lines.iter().map(|line| testing::batch([line])));
        let columns: Vec<_> =
            given.outputs[&Output::Main].iter().map(|batch| batch.fields().num_columns()).collect();
        assert_eq!(columns[..3], [2, 1002, 1002]);
        assert_eq!(columns[19..], [2, 2, 2, 3]);
        let rows = given.main();
        assert_eq!(rows[21], json!({"a": "4", "b": "3"}));
        assert_eq!(rows[22], json!({"b": "9", "k7": "8"}));
    }

    #[test]
    fn escapes_are_decoded() {
        let given = parsed("{}", &[r#"a="say \"hi\"\n\u00e9\ud83d\ude00" b="C:\dir\\x" c="\ud83d""#]);
        assert_eq!(given.main(), [json!({"a": "say \"hi\"\né😀", "b": "C:\\dir\\x", "c": "\u{fffd}"})]);
    }

    #[test]
    fn what_is_not_of_this_form_says_where() {
        let given = parsed("{}", &["a=\"x", "=x", "a=\"x\"y", "\"x\"", "a=\"\\", "a=\"\\u12é\"", "a=b=c"]);
        let reasons: Vec<String> = given.errors().into_iter().map(|(_, reason)| reason).collect();
        assert_eq!(
            reasons,
            [
                "the quote at byte 2 is not closed",
                "there is no key before the `=` at byte 0",
                "a quote is closed before byte 5, but no space follows",
                "there is a quote in a key, at byte 0",
                "the quote at byte 2 is not closed",
                "the escape at byte 3 does not have four hexadecimal digits",
            ]
        );
        assert_eq!(given.main(), [json!({"a": "b=c"})]);
        let given = testing::apply::<ParseLogfmt>("{}", [testing::batch([b"a=\xff"])]);
        assert_eq!(given.errors()[0].1, "is not UTF-8, at byte 2");
    }

    #[test]
    fn there_are_no_more_columns_than_allowed() {
        let given = parsed("max_fields: 2", &["a=1 b=2", "c=3", "b=4"]);
        assert_eq!(given.main(), [json!({"a": "1", "b": "2"}), json!({"b": "4"})]);
        assert_eq!(given.errors()[0].1, "the key `c` is one more than `max_fields` allows, 2");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(
            records in prop::collection::vec(
                prop::collection::btree_map("[a-e]{1,2}", "[a-z\"\\\\ =é\n]{0,20}", 0..5), 1..10),
        ) {
            let lines: Vec<String> = records
                .iter()
                .map(|record| {
                    let pairs: Vec<String> = record
                        .iter()
                        .map(|(key, value)| match value.contains(['"', '\\', ' ', '=', '\n']) {
                            true => {
                                let value = value.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n");
                                format!("{key}=\"{value}\"")
                            }
                            false => format!("{key}={value}"),
                        })
                        .collect();
                    pairs.join(" ")
                })
                .collect();
            let given = testing::apply::<ParseLogfmt>("{}", [testing::batch(&lines)]);
            let expected: Vec<Value> = records.iter().map(|record| json!(record)).collect();
            prop_assert_eq!(given.main(), expected);
        }

        #[test]
        fn every_line_leaves(lines in prop::collection::vec("[ab=\" \\\\u]{0,12}", 1..20)) {
            no_line_is_lost::<ParseLogfmt>("types: {b: int}", &lines)?;
        }
    }
}
