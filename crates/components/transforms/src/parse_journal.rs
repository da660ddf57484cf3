//! Parses entries of systemd's journal, in its export format.
//!
//! [`thalweg_codec::journal`] finds the fields. They are written as the journal's own JSON format has them.

use std::ops::Range;

use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_codec::columns::FieldType;
use thalweg_codec::journal;
use thalweg_codec::json::write_text;
use thalweg_codec::json_columns::Wanted;
use thalweg_engine::Component;

use crate::objects::{ObjectOptions, ObjectSyntax, object_transform};

/// Parses entries of systemd's journal in its export format, as the source `journald` gives them.
///
/// Each field of an entry becomes a field of its name: `MESSAGE`, `_SYSTEMD_UNIT`, `SYSLOG_IDENTIFIER`.
/// Fields are text, except that `PRIORITY`, `_PID`, `_UID`, `_GID` and `__MONOTONIC_TIMESTAMP` are numbers,
/// and `__REALTIME_TIMESTAMP` and `_SOURCE_REALTIME_TIMESTAMP` are times, from microseconds since 1970. As in
/// the JSON format of the journal, a field that occurs several times is a list, and a value that is not UTF-8
/// is a list of the numbers of its bytes. An entry of another form leaves by the `errors` output.
///
/// `journalctl --output=export` writes the format, and systemd's `journal-upload` sends it over HTTP:
/// `framing: { by: journal }` of the sources `http` and `socket` finds the entries. It is described at
/// <https://systemd.io/JOURNAL_EXPORT_FORMATS/>, and the fields at
/// <https://www.freedesktop.org/software/systemd/man/latest/systemd.journal-fields.html>.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ParseJournal {
    #[serde(flatten)]
    options: ObjectOptions,
}

/// The fields that are not text.
const TYPES: [(&str, FieldType); 7] = [
    ("PRIORITY", FieldType::Int),
    ("_PID", FieldType::Int),
    ("_UID", FieldType::Int),
    ("_GID", FieldType::Int),
    ("__MONOTONIC_TIMESTAMP", FieldType::Int),
    ("__REALTIME_TIMESTAMP", FieldType::Timestamp),
    ("_SOURCE_REALTIME_TIMESTAMP", FieldType::Timestamp),
];

impl Component for ParseJournal {
    const NAME: &'static str = "parse_journal";
    const EXAMPLE: &'static str = r#"
sources:
  exported:
    generate:
      message: "__REALTIME_TIMESTAMP=1342540861416409\nPRIORITY=6\n_SYSTEMD_UNIT=cron.service\nMESSAGE=run %4d\n"
      count: 3
pipelines:
  main:
    from: exported
    transforms:
      - parse_journal: {}
      - filter: PRIORITY <= 6
    to: screen
sinks:
  screen: { stdout: { encode: json } }
"#;
}

impl ParseJournal {
    fn syntax(&self) -> (Entry, Wanted) {
        (Entry::default(), self.options.wanted(TYPES))
    }
}

object_transform!(ParseJournal);

/// The fields of an entry, in memory that is reused.
#[derive(Default)]
struct Entry {
    /// The range of the name and of the value of each field in the entry.
    fields: Vec<(Range<usize>, Range<usize>)>,
}

/// The number of fields for which memory is kept between entries.
const USUAL: usize = 1024;

impl ObjectSyntax for Entry {
    const UNITS: &'static [(&'static str, i64)] =
        &[("__REALTIME_TIMESTAMP", 1_000_000), ("_SOURCE_REALTIME_TIMESTAMP", 1_000_000)];

    fn write(&mut self, message: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
        // One large entry must not keep its memory.
        self.fields.clear();
        self.fields.shrink_to(USUAL);
        journal::fields(message, |name, value| self.fields.push((name, value)))
            .map_err(|reason| format!("is not an entry of the journal: {reason}"))?;
        if self.fields.is_empty() {
            return Err("is not an entry of the journal: it has no field".to_owned());
        }
        let bytes = |range: &Range<usize>| message.get(range.clone()).unwrap_or_default();
        // Fields of one name come together, in their order.
        self.fields.sort_by(|(one, _), (other, _)| bytes(one).cmp(bytes(other)));
        let mut before = b'{';
        for same in self.fields.chunk_by(|(one, _), (other, _)| bytes(one) == bytes(other)) {
            let Some((name, first)) = same.first() else { continue };
            out.push(before);
            before = b',';
            write_text(std::str::from_utf8(bytes(name)).unwrap_or_default(), out);
            out.push(b':');
            match same {
                [_] => write_value(bytes(first), out),
                _ => write_list(same.iter().map(|(_, value)| bytes(value)), out, write_value),
            }
        }
        out.push(b'}');
        Ok(())
    }
}

/// Writes a value as text, or as a list of the numbers of its bytes if it is not UTF-8.
fn write_value(value: &[u8], out: &mut Vec<u8>) {
    match simdutf8::basic::from_utf8(value) {
        Ok(text) => write_text(text, out),
        Err(_) => write_list(value.iter(), out, |byte, out| {
            out.extend_from_slice(itoa::Buffer::new().format(*byte).as_bytes());
        }),
    }
}

fn write_list<T>(values: impl Iterator<Item = T>, out: &mut Vec<u8>, write: impl Fn(T, &mut Vec<u8>)) {
    out.push(b'[');
    for (number, value) in values.enumerate() {
        if number > 0 {
            out.push(b',');
        }
        write(value, out);
    }
    out.push(b']');
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Map, Value, json};
    use thalweg_engine::testing;

    use crate::testing::{no_line_is_lost, written};

    fn parsed(yaml: &str, entries: &[&[u8]]) -> testing::Given {
        testing::apply::<ParseJournal>(yaml, [testing::batch(entries)])
    }

    #[test]
    fn it_conforms() {
        testing::transform_conforms::<ParseJournal>(
            "{}",
            &["A=1\nB=2\n", "", "x", "PRIORITY=x\n", "A=1\nA=2"],
        );
    }

    /// The second example of the specification, shortened.
    #[test]
    fn the_fields_of_an_entry_are_fields() {
        let entry = b"__CURSOR=s=bcce4fb8ffcb40e9a6e05eee8b7831bf;i=5ef603\n__REALTIME_TIMESTAMP=1423944916375353\n\
            __MONOTONIC_TIMESTAMP=58915087\n_BOOT_ID=ec25d6795f0645619ddac9afdef453ee\nPRIORITY=6\n_UID=1001\n\
            _PID=4668\nSYSLOG_IDENTIFIER=python3\n_TRANSPORT=journal\nMESSAGE\n\x07\0\0\0\0\0\0\0foo\nbar\nCODE_LINE=1\n";
        assert_eq!(
            written(parsed("types: { CODE_LINE: int }", &[entry])),
            [json!({"__CURSOR": "s=bcce4fb8ffcb40e9a6e05eee8b7831bf;i=5ef603",
                "__REALTIME_TIMESTAMP": "2015-02-14T20:15:16.375353Z", "__MONOTONIC_TIMESTAMP": 58_915_087,
                "_BOOT_ID": "ec25d6795f0645619ddac9afdef453ee", "PRIORITY": 6, "_UID": 1001, "_PID": 4668,
                "SYSLOG_IDENTIFIER": "python3", "_TRANSPORT": "journal", "MESSAGE": "foo\nbar", "CODE_LINE": 1})]
        );
    }

    #[test]
    fn times_are_in_microseconds_whatever_their_size_is() {
        let entry = b"__REALTIME_TIMESTAMP=1\n_SOURCE_REALTIME_TIMESTAMP=14000000000000\n";
        assert_eq!(
            written(parsed("{}", &[entry])),
            [json!({"__REALTIME_TIMESTAMP": "1970-01-01T00:00:00.000001Z",
                "_SOURCE_REALTIME_TIMESTAMP": "1970-06-12T00:53:20Z"})]
        );
        assert_eq!(
            parsed("types: { __REALTIME_TIMESTAMP: int }", &[b"__REALTIME_TIMESTAMP=1"]).main(),
            [json!({"__REALTIME_TIMESTAMP": 1})]
        );
    }

    #[test]
    fn repeated_fields_and_bytes_are_lists() {
        let entry = b"B=1\nA=x\nB=2\nC\n\x02\0\0\0\0\0\0\0\xff\0\nB=\n";
        assert_eq!(written(parsed("{}", &[entry])), [json!({"A": "x", "B": ["1", "2", ""], "C": [255, 0]})]);
    }

    #[test]
    fn what_is_no_entry_says_why() {
        let given = parsed("{}", &[b"", b"A=1\nB", b"=1", b"PRIORITY=high\n", b"A=1"]);
        assert_eq!(given.main(), [json!({"A": "1"})]);
        assert_eq!(
            given.reasons(),
            [
                "is not an entry of the journal: it has no field",
                "is not an entry of the journal: the value of the field at byte 4 is cut off, or has no `=`",
                "is not an entry of the journal: the field at byte 0 has no name",
                "`PRIORITY` at byte 12 is not a whole number of 64 bits",
            ]
        );
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(
            fields in prop::collection::vec(("[A-C]{1,2}", prop_oneof!["[a-z=é ]{0,6}", "[a-z\n\t]{0,6}"]), 1..8),
        ) {
            let mut entry = Vec::new();
            let mut expected: Map<String, Value> = Map::new();
            for (name, value) in &fields {
                entry.extend_from_slice(name.as_bytes());
                if value.contains('\n') {
                    entry.push(b'\n');
                    entry.extend_from_slice(&(value.len() as u64).to_le_bytes());
                } else {
                    entry.push(b'=');
                }
                entry.extend_from_slice(value.as_bytes());
                entry.push(b'\n');
                match expected.get_mut(name) {
                    None => _ = expected.insert(name.clone(), json!(value)),
                    Some(Value::Array(list)) => list.push(json!(value)),
                    Some(one) => *one = json!([one.take(), value]),
                }
            }
            prop_assert_eq!(written(parsed("{}", &[&entry])), [Value::Object(expected)]);
        }

        #[test]
        fn every_entry_leaves(entries in prop::collection::vec("(A|B|=|\n|1|PRIORITY=|\u{0}){0,16}", 1..20)) {
            no_line_is_lost::<ParseJournal>("max_fields: 3", &entries)?;
        }
    }
}
