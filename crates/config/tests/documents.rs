//! How documents are read: anchors, variables, bounds, and whatever rubbish is fed to them.

#![allow(clippy::unwrap_used, missing_docs)]

use std::fs;

use proptest::prelude::*;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::{Document, Node, TimeSpan, Value, decode};

fn parsed(text: &str) -> Document {
    Document::parse("x.yaml", text).unwrap_or_else(|diagnostics| panic!("{}", diagnostics.render(false)))
}

fn refused(text: &str) -> String {
    let diagnostics = Document::parse("x.yaml", text).unwrap_err();
    assert!(diagnostics.render(false).contains(" in x.yaml\n"));
    diagnostics.to_string()
}

/// The tree as JSON, to compare it easily.
fn json(node: &Node) -> serde_json::Value {
    serde_json::Value::deserialize(node).unwrap()
}

fn variables(name: &str) -> Option<String> {
    match name {
        "PORT" => Some("8080".into()),
        "SECRET" => Some("a: {b} # ${PORT}".into()),
        "EMPTY" => Some(String::new()),
        _ => None,
    }
}

/// The values after substitution, or the mistakes.
fn substituted(text: &str) -> Result<serde_json::Value, String> {
    let mut document = parsed(text);
    let mut diagnostics = document.diagnostics();
    document.substitute(&variables, &mut diagnostics);
    if diagnostics.is_empty() { Ok(json(document.root())) } else { Err(diagnostics.to_string()) }
}

#[test]
fn every_node_knows_its_place() {
    let text = "a:\n  - one\n  - {b: 'two', c: [3]}\nd: |\n  four\n";
    let document = parsed(text);
    let at = |node: &Node| &text[node.span.start..node.span.end];
    let a = document.root().get("a").unwrap();
    assert_eq!(at(a), "- one\n  - {b: 'two', c: [3]}");
    assert_eq!(at(&a.items()[0]), "one");
    assert_eq!(at(&a.items()[1]), "{b: 'two', c: [3]}");
    assert_eq!(at(a.items()[1].get("b").unwrap()), "'two'");
    assert_eq!(at(a.items()[1].get("c").unwrap()), "[3]");
    let key = document.root().key("d").unwrap();
    assert_eq!(&text[key.span.start..key.span.end], "d");
}

#[test]
fn anchors_and_merge_keys_work() {
    let document = parsed(
        "base: &base {a: 1, b: 2}\nmore: &more {b: 5, c: 6}\none:\n  <<: *base\n  b: 3\nall: {<<: [*base, *more], d: 4}\nsame: *base\n",
    );
    let value = json(document.root());
    assert_eq!(value["one"], serde_json::json!({"b": 3, "a": 1}));
    assert_eq!(value["all"], serde_json::json!({"d": 4, "a": 1, "b": 2, "c": 6}));
    assert_eq!(value["same"], serde_json::json!({"a": 1, "b": 2}));
    assert!(
        refused("a: {<<: 5}").contains("`<<` takes a mapping or a list of mappings, but this is a number.")
    );
}

#[test]
fn an_alias_that_contains_itself_is_refused() {
    assert!(refused("a: &a [*a]").contains("This stands for something that it is itself a part of."));
}

#[test]
fn aliases_that_would_fill_the_memory_are_refused() {
    let mut text = "a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]\n".to_owned();
    for level in 1..20 {
        let below = format!("*a{}, ", level - 1).repeat(9);
        text.push_str(&format!("a{level}: &a{level} [{below}]\n"));
    }
    assert!(refused(&text).contains("aliases repeat more than 16 MiB"));
}

#[test]
fn deep_nesting_is_refused() {
    let block: String = (0..1000).map(|level| format!("{}a:\n", " ".repeat(level))).collect();
    let mixed = format!("{}{}{}", "- ".repeat(60), "[".repeat(60), "]".repeat(60));
    let mut aliases = "a0: &a0 [x]\n".to_owned();
    for level in 1..100 {
        aliases.push_str(&format!("a{level}: &a{level} [*a{}]\n", level - 1));
    }
    for text in [block, mixed, aliases, "[".repeat(100_000), "{a: ".repeat(100_000), "- ".repeat(100_000)] {
        assert!(refused(&text).contains("nested too deep"), "{}", refused(&text));
    }
}

#[test]
fn keys_that_are_not_text_are_refused() {
    assert!(refused("? [a, b]\n: c\n").contains("A key is text, but this is a list."));
    assert!(refused("{{a: 1}: c}\n").contains("A key is text, but this is a mapping."));
    assert_eq!(json(parsed("1: a\ntrue: b\n").root()), serde_json::json!({"1": "a", "true": "b"}));
}

#[test]
fn tags_of_the_core_schema_are_known_and_others_are_refused() {
    assert_eq!(
        json(parsed("a: !!str 5\nb: !!int '7'\nc: ! 5\n").root()),
        serde_json::json!({"a": "5", "b": 7, "c": "5"})
    );
    assert!(refused("a: !secret x").contains("The tag `!secret` means nothing here."));
}

#[test]
fn all_mistakes_of_structure_are_told_at_once() {
    let mistakes = Document::parse("x.yaml", "a: 1\na: 2\nb: *c\nd: !e f\n").unwrap_err();
    assert_eq!(mistakes.len(), 3);
}

#[test]
fn windows_line_ends_and_a_byte_order_mark_are_no_mistake() {
    assert_eq!(
        json(parsed("\u{feff}a: 1\r\nb:\r\n  - c\r\n").root()),
        serde_json::json!({"a": 1, "b": ["c"]})
    );
}

#[test]
fn variables_are_put_in_and_typed() {
    let value = substituted(
        "port: ${PORT}\nquoted: \"${PORT}\"\nurl: http://h:${PORT}/\nsecret: ${SECRET}\nwith: ${NONE:-5s}\nempty: ${EMPTY:-x}\nnothing: ${NONE:-}\n",
    );
    assert_eq!(
        value.unwrap(),
        serde_json::json!({
            "port": 8080, "quoted": "8080", "url": "http://h:8080/", "secret": "a: {b} # ${PORT}", "with": "5s",
            "empty": "x", "nothing": null
        })
    );
}

#[test]
fn patterns_and_lone_dollars_survive() {
    let value = substituted("a: '^(?<a>\\d+)$'\nb: $x\nc: $${PORT}\nd: a$$b\ne: $\n${PORT}: key\nf: [$1]\n");
    assert_eq!(
        value.unwrap(),
        serde_json::json!({
            "a": "^(?<a>\\d+)$", "b": "$x", "c": "${PORT}", "d": "a$b", "e": "$", "${PORT}": "key", "f": ["$1"]
        })
    );
}

#[test]
fn a_wrong_variable_is_shown_at_its_place() {
    assert_eq!(
        substituted(
            "a: 'x ${NONE} y'\nb: ${file:no/such}\nc: ${open\nd: ${a b}\ne: ${fil:x}\nf: ${PORT:5}\n"
        )
        .unwrap_err(),
        "x.yaml:1:7: The variable `NONE` is not set. (Set it, or give it a default: `${NONE:-default}`.)\n\
         x.yaml:2:4: The file `no/such` cannot be read: No such file or directory (os error 2). \
         (It was looked for at `no/such`; paths are relative to this document.)\n\
         x.yaml:3:4: A `${` is never closed. (Close it with `}`, or write `$${` if it is no variable.)\n\
         x.yaml:4:4: `a b` is not the name of a variable. (For the characters themselves write `$${`.)\n\
         x.yaml:5:4: `fil:x` is not the name of a variable. (Did you mean `${file:x}`?)\n\
         x.yaml:6:4: `PORT:5` is not the name of a variable. (A default is written `${PORT:-5}`.)"
    );
}

#[test]
fn files_are_put_in_relative_to_the_document() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("password"), "a: b\n\n").unwrap();
    let path = directory.path().join("x.yaml");
    fs::write(&path, "password: ${file:password}\n").unwrap();
    let document = Document::load(&path, &variables).unwrap();
    assert_eq!(json(document.root()), serde_json::json!({"password": "a: b\n"}));
}

#[test]
fn a_file_that_cannot_be_read_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.yaml");
    let told = Document::load(&path, &variables).unwrap_err();
    assert!(
        told.render(false).contains("cannot be read: No such file or directory"),
        "{}",
        told.render(false)
    );
    fs::write(&path, b"a: \xff\n").unwrap();
    let told = Document::load(&path, &variables).unwrap_err();
    assert!(told.to_string().contains(":1:4: This is not UTF-8 text."), "{told}");
}

#[test]
fn the_value_of_a_variable_is_in_no_message() {
    #[derive(Debug, Deserialize, JsonSchema)]
    #[allow(dead_code)]
    struct Config {
        number: u8,
        time: TimeSpan,
        name: Name,
    }

    #[derive(Debug, Deserialize, JsonSchema)]
    enum Name {
        One,
    }

    let mut document = parsed("number: ${S}\ntime: ${S}\nname: ${S}\n");
    let mut diagnostics = document.diagnostics();
    document.substitute(&|_| Some("hunter2-".repeat(3)), &mut diagnostics);
    assert!(decode::<Config>(document.root(), &mut diagnostics).is_none());
    let shown = diagnostics.render(false) + &diagnostics.to_string();
    assert_eq!(diagnostics.len(), 3, "{shown}");
    assert!(!shown.contains("hunter2"), "{shown}");
}

const VALID: &str = "\
memory: 256MiB
anchors: &a {x: 'é', <<: {y: \"\\u00e9\"}}
list:
  - *a
  - |
    text
  - >-
    folded
    text
  - [1, 2.5, true, ~, ${NAME:-x}]
  - ? key
    : value
";

fn read_whatever(text: &str) {
    #[derive(Debug, Deserialize, JsonSchema)]
    #[serde(untagged)]
    #[allow(dead_code)]
    enum Any {
        Number(f64),
        Text(TimeSpan),
        List(Vec<Any>),
        Map(std::collections::BTreeMap<String, Any>),
    }

    match Document::parse("x", text) {
        Ok(mut document) => {
            let mut diagnostics = document.diagnostics();
            document.substitute(&variables, &mut diagnostics);
            decode::<Any>(document.root(), &mut diagnostics);
            let _ = diagnostics.render(true);
        }
        Err(diagnostics) => {
            assert!(!diagnostics.is_empty());
            let _ = diagnostics.render(false) + &diagnostics.to_string();
        }
    }
}

#[test]
fn no_truncated_document_panics() {
    for end in (0..=VALID.len()).filter(|&end| VALID.is_char_boundary(end)) {
        read_whatever(&VALID[..end]);
        read_whatever(&VALID[end..]);
    }
}

#[test]
fn untagged_enums_in_each_other_do_not_take_forever() {
    read_whatever(&format!("{}x{}", "[".repeat(60), "]".repeat(60)));
    read_whatever(&format!("[{}]", "[a, {b: c}], ".repeat(10_000)));
}

proptest! {
    #[test]
    fn no_text_panics(text in "\\PC{0,200}") {
        read_whatever(&text);
    }

    #[test]
    fn no_text_made_of_yaml_panics(parts in prop::collection::vec(prop::sample::select(vec![
        "a", "b: ", "- ", "\n", "\n  ", "\n    ", "{", "}", "[", "]", ",", "'", "\"", "|", ">", "&a ", "*a", "<<: ", "? ",
        ": ", "\t", "#", "$", "${A}", "${", "$$", "\\", "!!str ", "!x ", "---\n", "...\n", "%", "é", "\r\n", "5s", "1e400",
        "\u{0}", "\u{feff}",
    ]), 0..60)) {
        read_whatever(&parts.concat());
    }
}

#[test]
fn values_are_typed() {
    let document = parsed("a: yes\nb: 5\nc: 5.0\nd: '5'\ne:\nf: True\n");
    let value = |key: &str| document.root().get(key).unwrap().value.clone();
    assert_eq!(value("a"), Value::String("yes".into()));
    assert_eq!(value("b"), Value::Integer(5));
    assert_eq!(value("c"), Value::Float(5.0));
    assert_eq!(value("d"), Value::String("5".into()));
    assert_eq!(value("e"), Value::Null);
    assert_eq!(value("f"), Value::Bool(true));
}
