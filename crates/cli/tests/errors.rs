//! `thalweg errors`: dead letters are listed, shown, processed again and removed.

#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use common::House;
use serde_json::Value;

fn letters(house: &House) -> Vec<Value> {
    let said = house.run(&["errors", "list", "c.yaml", "--json"]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    said.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

const INPUT: &str = "{\"n\": 1}\n{\"n\": 2, \"n2\": \nrubbish\n{\"n\": 3}\n";

fn configuration(transform: &str, state: &str) -> String {
    format!(
        "{state}
sources: {{ in: {{ file: {{ path: in.jsonl }} }} }}
pipelines:
  main: {{ from: in, transforms: [ {transform} ], to: out }}
sinks: {{ out: {{ file: {{ path: out.jsonl, encode: json }} }} }}
"
    )
}

#[test]
fn letters_are_listed_shown_and_removed() {
    let house = House::with(&[("in.jsonl", INPUT), ("c.yaml", &configuration("parse_json", ""))]);
    assert_eq!(house.run(&["errors", "list", "c.yaml"]).out, "there are no dead letters in `.thalweg`\n");
    assert!(!house.path().join(".thalweg").exists(), "looking made a folder");
    assert_eq!(house.run(&["run", "c.yaml"]).code, Some(0));

    let listed = house.run(&["errors", "list", "c.yaml"]).out;
    assert!(listed.contains("main.parse_json  in.jsonl:9\n      is not a JSON object"), "{listed}");
    assert!(listed.ends_with("2 dead letters\n"), "{listed}");
    let limited = house.run(&["errors", "list", "--limit", "1"]).out;
    assert!(limited.ends_with("2 dead letters\nthe first 1 are shown; `--limit` shows more\n"), "{limited}");

    let id = letters(&house)[1]["id"].to_string();
    let shown = house.run(&["errors", "show", &id, "c.yaml"]).out;
    assert!(shown.contains("component: main.parse_json\n") && shown.ends_with("  rubbish\n"), "{shown}");
    assert_eq!(house.run(&["errors", "show", &id, "c.yaml", "--payload"]).out, "rubbish");

    assert_eq!(house.run(&["errors", "clear", "--component", "other"]).code, Some(0));
    assert_eq!(letters(&house).len(), 2);
    assert_eq!(
        house.run(&["errors", "clear", "c.yaml", "--component", "main"]).err,
        "removed 2 dead letters\n"
    );
    assert_eq!(letters(&house).len(), 0);
}

#[test]
fn letters_are_processed_again_once_the_configuration_is_right() {
    for state in ["", "state: kept"] {
        let house = House::with(&[("in.jsonl", INPUT), ("c.yaml", &configuration("parse_json", state))]);
        assert_eq!(house.run(&["run", "c.yaml"]).code, Some(0));
        assert_eq!(house.read("out.jsonl"), "{\"n\":1}\n{\"n\":3}\n");

        // Nothing is better yet: they become new letters.
        let said = house.run(&["errors", "replay", "c.yaml"]);
        assert_eq!(said.code, Some(0), "{}", said.err);
        assert!(said.err.contains("2 dead letters: 0 processed\n  2 rejected again"), "{}", said.err);
        let ids: Vec<Value> = letters(&house).iter().map(|letter| letter["id"].clone()).collect();
        assert_eq!(ids, [Value::from(3), Value::from(4)]);

        house.write("c.yaml", configuration("{ set: { text: payload } }", state).as_bytes());
        let said = house.run(&["errors", "replay", "c.yaml"]);
        assert!(said.err.contains("2 dead letters: 2 processed\n"), "{}", said.err);
        let expected = [
            "{\"n\":1}",
            "{\"n\":3}",
            "{\"text\":\"rubbish\"}",
            "{\"text\":\"{\\\"n\\\": 2, \\\"n2\\\": \"}",
        ];
        assert_eq!(sorted(&house.read("out.jsonl")), expected);
        assert_eq!(letters(&house).len(), 0);

        // What was added is not taken for something torn by the next run.
        if !state.is_empty() {
            house.write("in.jsonl", format!("{INPUT}{{\"n\": 4}}\n").as_bytes());
            house.write("c.yaml", configuration("parse_json", state).as_bytes());
            assert_eq!(house.run(&["run", "c.yaml"]).code, Some(0));
            assert_eq!(house.read("out.jsonl").lines().count(), 5);
        }
    }
}

#[test]
fn letters_of_a_later_pipeline_come_with_their_fields() {
    let configuration = |pattern: &str| {
        format!(
            "
sources: {{ in: {{ file: {{ path: in.jsonl }} }} }}
pipelines:
  main: {{ from: in, transforms: [ parse_json, {{ route: {{ large: \"n > 1\" }} }} ], to: small }}
  large:
    from: main.large
    transforms: [ {{ parse_regex: {{ pattern: '{pattern}', field: name }} }} ]
    to: big
sinks:
  small: {{ file: {{ path: small.jsonl, encode: json }} }}
  big: {{ file: {{ path: big.jsonl, encode: json }} }}
"
        )
    };
    let input = "{\"n\": 1, \"name\": \"a1\"}\n{\"n\": 2, \"name\": \"b2\"}\n{\"n\": 3, \"name\": \"c\"}\n";
    let house = House::with(&[("in.jsonl", input), ("c.yaml", &configuration(r"(?<digit>\d)"))]);
    assert_eq!(house.run(&["run", "c.yaml"]).code, Some(0));
    assert_eq!(house.read("big.jsonl"), "{\"n\":2,\"name\":\"b2\",\"digit\":\"2\"}\n");
    assert_eq!(letters(&house).len(), 1);
    house.write("c.yaml", configuration(r"(?<digit>\d?)$").as_bytes());
    let said = house.run(&["errors", "replay", "c.yaml"]);
    assert!(said.err.contains("1 dead letter: 1 processed\n"), "{}", said.err);
    assert_eq!(
        house.read("small.jsonl"),
        "{\"n\":1,\"name\":\"a1\"}\n",
        "another pipeline got the letter too"
    );
    assert!(
        house.read("big.jsonl").ends_with("{\"n\":3,\"name\":\"c\",\"digit\":\"\"}\n"),
        "{}",
        house.read("big.jsonl")
    );
}

#[test]
fn what_a_sink_rejected_is_not_encoded_twice() {
    let configuration = |path: &str| {
        format!(
            "
sources: {{ in: {{ generate: {{ lines: ['{{\"n\": 1, \"kind\": \"a\"}}', '{{\"n\": 2, \"kind\": \"../b\"}}'] }} }} }}
pipelines: {{ main: {{ from: in, transforms: [ parse_json ], to: out }} }}
sinks: {{ out: {{ file: {{ path: '{path}', encode: json }} }} }}
"
        )
    };
    let house = House::with(&[("c.yaml", &configuration("{kind}.jsonl"))]);
    assert_eq!(house.run(&["run", "c.yaml"]).code, Some(0));
    assert_eq!(letters(&house)[0]["component"], "out");
    house.write("c.yaml", configuration("number-{n}.jsonl").as_bytes());
    let said = house.run(&["errors", "replay", "c.yaml"]);
    assert!(said.err.contains("1 dead letter: 1 processed\n"), "{}", said.err);
    assert_eq!(house.read("number-2.jsonl"), "{\"n\":2,\"kind\":\"../b\"}\n");
}

#[test]
fn what_a_source_cut_off_cannot_be_processed_again() {
    let house = House::with(&[
        ("in.txt", &format!("short\n{}\n", "x".repeat(5000))),
        (
            "c.yaml",
            "
sources: { in: { file: { path: in.txt, max_message_bytes: 4KiB } } }
pipelines: { main: { from: in, to: out } }
sinks: { out: { file: { path: out.txt } } }
",
        ),
    ]);
    assert_eq!(house.run(&["run", "c.yaml"]).code, Some(0));
    let said = house.run(&["errors", "replay", "c.yaml"]);
    assert_eq!(said.code, Some(0));
    assert!(
        said.err.contains("1 cannot be processed again: it is a part of what the source `in`"),
        "{}",
        said.err
    );
    assert_eq!(letters(&house).len(), 1);
}
