//! Mistakes in the YAML itself, as a person reads them.

use insta::assert_snapshot;

use crate::common::shown;

#[test]
fn a_key_given_twice_is_shown_with_both_places() {
    assert_snapshot!(shown("memory: 1GiB\nverbose: true\nmemory: 2GiB\n"), @r#"
  × The key `memory` is given twice.
   ╭─[pipeline.yaml:3:1]
 1 │ memory: 1GiB
   · ───┬──
   ·    ╰── given here
 2 │ verbose: true
 3 │ memory: 2GiB
   · ───┬──
   ·    ╰── and again here
   ╰────
  help: Keep one of the two.

1 mistake in pipeline.yaml
"#);
}

#[test]
fn bad_indentation_is_shown() {
    assert_snapshot!(shown("sources:\n  access:\n    file: x\n   http: y\n"), @r#"
  × This does not fit the mapping around it.
   ╭─[pipeline.yaml:4:4]
 3 │     file: x
 4 │    http: y
   ·    ────
   ╰────
  help: Keys of one mapping start in the same column. Is the indentation right, and does each key have its
        `:`?

1 mistake in pipeline.yaml
"#);
}

#[test]
fn a_tab_is_shown() {
    assert_snapshot!(shown("sources:\n\taccess: stdin\n"), @r#"
  × A tab is used where only spaces are allowed.
   ╭─[pipeline.yaml:2:1]
 1 │ sources:
 2 │     access: stdin
   · ────
   ╰────
  help: Indent with spaces.

1 mistake in pipeline.yaml
"#);
    assert_snapshot!(shown("sources:\n  access: stdin\n\tb: stdin\n"), @r#"
  × A tab is used where only spaces are allowed.
   ╭─[pipeline.yaml:3:1]
 2 │   access: stdin
 3 │     b: stdin
   · ────
   ╰────
  help: Indent with spaces.

1 mistake in pipeline.yaml
"#);
}

#[test]
fn unclosed_things_are_shown() {
    assert_snapshot!(shown("sources: { access: [a, b\nmemory: 1GiB\n"), @r#"
  × A `[` is not closed.
   ╭─[pipeline.yaml:1:20]
 1 │ sources: { access: [a, b
   ·                    ─
 2 │ memory: 1GiB
   ╰────
  help: Close the list with `]`.

1 mistake in pipeline.yaml
"#);
    assert_snapshot!(shown("name: \"never closed\nmemory: 1GiB\n"), @r#"
  × A quote is opened here and not closed.
   ╭─[pipeline.yaml:1:7]
 1 │ name: "never closed
   ·       ─
 2 │ memory: 1GiB
   ╰────
  help: Close it with the same quote. If the text continues, indent its other lines.

1 mistake in pipeline.yaml
"#);
}

#[test]
fn a_second_colon_is_shown() {
    assert_snapshot!(shown("name: a: b\n"), @r#"
  × A second `:` on one line makes no sense here.
   ╭─[pipeline.yaml:1:8]
 1 │ name: a: b
   ·        ─
   ╰────
  help: Put quotes around a text that contains `: `. A mapping inside goes on a line of its own, indented.

1 mistake in pipeline.yaml
"#);
}

#[test]
fn a_missing_colon_is_shown() {
    assert_snapshot!(shown("memory 1GiB\nverbose: true\n"), @r#"
  × This line is neither a `key: value` nor a part of one.
   ╭─[pipeline.yaml:1:1]
 1 │ memory 1GiB
   · ───────────
 2 │ verbose: true
   ╰────
  help: Put a `:` and a space after the key. Indent a continued text further than its key.

1 mistake in pipeline.yaml
"#);
    assert_snapshot!(shown("verbose: true\nmemory 1GiB\nthreads: 5\n"), @r#"
  × This line is neither a `key: value` nor a part of one.
   ╭─[pipeline.yaml:2:1]
 1 │ verbose: true
 2 │ memory 1GiB
   · ───────────
 3 │ threads: 5
   ╰────
  help: Put a `:` and a space after the key. Indent a continued text further than its key.

1 mistake in pipeline.yaml
"#);
    assert_snapshot!(shown("verbose: true\nmemory:1GiB\n"), @r#"
  × A space is missing after this colon.
   ╭─[pipeline.yaml:2:7]
 1 │ verbose: true
 2 │ memory:1GiB
   ·       ─
   ╰────
  help: Write `key: value`.

1 mistake in pipeline.yaml
"#);
}

#[test]
fn an_escape_in_double_quotes_is_shown() {
    assert_snapshot!(shown("transforms:\n  - match: { pattern: \"^\\d+$\" }\n"), @r#"
  × This is not an escape sequence.
   ╭─[pipeline.yaml:2:25]
 1 │ transforms:
 2 │   - match: { pattern: "^\d+$" }
   ·                         ──
   ╰────
  help: Inside of `"..."`, a backslash is written `\\`. In `'...'` it needs no escape.

1 mistake in pipeline.yaml
"#);
}

#[test]
fn a_variable_between_braces_needs_quotes() {
    assert_snapshot!(shown("to: [ ${A} ]\n"), @r#"
  × Within `{ }` or `[ ]`, the `{` of a variable is taken for the start of a mapping.
   ╭─[pipeline.yaml:1:7]
 1 │ to: [ ${A} ]
   ·       ────
   ╰────
  help: Put quotes around it: `"${A}"`.

1 mistake in pipeline.yaml
"#);
    assert_snapshot!(shown("output: { port: ${DOOR} }\n"), @r#"
  × Within `{ }` or `[ ]`, the `{` of a variable is taken for the start of a mapping.
   ╭─[pipeline.yaml:1:17]
 1 │ output: { port: ${DOOR} }
   ·                 ───────
   ╰────
  help: Put quotes around it: `"${DOOR}"`.

1 mistake in pipeline.yaml
"#);
}

#[test]
fn a_file_with_nothing_in_it_is_told() {
    assert_snapshot!(shown("# only a comment\n"), @r#"
  × `pipeline.yaml` is empty.
   ╭─[pipeline.yaml:1:1]
 1 │ # only a comment
   · ▲
   ╰────
  help: Nothing but comments or blank space was found in it.

1 mistake in pipeline.yaml
"#);
    assert_snapshot!(shown(""), @r#"
  × `pipeline.yaml` is empty.
  help: Nothing but comments or blank space was found in it.

1 mistake in pipeline.yaml
"#);
}

#[test]
fn a_second_document_is_told() {
    assert_snapshot!(shown("memory: 1GiB\n---\nmemory: 2GiB\n"), @r#"
  × A second document starts here, but a file holds one.
   ╭─[pipeline.yaml:2:1]
 1 │ memory: 1GiB
 2 │ ---
   · ─┬─
   ·  ╰── second document
 3 │ memory: 2GiB
   ╰────
  help: Remove the `---`, or put what follows into a file of its own.

1 mistake in pipeline.yaml
"#);
}

#[test]
fn an_unknown_anchor_is_answered_with_the_one_meant() {
    assert_snapshot!(shown("name: &first x\nto: [*frist]\n"), @r#"
  × There is no anchor `frist`.
   ╭─[pipeline.yaml:2:6]
 1 │ name: &first x
 2 │ to: [*frist]
   ·      ──────
   ╰────
  help: Did you mean `*first`?

1 mistake in pipeline.yaml
"#);
}
