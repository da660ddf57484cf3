//! Variables and files that are substituted in a document.

use std::fs;

use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::{Document, TimeSpan, decode};

use crate::common::{json, parsed, variables};

/// Returns the values after substitution, or the mistakes.
fn substituted(text: &str) -> Result<serde_json::Value, String> {
    let mut document = parsed(text);
    let mut diagnostics = document.diagnostics();
    document.substitute(&variables, &mut diagnostics);
    if diagnostics.is_empty() { Ok(json(document.root())) } else { Err(diagnostics.to_string()) }
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
fn what_is_substituted_is_limited_as_a_whole() {
    let values = |name: &str| (name == "BIG").then(|| "x".repeat(1 << 20));
    let substituted = |count: usize| {
        let mut document = parsed(&"- \"${BIG}\"\n".repeat(count));
        let mut diagnostics = document.diagnostics();
        document.substitute(&values, &mut diagnostics);
        diagnostics.to_string()
    };
    assert_eq!(substituted(16), "");
    let mistake = "x.yaml:17:4: With this value, more than 16 MiB are substituted, the limit of a configuration. \
                   (Substitute shorter values, or fewer of them.)";
    assert_eq!(substituted(30), mistake);
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
    let full = std::env::current_dir().unwrap().join("no/such");
    let expected = "x.yaml:1:7: The variable `NONE` is not set. (Set it, or give it a default: `${NONE:-default}`.)\n\
         x.yaml:2:4: The file `no/such` cannot be read: No such file or directory (os error 2). \
         (The full path is `FULL`; paths are relative to this document.)\n\
         x.yaml:3:4: A `${` is never closed. (Close it with `}`, or write `$${` if it is not a variable.)\n\
         x.yaml:4:4: `a b` is not the name of a variable. (For the characters themselves write `$${`.)\n\
         x.yaml:5:4: `fil:x` is not the name of a variable. (Did you mean `${file:x}`?)\n\
         x.yaml:6:4: `PORT:5` is not the name of a variable. (A default is written `${PORT:-5}`.)\n\
         x.yaml:7:4: `env:TOKEN` is not the name of a variable. (A variable of the environment is written `${TOKEN}`.)";
    assert_eq!(
        substituted(
            "a: 'x ${NONE} y'\nb: ${file:no/such}\nc: ${open\nd: ${a b}\ne: ${fil:x}\nf: ${PORT:5}\ng: ${env:TOKEN}\n"
        )
        .unwrap_err(),
        expected.replace("FULL", &full.display().to_string())
    );
}

#[test]
fn many_mistakes_in_one_value_are_counted_after_the_first() {
    let texts: Vec<String> = (0..20_000).map(|number| format!("${{NONE_{number}}}")).collect();
    let mut document = parsed(&format!("a: '{}'\nb: ${{NONE}}\n", texts.concat()));
    let mut diagnostics = document.diagnostics();
    document.substitute(&variables, &mut diagnostics);
    let found: Vec<(usize, String)> =
        diagnostics.iter().map(|mistake| (mistake.span.start, mistake.message.clone())).collect();
    assert_eq!(found.len(), 102);
    assert_eq!(found[0], (4, "The variable `NONE_0` is not set.".to_owned()));
    let at = 4 + texts[..100].concat().len();
    assert_eq!(found[100], (at, "And 19,900 more mistakes from here on in this value.".to_owned()));
    assert_eq!(found[101].1, "The variable `NONE` is not set.");
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
    let error = Document::load(&path, &variables).unwrap_err();
    assert!(
        error.render(false).contains("cannot be read: No such file or directory"),
        "{}",
        error.render(false)
    );
    fs::write(&path, b"a: \xff\n").unwrap();
    let error = Document::load(&path, &variables).unwrap_err();
    assert!(error.to_string().contains(":1:4: This is not UTF-8 text."), "{error}");
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
