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
  thalweg functions regexp        all whose name contains it")]
pub struct Arguments {
    /// The function to show, or a part of its name. Without it, all are listed.
    #[arg(value_name = "NAME", add = super::candidates::function_names())]
    name: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &Arguments) -> Result<Exit, CommandError> {
    let found = match &arguments.name {
        Some(name) => named(&name.to_lowercase())?,
        None => functions().iter().collect(),
    };
    let text = if arguments.json {
        format!("{:#}\n", found.into_iter().map(as_json).collect::<Value>())
    } else if arguments.name.is_some() {
        let width = print::width().clamp(50, 100);
        found.into_iter().map(|function| page(function, width)).collect::<Vec<_>>().join("\n")
    } else {
        listed(&found)
    };
    print::out(&text)?;
    Ok(Exit::Done)
}

/// Returns the function of this name, or those whose names contain it.
fn named(name: &str) -> Result<Vec<&'static FunctionInfo>, CommandError> {
    let is_exact =
        |function: &FunctionInfo| function.name == name || function_aliases(function).contains(&name);
    if let Some(function) = functions().iter().find(|function| is_exact(function)) {
        return Ok(vec![function]);
    }
    let found: Vec<_> = functions().iter().filter(|function| function.name.contains(name)).collect();
    if !found.is_empty() {
        return Ok(found);
    }
    let names: Vec<&str> = functions().iter().map(|function| function.name).collect();
    let help = help_for(name, &names, "thalweg functions");
    Err(CommandError::Usage(format!("there is no function `{name}`. {help}")))
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
