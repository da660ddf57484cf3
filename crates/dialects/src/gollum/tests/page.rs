//! Checks that `docs/from-gollum.md` agrees with the tables.

use std::fmt::Write as _;

use super::tables::{OptionRule, OptionSupport, PluginKind, Role, kinds};
use crate::page;

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

#[test]
fn it_says_what_the_tables_say() {
    page::agrees("from-gollum.md", &generated());
}
