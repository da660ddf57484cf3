//! `thalweg new`.

use std::path::PathBuf;

use clap::Args;
use thalweg_frontend::{CommandError, Exit, Paint, print, write_new};
use thalweg_job::did_you_mean;

/// A configuration to start from.
struct Template {
    name: &'static str,
    summary: &'static str,
    text: &'static str,
}

const TEMPLATES: [Template; 4] = [
    Template {
        name: "jsonl",
        summary: "JSON lines from files: parsed, filtered, written to a file (this one is written by default)",
        text: include_str!("../../templates/jsonl.yaml"),
    },
    Template {
        name: "access-log",
        summary: "the access log of a web server: parsed by a pattern, errors apart from the rest",
        text: include_str!("../../templates/access-log.yaml"),
    },
    Template {
        name: "csv",
        summary: "CSV files with a header: parsed, computed with, written as JSON",
        text: include_str!("../../templates/csv.yaml"),
    },
    Template {
        name: "generate",
        summary: "made-up messages to the screen: runs as it is, to try things out",
        text: include_str!("../../templates/generate.yaml"),
    },
];

/// Writes a small configuration to start from, with comments.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  thalweg new --list
  thalweg new -o first.yaml
  thalweg new generate | thalweg run -")]
pub struct Arguments {
    /// The template: see `--list`.
    #[arg(value_name = "TEMPLATE", default_value = TEMPLATES[0].name)]
    template: String,
    /// List the templates.
    #[arg(long)]
    list: bool,
    /// Write the configuration to this file, which must not exist. Without it, to the standard output.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub fn run(arguments: &Arguments) -> Result<Exit, CommandError> {
    if arguments.list {
        let paint = Paint::stdout();
        let lines = TEMPLATES.iter().map(|known| {
            let name = paint.cyan(&format!("{:10}", known.name));
            format!("  {name}  {}\n", known.summary)
        });
        print::out(&lines.collect::<String>())?;
        return Ok(Exit::Done);
    }
    let Some(template) = TEMPLATES.iter().find(|known| known.name == arguments.template) else {
        let help = did_you_mean(&arguments.template, &TEMPLATES.map(|known| known.name));
        return Err(CommandError::Usage(format!(
            "there is no template called `{}`; {help}",
            arguments.template
        )));
    };
    let Some(path) = &arguments.output else {
        print::out(template.text)?;
        return Ok(Exit::Done);
    };
    write_new(path, template.text)?;
    Ok(Exit::Done)
}
