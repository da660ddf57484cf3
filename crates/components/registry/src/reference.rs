//! The reference pages: one Markdown page for each component, and the JSON schema of configurations.
//!
//! All text comes from the doc comments of the configuration structs. `make generate` writes the files; they
//! are kept in the repository so that they can be read without a build, and a test compares them with the
//! code.

use std::collections::BTreeMap;
use std::fmt::Write;

use thalweg_engine::{Definition, OptionReference, Reference, Registry, Role};
use thalweg_expression::{Group, aliases, functions};

/// The folder of the pages, from the root of the repository.
pub const FOLDER: &str = "docs/reference";

/// Returns all generated files: their paths from the root of the repository, and their text.
pub fn pages(registry: &Registry) -> BTreeMap<String, String> {
    let mut files: BTreeMap<String, String> =
        registry.iter().map(|known| (path(known), page(known))).collect();
    files.insert(format!("{FOLDER}/README.md"), index(registry));
    files.insert(format!("{FOLDER}/functions.md"), function_page());
    let schema = thalweg_engine::schema(registry);
    files.insert(format!("{FOLDER}/thalweg.schema.json"), format!("{schema:#}\n"));
    files
}

fn path(known: &Definition) -> String {
    format!("{FOLDER}/{}s/{}.md", known.role.name(), known.name)
}

fn index(registry: &Registry) -> String {
    let mut text = "# Components\n\nGenerated from the code by `make generate`. `thalweg components NAME` shows the same \
                    in a terminal.\n"
        .to_owned();
    for role in [Role::Source, Role::Transform, Role::Sink] {
        let _ = write!(text, "\n## {}\n\n| name | summary |\n| --- | --- |\n", title(role));
        for known in registry.iter().filter(|known| known.role == role) {
            let name = known.name;
            let _ = writeln!(text, "| [`{name}`]({}s/{name}.md) | {} |", role.name(), cell(&known.summary()));
        }
    }
    text
}

fn title(role: Role) -> &'static str {
    match role {
        Role::Source => "Sources",
        Role::Transform => "Transforms",
        Role::Sink => "Sinks",
    }
}

fn page(known: &Definition) -> String {
    let mut text = format!("# `{}` ({})\n\n{}\n", known.name, known.role.name(), known.description().trim());
    let Reference { options, kind } = known.reference();
    match kind.filter(|_| options.is_empty()) {
        Some(kind) => {
            let _ = write!(text, "\n## Value\n\n{kind}\n");
        }
        None if options.is_empty() => text += "\n## Options\n\nNone.\n",
        None => {
            text += "\n## Options\n\n";
            options.iter().for_each(|option| text += &shown(option));
        }
    }
    let _ = write!(text, "\n## Example\n\n```yaml\n{}\n```\n", known.example.trim());
    text
}

fn shown(option: &OptionReference) -> String {
    let indent = "  ".repeat(option.depth);
    let mut text = format!("{indent}- `{}`: {}\n", option.name, option.facts());
    for line in option.description.lines() {
        let _ = writeln!(text, "{}", format!("{indent}  {line}").trim_end());
    }
    text
}

fn function_page() -> String {
    let mut text = "# Functions\n\nThe functions of [expressions](../expressions.md), generated from the code by `make generate`. \
                    `thalweg functions NAME` shows the same in a terminal.\n"
        .to_owned();
    for group in Group::ALL {
        let _ = write!(text, "\n## {}\n\n| call | meaning | example |\n| --- | --- | --- |\n", group.title());
        for function in functions().iter().filter(|function| function.group == group) {
            let aliases = aliases(function);
            let also = match aliases.is_empty() {
                true => String::new(),
                false => format!(" Also called `{}`.", aliases.join("`, `")),
            };
            let help = format!("{}{also}", function.help);
            let example = format!("`{}` = `{}`", function.example, function.result);
            let _ = writeln!(text, "| `{}` | {} | {} |", cell(function.call), cell(&help), cell(&example));
        }
    }
    text
}

/// Text for a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}
