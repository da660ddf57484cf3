//! The transforms of messages.

use std::fs;
use std::io;
use std::path::Path;

/// A transform with options, and what it promises beside the duties of every transform.
#[derive(Debug, Clone, Copy)]
pub struct Transform {
    /// The name of the component.
    pub component: &'static str,
    /// Its options, in YAML.
    pub options: &'static str,
    /// How many messages leave for each that comes.
    pub gives: Gives,
    /// True if the same messages in other batches give the same result.
    pub is_free_of_batches: bool,
    /// The text of a file that its options name as `TABLE`.
    pub table: Option<&'static str>,
}

impl Transform {
    /// Returns its options, and writes the file that they name into a folder.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn options_in(&self, folder: &Path) -> io::Result<String> {
        let Some(text) = self.table else { return Ok(self.options.to_owned()) };
        let path = folder.join("table.csv");
        fs::write(&path, text)?;
        Ok(self.options.replace("TABLE", &path.to_string_lossy()))
    }
}

/// How many messages leave for each that comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gives {
    /// One.
    One,
    /// One or none.
    Some,
    /// Any number, or a file.
    Any,
}

const fn one(component: &'static str, options: &'static str) -> Transform {
    Transform { component, options, gives: Gives::One, is_free_of_batches: true, table: None }
}

const fn some(component: &'static str, options: &'static str) -> Transform {
    Transform { gives: Gives::Some, ..one(component, options) }
}

const fn any(component: &'static str, options: &'static str) -> Transform {
    Transform { gives: Gives::Any, ..one(component, options) }
}

/// A table with keys that some messages have.
const WORDS: Option<&str> =
    Some("word,meaning\nNaN,not a number\n\"a,b\",two words\n9223372036854775808,large\n,empty\n");

const NETWORKS: Option<&str> = Some("network,zone\n10.0.0.0/8,inside\n::/0,six\n");

/// The cases of all transforms, in the order of their names.
pub const ALL: &[Transform] = &[
    one("add_id", "{ kind: hash }"),
    one("add_sequence", "{ into: number }"),
    any(
        "aggregate",
        r#"{ by: payload, values: { n: count(*), half: "quantile(octet_length(payload), 0.5)" } }"#,
    ),
    one("cast", "{ payload: int }"),
    some("changes", "{}"),
    some("changes", "{ keys: payload, fields: payload, by_at_least: 1.5, max_keys: 2 }"),
    one("copy", "{ from: payload, into: copy }"),
    one("decode_base64", "{}"),
    some("dedupe", "{ keys: [payload] }"),
    one("drop", "[nothing]"),
    one("encode", "json"),
    one("encode", "csv"),
    one("encode", "logfmt"),
    one("encode_base64", "{}"),
    one("extract", "{ pattern: '(\\d+)', into: digits }"),
    some("filter", "\"payload LIKE '%e%'\""),
    one("flatten", "{}"),
    one("format_timestamp", "{ field: payload, format: '%Y' }"),
    one("gollum", "{ formatter: { process_json: { directives: [{ member: a, action: remove }] } } }"),
    one("gollum", "{ formatter: { extract_json: { member: a } }, on_error: keep }"),
    one("gollum", "{ formatter: { json_to_array: { fields: [a, b] } }, on_error: clear }"),
    one("gollum", "{ formatter: { process_tsv: { directives: [{ column: 0, action: quote }] } } }"),
    one("gollum", "{ formatter: { split_to_json: { keys: [a, b], separator: ' ' } } }"),
    one("gollum", "{ formatter: { trim: { left: 'e' } } }"),
    one(
        "gollum",
        "{ formatter: { text_to_json: { directives: [{ state: s, token: e, next: s, actions: [esc] }] } } }",
    ),
    one("gollum", "{ formatter: { collectd_to_influx: { version: '0.9.1' } } }"),
    one("hash_text", "{ into: hash }"),
    Transform { table: WORDS, ..one("join", "{ table: 'TABLE', on: { payload: word } }") },
    Transform { table: WORDS, ..some("join", "{ table: 'TABLE', on: { payload: word }, on_found: drop }") },
    Transform { table: NETWORKS, ..one("join", "{ table: 'TABLE', on: { payload: { in: network } } }") },
    one("keep", "[nothing]"),
    one("limit", "{ rate: 1000000000 }"),
    any("pack", "{ name: 'part-{number}', max_count: 3 }"),
    one("parse_apache", "{ format: common }"),
    one("parse_avro", r#"{ schema: '{"type": "array", "items": ["null", "string"]}' }"#),
    one("parse_cef", "{}"),
    one("parse_cri", "{}"),
    one("parse_csv", "{ columns: [a, b] }"),
    some("parse_csv", "{ header: true }"),
    one("parse_elb", "{}"),
    one("parse_gelf", "{}"),
    one("parse_grok", "{ pattern: ['^%{WORD:word}'] }"),
    one("parse_journal", "{}"),
    // Types follow from the values of a batch.
    Transform { is_free_of_batches: false, ..one("parse_json", "{}") },
    one("parse_json", "{ types: { a: text, n: text, m: text } }"),
    one("parse_json", "{ flatten: true }"),
    one("parse_key_value", "{ key_value_delimiter: ':', field_delimiter: ',' }"),
    one("parse_leef", "{}"),
    one("parse_logfmt", "{}"),
    one("parse_nginx", "{}"),
    one("parse_regex", "{ pattern: '(?<word>\\w+)' }"),
    one("parse_syslog", "{}"),
    one("parse_timestamp", "{ field: payload, format: clf }"),
    one("parse_user_agent", "{}"),
    some("parse_w3c", "{ fields: [a] }"),
    one("parse_xml", "{}"),
    one("rename", "{ a: b }"),
    one("redact", "{ find: [email, card, ip, iban], keep_last: 4 }"),
    any("reduce", "{ starts_when: \"payload LIKE '%e%'\", max_count: 3 }"),
    one("replace", "{ search: e, with: ee }"),
    one("route", "{ long: \"octet_length(payload) > 20\" }"),
    one("route_by", "{ outputs: { failures: error }, prefix_until: ': ' }"),
    one("runlength", "{}"),
    some("sample", "{ one_in: 3 }"),
    one("set", "{ length: \"octet_length(payload)\" }"),
    one("sort", "{ by: [payload, { a: desc }] }"),
    any("split", "{ json_array: true }"),
    one("split_array", "{ into: parts }"),
    one("split_fields", "{ delimiter: ',', fields: [a, b] }"),
    one("split_pick", "{ delimiter: ',', index: 1 }"),
    one("template", "{ template: '<{{ payload }}>' }"),
    one("trim", "{}"),
    one("trim_to_bounds", "{ left: '[', right: ']' }"),
];

/// The transforms that cannot be tested here, and why.
pub const EXEMPT: &[(&str, &str)] = &[
    ("geoip", "needs a database; its unit tests make one"),
    ("parse_protobuf", "reads messages in a binary form; its unit tests have some"),
];
