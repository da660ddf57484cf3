//! Parses GELF, the JSON messages of Graylog.
//!
//! Chunks and compression belong to datagrams: the source `socket` undoes them with `framing: { by: gelf }`.

use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_codec::columns::{FieldType, shortened};
use thalweg_codec::json::write_text;
use thalweg_codec::json_columns::{Element, Wanted, members};
use thalweg_engine::Component;

use crate::objects::{ObjectOptions, ObjectSyntax, object_transform};

/// Parses messages in Graylog's Extended Log Format (GELF) 1.1.
///
/// The fields are `version`, `host`, `short_message`, `full_message`, `timestamp` (from seconds since 1970,
/// with decimals), `level` (a number, as in syslog), the older `facility`, `line` and `file`, and the
/// additional fields of the message. `_user_id` becomes `user_id` (see `keep_underscores`). As the format
/// says, `_id` is left out. Fields that a message does not have are NULL: no time and no level are made up.
///
/// A message leaves by the `errors` output if it is not a JSON object, lacks `version`, `host` or
/// `short_message`, has another version than 1.1, or a field of another type than the format says: additional
/// fields are texts or numbers. `strict: false` accepts such messages. The source `socket` receives GELF over
/// UDP and TCP with `framing: { by: gelf }`. The format is described at
/// <https://go2docs.graylog.org/current/getting_in_log_data/gelf.html>.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ParseGelf {
    /// False to accept objects that break the rules of the format, if values fit the types of the fields. The
    /// default is `true`.
    strict: bool,
    /// True to keep the underscore before the names of additional fields. The default is `false`: then only a
    /// field keeps it whose name would be that of another field of the format, such as `_host`.
    keep_underscores: bool,
    #[serde(flatten)]
    options: ObjectOptions,
}

impl Default for ParseGelf {
    fn default() -> Self {
        Self { strict: true, keep_underscores: false, options: ObjectOptions::default() }
    }
}

/// The fields of the format with their types. The first are required.
const FIELDS: [(&str, FieldType); 9] = [
    ("version", FieldType::Text),
    ("host", FieldType::Text),
    ("short_message", FieldType::Text),
    ("full_message", FieldType::Text),
    ("timestamp", FieldType::Timestamp),
    ("level", FieldType::Int),
    ("facility", FieldType::Text),
    ("line", FieldType::Int),
    ("file", FieldType::Text),
];

/// The number of fields that every message has.
const REQUIRED: usize = 3;

/// The name that additional fields must not have.
const RESERVED: &str = "_id";

impl Component for ParseGelf {
    const NAME: &'static str = "parse_gelf";
    const EXAMPLE: &'static str = r#"
sources:
  service:
    generate:
      message: '{"version": "1.1", "host": "example.org", "short_message": "A short message", "level": 5, "_user_id": %4d}'
      count: 3
pipelines:
  main:
    from: service
    transforms:
      - parse_gelf: {}
    to: screen
sinks:
  screen: { stdout: { encode: json } }
"#;
}

impl ParseGelf {
    fn syntax(&self) -> (Gelf, Wanted) {
        let syntax = Gelf { strict: self.strict, keeps: self.keep_underscores, decoded: String::new() };
        (syntax, self.options.wanted(FIELDS))
    }
}

object_transform!(ParseGelf);

struct Gelf {
    strict: bool,
    keeps: bool,
    /// The name of the current field, decoded.
    decoded: String,
}

impl ObjectSyntax for Gelf {
    const UNITS: &'static [(&'static str, i64)] = &[("timestamp", 1)];

    fn write(&mut self, message: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
        let text = simdutf8::basic::from_utf8(message).map_err(|_| thalweg_codec::not_utf8(message))?;
        let mut found = [false; FIELDS.len()];
        let mut wrong = None;
        let mut before = b'{';
        members(text, |name, value| {
            let value = text.get(value.range()).unwrap_or_default();
            let name = plain(text, name, &mut self.decoded);
            let known = FIELDS.iter().position(|(field, _)| *field == name);
            if let Some(found) = known.and_then(|known| found.get_mut(known)) {
                *found = true;
            }
            if self.strict && wrong.is_none() {
                wrong = fault(known, name, value);
            }
            if name == RESERVED {
                return;
            }
            out.push(before);
            before = b',';
            write_text(field_of(name, self.keeps), out);
            out.push(b':');
            out.extend_from_slice(value.as_bytes());
        })?;
        if before == b'{' {
            out.push(b'{');
        }
        out.push(b'}');
        let missing = || found.iter().take(REQUIRED).position(|is_found| !is_found);
        match wrong {
            Some(reason) => Err(format!("is not GELF: {reason}")),
            None if self.strict
                && let Some(missing) = missing() =>
            {
                let (name, _) = FIELDS.get(missing).copied().unwrap_or_default();
                Err(format!("is not GELF: `{name}` is missing"))
            }
            None => Ok(()),
        }
    }
}

/// Returns the name of the field for a member of a message. Additional fields with different names have
/// different fields: since `_host` keeps its underscore, so does `__host`.
fn field_of(name: &str, keeps_underscore: bool) -> &str {
    let bare = name.trim_start_matches('_');
    let is_taken = bare.is_empty() || FIELDS.iter().any(|(field, _)| *field == bare);
    name.strip_prefix('_').filter(|_| !is_taken && !keeps_underscore).unwrap_or(name)
}

/// Returns the name of a member.
fn plain<'a>(text: &'a str, name: Element, decoded: &'a mut String) -> &'a str {
    match name.plain() {
        Some(range) => text.get(range).unwrap_or_default(),
        None => name.decode(text.as_bytes(), decoded),
    }
}

/// Returns what is wrong with a member of a message. `known` is its number among the fields of the format.
fn fault(known: Option<usize>, name: &str, value: &str) -> Option<String> {
    let is_text = value.starts_with('"');
    let is_number = value.starts_with(|first: char| first == '-' || first.is_ascii_digit());
    let expected = match known.and_then(|known| FIELDS.get(known)) {
        Some(("version", _)) if value != "\"1.1\"" => "the text `1.1`",
        Some((_, FieldType::Text)) if !is_text => "a text",
        Some((_, FieldType::Timestamp | FieldType::Int)) if !is_number => "a number",
        Some(_) => return None,
        None if !is_additional(name) => {
            return Some(format!(
                "`{}` is not a field of the format, and no additional field: these begin with an underscore, and \
                 have letters, digits, `_`, `.` and `-` only",
                shortened(name)
            ));
        }
        None if !is_text && !is_number => "a text or a number",
        None => return None,
    };
    Some(format!("`{}` is {}, not {expected}", shortened(name), shortened(value)))
}

fn is_additional(name: &str) -> bool {
    let is_valid = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '-');
    name.strip_prefix('_').is_some_and(|rest| rest.chars().all(is_valid))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Map, Value, json};
    use thalweg_engine::testing;

    use crate::testing::{no_line_is_lost, written};

    fn parsed(yaml: &str, lines: &[&str]) -> testing::Given {
        testing::apply::<ParseGelf>(yaml, [testing::batch(lines)])
    }

    /// The example of the specification.
    const EXAMPLE: &str = r#"{
  "version": "1.1",
  "host": "example.org",
  "short_message": "A short message that helps you identify what is going on",
  "full_message": "Backtrace here\n\nmore stuff",
  "timestamp": 1385053862.3072,
  "level": 1,
  "_user_id": 9001,
  "_some_info": "foo",
  "_some_env_var": "bar"
}"#;

    #[test]
    fn it_conforms() {
        testing::transform_conforms::<ParseGelf>(
            "strict: false",
            &["{\"host\": \"a\"}", "{}", "", "[1]", "{\"_a\": 1}"],
        );
    }

    #[test]
    fn the_fields_of_the_format_have_types_and_others_lose_their_underscore() {
        let row = json!({"version": "1.1", "host": "example.org",
            "short_message": "A short message that helps you identify what is going on",
            "full_message": "Backtrace here\n\nmore stuff", "timestamp": "2013-11-21T17:11:02.307200Z", "level": 1,
            "user_id": 9001, "some_info": "foo", "some_env_var": "bar"});
        assert_eq!(written(parsed("{}", &[EXAMPLE])), std::slice::from_ref(&row));
        let mut kept = row;
        for name in ["user_id", "some_info", "some_env_var"] {
            let value = kept.as_object_mut().unwrap().remove(name).unwrap();
            kept[format!("_{name}")] = value;
        }
        assert_eq!(written(parsed("keep_underscores: true", &[EXAMPLE])), [kept]);
        let line = r#"{"version":"1.1","host":"a","short_message":"b","_host":"c","__host":"d","_id":"e","_":1,"__":4,"_\u0061":2,"__x":3}"#;
        assert_eq!(
            written(parsed("types: { a: text }", &[line])),
            [
                json!({"version": "1.1", "host": "a", "short_message": "b", "_host": "c", "__host": "d", "_": 1,
                    "__": 4, "a": "2", "_x": 3})
            ]
        );
    }

    #[test]
    fn a_time_is_in_seconds_whatever_its_size_is() {
        let time = |number: &str| {
            let line = format!(r#"{{"version":"1.1","host":"a","short_message":"b","timestamp":{number}}}"#);
            written(parsed("{}", &[&line])).remove(0)["timestamp"].clone()
        };
        assert_eq!(time("0.5"), json!("1970-01-01T00:00:00.500Z"));
        assert_eq!(time("1.385053862e9"), json!("2013-11-21T17:11:02Z"));
        // Milliseconds would be in the year 2001.
        assert_eq!(time("100000000000"), json!("5138-11-16T09:46:40Z"));
    }

    #[test]
    fn what_breaks_the_rules_of_the_format_says_which() {
        let with = |rest: &str| format!(r#"{{"version":"1.1","host":"a","short_message":"b"{rest}}}"#);
        let lines = [
            "x".to_owned(),
            r#"{"version":"1.1","host":"a"}"#.to_owned(),
            r#"{"host":"a","short_message":"b"}"#.to_owned(),
            r#"{"version":"1.0","host":"a","short_message":"b"}"#.to_owned(),
            r#"{"version":"1.1","host":null,"short_message":"b"}"#.to_owned(),
            with(r#","timestamp":"1385053862""#),
            with(r#","level":true"#),
            with(r#","_a":[1]"#),
            with(r#","b":1"#),
            with(r#","_b c":1"#),
        ];
        let given = parsed("{}", &lines.each_ref().map(String::as_str));
        assert_eq!(
            given.reasons(),
            [
                "is not a JSON object: expected `{` at byte 0",
                "is not GELF: `short_message` is missing",
                "is not GELF: `version` is missing",
                "is not GELF: `version` is \"1.0\", not the text `1.1`",
                "is not GELF: `host` is null, not a text",
                "is not GELF: `timestamp` is \"1385053862\", not a number",
                "is not GELF: `level` is true, not a number",
                "is not GELF: `_a` is [1], not a text or a number",
                "is not GELF: `b` is not a field of the format, and no additional field: these begin with an \
                 underscore, and have letters, digits, `_`, `.` and `-` only",
                "is not GELF: `_b c` is not a field of the format, and no additional field: these begin with an \
                 underscore, and have letters, digits, `_`, `.` and `-` only",
            ]
        );
        let lax = parsed("strict: false", &lines.each_ref().map(String::as_str));
        assert_eq!(
            lax.reasons(),
            [
                "is not a JSON object: expected `{` at byte 0",
                "`level` at byte 56 is not a whole number of 64 bits"
            ]
        );
        assert_eq!(written(lax)[4]["timestamp"], json!("2013-11-21T17:11:02Z"));
    }

    proptest! {
        #[test]
        fn a_message_is_its_object_with_other_names(
            additional in prop::collection::btree_map("[a-z]{1,3}x", prop_oneof![
                any::<i32>().prop_map(Value::from), "[a-zé\"\\\\ ]{0,8}".prop_map(Value::from),
            ], 0..5),
        ) {
            let mut message = json!({"version": "1.1", "host": "h", "short_message": "s"});
            let mut expected = message.clone();
            for (name, value) in additional {
                message[format!("_{name}")] = value.clone();
                expected[name] = value;
            }
            prop_assert_eq!(written(parsed("{}", &[&message.to_string()])), [expected]);
        }

        #[test]
        fn every_line_leaves(lines in prop::collection::vec(r#"(\{|\}|"_a"|"host"|:|,|1|"x"|\[|null| ){0,12}"#, 1..20)) {
            no_line_is_lost::<ParseGelf>("strict: false", &lines)?;
        }
    }

    #[test]
    fn a_name_that_is_written_twice_counts_the_last_time() {
        let rows = written(parsed("strict: false", &[r#"{"host":"a","host":"b","_x":1,"x":2}"#]));
        assert_eq!(
            rows,
            [Value::Object(Map::from_iter([("host".into(), "b".into()), ("x".into(), 2.into())]))]
        );
    }
}
