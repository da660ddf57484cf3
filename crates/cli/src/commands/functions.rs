//! `thalweg functions`.

use super::components::help_for;
use clap::Args;
use serde_json::{Value, json};
use thalweg_frontend::format::paragraphs;
use thalweg_frontend::{CommandError, Exit, Paint, print};
use thalweg_job::{FunctionGroup, FunctionInfo, function_aliases, functions};

/// Lists the functions of expressions, or shows one with an example.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  thalweg functions
  thalweg functions split_part
  thalweg functions regexp        all whose name contains it
  thalweg functions parse date    all whose name or description has these words")]
pub struct Arguments {
    /// The function to show, a part of its name, or words of its description. Without it, all are listed.
    #[arg(value_name = "NAME", add = super::candidates::function_names())]
    name: Vec<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &Arguments) -> Result<Exit, CommandError> {
    let name = arguments.name.join(" ").to_lowercase();
    let found = match name.trim() {
        "" => Found::All,
        name => named(name)?,
    };
    let text = match found {
        found if arguments.json => {
            format!("{:#}\n", found.functions().into_iter().map(as_json).collect::<Value>())
        }
        Found::All => listed(&found.functions()),
        Found::Named(found) => {
            let width = print::width().clamp(50, 100);
            found.into_iter().map(|function| page(function, width)).collect::<Vec<_>>().join("\n")
        }
        Found::Described(found) => summaries(&found, print::width().clamp(50, 100)),
    };
    print::out(&text)?;
    Ok(Exit::Done)
}

/// The functions to show.
enum Found {
    /// All functions, as a list.
    All,
    /// Functions whose names were given, with their pages.
    Named(Vec<&'static FunctionInfo>),
    /// Functions whose descriptions have words that were given, as a list.
    Described(Vec<&'static FunctionInfo>),
}

impl Found {
    fn functions(&self) -> Vec<&'static FunctionInfo> {
        match self {
            Found::All => functions().iter().collect(),
            Found::Named(found) | Found::Described(found) => found.clone(),
        }
    }
}

/// Returns the function of this name, or those whose names contain it, or those that have its words.
fn named(name: &str) -> Result<Found, CommandError> {
    let is_exact =
        |function: &FunctionInfo| function.name == name || function_aliases(function).contains(&name);
    if let Some(function) = functions().iter().find(|function| is_exact(function)) {
        return Ok(Found::Named(vec![function]));
    }
    let found: Vec<_> = functions().iter().filter(|function| function.name.contains(name)).collect();
    if !found.is_empty() {
        return Ok(Found::Named(found));
    }
    let most = functions().iter().map(|function| words_in(function, name)).max().unwrap_or(0);
    if most > 0 {
        let described = functions().iter().filter(|function| words_in(function, name) == most);
        return Ok(Found::Described(described.collect()));
    }
    let names: Vec<&str> = functions().iter().map(|function| function.name).collect();
    let help = help_for(name, &names, "thalweg functions");
    Err(CommandError::Usage(format!("there is no function `{name}`. {help}")))
}

/// Returns how many of these words begin a word of the name or the description of a function.
fn words_in(function: &FunctionInfo, words: &str) -> usize {
    let text = format!("{} {} {}", function.name, function.group.title(), function.help).to_lowercase();
    let has = |word: &&str| text.split(|c: char| !c.is_alphanumeric()).any(|found| found.starts_with(word));
    words.split_whitespace().filter(has).count()
}

/// A line for each function: its call and the first sentence of its description.
fn summaries(found: &[&FunctionInfo], width: usize) -> String {
    let paint = Paint::stdout();
    let mut text = String::new();
    for function in found {
        let first = function.help.split_inclusive(". ").next().unwrap_or(function.help);
        text += &format!("{}\n{}", paint.cyan(function.call), paragraphs(first, width, 2));
    }
    text + "`thalweg functions NAME` shows one with an example.\n"
}

fn listed(found: &[&FunctionInfo]) -> String {
    let paint = Paint::stdout();
    let mut text = String::new();
    for group in FunctionGroup::ALL {
        text += &format!("{}\n", paint.bold(group.title()));
        for function in found.iter().filter(|function| function.group == group) {
            text += &format!("  {}\n", paint.cyan(function.call));
        }
        text.push('\n');
    }
    text + "`thalweg functions NAME` shows one with an example.\n"
}

fn page(function: &FunctionInfo, width: usize) -> String {
    let paint = Paint::stdout();
    let mut text = format!("{}\n", paint.cyan(function.call));
    text += &paragraphs(function.help, width, 2);
    text += &format!("  {} = {}\n", paint.bold(function.example), function.result);
    let aliases = function_aliases(function);
    if !aliases.is_empty() {
        text += &format!("  also called {}\n", aliases.join(", "));
    }
    text
}

fn as_json(function: &FunctionInfo) -> Value {
    json!({
        "name": function.name,
        "aliases": function_aliases(function),
        "group": function.group.title(),
        "call": function.call,
        "help": function.help,
        "example": function.example,
        "result": function.result,
    })
}
