//! The rules for names of options, for all components: docs/decisions/082-names-of-options.md.

use serde_json::Value;
use thalweg_components::registry;
use thalweg_config::{Diagnostics, Document};
use thalweg_engine::{Registry, Role};

/// Calls `each` for every option of every component, with its path and its schema.
fn options(registry: &Registry, each: &mut dyn FnMut(&str, &Value)) {
    for known in registry.iter() {
        let schema = Value::from((known.schema)());
        walk(&schema, &format!("{} {}", known.role.name(), known.name), each);
    }
}

fn walk(schema: &Value, path: &str, each: &mut dyn FnMut(&str, &Value)) {
    each(path, schema);
    for (name, option) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        walk(option, &format!("{path}.{name}"), each);
    }
    for part in parts(schema) {
        let mut inner = |below: &str, option: &Value| {
            if below != path {
                each(below, option);
            }
        };
        walk(part, path, &mut inner);
    }
    for key in ["items", "additionalProperties"] {
        if let Some(inner) = schema.get(key).filter(|inner| inner.is_object()) {
            walk(inner, &format!("{path}.*"), each);
        }
    }
}

/// Returns the alternatives of a schema.
fn parts(schema: &Value) -> impl Iterator<Item = &Value> {
    ["anyOf", "oneOf", "allOf"].into_iter().filter_map(|key| schema.get(key)?.as_array()).flatten()
}

/// Returns the schema and its alternatives, at any depth.
fn ways(schema: &Value) -> Vec<&Value> {
    std::iter::once(schema).chain(parts(schema).flat_map(ways)).collect()
}

fn is_type(schema: &Value, name: &str) -> bool {
    match schema.get("type") {
        Some(Value::String(only)) => only == name,
        Some(Value::Array(all)) => all.iter().any(|one| one == name),
        _ => false,
    }
}

fn has_format(schema: &Value, name: &str) -> bool {
    ways(schema).iter().any(|way| way.get("format").and_then(Value::as_str) == Some(name))
}

/// Returns the paths of the options that break a rule.
fn broken(rule: impl Fn(&str, &Value) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    options(&registry(), &mut |path, schema| {
        let name = path.rsplit('.').next().unwrap_or(path);
        if path.contains('.') && name != "*" && rule(name, schema) {
            found.push(path.to_owned());
        }
    });
    found
}

const NONE: [&str; 0] = [];

#[test]
fn a_size_in_bytes_has_it_in_its_name() {
    let is_right = |name: &str| match name.starts_with("max_") || name.starts_with("min_") {
        true => name.ends_with("_bytes"),
        false => name.ends_with("_bytes") || name.ends_with("size"),
    };
    assert_eq!(broken(|name, schema| has_format(schema, "byte-size") && !is_right(name)), NONE);
}

#[test]
fn a_span_of_time_has_it_in_its_name() {
    const ENDS: [&str; 4] = ["timeout", "interval", "age", "delay"];
    const WHOLE: [&str; 4] = ["every", "per", "end_after_idle", "give_up"];
    let is_right = |name: &str| WHOLE.contains(&name) || ENDS.iter().any(|end| name.ends_with(end));
    assert_eq!(broken(|name, schema| has_format(schema, "time-span") && !is_right(name)), NONE);
}

#[test]
fn a_list_accepts_one_value() {
    // A list of mappings is written with one dash for each.
    let is_of_values = |way: &Value| {
        way.get("items").is_some_and(|items| !ways(items).iter().any(|way| is_type(way, "object")))
    };
    let is_only_a_list = |schema: &Value| {
        let ways = ways(schema);
        ways.iter().any(|way| is_type(way, "array") && is_of_values(way))
            && !ways
                .iter()
                .any(|way| is_type(way, "string") || way.get("const").is_some_and(Value::is_string))
    };
    let mut found = broken(|_, schema| is_only_a_list(schema));
    options(&registry(), &mut |path, schema| {
        if !path.contains('.') && is_only_a_list(schema) {
            found.push(path.to_owned());
        }
    });
    assert_eq!(found, NONE);
}

#[test]
fn one_meaning_has_one_name() {
    const OTHER: [&str; 15] = [
        "on_exists",
        "on_existing",
        "if_exists",
        "follow_links",
        "links",
        "watch",
        "permissions",
        "file_mode",
        "patterns",
        "paths",
        "urls",
        "uri",
        "endpoint",
        "within",
        "window",
    ];
    assert_eq!(broken(|name, _| OTHER.contains(&name)), NONE);
    let is_list = |schema: &Value| ways(schema).iter().any(|way| is_type(way, "array"));
    assert_eq!(broken(|name, schema| name == "fields" && !is_list(schema)), NONE);
    assert_eq!(broken(|name, schema| name == "field" && is_list(schema)), NONE);
    let is_octal = |schema: &Value| ways(schema).iter().any(|way| way.get("pattern").is_some());
    assert_eq!(broken(|name, schema| matches!(name, "mode" | "folder_mode") && !is_octal(schema)), NONE);
}

#[test]
fn what_is_there_already_has_the_same_words_everywhere() {
    const WORDS: [&str; 9] =
        ["auto", "replace", "rename", "update", "skip", "error", "append", "prepend", "overwrite"];
    let words = |schema: &Value| -> Vec<String> {
        let all = ways(schema);
        let constants = all.iter().filter_map(|way| way.get("const"));
        let listed = all.iter().filter_map(|way| way.get("enum")?.as_array()).flatten();
        constants.chain(listed).filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let is_other = |schema: &Value| {
        let words = words(schema);
        words.is_empty() || words.iter().any(|word| !WORDS.contains(&word.as_str()))
    };
    assert_eq!(broken(|name, schema| name == "existing" && is_other(schema)), NONE);
}

/// Options with a former name, and the mistake that they are.
const FORMER: &[(Role, &str, &str, &str)] = &[
    (Role::Sink, "http", "{ address: 'http://a' }", "`address` is called `url` here."),
    (Role::Sink, "http", "{ endpoint: 'http://a' }", "`endpoint` is called `url` here."),
    (Role::Source, "http", "{ url: ':80' }", "`url` is called `address` here."),
    (Role::Source, "kafka", "{ servers: h, topics: a, group: g }", "`servers` is called `brokers` here."),
    (
        Role::Sink,
        "kafka",
        "{ bootstrap_servers: h, topic: a }",
        "`bootstrap_servers` is called `brokers` here.",
    ),
    (Role::Sink, "kafka", "{ servers: h, topic: a }", "`servers` is called `brokers` here."),
    (Role::Sink, "kafka", "{ brokers: 'h:9092', topic: a, acks: 1 }", "`1` is called `leader` here."),
    (
        Role::Source,
        "kafka",
        "{ brokers: 'h:9092', topics: a, group: g, auto_offset_reset: earliest }",
        "`auto_offset_reset` is called `start` here.",
    ),
    (Role::Source, "postgres", "{ url: 'postgres://h/d', table: t }", "`url` is called `server` here."),
    (Role::Sink, "file", "{ path: a, encode: { codec: json } }", "`codec` is called `format` here."),
    (Role::Source, "file", "{ path: a, encoding: utf-16 }", "`encoding` is called `charset` here."),
    (Role::Source, "files", "{ path: a, watch: 1s }", "`watch` is called `follow` here."),
    (Role::Source, "files", "{ path: a, min_size: 1B }", "`min_size` is called `min_file_bytes` here."),
    (Role::Source, "files", "{ path: a, max_size: 1B }", "`max_size` is called `max_file_bytes` here."),
    (Role::Source, "objects", "{ url: a, follow_links: true }", "`follow_links` is called `symlinks` here."),
    (Role::Source, "objects", "{ url: a, slice: 1MB }", "`slice` is called `slice_size` here."),
    (Role::Source, "objects", "{ url: a, tolerance: 1s }", "`tolerance` is called `max_delay` here."),
    (Role::Source, "file", "{ path: a, ignore_older: 1d }", "`ignore_older` is called `max_age` here."),
    (Role::Source, "file", "{ path: a, rotate_wait: 1s }", "`rotate_wait` is called `rotate_timeout` here."),
    (
        Role::Source,
        "remote_files",
        "{ url: 'http://a', cache: b, cache_limit: 1GB }",
        "`cache_limit` is called `max_cache_bytes` here.",
    ),
    (
        Role::Source,
        "http_upload",
        "{ address: ':80', max_file: 1B }",
        "`max_file` is called `max_file_bytes` here.",
    ),
    (
        Role::Source,
        "http_upload",
        "{ address: ':80', max_request: 1B }",
        "`max_request` is called `max_request_bytes` here.",
    ),
    (
        Role::Source,
        "http_upload",
        "{ address: ':80', respond: accepted }",
        "`accepted` is called `received` here.",
    ),
    (Role::Source, "internal_logs", "{ buffer: 1 }", "`buffer` is called `max_records` here."),
    (Role::Source, "syslog", "{ fields: false }", "`fields` is called `add_fields` here."),
    (Role::Source, "syslog", "{ permissions: '0660' }", "`permissions` is called `mode` here."),
    (
        Role::Source,
        "socket",
        "{ address: 'unix://a', permissions: '0660' }",
        "`permissions` is called `mode` here.",
    ),
    (Role::Sink, "directory", "{ path: a, on_exists: skip }", "`on_exists` is called `existing` here."),
    (Role::Sink, "objects", "{ url: a, on_exists: skip }", "`on_exists` is called `existing` here."),
    (Role::Sink, "file", "{ path: a, on_exists: append }", "`on_exists` is called `existing` here."),
    (Role::Sink, "file", "{ path: a, existing: fail }", "`fail` is called `error` here."),
    (Role::Sink, "file", "{ path: a, existing: number }", "`number` is called `rename` here."),
    (
        Role::Sink,
        "file",
        "{ path: a, rotate: { size: 1B, compress: gzip } }",
        "`compress` is called `compression` here.",
    ),
    (
        Role::Sink,
        "file",
        "{ path: a, rotate: { size: 1B, keep_for: 1d } }",
        "`keep_for` is called `keep_age` here.",
    ),
    (
        Role::Sink,
        "socket",
        "{ address: 'tcp://a:1', send_buffer: 1kB }",
        "`send_buffer` is called `send_buffer_size` here.",
    ),
    (
        Role::Sink,
        "websocket",
        "{ address: ':80', client_buffer: 1kB }",
        "`client_buffer` is called `max_client_bytes` here.",
    ),
    (
        Role::Sink,
        "objects",
        "{ url: a, encode: { format: parquet, row_group: 1MB } }",
        "`row_group` is called `row_group_size` here.",
    ),
    (Role::Transform, "check_size", "{ min: 1B }", "`min` is called `min_bytes` here."),
    (Role::Transform, "check_size", "{ max: 1B }", "`max` is called `max_bytes` here."),
    (Role::Transform, "copy", "{ from: a, mode: append }", "`mode` is called `existing` here."),
    (Role::Transform, "decompress", "{ max_size: 1B }", "`max_size` is called `max_bytes` here."),
    (Role::Transform, "pack", "{ name: a, max_size: 1B }", "`max_size` is called `max_file_bytes` here."),
    (Role::Transform, "dedupe", "{ window: 1 }", "`window` is called `max_keys` here."),
    (Role::Transform, "dedupe", "{ within: 1s }", "`within` is called `max_age` here."),
    (
        Role::Transform,
        "exec",
        "{ command: a, max_output: 1kB }",
        "`max_output` is called `max_output_bytes` here.",
    ),
    (Role::Transform, "parse_grok", "{ patterns: ['%{INT:a}'] }", "`patterns` is called `pattern` here."),
    (
        Role::Transform,
        "reduce",
        "{ expire_after_ms: 5s }",
        "`expire_after_ms` is called `idle_timeout` here.",
    ),
    (Role::Transform, "reduce", "{ group_by: [a] }", "`group_by` is called `by` here."),
    (Role::Transform, "reduce", "{ merge: { a: array } }", "`array` is called `list` here."),
    (Role::Transform, "sort", "{ order_by: a }", "`order_by` is called `by` here."),
    (Role::Transform, "changes", "{ fields: a, deadband: 1 }", "`deadband` is called `by_at_least` here."),
    (
        Role::Transform,
        "aggregate",
        "{ values: { n: count }, session_gap: 5s }",
        "`session_gap` is called `session_timeout` here.",
    ),
    (Role::Transform, "write", "{ path: a, on_exists: skip }", "`on_exists` is called `existing` here."),
];

#[test]
fn a_former_name_is_one_mistake_that_says_the_present_one() {
    let registry = registry();
    for (role, name, options, expected) in FORMER {
        let document = Document::parse("x", options).unwrap();
        let mut diagnostics = Diagnostics::new("x", options);
        let root = document.root();
        let built = registry.get(*role, name).unwrap().decode(root, root.span, &mut diagnostics);
        let messages: Vec<_> = diagnostics.iter().map(|mistake| mistake.message.as_str()).collect();
        assert_eq!((messages, built.is_some()), (vec![*expected], false), "{name}: {options}");
    }
}
