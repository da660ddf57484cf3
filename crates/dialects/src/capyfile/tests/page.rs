//! Checks that `docs/from-capyfile.md` agrees with the tables.

use std::fmt::Write as _;

use crate::capyfile::tables::{KINDS, Need, SETTINGS};
use crate::capyfile::{SourceType, codes};
use crate::page;

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

#[test]
fn it_says_what_the_tables_say() {
    page::agrees("from-capyfile.md", &generated());
}
