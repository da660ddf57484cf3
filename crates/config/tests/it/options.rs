//! Mistakes in options, as a person reads them: unknown, missing, of the wrong type, out of range.

use insta::assert_snapshot;

use crate::common::shown;

#[test]
fn an_unknown_key_is_answered_with_the_one_meant() {
    assert_snapshot!(shown("memory: 1GiB\nsources:\n  access: { file: { pth: logs/*.log } }\n"), @r#"
  × `file` has no option `pth`.
   ╭─[pipeline.yaml:3:21]
 2 │ sources:
 3 │   access: { file: { pth: logs/*.log } }
   ·                     ─┬─
   ·                      ╰── unknown option
   ╰────
  help: Did you mean `path`?

1 mistake in pipeline.yaml
"#);
}

#[test]
fn an_unknown_key_like_no_other_is_answered_with_all_there_are() {
    assert_snapshot!(shown("sources:\n  access:\n    http:\n      colour: blue\n"), @r#"
  × `http` has no option `colour`.
   ╭─[pipeline.yaml:4:7]
 3 │     http:
 4 │       colour: blue
   ·       ───┬──
   ·          ╰── unknown option
   ╰────
  help: It accepts `address` and `timeout`.

1 mistake in pipeline.yaml
"#);
}

#[test]
fn a_missing_key_is_explained() {
    assert_snapshot!(shown("sources:\n  access:\n    file:\n      start: end\n      max_line: 1MiB\n"), @r#"
  × `file` needs the option `path`.
   ╭─[pipeline.yaml:3:5]
 2 │   access:
 3 │     file:
   ·     ──┬─
   ·       ╰── `path` is missing here
 4 │       start: end
   ╰────
  help: The files to read, as a path or a pattern. For example `path: logs/*.log`.

1 mistake in pipeline.yaml
"#);
}

#[test]
fn a_wrong_unit_is_answered_with_the_one_meant() {
    assert_snapshot!(shown("memory: 256MBi\ndrain: 5\n"), @r#"
  × `MBi` is not a unit of size.
   ╭─[pipeline.yaml:1:12]
 1 │ memory: 256MBi
   ·            ───
 2 │ drain: 5
   ╰────
  help: Did you mean `256MiB`?

  × `5` has no unit.
   ╭─[pipeline.yaml:2:8]
 1 │ memory: 256MBi
 2 │ drain: 5
   ·        ─
   ╰────
  help: Write `5s` or `5ms`.

2 mistakes in pipeline.yaml
"#);
}

#[test]
fn a_wrong_type_is_told_with_what_is_expected() {
    assert_snapshot!(shown("threads: many\nverbose: yes\nsources: [a]\nname: {}\n"), @r#"
  × `threads` should be a whole number, but it is the text `many`.
   ╭─[pipeline.yaml:1:10]
 1 │ threads: many
   ·          ────
 2 │ verbose: yes
   ╰────

  × `verbose` should be `true` or `false`, but it is the text `yes`.
   ╭─[pipeline.yaml:2:10]
 1 │ threads: many
 2 │ verbose: yes
   ·          ───
 3 │ sources: [a]
   ╰────
  help: Write `true`.

  × `sources` should be a mapping, but it is a list.
   ╭─[pipeline.yaml:3:10]
 2 │ verbose: yes
 3 │ sources: [a]
   ·          ───
 4 │ name: {}
   ╰────
  help: For example `sources: { a: … }`.

  × `name` should be text, but it is a mapping.
   ╭─[pipeline.yaml:4:7]
 3 │ sources: [a]
 4 │ name: {}
   ·       ──
   ╰────
  help: Put quotes around a text that starts with `{` or `[`.

4 mistakes in pipeline.yaml
"#);
}

#[test]
fn a_mistake_inside_of_a_list_is_found() {
    assert_snapshot!(shown("transforms:\n  - filter: a > 1\n  - match: { pattern: '^(?<a>\\d+$' }\n  - match: {}\n"), @r#"
  × The regular expression is wrong: unclosed group.
   ╭─[pipeline.yaml:3:25]
 2 │   - filter: a > 1
 3 │   - match: { pattern: '^(?<a>\d+$' }
   ·                         ─
 4 │   - match: {}
   ╰────
  help: Every `(` needs its `)`. For the character itself write `\(` or `\)`.

  × `match` needs the option `pattern`.
   ╭─[pipeline.yaml:4:12]
 3 │   - match: { pattern: '^(?<a>\d+$' }
 4 │   - match: {}
   ·            ─┬
   ·             ╰── `pattern` is missing here
   ╰────
  help: A regular expression. For example `pattern: '^(?<client>\S+) (?<status>\d{3})$'`.

2 mistakes in pipeline.yaml
"#);
}

#[test]
fn numbers_out_of_range_are_refused() {
    assert_snapshot!(shown("threads: 0\nport: 70000\nmemory: -1\n"), @r#"
  × `threads` must be at least 1, but it is `0`.
   ╭─[pipeline.yaml:1:10]
 1 │ threads: 0
   ·          ─
 2 │ port: 70000
   ╰────

  × `port` must be at most 65535, but it is `70000`.
   ╭─[pipeline.yaml:2:7]
 1 │ threads: 0
 2 │ port: 70000
   ·       ─────
 3 │ memory: -1
   ╰────

  × `memory` must be at least 0, but it is `-1`.
   ╭─[pipeline.yaml:3:9]
 2 │ port: 70000
 3 │ memory: -1
   ·         ──
   ╰────

3 mistakes in pipeline.yaml
"#);
    assert_snapshot!(shown("threads: 4294967296\nport: 80.5\n"), @r#"
  × `threads` must be from 0 to 4294967295, but it is `4294967296`.
   ╭─[pipeline.yaml:1:10]
 1 │ threads: 4294967296
   ·          ──────────
 2 │ port: 80.5
   ╰────

  × `port` should be a whole number, but it is `80.5`.
   ╭─[pipeline.yaml:2:7]
 1 │ threads: 4294967296
 2 │ port: 80.5
   ·       ────
   ╰────

2 mistakes in pipeline.yaml
"#);
}

#[test]
fn all_mistakes_are_shown_at_once() {
    assert_snapshot!(shown("\
memroy: 1GiB
threads: few
sources:
  access: { file: { path: logs/*.log, start: now } }
transforms:
  - fliter: status >= 500
  - match:
      pattern: '[a-z'
drain: 10 parsecs
"), @r#"
  × Unknown option `memroy`.
   ╭─[pipeline.yaml:1:1]
 1 │ memroy: 1GiB
   · ───┬──
   ·    ╰── unknown option
 2 │ threads: few
   ╰────
  help: Did you mean `memory`?

  × `threads` should be a whole number, but it is the text `few`.
   ╭─[pipeline.yaml:2:10]
 1 │ memroy: 1GiB
 2 │ threads: few
   ·          ───
 3 │ sources:
   ╰────

  × `start` cannot be `now`.
   ╭─[pipeline.yaml:4:46]
 3 │ sources:
 4 │   access: { file: { path: logs/*.log, start: now } }
   ·                                              ───
 5 │ transforms:
   ╰────
  help: It can be `beginning` or `end`.

  × `fliter` is not known here.
   ╭─[pipeline.yaml:6:5]
 5 │ transforms:
 6 │   - fliter: status >= 500
   ·     ──────
 7 │   - match:
   ╰────
  help: Did you mean `filter`?

  × The regular expression is wrong: unclosed character class.
   ╭─[pipeline.yaml:8:17]
 7 │   - match:
 8 │       pattern: '[a-z'
   ·                 ─
 9 │ drain: 10 parsecs
   ╰────
  help: Every `[` needs its `]`. For the character itself write `\[`.

  × `parsecs` is not a unit of time.
   ╭─[pipeline.yaml:9:11]
 8 │       pattern: '[a-z'
 9 │ drain: 10 parsecs
   ·           ───────
   ╰────
  help: Did you mean `10secs`?

6 mistakes in pipeline.yaml
"#);
}
