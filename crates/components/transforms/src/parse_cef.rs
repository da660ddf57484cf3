//! Parses the Common Event Format (CEF) of ArcSight.
//!
//! `CEF:0|vendor|product|version|class|name|severity|key=value key=value`. Values of the extension are not
//! quoted and may have spaces. So a value ends before the last space that precedes the next `=` that no
//! backslash escapes. If there is no such space, that `=` is a part of the value: many devices do not escape
//! those of URLs.

use std::collections::BTreeMap;
use std::ops::Range;

use memchr::{memchr2, memchr3};
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_codec::columns::{FieldType, Typing};
use thalweg_engine::{Component, Context, Error, KnownFields, Transform, TransformConfig};

use crate::pairs::{PairParser, Pairs, Syntax, Value};

/// Parses the Common Event Format (CEF).
///
/// The values of the header are the fields `cefVersion`, `deviceVendor`, `deviceProduct`, `deviceVersion`,
/// `deviceEventClassId`, `name` and `severity`. Each key of the extension is a field of its name. Escapes are
/// decoded. Text before `CEF:`, such as the header of syslog, is ignored. Fields are text unless `types`
/// gives another type. A malformed message leaves by the `errors` output. The format is described at
/// <https://www.microfocus.com/documentation/arcsight/arcsight-smartconnectors-8.4/pdfdoc/cef-implementation-standard/cef-implementation-standard.pdf>.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ParseCef {
    /// True if a custom value is named by its label: `cs1Label=Reason cs1=timeout` is the field `Reason`. A
    /// label without a value stays as it is. The default is `false`.
    translate_custom_fields: bool,
    /// The types of fields that are not text: `{spt: int}`. A message with a value that does not fit its type
    /// leaves by the `errors` output.
    types: BTreeMap<String, FieldType>,
    /// The maximum number of different fields. A message with a further field leaves by the `errors` output.
    /// The default is 1024.
    #[schemars(range(min = 1))]
    max_fields: usize,
    /// The field to parse. The default is the payload.
    field: String,
}

impl Default for ParseCef {
    fn default() -> Self {
        Self {
            translate_custom_fields: false,
            types: BTreeMap::new(),
            max_fields: 1024,
            field: crate::payload(),
        }
    }
}

/// The fields of the header, in their order.
const HEADER: [&str; 7] = [
    "cefVersion",
    "deviceVendor",
    "deviceProduct",
    "deviceVersion",
    "deviceEventClassId",
    "name",
    "severity",
];

/// The beginning of a message.
const MARK: &str = "CEF:";

/// The end of the key of a label.
const LABEL: &str = "Label";

impl Component for ParseCef {
    const NAME: &'static str = "parse_cef";
    const EXAMPLE: &'static str = r#"
sources:
  device:
    generate:
      message: 'CEF:0|Security|threatmanager|1.0|100|worm successfully stopped|10|src=10.0.0.1 dst=2.1.2.2 spt=1232'
      count: 3
pipelines:
  main:
    from: device
    transforms:
      - parse_cef: { types: { spt: int } }
    to: screen
sinks:
  screen: { stdout: { encode: json } }
"#;
}

impl TransformConfig for ParseCef {
    fn fields(&self) -> Vec<String> {
        vec![self.field.clone()]
    }

    fn fields_after(&self, before: KnownFields) -> KnownFields {
        before.with_others()
    }

    fn build(&self, _: &Context) -> Result<Box<dyn Transform>, Error> {
        let syntax =
            Cef { translates: self.translate_custom_fields, most: self.max_fields, extension: Vec::new() };
        let typing = Typing::new(&self.types, None);
        Ok(Box::new(PairParser::new(syntax, typing, self.max_fields, &self.field)))
    }
}

struct Cef {
    translates: bool,
    /// The maximum number of keys of a message in which labels are looked up, one by one.
    most: usize,
    /// The keys and values of the extension of one message, as ranges of it.
    extension: Vec<(Range<usize>, Range<usize>)>,
}

impl Syntax for Cef {
    fn read(&mut self, text: &str, pairs: &mut Pairs) -> Result<(), String> {
        let mut at = start(text).ok_or("`CEF:` is missing")?;
        for (number, name) in HEADER.into_iter().enumerate() {
            let end = end_of_header(text, at);
            let value = decoded(text, at..end, &mut pairs.decoded);
            pairs.set(name, value)?;
            // The bar after the severity may be missing if there is no extension.
            if end >= text.len() && number + 1 < HEADER.len() {
                return Err(format!(
                    "the header ends at byte {end}, before `|` and the next of its 7 values"
                ));
            }
            at = end + 1;
        }
        self.extension.clear();
        extension(text, at, &mut self.extension)?;
        let (count, most) = (self.extension.len(), self.most);
        if self.translates && count > most {
            return Err(format!(
                "has {count} keys and values, which is more than `max_fields` allows, {most}"
            ));
        }
        for (key, value) in &self.extension {
            let name = text.get(key.clone()).unwrap_or_default();
            if self.translates && self.is_translated(text, name) {
                continue;
            }
            let value = decoded(text, value.clone(), &mut pairs.decoded);
            match self.label(text, name) {
                Some(label) if self.translates => pairs.set(label, value)?,
                _ => pairs.set(name, value)?,
            }
        }
        Ok(())
    }
}

impl Cef {
    /// Returns the value of a key that is a base and an end.
    fn find<'a>(&self, text: &'a str, base: &str, end: &str) -> Option<&'a str> {
        let is_it = |key: &str| key.strip_suffix(end) == Some(base);
        let found = self.extension.iter().find(|(key, _)| text.get(key.clone()).is_some_and(is_it));
        text.get(found?.1.clone())
    }

    /// Returns the label of a key, if it has one.
    fn label<'a>(&self, text: &'a str, key: &str) -> Option<&'a str> {
        self.find(text, key, LABEL).filter(|label| !label.is_empty())
    }

    /// True if the key is a label that names the value of another key.
    fn is_translated(&self, text: &str, key: &str) -> bool {
        let base = key.strip_suffix(LABEL).filter(|base| !base.is_empty());
        base.is_some_and(|base| self.find(text, base, "").is_some() && self.label(text, base).is_some())
    }
}

/// Returns the offset after the mark, which begins the message or follows a space.
fn start(text: &str) -> Option<usize> {
    let found =
        text.match_indices(MARK).find(|(at, _)| *at == 0 || text.as_bytes().get(at - 1) == Some(&b' '));
    found.map(|(at, _)| at + MARK.len())
}

/// Returns the offset of the next bar that no backslash escapes, or of the end.
fn end_of_header(text: &str, mut at: usize) -> usize {
    let bytes = text.as_bytes();
    while let Some(found) = memchr2(b'|', b'\\', bytes.get(at..).unwrap_or_default()) {
        if bytes.get(at + found) == Some(&b'|') {
            return at + found;
        }
        at += found + 2;
    }
    text.len()
}

/// Finds the keys and values of an extension, which begins at byte `start`.
fn extension(text: &str, start: usize, found: &mut Vec<(Range<usize>, Range<usize>)>) -> Result<(), String> {
    let bytes = text.as_bytes();
    let rest = text.get(start..).unwrap_or_default();
    let begin = start + rest.len() - rest.trim_ascii_start().len();
    let end = start + rest.trim_ascii_end().len();
    let mut key: Option<Range<usize>> = None;
    let mut value = begin;
    // Where a key may begin: after the last space that no `=` has followed yet.
    let mut word = Some(begin);
    let mut at = begin;
    while at < end
        && let Some(next) = memchr3(b'=', b'\\', b' ', bytes.get(at..end).unwrap_or_default())
    {
        let here = at + next;
        at = here + 1;
        match bytes.get(here) {
            Some(b' ') => word = Some(at),
            Some(b'=') => {
                let name = word.take().map(|word| word..here);
                let Some(name) = name.filter(|name| is_key(text.get(name.clone()).unwrap_or_default()))
                else {
                    if key.is_none() {
                        return Err(format!("there is no key before the `=` at byte {here}"));
                    }
                    continue;
                };
                match key.replace(name.clone()) {
                    Some(key) => found.push((key, value..name.start.saturating_sub(1).max(value))),
                    None if name.start > begin => return Err(format!("there is no key at byte {begin}")),
                    None => {}
                }
                value = at;
            }
            _ => at += 1,
        }
    }
    match key {
        Some(key) => found.push((key, value..end.max(value))),
        None if begin < end => return Err(format!("there is no `=` after byte {begin}")),
        None => {}
    }
    Ok(())
}

fn is_key(text: &str) -> bool {
    let is_valid =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'[' | b']');
    !text.is_empty() && text.bytes().all(is_valid)
}

/// Returns a value without its escapes.
fn decoded(text: &str, range: Range<usize>, decoded: &mut String) -> Value {
    let piece = text.get(range.clone()).unwrap_or_default();
    if !piece.contains('\\') {
        return Value::Raw(range);
    }
    let begin = decoded.len();
    let mut characters = piece.chars();
    while let Some(character) = characters.next() {
        match (character, characters.clone().next()) {
            ('\\', Some(escaped @ ('\\' | '|' | '='))) => decoded.push(escaped),
            ('\\', Some('n')) => decoded.push('\n'),
            ('\\', Some('r')) => decoded.push('\r'),
            (plain, _) => {
                decoded.push(plain);
                continue;
            }
        }
        characters.next();
    }
    Value::Decoded(begin..decoded.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;
    use thalweg_engine::testing;

    use crate::testing::no_line_is_lost;

    fn parsed(yaml: &str, lines: &[&str]) -> testing::Given {
        testing::apply::<ParseCef>(yaml, [testing::batch(lines)])
    }

    #[test]
    fn it_conforms() {
        testing::transform_conforms::<ParseCef>(
            "{}",
            &["CEF:0|a|b|c|d|e|f|g=h", "", "CEF:", "x", "CEF:0|||||||x"],
        );
    }

    #[test]
    fn header_and_extension_become_fields() {
        let given = parsed(
            "types: { spt: int }",
            &[
                r"Sep 19 08:26:10 host CEF:0|Security|threatmanager|1.0|100|worm successfully stopped|10|src=10.0.0.1 dst=2.1.2.2 spt=1232",
                r"CEF:0|security|threat\|manager|1.0|100|detected a \| in \\message|10|src=10.0.0.1 act=blocked a | dst=1.1.1.1 msg=a\=b\nc\\d request=http://x/?a=b&c=d  ",
                "CEF:1|a|b|c|d|e|f|",
                "CEF:1|a|b|c|d|e|f",
                "CEF:1|a|b|c|d|e|f|x= y=1 = 2 z=",
            ],
        );
        let header = json!({"cefVersion": "1", "deviceVendor": "a", "deviceProduct": "b", "deviceVersion": "c",
            "deviceEventClassId": "d", "name": "e", "severity": "f"});
        let mut odd = header.clone();
        (odd["x"], odd["y"], odd["z"]) = (json!(""), json!("1 = 2"), json!(""));
        assert_eq!(
            given.main(),
            [
                json!({"cefVersion": "0", "deviceVendor": "Security", "deviceProduct": "threatmanager",
                    "deviceVersion": "1.0", "deviceEventClassId": "100", "name": "worm successfully stopped",
                    "severity": "10", "src": "10.0.0.1", "dst": "2.1.2.2", "spt": 1232}),
                json!({"cefVersion": "0", "deviceVendor": "security", "deviceProduct": "threat|manager",
                    "deviceVersion": "1.0", "deviceEventClassId": "100", "name": "detected a | in \\message",
                    "severity": "10", "src": "10.0.0.1", "act": "blocked a |", "dst": "1.1.1.1", "msg": "a=b\nc\\d",
                    "request": "http://x/?a=b&c=d"}),
                header.clone(),
                header,
                odd,
            ]
        );
    }

    #[test]
    fn custom_values_are_named_by_their_labels() {
        let line = "CEF:0|a|b|c|d|e|f|cs1Label=Reason cs1=timed out cn1=5 cn2Label=Left act=x";
        let row = parsed("translate_custom_fields: true", &[line]).main()[0].clone();
        assert_eq!(
            (&row["Reason"], &row["cn1"], &row["cn2Label"], &row["act"]),
            (&json!("timed out"), &json!("5"), &json!("Left"), &json!("x"))
        );
        assert_eq!((row.get("cs1"), row.get("cs1Label")), (None, None));
        let row = parsed("{}", &[line]).main()[0].clone();
        assert_eq!((&row["cs1Label"], &row["cs1"]), (&json!("Reason"), &json!("timed out")));
    }

    #[test]
    fn what_is_not_of_this_form_says_where() {
        let given = parsed(
            "max_fields: 8",
            &[
                "x",
                "xCEF:0",
                "CEF:0|a|b",
                "CEF:0|||||||x",
                "CEF:0||||||| ä=1",
                "CEF:0|||||||x a=1",
                "CEF:0|||||||a=1 b=2",
            ],
        );
        assert_eq!(
            given.reasons(),
            [
                "`CEF:` is missing",
                "`CEF:` is missing",
                "the header ends at byte 9, before `|` and the next of its 7 values",
                "there is no `=` after byte 12",
                "there is no key before the `=` at byte 15",
                "there is no key at byte 12",
                "the key `b` is one more than `max_fields` allows, 8",
            ]
        );
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(
            name in "[ -~é]{0,20}", record in prop::collection::btree_map("[a-e]{1,2}", "([!-~é\n]([ -~é\n]{0,20}[!-~é\n])?)?", 0..5),
        ) {
            let escaped = |text: &str, special: char| {
                text.replace('\\', r"\\").replace(special, &format!("\\{special}")).replace('\n', r"\n")
            };
            let pairs: Vec<String> =
                record.iter().map(|(key, value)| format!("{key}={}", escaped(value, '='))).collect();
            let line = format!("CEF:0|v|p|1|c|{}|s|{}", escaped(&name, '|'), pairs.join(" "));
            let mut expected = json!(record);
            for (field, value) in HEADER.into_iter().zip(["0", "v", "p", "1", "c", &name, "s"]) {
                expected[field] = json!(value);
            }
            prop_assert_eq!(parsed("{}", &[&line]).main(), [expected]);
        }

        #[test]
        fn every_line_leaves(lines in prop::collection::vec("(CEF:0\\|\\|\\|\\|\\|\\|\\|)?[ab=|\\\\ Label]{0,16}", 1..20)) {
            no_line_is_lost::<ParseCef>("translate_custom_fields: true", &lines)?;
        }
    }
}
