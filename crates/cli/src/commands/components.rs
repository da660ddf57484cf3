//! `thalweg components`.
//!
//! Pages are generated from the configuration structs: see [`Definition::reference`].

use clap::Args;
use serde_json::Value;
use thalweg_config::nearest;
use thalweg_engine::{Definition, OptionReference, Reference, Registry, Role};
use thalweg_frontend::format::paragraphs;
use thalweg_frontend::{CommandError, Exit, Paint, print};

/// Lists the sources, transforms and sinks, or shows one with its options and an example.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  thalweg components
  thalweg components file
  thalweg components parse_json --json | jq .schema")]
pub struct Arguments {
    /// The component to show. Without it, all are listed.
    #[arg(value_name = "NAME", add = super::candidates::components())]
    name: Option<String>,
    /// Print JSON: a list of components with their schemas and examples.
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &Arguments) -> Result<Exit, CommandError> {
    let registry = thalweg_job::registry();
    let wanted = |known: &&Definition| arguments.name.as_deref().is_none_or(|name| known.name == name);
    let found: Vec<&Definition> = registry.iter().filter(wanted).collect();
    if let ([], Some(name)) = (found.as_slice(), &arguments.name) {
        let mut names: Vec<&str> = registry.iter().map(|known| known.name).collect();
        names.sort_unstable();
        names.dedup();
        let help = help_for(name, &names, "thalweg components");
        return Err(CommandError::Usage(format!("there is no component called `{name}`. {help}")));
    }
    let text = if arguments.json {
        let all: Vec<Value> = found.into_iter().map(Definition::to_json).collect();
        format!("{:#}\n", Value::from(all))
    } else if arguments.name.is_some() {
        let width = print::width().clamp(50, 100);
        let pages = found.into_iter().map(|known| page(known, width, Paint::stdout()));
        pages.collect::<Vec<_>>().join("\n")
    } else {
        listed(&registry, print::width().clamp(50, 120), Paint::stdout())
    };
    print::out(&text)?;
    Ok(Exit::Done)
}

/// Helps with a name that is not in a list: advice for the name of another program, or a similar one, or the
/// command that lists all.
pub(super) fn help_for(name: &str, known: &[&str], command: &str) -> String {
    let near = || nearest(name, known.iter().copied()).map(|near| format!("Did you mean `{near}`?"));
    let advice = thalweg_engine::advice(None, name).map(str::to_owned);
    advice.or_else(near).unwrap_or_else(|| format!("`{command}` lists all."))
}

fn listed(registry: &Registry, width: usize, paint: Paint) -> String {
    let names = registry.iter().map(|known| known.name.chars().count());
    let column = names.max().unwrap_or(0);
    let indent = column + 4;
    let mut text = String::new();
    for (role, title) in [(Role::Source, "Sources"), (Role::Transform, "Transforms"), (Role::Sink, "Sinks")] {
        text += &format!("{}\n", paint.bold(title));
        for known in registry.iter().filter(|known| known.role == role) {
            let name = paint.cyan(&format!("{:column$}", known.name));
            let summary = paragraphs(&known.summary(), width, indent);
            text += &format!("  {name}  {}", summary.get(indent..).unwrap_or(&summary));
        }
        text.push('\n');
    }
    text += "`thalweg components NAME` shows one with its options and an example.\n";
    text
}

fn page(known: &Definition, width: usize, paint: Paint) -> String {
    let mut text =
        format!("{} {}\n\n", paint.bold(known.name), paint.dim(&format!("({})", known.role.name())));
    text += &paragraphs(&known.description(), width, 2);
    let Reference { options, kind } = known.reference();
    let heading = |title: &str| format!("\n{}\n", paint.bold(title));
    if let (true, Some(kind)) = (options.is_empty(), kind) {
        text += &heading("Value");
        text += &paragraphs(&kind, width, 2);
    } else {
        text += &heading("Options");
        for option in &options {
            text += &shown(option, width, paint);
        }
        if options.is_empty() {
            text += "  none\n";
        }
    }
    text += &heading("Example");
    for line in known.example.trim().lines() {
        text += format!("  {line}").trim_end();
        text.push('\n');
    }
    text
}

/// Renders an option for a terminal.
fn shown(option: &OptionReference, width: usize, paint: Paint) -> String {
    let indent = 2 + 2 * option.depth;
    let head = paragraphs(&format!("{}  {}", option.name, option.facts()), width, indent);
    // The lines after the first are indented further.
    let mut lines = head.lines();
    let first = lines.next().unwrap_or_default().trim_start();
    let (name, facts) = first.split_once(' ').unwrap_or((first, ""));
    let mut text = format!("{:indent$}{}  {facts}\n", "", paint.cyan(name));
    for line in lines {
        text += &format!("    {line}\n");
    }
    if !option.description.is_empty() {
        text += &paragraphs(&option.description, width, indent + 4);
    }
    text
}
