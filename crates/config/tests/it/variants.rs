//! Mistakes in a value with several alternatives: messages refer to the branch that the user meant.

use insta::assert_snapshot;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::{ByteSize, Document, TimeSpan, decode};

use crate::common::shown;

#[test]
fn a_wrong_name_is_answered_with_the_one_meant_or_all_there_are() {
    assert_snapshot!(shown("sources:\n  a: { file: { path: x, start: begining } }\n  b: { file: { path: x, start: 5 } }\n"), @r#"
  × `start` cannot be `begining`.
   ╭─[pipeline.yaml:2:32]
 1 │ sources:
 2 │   a: { file: { path: x, start: begining } }
   ·                                ────────
 3 │   b: { file: { path: x, start: 5 } }
   ╰────
  help: Did you mean `beginning`?

  × `start` cannot be `5`.
   ╭─[pipeline.yaml:3:32]
 2 │   a: { file: { path: x, start: begining } }
 3 │   b: { file: { path: x, start: 5 } }
   ·                                ─
   ╰────
  help: It can be `beginning` or `end`.

2 mistakes in pipeline.yaml
"#);
}

#[test]
fn an_unknown_component_is_answered_with_the_one_meant() {
    assert_snapshot!(shown("sources:\n  a: { fil: { path: x } }\n  b: kafka\n  c: file\n"), @r#"
  × `fil` is not known in `a`.
   ╭─[pipeline.yaml:2:8]
 1 │ sources:
 2 │   a: { fil: { path: x } }
   ·        ───
 3 │   b: kafka
   ╰────
  help: Did you mean `file`?

  × `b` cannot be `kafka`.
   ╭─[pipeline.yaml:3:6]
 2 │   a: { fil: { path: x } }
 3 │   b: kafka
   ·      ─────
 4 │   c: file
   ╰────
  help: It can be `stdin`, `file` or `http`.

  × `file` needs options.
   ╭─[pipeline.yaml:4:6]
 3 │   b: kafka
 4 │   c: file
   ·      ────
   ╰────
  help: Write `file: ...`, with its options after the colon.

3 mistakes in pipeline.yaml
"#);
}

#[test]
fn two_components_where_one_can_be_are_told_apart() {
    assert_snapshot!(shown("sources:\n  a:\n    file: { path: x }\n    http: {}\n    start: end\n"), @r#"
  × `http` cannot stand beside `file`.
   ╭─[pipeline.yaml:4:5]
 3 │     file: { path: x }
 4 │     http: {}
   ·     ────
 5 │     start: end
   ╰────
  help: Only one of them can be given here.

  × `start` cannot stand beside `file`.
   ╭─[pipeline.yaml:5:5]
 4 │     http: {}
 5 │     start: end
   ·     ─────
   ╰────
  help: If it belongs to `file`, indent it further.

2 mistakes in pipeline.yaml
"#);
}

#[test]
fn a_tagged_variant_is_chosen_by_its_tag() {
    assert_snapshot!(shown("output: { type: consle }\n"), @r#"
  × `type` cannot be `consle`.
   ╭─[pipeline.yaml:1:17]
 1 │ output: { type: consle }
   ·                 ──────
   ╰────
  help: Did you mean `console`?

1 mistake in pipeline.yaml
"#);
    assert_snapshot!(shown("output: { path: x }\n"), @r#"
  × `output` needs the option `type`.
   ╭─[pipeline.yaml:1:9]
 1 │ output: { path: x }
   ·         ─────┬─────
   ·              ╰── `type` is missing here
   ╰────
  help: It is `file` or `console`.

1 mistake in pipeline.yaml
"#);
    assert_snapshot!(shown("output: { type: file }\n"), @r#"
  × `output` needs the option `path`.
   ╭─[pipeline.yaml:1:9]
 1 │ output: { type: file }
   ·         ───────┬──────
   ·                ╰── `path` is missing here
   ╰────

1 mistake in pipeline.yaml
"#);
}

#[test]
fn an_untagged_variant_is_chosen_by_its_type() {
    assert_snapshot!(shown("to: { a: b }\n"), @r#"
  × `to` should be text or a list, but it is a mapping.
   ╭─[pipeline.yaml:1:5]
 1 │ to: { a: b }
   ·     ────────
   ╰────
  help: Write a list: `to: [a]`.

1 mistake in pipeline.yaml
"#);
    assert_snapshot!(shown("to: [a, [b]]\n"), @r#"
  × This should be text, but it is a list.
   ╭─[pipeline.yaml:1:9]
 1 │ to: [a, [b]]
   ·         ───
   ╰────
  help: Put quotes around a text that starts with `{` or `[`.

1 mistake in pipeline.yaml
"#);
    assert_snapshot!(shown("to: []\n"), @r#"
  × `to` needs at least 1 element, but it is empty.
   ╭─[pipeline.yaml:1:5]
 1 │ to: []
   ·     ──
   ╰────

1 mistake in pipeline.yaml
"#);
}

#[test]
fn flattened_structs_and_enums_are_one_mapping() {
    #[derive(Debug, Deserialize, JsonSchema)]
    #[allow(dead_code)]
    struct Outer {
        path: String,
        #[serde(flatten)]
        common: Common,
        #[serde(flatten)]
        kind: Kind,
    }

    #[derive(Debug, Default, Deserialize, JsonSchema)]
    #[serde(default)]
    #[allow(dead_code)]
    struct Common {
        timeout: TimeSpan,
        limit: Option<ByteSize>,
    }

    #[derive(Debug, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    #[allow(dead_code)]
    enum Kind {
        Json { pretty: bool },
        Text,
    }

    let read = |text: &str| {
        let document = Document::parse("x.yaml", text).unwrap();
        let mut diagnostics = document.diagnostics();
        let value: Option<Outer> = decode(document.root(), &mut diagnostics);
        (value.is_some(), diagnostics.to_string())
    };
    assert_eq!(read("path: 5\ntimeout: 5s\njson: { pretty: true }\n"), (true, String::new()));
    assert_snapshot!(read("path: x\ntimeout: 5\nlimit: 5k\njson: { pretty: maybe }\n").1, @r#"
x.yaml:2:10: `5` has no unit. (Write `5s` or `5ms`.)
x.yaml:3:9: The unit `k` can be read in two ways. (Write `5KiB` (times 1024) or `5kB` (times 1000).)
x.yaml:4:17: `pretty` should be `true` or `false`, but it is the text `maybe`.
"#);
}
