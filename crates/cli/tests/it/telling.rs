//! Commands that describe thalweg itself: help, components, schema, templates, plans.

use crate::common::House;
use insta::assert_snapshot;
use thalweg_config::{Diagnostics, Document, check};

#[derive(serde::Deserialize)]
struct Component {
    role: String,
    name: String,
    summary: String,
    example: String,
}

fn components() -> Vec<Component> {
    serde_json::from_str(&output(&["components", "--json"])).unwrap()
}

fn output(arguments: &[&str]) -> String {
    let said = House::with(&[]).run(arguments);
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""));
    said.out
}

#[test]
#[cfg(feature = "stores")]
fn help() {
    assert_snapshot!("help", output(&["--help"]));
    assert_snapshot!("help of run", output(&["run", "--help"]));
    assert_snapshot!("help of convert", output(&["convert", "--help"]));
    assert_snapshot!("help of errors", output(&["errors", "--help"]));
    assert!(output(&["--version"]).starts_with("thalweg 0."));
}

#[test]
fn each_shell_has_a_script_that_asks_the_program() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = output(&["completions", shell]);
        assert!(script.contains("THALWEG_COMPLETE") && script.contains("thalweg"), "{shell}: {script}");
    }
}

#[test]
fn components_are_listed_and_shown() {
    let list = output(&["components"]);
    for (role, name) in [("Sources", "stdin"), ("Transforms", "filter"), ("Sinks", "discard")] {
        let section = list.split(&format!("{role}\n")).nth(1).unwrap().split("\n\n").next().unwrap();
        assert!(section.lines().any(|line| line.trim_start().starts_with(name)), "{name} in {list}");
    }
    assert!(list.lines().all(|line| line.chars().count() <= 100));
    for known in components() {
        let page = output(&["components", &known.name]);
        assert!(page.contains(&format!("{} ({})", known.name, known.role)), "{page}");
        assert!(page.contains("\nExample\n"), "{page}");
        assert!(!known.summary.is_empty(), "{} has no description", known.name);
    }
}

#[test]
fn the_plan_of_the_designs_example() {
    let house = House::with(&[("c.yaml", include_str!("design.yaml"))]);
    let said = house.run(&["check", "c.yaml", "--plan", "--threads", "4"]);
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""));
    assert_snapshot!(said.out);
}

#[test]
fn every_template_is_right_and_is_not_written_over_a_file() {
    let house = House::with(&[]);
    let list = output(&["new", "--list"]);
    let names: Vec<&str> = list.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(names, ["jsonl", "access-log", "csv", "generate"]);
    for name in names {
        let file = format!("{name}.yaml");
        assert_eq!(house.run(&["new", name, "-o", &file]).code, Some(0));
        let said = house.run(&["check", &file]);
        assert_eq!(said.code, Some(0), "{}", said.err);
        let said = house.run(&["new", "-o", &file]);
        assert_eq!(said.code, Some(2));
        assert!(said.err.contains("exists, and is left as it is"), "{}", said.err);
    }
    assert_eq!(house.read("jsonl.yaml"), output(&["new"]));
    let said = house.run_with_input(&["run", "-", "-q"], house.read("generate.yaml").as_bytes());
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert!(said.out.lines().count() > 0);
}

#[test]
fn the_first_steps_of_the_help_succeed_in_an_empty_folder() {
    for (template, output) in [
        (&[][..], "output/errors.jsonl"),
        (&["access-log"], "out/failures.log"),
        (&["csv"], "out/large.jsonl"),
    ] {
        let house = House::with(&[]);
        let new = [&["new", "-o", "first.yaml"], template].concat();
        for step in [&new[..], &["check", "first.yaml"], &["run", "first.yaml", "--strict"]] {
            let said = house.run(step);
            assert_eq!(said.code, Some(0), "{step:?}: {}", said.err);
        }
        assert!(!house.lines(output).is_empty(), "{template:?}");
    }
    // Input that is there already is the user's.
    let house = House::with(&[]);
    std::fs::create_dir(house.path().join("input")).unwrap();
    assert_eq!(house.run(&["new", "-o", "first.yaml"]).code, Some(0));
    assert_eq!(std::fs::read_dir(house.path().join("input")).unwrap().count(), 0);
}

fn mistakes(schema: &serde_json::Value, text: &str) -> Diagnostics {
    let document = Document::parse("example.yaml", text).unwrap();
    let mut mistakes = document.diagnostics();
    check(document.root(), schema, &mut mistakes);
    mistakes
}

#[test]
fn every_example_fits_the_schema_and_what_is_wrong_does_not() {
    let schema: serde_json::Value = serde_json::from_str(&output(&["schema"])).unwrap();
    for known in components() {
        let found = mistakes(&schema, &known.example);
        assert!(found.is_empty(), "{}:\n{}", known.name, found.render(false));
    }
    assert!(mistakes(&schema, include_str!("design.yaml")).is_empty());
    let right = "sources: { in: { generate: { count: 1 } } }\npipelines: { main: { from: in, to: out } }\nsinks: { out: discard }\n";
    assert!(mistakes(&schema, right).is_empty(), "{}", mistakes(&schema, right).render(false));
    for (part, wrong) in [
        ("count: 1", "count: one"),
        ("count: 1", "cuont: 1"),
        ("generate", "generator"),
        ("discard", "discrad"),
        ("to: out", "ot: out"),
        ("to: out", "to: { round_robbin: [out] }"),
        ("to: out", "to: { by_key: { key: a } }"),
        ("pipelines", "pipes"),
        ("to: out", "to: { failover: { to: [out], timeout: 3 lightyears } }"),
    ] {
        assert!(right.contains(part));
        let text = right.replace(part, wrong);
        assert!(!mistakes(&schema, &text).is_empty(), "{text}");
    }
}
