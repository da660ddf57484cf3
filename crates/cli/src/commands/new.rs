//! `thalweg new`.

use std::path::{Path, PathBuf};

use clap::Args;
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use thalweg_frontend::{CommandError, Exit, Paint, print, write_new};
use thalweg_job::did_you_mean;

/// A configuration to start from.
struct Template {
    name: &'static str,
    summary: &'static str,
    text: &'static str,
    /// The input that it reads: the name of a file, and its text.
    sample: Option<(&'static str, &'static str)>,
}

const TEMPLATES: [Template; 4] = [
    Template {
        name: "jsonl",
        summary: "JSON lines from files: parsed, filtered, written to a file (this one is written by default)",
        text: include_str!("../../templates/jsonl.yaml"),
        sample: Some(("input/sample.jsonl", include_str!("../../templates/sample.jsonl"))),
    },
    Template {
        name: "access-log",
        summary: "the access log of a web server: parsed by a pattern, errors apart from the rest",
        text: include_str!("../../templates/access-log.yaml"),
        sample: Some(("logs/access.log", include_str!("../../templates/access.log"))),
    },
    Template {
        name: "csv",
        summary: "CSV files with a header: parsed, computed with, written as JSON",
        text: include_str!("../../templates/csv.yaml"),
        sample: Some(("sales/sample.csv", include_str!("../../templates/sample.csv"))),
    },
    Template {
        name: "generate",
        summary: "made-up messages to the screen: runs as it is, to try things out",
        text: include_str!("../../templates/generate.yaml"),
        sample: None,
    },
];

/// The templates that a shell completes.
fn templates() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let candidate =
            |known: &Template| CompletionCandidate::new(known.name).help(Some(known.summary.into()));
        TEMPLATES.iter().map(candidate).collect()
    })
}

/// Writes a small configuration to start from, with comments.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  thalweg new --list
  thalweg new -o first.yaml
  thalweg new generate | thalweg run -")]
pub struct Arguments {
    /// The template: see `--list`.
    #[arg(value_name = "TEMPLATE", default_value = TEMPLATES[0].name, add = templates())]
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
    template.sample.map_or(Ok(()), |(name, text)| write_sample(Path::new(name), text))?;
    Ok(Exit::Done)
}

/// Writes input for a template, so that it runs at once. A folder that exists is left as it is: it may have
/// the user's own input.
fn write_sample(path: &Path, text: &str) -> Result<(), CommandError> {
    let Some(folder) = path.parent().filter(|folder| std::fs::symlink_metadata(folder).is_err()) else {
        return Ok(());
    };
    let written = std::fs::create_dir(folder).and_then(|()| std::fs::write(path, text));
    let shown = path.display();
    written.map_err(|error| CommandError::Failed(format!("`{shown}` cannot be written: {error}")))?;
    print::err(&format!("wrote {shown}, which it reads: replace it by your own input\n"));
    Ok(())
}
