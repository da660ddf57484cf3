//! Parses the Log Event Extended Format (LEEF) of QRadar.
//!
//! `LEEF:1.0|vendor|product|version|event|key=value<tab>key=value`. Version 2.0 has one more value in its
//! header, the delimiter of the attributes. LEEF has no escapes: a value ends at the next delimiter.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_codec::columns::{FieldType, Typing};
use thalweg_engine::{Component, Context, Error, KnownFields, Transform, TransformConfig};

use crate::numbered::Names;
use crate::pairs::{PairParser, Pairs, Syntax, Value};

/// Parses the Log Event Extended Format (LEEF), versions 1.0 and 2.0.
///
/// The values of the header are the fields `leefVersion`, `vendor`, `product`, `productVersion` and
/// `eventId`. Each attribute is a field of its name. An attribute with the name of a field of the header is
/// numbered, as in `vendor_2`; an attribute that is called so keeps its name. Version 2.0 names the delimiter
/// of the attributes, as a character or as in `x5E`; it is a tab otherwise. Text before `LEEF:`, such as the
/// header of syslog, is ignored. Fields are text unless `types` gives another type. A malformed message
/// leaves by the `errors` output. The format is described at
/// <https://www.ibm.com/docs/en/dsm?topic=leef-overview>.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ParseLeef {
    /// The types of fields that are not text: `{srcPort: int}`. A message with a value that does not fit its
    /// type leaves by the `errors` output.
    types: BTreeMap<String, FieldType>,
    /// The maximum number of different fields. A message with a further field leaves by the `errors` output.
    /// The default is 1024.
    #[schemars(range(min = 1))]
    max_fields: usize,
    /// The field to parse. The default is the payload.
    field: String,
}

impl Default for ParseLeef {
    fn default() -> Self {
        Self { types: BTreeMap::new(), max_fields: 1024, field: crate::payload() }
    }
}

/// The fields of the header, in their order.
const HEADER: [&str; 5] = ["leefVersion", "vendor", "product", "productVersion", "eventId"];

/// The beginning of a message.
const MARK: &str = "LEEF:";

impl Component for ParseLeef {
    const NAME: &'static str = "parse_leef";
    const EXAMPLE: &'static str = r#"
sources:
  device:
    generate:
      message: 'LEEF:2.0|Lancope|StealthWatch|1.0|41|^|src=10.0.1.8^dst=10.0.0.5^sev=5'
      count: 3
pipelines:
  main:
    from: device
    transforms:
      - parse_leef: { types: { sev: int } }
    to: screen
sinks:
  screen: { stdout: { encode: json } }
"#;
}

impl TransformConfig for ParseLeef {
    fn fields(&self) -> Vec<String> {
        vec![self.field.clone()]
    }

    fn fields_after(&self, before: KnownFields) -> KnownFields {
        before.with_others()
    }

    fn build(&self, _: &Context) -> Result<Box<dyn Transform>, Error> {
        let typing = Typing::new(&self.types, None);
        Ok(Box::new(PairParser::new(Leef::default(), typing, self.max_fields, &self.field)))
    }
}

/// A key of an attribute and its value, as ranges of the message.
type Pair = (Range<usize>, Range<usize>);

#[derive(Default)]
struct Leef {
    /// The attributes of one message.
    attributes: Vec<Pair>,
}

impl Syntax for Leef {
    fn read(&mut self, text: &str, pairs: &mut Pairs) -> Result<(), String> {
        let mut at = text.find(MARK).ok_or("`LEEF:` is missing")? + MARK.len();
        let mut version = "";
        for name in HEADER {
            let end = bar(text, at).ok_or_else(|| {
                format!("the header ends after byte {at}, and no `|` follows the field `{name}`")
            })?;
            if version.is_empty() {
                version = text.get(at..end).unwrap_or_default();
            }
            pairs.set(name, Value::Raw(at..end))?;
            at = end + 1;
        }
        let mut delimiter = '\t';
        // Some devices leave out the delimiter of version 2.0, with its bar.
        if version.starts_with('2')
            && let Some(end) = bar(text, at)
            && let Some(given) = named(text.get(at..end).unwrap_or_default())
        {
            (delimiter, at) = (given, end + 1);
        }
        self.attributes.clear();
        attributes(text, at, delimiter, &mut self.attributes)?;
        let names = names(text, &self.attributes);
        for (key, value) in &self.attributes {
            let key = text.get(key.clone()).unwrap_or_default();
            pairs.set(names.get(key).map_or(key, String::as_str), Value::Raw(value.clone()))?;
        }
        Ok(())
    }
}

/// Finds the attributes, which begin at byte `at`.
fn attributes(text: &str, mut at: usize, delimiter: char, found: &mut Vec<Pair>) -> Result<(), String> {
    let rest = text.get(at..).unwrap_or_default();
    for attribute in rest.split(delimiter) {
        let start = at;
        at += attribute.len() + delimiter.len_utf8();
        let attribute = attribute.trim_ascii_end();
        let leading = attribute.len() - attribute.trim_ascii_start().len();
        let (start, attribute) = (start + leading, attribute.trim_ascii_start());
        if attribute.is_empty() {
            continue;
        }
        let (key, value) =
            attribute.split_once('=').ok_or_else(|| format!("there is no `=` after byte {start}"))?;
        if key.is_empty() {
            return Err(format!("there is no key before the `=` at byte {start}"));
        }
        let end = start + attribute.len();
        found.push((start..start + key.len(), end - value.len()..end));
    }
    Ok(())
}

/// Returns the names of the fields of the attributes that do not keep theirs: those of the header are
/// numbered. An attribute cannot replace a value of the header.
fn names<'a>(text: &'a str, attributes: &[Pair]) -> HashMap<&'a str, String> {
    let keys = || attributes.iter().map(|(key, _)| text.get(key.clone()).unwrap_or_default());
    let of_header = || keys().filter(|key| HEADER.contains(key));
    let mut numbered = HashMap::new();
    if of_header().next().is_none() {
        return numbered;
    }
    let mut names = Names::default();
    HEADER.into_iter().chain(keys()).for_each(|name| names.take(name));
    for key in of_header() {
        numbered.entry(key).or_insert_with(|| names.give(key));
    }
    numbered
}

/// Returns the offset of the next bar.
fn bar(text: &str, at: usize) -> Option<usize> {
    Some(at + text.get(at..)?.find('|')?)
}

/// Returns the delimiter that a header names: a character, or its code in hexadecimal digits. An empty one is
/// a tab.
fn named(text: &str) -> Option<char> {
    let mut characters = text.chars();
    match (characters.next(), characters.next()) {
        (None, _) => Some('\t'),
        (Some(one), None) => Some(one),
        _ => {
            let digits = text.strip_prefix('0').unwrap_or(text).strip_prefix(['x', 'X'])?;
            char::from_u32(u32::from_str_radix(digits, 16).ok()?)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;
    use thalweg_engine::testing;

    use crate::testing::no_line_is_lost;

    fn parsed(yaml: &str, lines: &[&str]) -> testing::Given {
        testing::apply::<ParseLeef>(yaml, [testing::batch(lines)])
    }

    #[test]
    fn it_conforms() {
        testing::transform_conforms::<ParseLeef>(
            "{}",
            &["LEEF:1.0|a|b|c|d|e=f", "", "LEEF:", "LEEF:2.0|a|b|c|d|^|e"],
        );
    }

    #[test]
    fn header_and_attributes_become_fields() {
        let given = parsed(
            "types: { sev: int }",
            &[
                "Jan 18 11:07:53 192.168.1.1 LEEF:1.0|QRadar|QRM|1.0|NEW_PORT_DISCOVERD|src=172.5.6.67\tdst=172.50.123.1\tsev=5\tmsg=there are \"dropped\" packets a=b",
                "LEEF:2.0|Lancope|StealthWatch|1.0|41|^|src=10.0.1.8^sev=5",
                "LEEF:2.0|Lancope|StealthWatch|1.0|41|x7C|src=10.0.1.8|sev=5| a=",
                "LEEF:2.0|Lancope|StealthWatch|1.0|41|0X5E|src=10.0.1.8^sev=5",
                "LEEF:2.0|Lancope|StealthWatch|1.0|41||src=10.0.1.8\tsev=5",
                "LEEF:2.0|Lancope|StealthWatch|1.0|41|src=10.0.1.8\tsev=5\r",
            ],
        );
        let header = |sev: bool| {
            let mut row = json!({"leefVersion": "2.0", "vendor": "Lancope", "product": "StealthWatch",
                "productVersion": "1.0", "eventId": "41", "src": "10.0.1.8", "sev": 5});
            if sev {
                row["a"] = json!("");
            }
            row
        };
        assert_eq!(
            given.main(),
            [
                json!({"leefVersion": "1.0", "vendor": "QRadar", "product": "QRM", "productVersion": "1.0",
                    "eventId": "NEW_PORT_DISCOVERD", "src": "172.5.6.67", "dst": "172.50.123.1", "sev": 5,
                    "msg": "there are \"dropped\" packets a=b"}),
                header(false),
                header(true),
                header(false),
                header(false),
                header(false),
            ]
        );
    }

    /// The value of the header was lost.
    #[test]
    fn an_attribute_does_not_replace_a_field_of_the_header() {
        let line = "LEEF:2.0|v|p|1|4|^|vendor=evil^vendor_2=x^eventId=0^vendor=last";
        assert_eq!(
            parsed("{}", &[line, "LEEF:1.0|w|p|1|5|a=b"]).main(),
            [
                json!({"leefVersion": "2.0", "vendor": "v", "product": "p", "productVersion": "1", "eventId": "4",
                    "vendor_3": "last", "vendor_2": "x", "eventId_2": "0"}),
                json!({"leefVersion": "1.0", "vendor": "w", "product": "p", "productVersion": "1", "eventId": "5",
                    "a": "b"}),
            ]
        );
    }

    #[test]
    fn what_is_not_of_this_form_says_where() {
        let given = parsed("{}", &["x", "LEEF:1.0|a|b", "LEEF:1.0|a|b|c|d|e", "LEEF:1.0|a|b|c|d|e=f\t=g"]);
        assert_eq!(
            given.reasons(),
            [
                "`LEEF:` is missing",
                "the header ends after byte 11, and no `|` follows the field `product`",
                "there is no `=` after byte 17",
                "there is no key before the `=` at byte 21",
            ]
        );
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(
            record in prop::collection::btree_map("[a-e]{1,2}", "([!-]_-~é|=]([ -]_-~é]{0,20}[!-]_-~é])?)?", 0..5),
            delimiter in prop::sample::select(vec![("", '\t'), ("^", '^'), ("0x5e", '^'), ("x09", '\t')]),
        ) {
            let pairs: Vec<String> = record.iter().map(|(key, value)| format!("{key}={value}")).collect();
            let line = format!("LEEF:2.0|v|p|1|e|{}|{}", delimiter.0, pairs.join(&delimiter.1.to_string()));
            let mut expected = json!(record);
            for (field, value) in HEADER.into_iter().zip(["2.0", "v", "p", "1", "e"]) {
                expected[field] = json!(value);
            }
            prop_assert_eq!(parsed("{}", &[&line]).main(), [expected]);
        }

        #[test]
        fn every_line_leaves(lines in prop::collection::vec("(LEEF:2.0\\|\\|\\|\\|\\|)?[ab=|^x09\t]{0,16}", 1..20)) {
            no_line_is_lost::<ParseLeef>("{}", &lines)?;
        }
    }
}
