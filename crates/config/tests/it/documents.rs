//! Reading documents: positions, anchors, tags, and the limits that keep documents small.

use thalweg_config::{Document, Node, Value};

use crate::common::{json, parsed};

fn refused(text: &str) -> String {
    let diagnostics = Document::parse("x.yaml", text).unwrap_err();
    assert!(diagnostics.render(false).contains(" in x.yaml\n"));
    diagnostics.to_string()
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
fn a_key_beside_a_blank_that_is_no_space_is_refused_at_every_level() {
    let expected = "The key `a` has a character beside it that looks like a space and is none.";
    for text in
        ["\u{a0}a: 1\n", "b: 1\n\u{a0}a: 1\n", "b:\n  \u{a0}a: 1\n", "b: {\u{a0}a: 1}\n", "a\u{a0}: 1\n"]
    {
        assert!(refused(text).contains(expected), "{text:?}: {}", refused(text));
    }
    // Quotes say that it belongs to the key.
    assert!(parsed("'\u{a0}a': 1\n").root().get("\u{a0}a").is_some());
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
        refused("a: {<<: 5}").contains("`<<` needs a mapping or a list of mappings, but this is a number.")
    );
}

#[test]
fn an_alias_that_contains_itself_is_refused() {
    assert!(refused("a: &a [*a]").contains("This alias repeats a value that contains it."));
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
    assert!(refused("a: !secret x").contains("The tag `!secret` has no effect here."));
}

#[test]
fn all_mistakes_of_structure_are_told_at_once() {
    let mistakes = Document::parse("x.yaml", "a: 1\na: 2\nb: *c\nd: !e f\n").unwrap_err();
    let messages: Vec<&str> = mistakes.iter().map(|mistake| mistake.message.as_str()).collect();
    assert_eq!(
        messages,
        ["The key `a` is given twice.", "There is no anchor `c`.", "The tag `!e` has no effect here."]
    );
}

#[test]
fn windows_line_ends_and_a_byte_order_mark_are_no_mistake() {
    assert_eq!(
        json(parsed("\u{feff}a: 1\r\nb:\r\n  - c\r\n").root()),
        serde_json::json!({"a": 1, "b": ["c"]})
    );
}

#[test]
fn nodes_read_the_same_if_no_option_can_tell_them_apart() {
    let reads_as = |one: &str, other: &str| parsed(one).root().reads_as(parsed(other).root());
    for (one, other, same) in [
        ("a: [1, x]\n", "a:\n  - 1\n  - 'x'\n", true),
        ("a: .nan\n", "a: .nan\n", true),
        ("a: ~\n", "a: ~\n", true),
        // A text option reads these as they are written.
        ("a: 007\n", "a: 7\n", false),
        ("a: 1.10\n", "a: 1.1\n", false),
        ("a: 7\n", "a: '7'\n", false),
        ("a: [1]\n", "a: [1, 2]\n", false),
        ("a: 1\nb: 2\n", "a: 1\nc: 2\n", false),
        ("a: {}\n", "a: []\n", false),
    ] {
        assert_eq!(reads_as(one, other), same, "{one}{other}");
        assert_eq!(reads_as(other, one), same, "{other}{one}");
    }
}
