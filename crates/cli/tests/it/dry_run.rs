//! `run --dry-run`: sinks show what they would write, and nothing changes.

use std::path::Path;

use crate::common::{House, said};

/// The names below a folder.
fn tree(folder: &Path) -> Vec<String> {
    let mut names = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(next) = open.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            names.push(path.strip_prefix(folder).unwrap().display().to_string());
            if path.is_dir() {
                open.push(path);
            }
        }
    }
    names.sort();
    names
}

#[test]
fn messages_are_shown_with_their_sink_and_path() {
    let text = "sources: { in: { file: { path: in.jsonl } } }\npipelines: { main: { from: in, transforms: [parse_json], to: [out, far] } }\nsinks:\n  out: { file: { path: 'out/{host}.log', encode: csv } }\n  far: { http: { url: 'http://127.0.0.1:9/x' } }\n";
    let house = House::with(&[
        ("c.yaml", text),
        ("in.jsonl", "{\"host\":\"a\",\"n\":1}\nnonsense\n{\"host\":\"b\",\"n\":2}\n"),
    ]);
    let before = tree(house.path());
    let said = house.run_well(&["run", "c.yaml", "--dry-run", "--state", "state"]);
    let mut lines: Vec<&str> = said.out.lines().collect();
    lines.sort_unstable();
    assert_eq!(
        lines,
        [
            r#"{"rejected_by":"main.parse_json","reason":"is not a JSON object: expected `{` at byte 0","origin":"in.jsonl","message":"nonsense"}"#,
            r#"{"sink":"far","message":{"host":"a","n":1}}"#,
            r#"{"sink":"far","message":{"host":"b","n":2}}"#,
            r#"{"sink":"out","to":"out/a.log","message":{"host":"a","n":1}}"#,
            r#"{"sink":"out","to":"out/b.log","message":{"host":"b","n":2}}"#,
        ]
    );
    assert!(said.err.contains("a dry run: nothing was written, removed or acknowledged"), "{}", said.err);
    assert_eq!(tree(house.path()), before);
}

#[test]
fn secrets_in_paths_are_replaced_and_characters_that_are_not_seen_are_escaped() {
    let text = "sources: { in: { file: { path: in.jsonl } } }\npipelines: { main: { from: in, transforms: [parse_json], to: out } }\nsinks:\n  out: { file: { path: 'out/${SECRET}/{host}.log' } }\n";
    let input = r#"{"host":"a\u0085\u202e\udb40\udc41b"}"#;
    let house = House::with(&[("c.yaml", text), ("in.jsonl", input)]);
    let mut command = house.command(&["run", "c.yaml", "--dry-run", "--quiet"]);
    let said = said(command.env("SECRET", "letmein-123").output().unwrap());
    let host = r"a\u0085\u202e\udb40\udc41b";
    let expected =
        format!(r#"{{"sink":"out","to":"out/${{SECRET}}/{host}.log","message":{{"host":"{host}"}}}}"#);
    assert_eq!(said.out, format!("{expected}\n"));
}

#[test]
fn a_dry_run_takes_a_limit() {
    let text = "sources: { in: { generate: { lines: [x], count: 1000000 } } }\npipelines: { main: { from: in, to: out } }\nsinks: { out: { discard: {} } }\n";
    let house = House::with(&[("c.yaml", text)]);
    let said = house.run_well(&["run", "c.yaml", "--dry-run", "--limit", "2", "--quiet"]);
    assert_eq!(said.out, "{\"sink\":\"out\",\"message\":{\"payload\":\"x\"}}\n".repeat(2));
}

#[test]
fn files_stay_and_are_shown_with_their_target() {
    let text = "sources: { in: { files: { path: in/ } }, old: { files: { path: old/ } } }
pipelines:
  main: { from: in, transforms: [{ write: { path: copies } }], to: out }
  rest: { from: old, to: gone }
sinks:
  out: { directory: { path: out, name: 'x-{name}' } }
  gone: { remove: {} }
";
    let house = House::with(&[("c.yaml", text)]);
    for folder in ["in", "old"] {
        std::fs::create_dir(house.path().join(folder)).unwrap();
        house.write(&format!("{folder}/a"), b"12345");
    }
    let before = tree(house.path());
    let said = house.run_well(&["run", "c.yaml", "--dry-run", "--quiet"]);
    let mut lines: Vec<&str> = said.out.lines().collect();
    lines.sort_unstable();
    assert_eq!(
        lines,
        [
            r#"{"sink":"gone","file":"old/a","bytes":5}"#,
            r#"{"sink":"out","to":"out/x-a","file":"in/a","bytes":5}"#,
            r#"{"transform":"main.write","to":"copies/a","file":"in/a","bytes":5}"#,
        ]
    );
    assert_eq!(tree(house.path()), before);
}

#[test]
fn a_spool_is_not_emptied() {
    let fill = "sources: { in: { generate: { lines: [x], count: 3 } } }\npipelines: { main: { from: in, to: out } }\nsinks: { out: { spool: { path: spool } } }\n";
    let drain = "sources: { in: { spool: { path: spool, follow: false } } }\npipelines: { main: { from: in, to: out } }\nsinks: { out: { stdout: {} } }\n";
    let house = House::with(&[("fill.yaml", fill), ("drain.yaml", drain)]);
    house.run_well(&["run", "fill.yaml", "--quiet"]);
    let before = tree(&house.path().join("spool"));
    let said = house.run_well(&["run", "drain.yaml", "--dry-run", "--quiet"]);
    assert_eq!(said.out, "{\"sink\":\"out\",\"message\":{\"payload\":\"x\"}}\n".repeat(3));
    assert_eq!(tree(&house.path().join("spool")), before);
    assert_eq!(house.run_well(&["run", "drain.yaml", "--quiet"]).out, "x\n".repeat(3));
}
