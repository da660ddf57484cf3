//! What a person reads when a document is wrong: the typical mistakes, as they are shown.

#![allow(clippy::unwrap_used, missing_docs)]

use std::collections::BTreeMap;

use insta::assert_snapshot;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::{ByteSize, Document, Pattern, TimeSpan, decode};

/// A small configuration, with one of each shape that the real ones have.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct Config {
    /// How much memory may be used.
    memory: ByteSize,
    /// How many threads there are.
    #[schemars(range(min = 1))]
    threads: Option<u32>,
    /// Where a dashboard is served.
    port: Option<u16>,
    sources: BTreeMap<String, Source>,
    transforms: Vec<Transform>,
    output: Option<Output>,
    drain: TimeSpan,
    /// Whether to say more.
    verbose: bool,
    to: To,
    name: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[allow(dead_code)]
enum Source {
    /// Reads files.
    File(FileSource),
    /// Reads what is sent over HTTP.
    Http(HttpSource),
    Stdin,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[allow(dead_code)]
struct FileSource {
    /// The files to read, as a path or a pattern. Directories are read with all they contain.
    #[schemars(example = "logs/*.log")]
    path: String,
    #[serde(default)]
    start: Start,
    #[serde(default)]
    max_line: ByteSize,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct HttpSource {
    address: String,
    timeout: TimeSpan,
}

/// Where reading starts.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Start {
    /// At the first byte.
    #[default]
    Beginning,
    /// At what is written from now on.
    End,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[allow(dead_code)]
enum Transform {
    Match { pattern: Pattern },
    Set(BTreeMap<String, String>),
    Filter(String),
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
#[allow(dead_code)]
enum Output {
    File { path: String },
    Console { colour: Option<bool> },
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
#[allow(dead_code)]
enum To {
    One(String),
    Many(#[schemars(length(min = 1))] Vec<String>),
}

impl Default for To {
    fn default() -> Self {
        To::Many(Vec::new())
    }
}

/// What is shown for a document with mistakes.
fn shown(text: &str) -> String {
    let document = match Document::parse("pipeline.yaml", text) {
        Ok(document) => document,
        Err(diagnostics) => return diagnostics.render(false),
    };
    let mut diagnostics = document.diagnostics();
    let config: Option<Config> = decode(document.root(), &mut diagnostics);
    assert_eq!(config.is_some(), diagnostics.is_empty(), "a value, or mistakes: {config:?}");
    diagnostics.render(false)
}

fn read(text: &str) -> Config {
    let document = Document::parse("pipeline.yaml", text).unwrap();
    let mut diagnostics = document.diagnostics();
    let config = decode(document.root(), &mut diagnostics);
    assert!(diagnostics.is_empty(), "{}", diagnostics.render(false));
    config.unwrap()
}

#[test]
fn what_is_right_is_read() {
    let config = read(
        r"
memory: 256MiB
threads: '4'           # As it comes from a quoted variable.
drain: 1m
verbose: true
name: 007              # A number, but asked for as text.
sources:
  access: { file: { path: logs/*.log, start: end } }
  posted: { http: }
  typed: stdin
transforms:
  - match: { pattern: '^(?<a>\d+)$' }
  - set: { kib: size / 1024.0, one: 1, yes: true }
  - filter: status >= 500
output: { type: console, colour: false }
to: [a, b]
",
    );
    assert_eq!(config.memory, ByteSize::mib(256));
    assert_eq!(config.threads, Some(4));
    assert_eq!(config.name.as_deref(), Some("007"));
    assert!(matches!(&config.sources["access"], Source::File(file) if matches!(file.start, Start::End)));
    assert!(matches!(&config.sources["posted"], Source::Http(http) if http.address.is_empty()));
    assert!(matches!(&config.sources["typed"], Source::Stdin));
    assert!(
        matches!(&config.transforms[1], Transform::Set(set) if set["one"] == "1" && set["yes"] == "true")
    );
    assert!(matches!(config.to, To::Many(names) if names == ["a", "b"]));
    assert!(matches!(config.output, Some(Output::Console { colour: Some(false) })));
}

#[test]
fn numbers_are_text_where_text_is_asked_for_whatever_the_enum() {
    let config = read("to: 5\noutput: { type: file, path: 0010 }\n");
    assert!(matches!(config.to, To::One(name) if name == "5"));
    assert!(matches!(config.output, Some(Output::File { path }) if path == "0010"));
    let config = read("to: [1.50, true]\noutput: { type: console, colour: 'true' }\n");
    assert!(matches!(config.to, To::Many(names) if names == ["1.50", "true"]));
    assert!(matches!(config.output, Some(Output::Console { colour: Some(true) })));
}

#[test]
fn json_is_read_as_well() {
    let config =
        read("{\n\t\"memory\": \"1GB\",\n\t\"sources\": {\"a\": {\"file\": {\"path\": \"x\\/y\"}}}\n}");
    assert_eq!(config.memory, ByteSize(1_000_000_000));
    assert!(matches!(&config.sources["a"], Source::File(file) if file.path == "x/y"));
}

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
  help: Say `5s` or `5ms`.

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
  help: Put quotes around a text that starts with `{` or `[`.

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
  × `memroy` is not an option here.
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
  × A tab stands where only spaces may.
   ╭─[pipeline.yaml:2:1]
 1 │ sources:
 2 │     access: stdin
   · ────
   ╰────
  help: Indent with spaces.

1 mistake in pipeline.yaml
"#);
    assert_snapshot!(shown("sources:\n  access: stdin\n\tb: stdin\n"), @r#"
  × A tab stands where only spaces may.
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
  help: Close it with the same quote. If the text is meant to go on, indent its other lines.

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
  help: Put a `:` and a space after the key. A text that goes on is indented further than its key.

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
  help: Put a `:` and a space after the key. A text that goes on is indented further than its key.

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
  help: Inside of `"..."`, a backslash is written `\\`. In `'...'` it stands for itself, which suits
        patterns.

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
    assert_snapshot!(shown("output: { port: ${PORT} }\n"), @r#"
  × Within `{ }` or `[ ]`, the `{` of a variable is taken for the start of a mapping.
   ╭─[pipeline.yaml:1:17]
 1 │ output: { port: ${PORT} }
   ·                 ───────
   ╰────
  help: Put quotes around it: `"${PORT}"`.

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

#[test]
fn columns_count_characters() {
    assert_snapshot!(shown("sources: { \"dép\u{f4}t\": { fille: {} } }\n"), @r#"
  × `fille` is not known in `dépôt`.
   ╭─[pipeline.yaml:1:23]
 1 │ sources: { "dépôt": { fille: {} } }
   ·                       ─────
   ╰────
  help: Did you mean `file`?

1 mistake in pipeline.yaml
"#);
}

#[test]
fn of_a_line_that_is_too_long_a_piece_is_shown() {
    let sources: Vec<String> =
        (0..200).map(|n| format!("\"s\u{f4}urce{n}\":{{\"file\":{{\"path\":\"x\"}}}}")).collect();
    let text = format!("{{\n\"sources\":{{{}}}}}\n", sources.join(","))
        .replace("s\u{f4}urce150\":{\"file", "b\":{\"fle");
    assert_snapshot!(shown(&text), @r#"
  × `fle` is not known in `b`.
   ╭─[pipeline.yaml:2:5007]
 2 │ …th":"x"}},"sôurce149":{"file":{"path":"x"}},"b":{"fle":{"path":"x"}},"sôurce151":{"file":{"path":"x"}},"sôurce152":{"…
   ·                                                   ─────
   ╰────
  help: Did you mean `file`?

1 mistake in pipeline.yaml
"#);
}

#[test]
fn colours_are_there_when_asked_for() {
    let diagnostics = Document::parse("x", "a: [").unwrap_err();
    assert!(diagnostics.render(true).contains("\u{1b}["));
    assert!(!diagnostics.render(false).contains('\u{1b}'));
}

#[test]
fn an_error_no_schema_foresees_is_reported_at_its_node() {
    #[derive(Debug, Deserialize, JsonSchema)]
    #[allow(dead_code)]
    struct Outer {
        inner: Vec<Even>,
    }

    #[derive(Debug, Deserialize, JsonSchema)]
    #[serde(try_from = "u8")]
    struct Even;

    impl TryFrom<u8> for Even {
        type Error = String;

        fn try_from(number: u8) -> Result<Self, String> {
            if number.is_multiple_of(2) { Ok(Even) } else { Err(format!("{number} is not even")) }
        }
    }

    let document = Document::parse("x.yaml", "inner:\n  - 2\n  - 3\n").unwrap();
    let mut diagnostics = document.diagnostics();
    assert!(decode::<Outer>(document.root(), &mut diagnostics).is_none());
    assert_eq!(diagnostics.to_string(), "x.yaml:3:5: 3 is not even.");
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
x.yaml:2:10: `5` has no unit. (Say `5s` or `5ms`.)
x.yaml:3:9: The unit `k` can be read in two ways. (Write `5KiB` (times 1024) or `5kB` (times 1000).)
x.yaml:4:17: `pretty` should be `true` or `false`, but it is the text `maybe`.
"#);
}

#[test]
fn a_format_of_another_crate_is_checked_and_shown_at_its_place() {
    use thalweg_config::{FormatError, check, register_format};

    register_format("shout", |text| match text.find(char::is_lowercase) {
        Some(at) => Err(FormatError::new("This must be loud.").at(at..at + 1).help("Use capitals.")),
        None => Ok(()),
    });
    let document = Document::parse("x.yaml", "words: [HEY, 'HE''y']\n").unwrap();
    let mut diagnostics = document.diagnostics();
    let schema = serde_json::json!({ "properties": {
        "words": { "items": { "type": "string", "format": "shout" } }
    } });
    check(document.root(), &schema, &mut diagnostics);
    assert_snapshot!(diagnostics.render(false), @r#"
  × This must be loud.
   ╭─[x.yaml:1:19]
 1 │ words: [HEY, 'HE''y']
   ·                   ─
   ╰────
  help: Use capitals.

1 mistake in x.yaml
"#);
}
