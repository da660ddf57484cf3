//! Checks that `docs/from-gollum.md` agrees with the tables.

use std::fmt::Write as _;
use std::path::Path;

use super::tables::{OptionRule, OptionSupport, PluginKind, Role, kinds};

const BEGIN: &str = "cargo test --release -p thalweg-dialects -->\n";
const END: &str = "<!-- END -->\n";

fn support(rule: &OptionRule) -> String {
    match rule.support {
        OptionSupport::Used(how) => how.to_owned(),
        OptionSupport::Idle(why) => format!("*accepted, and has no effect:* {why}"),
        OptionSupport::Refused(instead) => format!("*refused:* {instead}"),
    }
}

fn options<'a>(out: &mut String, rules: impl IntoIterator<Item = &'a OptionRule>) {
    out.push_str("| option | what becomes of it |\n| --- | --- |\n");
    for rule in rules {
        let _ = writeln!(out, "| `{}` | {} |", rule.name, support(rule).replace('|', "\\|"));
    }
    out.push('\n');
}

fn plugin(out: &mut String, kind: &PluginKind) {
    match kind.refused {
        Some(why) => {
            let _ = writeln!(out, "**`{}`**: *refused:* {why}\n", kind.name);
        }
        None if kind.options.is_empty() => {
            let _ = writeln!(out, "**`{}`** → {}\n", kind.name, kind.becomes);
        }
        None => {
            let _ = writeln!(out, "**`{}`** → {}\n", kind.name, kind.becomes);
            options(out, kind.options);
        }
    }
}

fn generated() -> String {
    let mut out = String::new();
    for (role, title) in [
        (Role::Consumer, "Consumers"),
        (Role::Router, "Routers"),
        (Role::Filter, "Filters"),
        (Role::Formatter, "Formatters"),
        (Role::Producer, "Producers"),
    ] {
        let of_role = || kinds().filter(|kind| kind.role == role);
        let _ = writeln!(out, "\n### {title}\n");
        let mut shared: Vec<&OptionRule> = Vec::new();
        for rule in of_role().flat_map(|kind| kind.shared.iter().copied().flatten()) {
            if !shared.iter().any(|known| known.name == rule.name) {
                shared.push(rule);
            }
        }
        let _ = writeln!(out, "Options that several of them share:\n");
        options(&mut out, shared);
        of_role().for_each(|kind| plugin(&mut out, kind));
    }
    format!("{}\n", out.trim_end())
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
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/from-gollum.md");
    let page = std::fs::read_to_string(&file).unwrap();
    let (head, rest) = page.split_once(BEGIN).expect("the comment before the generated part");
    let (written, tail) = rest.split_once(END).expect("the comment after it");
    let generated = wrapped(&generated());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&file, format!("{head}{BEGIN}{generated}{END}{tail}")).unwrap();
    } else {
        assert!(
            written == generated,
            "docs/from-gollum.md is out of date: set UPDATE_DOCS=1 and run this test"
        );
    }
}
