//! gollum's configurations have the same effect here as in gollum.
//!
//! Each file in `gollum_cases` has a configuration, an input, and the output of gollum itself (its last
//! version). If thalweg's output differs, it follows below, and the first lines of the file give the reason.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::common::House;

struct Case {
    name: String,
    about: String,
    configuration: String,
    input: String,
    gollum: String,
    thalweg: Option<String>,
}

fn cases() -> Vec<Case> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/gollum_cases");
    let mut cases: Vec<Case> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let text = fs::read_to_string(&path).unwrap();
            let mut parts = text.split("== ");
            let about = parts.next().unwrap().to_owned();
            let mut named =
                |name: &str| parts.next()?.strip_prefix(name)?.strip_prefix('\n').map(str::to_owned);
            Case {
                name: path.file_stem().unwrap().to_str().unwrap().to_owned(),
                about,
                configuration: named("configuration").expect("a configuration"),
                input: named("input").expect("an input"),
                gollum: named("gollum").expect("what gollum wrote"),
                thalweg: named("thalweg"),
            }
        })
        .collect();
    cases.sort_by(|a, b| a.name.cmp(&b.name));
    cases
}

/// Splits a text into lines and parses those that are JSON, since the order of members does not matter.
fn lines(text: &str) -> Vec<Result<Value, String>> {
    let line = |line: &str| {
        let inner = line.strip_prefix('[').and_then(|line| line.strip_suffix(']'));
        let json =
            inner.filter(|inner| inner.starts_with('{')).and_then(|json| serde_json::from_str(json).ok());
        json.ok_or_else(|| line.to_owned())
    };
    text.lines().map(line).collect()
}

#[test]
fn each_configuration_gives_what_gollum_gave_or_what_is_said() {
    let mut wrong = Vec::new();
    let cases = cases();
    assert!(cases.len() > 70);
    for case in &cases {
        let house = House::with(&[("gollum.conf", &case.configuration)]);
        let said = house.run_with_input(&["run", "gollum.conf", "--quiet"], case.input.as_bytes());
        let expected = case.thalweg.as_ref().unwrap_or(&case.gollum);
        let (mut found, mut expected) = (lines(&said.out), lines(expected));
        if case.about.contains("in any order") {
            let key = |line: &Result<Value, String>| format!("{line:?}");
            found.sort_by_key(key);
            expected.sort_by_key(key);
        }
        if said.code != Some(0) || found != expected {
            wrong.push(format!("{}: {}\n{}{}", case.name, case.about.trim(), said.out, said.err));
        }
        let explained = case.about.contains("# differs: ");
        assert_eq!(explained, case.thalweg.is_some(), "{} says why it differs, if it does", case.name);
    }
    assert!(wrong.is_empty(), "{} of {}:\n\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

#[test]
fn a_converted_configuration_does_the_same() {
    let mut wrong = Vec::new();
    for case in cases() {
        let house = House::with(&[("gollum.conf", &case.configuration)]);
        let first = house.run_with_input(&["run", "gollum.conf", "--quiet"], case.input.as_bytes());
        let converted = house.run_well(&["convert", "gollum.conf"]);
        house.write("thalweg.yaml", converted.out.as_bytes());
        let second = house.run_with_input(&["run", "thalweg.yaml", "--quiet"], case.input.as_bytes());
        let sorted = |text: &str| {
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        if (first.code, sorted(&first.out)) != (second.code, sorted(&second.out)) {
            wrong.push(format!("{}:\n{}\n{}{}", case.name, converted.out, second.out, second.err));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
