//! The drawing of mistakes: columns, long lines, colours, and mistakes that no schema foresees.

use insta::assert_snapshot;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::{Document, decode};

use crate::common::shown;

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
