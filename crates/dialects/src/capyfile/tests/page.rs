//! Checks that `docs/from-capyfile.md` agrees with the tables.

use std::fmt::Write as _;
use std::path::Path;

use crate::capyfile::tables::{KINDS, Need, SETTINGS};
use crate::capyfile::{SourceType, codes};

const BEGIN: &str = "cargo test --release -p thalweg-dialects -->\n";
const END: &str = "<!-- END -->\n";

fn row(out: &mut String, name: &str, becomes: &str) {
    let _ = writeln!(out, "| `{name}` | {} |", becomes.replace('|', "\\|"));
}

fn generated() -> String {
    let mut out = String::from("\n### Of every operation\n\n| key | what becomes of it |\n| --- | --- |\n");
    for (name, becomes) in SETTINGS {
        row(&mut out, name, becomes);
    }
    out.push_str("\n### Operations\n");
    for kind in KINDS {
        let _ = writeln!(out, "\n**`{}`** → {}", kind.name, kind.becomes);
        if kind.parameters.is_empty() {
            continue;
        }
        out.push_str("\n| parameter | what becomes of it |\n| --- | --- |\n");
        for rule in kind.parameters {
            let need = match rule.need {
                Need::Required => "required; ".to_owned(),
                Need::Assumed(value) => format!("`{value}` if it is missing (capyfile requires it); "),
                Need::Optional => String::new(),
            };
            row(&mut out, rule.name, &format!("{need}{}", rule.becomes));
        }
    }
    let types: Vec<String> = SourceType::NAMES.iter().map(|(name, _)| format!("`{name}`")).collect();
    let _ = writeln!(out, "\n### Types of sources\n\n{}.", types.join(", "));
    let all: Vec<String> = codes::CODES.iter().map(|(code, _)| format!("`{code}`")).collect();
    let _ = writeln!(out, "\n### Codes\n\n{}.", all.join(", "));
    out
}

/// Wraps paragraphs at 110 columns, as `make fmt` does. Tables and headings keep their lines.
fn wrapped(text: &str) -> String {
    let mut out = String::new();
    for line in text.lines() {
        let keeps_line = line.starts_with(['|', '#']);
        let mut column = 0;
        for word in line.split(' ') {
            let length = word.chars().count();
            if column > 0 {
                let fits = keeps_line || column + 1 + length <= 110;
                out.push(if fits { ' ' } else { '\n' });
                column = if fits { column + 1 } else { 0 };
            }
            out.push_str(word);
            column += length;
        }
        out.push('\n');
    }
    out
}

#[test]
fn it_says_what_the_tables_say() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/from-capyfile.md");
    let page = std::fs::read_to_string(&file).unwrap();
    let (head, rest) = page.split_once(BEGIN).expect("the comment before the generated part");
    let (written, tail) = rest.split_once(END).expect("the comment after it");
    let generated = wrapped(&generated());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&file, format!("{head}{BEGIN}{generated}{END}{tail}")).unwrap();
    } else {
        assert!(
            written == generated,
            "docs/from-capyfile.md is out of date: set UPDATE_DOCS=1 and run this test"
        );
    }
}
