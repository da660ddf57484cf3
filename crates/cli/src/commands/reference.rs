//! `thalweg reference`: the page of all commands, and the man pages. It is hidden: `make generate` and `make
//! dist` call it.

use std::path::PathBuf;

use clap::{Arg, Args, Command, CommandFactory};
use thalweg_frontend::{CommandError, Exit, print};

/// Prints the reference page of all commands, or writes the man pages.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Write a man page for each command into this folder, instead of printing the page.
    #[arg(long, value_name = "DIR")]
    man: Option<PathBuf>,
}

pub fn run(arguments: &Arguments) -> Result<Exit, CommandError> {
    let mut command = super::CommandLine::command();
    command.build();
    match &arguments.man {
        Some(folder) => {
            std::fs::create_dir_all(folder)?;
            // Their dates would differ from build to build.
            clap_mangen::generate_to(command.disable_help_flag(true), folder)?;
        }
        None => print::out(&page(&command))?,
    }
    Ok(Exit::Done)
}

/// The page, in Markdown.
fn page(command: &Command) -> String {
    let mut text = "# Commands\n\nGenerated from the code by `make generate`. `thalweg COMMAND --help` shows the same in a \
                    terminal.\n\n| command | what it does |\n| --- | --- |\n"
        .to_owned();
    let commands = || command.get_subcommands().filter(|command| !command.is_hide_set());
    for command in commands() {
        let name = command.get_name();
        text += &format!("| [`{name}`](#thalweg-{name}) | {} |\n", cell(&about(command)));
    }
    text += &format!("\n## Exit codes\n\n{}", listed(&exit_codes(command)));
    for command in commands() {
        text += &section(command, &format!("thalweg {}", command.get_name()), 2);
    }
    text
}

/// The first sentence of a command.
fn about(command: &Command) -> String {
    command.get_about().map(ToString::to_string).unwrap_or_default()
}

/// The section of a command, and those of its own commands.
fn section(command: &Command, name: &str, depth: usize) -> String {
    let heading = "#".repeat(depth);
    let about = command.get_long_about().or(command.get_about()).map(ToString::to_string).unwrap_or_default();
    let mut text = format!("\n{heading} `{name}`\n\n{}\n", about.trim());
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").trim();
    text += &format!("\n```text\n{usage}\n```\n");
    text += &options(command);
    if let Some(after) = command.get_after_help() {
        text += &format!("\n```text\n{}\n```\n", after.to_string().trim_end());
    }
    for inner in command.get_subcommands().filter(|command| !command.is_hide_set()) {
        text += &section(inner, &format!("{name} {}", inner.get_name()), depth + 1);
    }
    text
}

/// The arguments and options of a command, under their headings.
fn options(command: &Command) -> String {
    let mut headings: Vec<(Option<&str>, Vec<&Arg>)> = Vec::new();
    let shown = command
        .get_arguments()
        .filter(|arg| !arg.is_hide_set() && !["help", "version"].contains(&arg.get_id().as_str()));
    for arg in shown {
        let heading = arg.get_help_heading();
        match headings.iter_mut().find(|(known, _)| *known == heading) {
            Some((_, args)) => args.push(arg),
            None => headings.push((heading, vec![arg])),
        }
    }
    let mut text = String::new();
    for (heading, args) in headings {
        if let Some(heading) = heading {
            text += &format!("\n{heading}:\n");
        }
        text += "\n| option | meaning |\n| --- | --- |\n";
        for arg in args {
            text += &format!("| {} | {} |\n", spelled(arg), cell(&meaning(arg)));
        }
    }
    text
}

/// How an option is written: `` `--limit N` ``.
fn spelled(arg: &Arg) -> String {
    let values: Vec<&str> = arg.get_value_names().into_iter().flatten().map(|name| name.as_str()).collect();
    let values = if arg.get_action().takes_values() { values.join(" ") } else { String::new() };
    let short = arg.get_short().map(|short| format!("-{short}"));
    let long = arg.get_long().map(|long| format!("--{long}"));
    let names: Vec<String> = short.into_iter().chain(long).collect();
    let text = format!("{} {values}", names.join(", "));
    format!("`{}`", text.trim().replace('|', "\\|"))
}

/// The meaning of an option, its values and its default.
fn meaning(arg: &Arg) -> String {
    let mut text = arg.get_long_help().or(arg.get_help()).map(ToString::to_string).unwrap_or_default();
    if !text.ends_with(['.', '!', '?']) {
        text.push('.');
    }
    let values: Vec<String> = arg
        .get_possible_values()
        .iter()
        .filter(|value| !value.is_hide_set())
        .map(|value| format!("`{}`", value.get_name()))
        .collect();
    if !values.is_empty() && arg.get_action().takes_values() {
        text += &format!(" Values: {}.", values.join(", "));
    }
    let defaults: Vec<String> =
        arg.get_default_values().iter().map(|value| format!("`{}`", value.to_string_lossy())).collect();
    if !defaults.is_empty() && !arg.is_hide_default_value_set() && arg.get_action().takes_values() {
        text += &format!(" The default is {}.", defaults.join(", "));
    }
    text
}

/// A text in a cell of a table.
fn cell(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").replace('|', "\\|").replace('<', "&lt;")
}

/// The exit codes of all commands: the last part of the help.
fn exit_codes(command: &Command) -> Vec<(String, String)> {
    let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let (_, codes) = help.split_once("Exit codes:\n").unwrap_or_default();
    let mut found: Vec<(String, String)> = Vec::new();
    for line in codes.lines() {
        match line.trim().split_once("  ").filter(|(code, _)| code.parse::<u8>().is_ok()) {
            Some((code, meaning)) => found.push((code.to_owned(), meaning.to_owned())),
            None => found
                .iter_mut()
                .rev()
                .take(1)
                .for_each(|(_, meaning)| *meaning += &format!(" {}", line.trim())),
        }
    }
    found
}

fn listed(codes: &[(String, String)]) -> String {
    let rows = codes.iter().map(|(code, meaning)| format!("| {code} | {} |\n", cell(meaning)));
    format!("| code | meaning |\n| --- | --- |\n{}", rows.collect::<String>())
}
