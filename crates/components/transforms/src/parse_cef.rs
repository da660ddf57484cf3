//! Parses the Common Event Format (CEF) of ArcSight.
//!
//! `CEF:0|vendor|product|version|class|name|severity|key=value key=value`. Values of the extension are not
//! quoted and may have spaces. So a value ends before the last space that precedes the next `=` that no
//! backslash escapes. If there is no such space, that `=` is a part of the value: many devices do not escape
//! those of URLs.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

use memchr::{memchr2, memchr3};
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_codec::columns::{FieldType, Typing};
use thalweg_engine::{Component, Context, Error, KnownFields, Transform, TransformConfig};

use crate::numbered::Names;
use crate::pairs::{PairParser, Pairs, Syntax, Value};

/// Parses the Common Event Format (CEF).
///
/// The values of the header are the fields `cefVersion`, `deviceVendor`, `deviceProduct`, `deviceVersion`,
/// `deviceEventClassId`, `name` and `severity`. Each key of the extension is a field of its name. A key with
/// the name of a field of the header is numbered, as in `name_2`; a key that is called so keeps its name.
/// Escapes are decoded. Text before `CEF:`, such as the header of syslog, is ignored. Fields are text unless
/// `types` gives another type. A malformed message leaves by the `errors` output. The format is described at
/// <https://www.microfocus.com/documentation/arcsight/arcsight-smartconnectors-8.4/pdfdoc/cef-implementation-standard/cef-implementation-standard.pdf>.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ParseCef {
    /// True if a custom value is named by its label: `cs1Label=Reason cs1=timeout` is the field `Reason`. A
    /// label that is the name of another field is numbered, as in `Reason_2`. A label without a value stays
    /// as it is. The default is `false`.
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
        let syntax = Cef { translates: self.translate_custom_fields, extension: Vec::new() };
        let typing = Typing::new(&self.types, None);
        Ok(Box::new(PairParser::new(syntax, typing, self.max_fields, &self.field)))
    }
}

/// A key of an extension and its value, as ranges of the message.
type Pair = (Range<usize>, Range<usize>);

struct Cef {
    translates: bool,
    /// The extension of one message.
    extension: Vec<Pair>,
}

impl Syntax for Cef {
    fn read(&mut self, text: &str, pairs: &mut Pairs) -> Result<(), String> {
        let at = header(text, pairs)?;
        self.extension.clear();
        extension(text, at, &mut self.extension)?;
        let piece = |range: &Range<usize>| text.get(range.clone()).unwrap_or_default();
        let renames = self.translates || self.extension.iter().any(|(key, _)| is_of_header(piece(key)));
        let names = if renames { names(text, &self.extension, self.translates) } else { HashMap::new() };
        for (key, value) in &self.extension {
            let key = piece(key);
            let name = match names.get(key) {
                Some(Some(name)) => name.as_str(),
                Some(None) => continue,
                None => key,
            };
            let value = decoded(text, value.clone(), &mut pairs.decoded);
            pairs.set(name, value)?;
        }
        Ok(())
    }
}

/// Reads the header. Returns the offset of the extension.
fn header(text: &str, pairs: &mut Pairs) -> Result<usize, String> {
    let mut at = start(text).ok_or("`CEF:` is missing")?;
    for (number, name) in HEADER.into_iter().enumerate() {
        let end = end_of_header(text, at);
        let value = decoded(text, at..end, &mut pairs.decoded);
        pairs.set(name, value)?;
        // The bar after the severity may be missing if there is no extension.
        if end >= text.len() && number + 1 < HEADER.len() {
            return Err(format!("the header ends at byte {end}, before `|` and the next of its 7 values"));
        }
        at = end + 1;
    }
    Ok(at)
}

/// Returns the key that a label names, if the key is a label.
fn labeled(key: &str) -> Option<&str> {
    key.strip_suffix(LABEL)
}

/// True if a key has the name of a field of the header. A device cannot replace that value.
fn is_of_header(key: &str) -> bool {
    HEADER.contains(&key)
}

/// Returns the names of the fields of the keys that do not keep theirs: those of the header are numbered, and
/// `translates` names others by their labels. A label that names a value is no field itself: `None`.
fn names<'a>(text: &'a str, extension: &[Pair], translates: bool) -> HashMap<&'a str, Option<String>> {
    let piece = |range: &Range<usize>| text.get(range.clone()).unwrap_or_default();
    let keys: HashSet<&str> = extension.iter().map(|(key, _)| piece(key)).collect();
    let (mut labels, mut named) = (HashMap::new(), HashMap::new());
    let pairs = extension.iter().filter(|_| translates);
    for (key, label) in pairs.map(|(key, value)| (piece(key), piece(value))) {
        if let Some(base) = labeled(key).filter(|base| keys.contains(base) && !label.is_empty()) {
            labels.insert(base, label);
            named.insert(key, None);
        }
    }
    let mut names = Names::default();
    HEADER.into_iter().for_each(|name| names.take(name));
    let keeps = |key: &str| !is_of_header(key) && !labels.contains_key(key) && !named.contains_key(key);
    keys.iter().filter(|key| keeps(key)).for_each(|key| names.take(key));
    for name in HEADER.into_iter().filter(|name| keys.contains(name) && !labels.contains_key(name)) {
        named.insert(name, Some(names.give(name)));
    }
    for (key, _) in extension {
        let key = piece(key);
        if let Some(label) = labels.remove(key) {
            named.insert(key, Some(names.give(label)));
        }
    }
    named
}

/// Returns the offset after the mark, which begins the message or follows what may end a header of syslog.
fn start(text: &str) -> Option<usize> {
    let begins = |at: usize| {
        let before = text.get(..at).and_then(|before| before.chars().next_back());
        matches!(before, None | Some(' ' | '\t' | '>' | ':' | '\u{feff}'))
    };
    let (at, _) = text.match_indices(MARK).find(|(at, _)| begins(*at))?;
    let rest = text.get(at + MARK.len()..)?;
    // Some devices write `CEF: 0|`.
    Some(text.len() - rest.trim_start_matches(' ').len())
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
fn extension(text: &str, start: usize, found: &mut Vec<Pair>) -> Result<(), String> {
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
            // A blank cannot be escaped: the backslash before it ends a Windows path.
            _ if bytes.get(at) == Some(&b' ') => {}
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
    fn fields_of_one_name_all_stay() {
        let line = "CEF:0|a|b|c|d|e|f|name=x severity=9 src=1 cs1Label=name cs1=y cs2Label=X cs2=1 cs3Label=X cs3=2 \
                    cs4Label=src cs4=3";
        let row = parsed("translate_custom_fields: true", &[line]).main()[0].clone();
        for (name, value) in [
            ("name", "e"),
            ("name_2", "x"),
            ("name_3", "y"),
            ("severity", "f"),
            ("severity_2", "9"),
            ("X", "1"),
            ("X_2", "2"),
            ("src", "1"),
            ("src_2", "3"),
        ] {
            assert_eq!(row[name], value, "{name}");
        }
        let row = parsed("{}", &[line]).main()[0].clone();
        assert_eq!((&row["name"], &row["name_2"], &row["cs2"]), (&json!("e"), &json!("x"), &json!("1")));
    }

    #[test]
    fn a_key_that_looks_numbered_keeps_its_name() {
        for line in ["name=x name_2=y", "name_2=y name=x"]
            .map(|pairs| format!("CEF:0|a|b|c|d|e|f|{pairs} nameLabel="))
        {
            for yaml in ["{}", "translate_custom_fields: true"] {
                let row = parsed(yaml, &[&line]).main()[0].clone();
                let found = ["name", "name_2", "name_3", "nameLabel"].map(|name| row[name].clone());
                assert_eq!(found, ["e", "y", "x", ""], "{line}");
            }
        }
    }

    #[test]
    fn headers_of_syslog_end_in_several_ways() {
        for line in [
            "<134>CEF:0|a|b|c|d|e|f|x=1",
            "Jan 1 00:00:00 host\tCEF:0|a|b|c|d|e|f|x=1",
            "Jan 1 00:00:00 host prog:CEF:0|a|b|c|d|e|f|x=1",
            "Dec 27 14:28:08 host CEF: 0|a|b|c|d|e|f|x=1",
            "<134>1 - - - - - - \u{feff}CEF:0|a|b|c|d|e|f|x=1",
        ] {
            let row = parsed("{}", &[line]).main()[0].clone();
            assert_eq!((&row["cefVersion"], &row["x"]), (&json!("0"), &json!("1")), "{line}");
        }
    }

    #[test]
    fn a_path_may_end_with_a_backslash() {
        for path in [r"C:\System32\", r"C:\\System32\\"] {
            let row = parsed("{}", &[&format!("CEF:0|a|b|c|d|e|f|filePath={path} fname=cmd.exe")]).main()[0]
                .clone();
            assert_eq!((&row["filePath"], &row["fname"]), (&json!(r"C:\System32\"), &json!("cmd.exe")));
        }
    }

    /// Each pair was compared with all others, which took minutes.
    #[test]
    fn many_pairs_are_read_in_linear_time() {
        let line = format!("CEF:0|a|b|c|d|e|f|{}", "a= ".repeat(300_000));
        for yaml in ["{}", "translate_custom_fields: true"] {
            assert_eq!(parsed(yaml, &[&line]).main()[0]["a"], "");
        }
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
