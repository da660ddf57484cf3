//! No input causes a panic or an endless loop.

use proptest::prelude::*;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::{Document, TimeSpan, decode};

use crate::common::variables;

const VALID: &str = "\
memory: 256MiB
anchors: &a {x: 'é', <<: {y: \"\\u00e9\"}}
list:
  - *a
  - |
    text
  - >-
    folded
    text
  - [1, 2.5, true, ~, ${NAME:-x}]
  - ? key
    : value
";

fn read_whatever(text: &str) {
    #[derive(Debug, Deserialize, JsonSchema)]
    #[serde(untagged)]
    #[allow(dead_code)]
    enum Any {
        Number(f64),
        Text(TimeSpan),
        List(Vec<Any>),
        Map(std::collections::BTreeMap<String, Any>),
    }

    match Document::parse("x", text) {
        Ok(mut document) => {
            let mut diagnostics = document.diagnostics();
            document.substitute(&variables, &mut diagnostics);
            decode::<Any>(document.root(), &mut diagnostics);
            let _ = diagnostics.render(true);
        }
        Err(diagnostics) => {
            assert!(!diagnostics.is_empty());
            let _ = diagnostics.render(false) + &diagnostics.to_string();
        }
    }
}

#[test]
fn no_truncated_document_panics() {
    for end in (0..=VALID.len()).filter(|&end| VALID.is_char_boundary(end)) {
        read_whatever(&VALID[..end]);
        read_whatever(&VALID[end..]);
    }
}

#[test]
fn untagged_enums_in_each_other_do_not_take_forever() {
    read_whatever(&format!("{}x{}", "[".repeat(60), "]".repeat(60)));
    read_whatever(&format!("[{}]", "[a, {b: c}], ".repeat(10_000)));
}

proptest! {
    #[test]
    fn no_text_panics(text in "\\PC{0,200}") {
        read_whatever(&text);
    }

    #[test]
    fn no_text_made_of_yaml_panics(parts in prop::collection::vec(prop::sample::select(vec![
        "a", "b: ", "- ", "\n", "\n  ", "\n    ", "{", "}", "[", "]", ",", "'", "\"", "|", ">", "&a ", "*a", "<<: ", "? ",
        ": ", "\t", "#", "$", "${A}", "${", "$$", "\\", "!!str ", "!x ", "---\n", "...\n", "%", "é", "\r\n", "5s", "1e400",
        "\u{0}", "\u{feff}",
    ]), 0..60)) {
        read_whatever(&parts.concat());
    }
}
