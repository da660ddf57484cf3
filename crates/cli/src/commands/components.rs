//! `thalweg components`.
//!
//! The page of a component is derived from its configuration struct: the JSON schema has the types, the
//! defaults and the doc comments.

use clap::Args;
use serde_json::{Map, Value};
use thalweg_engine::{Definition, Registry, Role};
use thalweg_frontend::format::paragraphs;
use thalweg_frontend::{CommandError, Exit, Paint, print};
use thalweg_job::{description, did_you_mean};

/// Lists the sources, transforms and sinks, or shows one with its options and an example.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  thalweg components
  thalweg components file
  thalweg components parse_json --json | jq .schema")]
pub struct Arguments {
    /// The component to show. Without it, all are listed.
    #[arg(value_name = "NAME")]
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
        let help = did_you_mean(name, &names);
        return Err(CommandError::Usage(format!("there is no component called `{name}`; {help}")));
    }
    let text = if arguments.json {
        let all: Vec<Value> = found.into_iter().map(description).collect();
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
    let schema = Value::from((known.schema)());
    let mut text =
        format!("{} {}\n\n", paint.bold(known.name), paint.dim(&format!("({})", known.role.name())));
    text += &paragraphs(&known.description(), width, 2);
    let mut options = Vec::new();
    Walker { root: &schema }.collect(&schema, "", 0, &mut options);
    let heading = |title: &str| format!("\n{}\n", paint.bold(title));
    let kind = Walker { root: &schema }.kind(&schema, 0);
    if options.is_empty() && kind == OPTIONS {
        text += &heading("Options");
        text += "  none\n";
    } else if options.is_empty() {
        text += &heading("Value");
        text += &paragraphs(&kind, width, 2);
    } else {
        text += &heading("Options");
        for option in &options {
            text += &option.shown(width, paint);
        }
    }
    text += &heading("Example");
    for line in known.example.trim().lines() {
        text += format!("  {line}").trim_end();
        text.push('\n');
    }
    text
}

/// An option of a component, or of an option of it.
struct Described {
    /// `rotate.size`.
    name: String,
    depth: usize,
    kind: String,
    default: Option<String>,
    is_required: bool,
    description: String,
}

impl Described {
    fn shown(&self, width: usize, paint: Paint) -> String {
        let indent = 2 + 2 * self.depth;
        let mut facts = self.kind.clone();
        if self.is_required {
            facts += ", required";
        }
        if let Some(default) = &self.default {
            facts += &format!(", by default {default}");
        }
        let head = paragraphs(&format!("{}  {facts}", self.name), width, indent);
        // A line that continues stands further in.
        let mut lines = head.lines();
        let first = lines.next().unwrap_or_default().trim_start();
        let (name, facts) = first.split_once(' ').unwrap_or((first, ""));
        let mut text = format!("{:indent$}{}  {facts}\n", "", paint.cyan(name));
        for line in lines {
            text += &format!("    {line}\n");
        }
        if !self.description.is_empty() {
            text += &paragraphs(&self.description, width, indent + 4);
        }
        text
    }
}

/// How the kind of an option is called that has options itself.
const OPTIONS: &str = "options";

/// Types may contain themselves.
const DEEPEST: usize = 6;

struct Walker<'s> {
    root: &'s Value,
}

impl<'s> Walker<'s> {
    fn resolved(&self, schema: &'s Value) -> &'s Value {
        let reference = schema.get("$ref").and_then(Value::as_str).and_then(|text| text.strip_prefix('#'));
        reference.and_then(|pointer| self.root.pointer(pointer)).unwrap_or(schema)
    }

    /// The ways to give something, without `null`, which is to leave it out.
    fn ways(&self, schema: &'s Value) -> Vec<&'s Value> {
        let schema = self.resolved(schema);
        let is_null = |way: &&Value| way.get("type").and_then(Value::as_str) == Some("null");
        match ["anyOf", "oneOf"].into_iter().find_map(|key| schema.get(key)?.as_array()) {
            Some(ways) => ways.iter().filter(|way| !is_null(way)).flat_map(|way| self.ways(way)).collect(),
            None => vec![schema],
        }
    }

    /// All options of an object, those of options behind them.
    fn collect(&self, schema: &'s Value, prefix: &str, depth: usize, found: &mut Vec<Described>) {
        if depth >= DEEPEST {
            return;
        }
        let mut properties: Map<String, Value> = Map::new();
        for way in self.ways(schema) {
            let required: Vec<&str> = way
                .get("required")
                .and_then(Value::as_array)
                .map(|names| names.iter().filter_map(Value::as_str).collect())
                .unwrap_or_default();
            let Some(options) = way.get("properties").and_then(Value::as_object) else { continue };
            for (name, option) in options {
                if properties.insert(name.clone(), Value::Null).is_some() {
                    continue;
                }
                let full = format!("{prefix}{name}");
                let tag = options.len() == 1 && required == [name.as_str()];
                found.push(Described {
                    name: full.clone(),
                    depth,
                    kind: self.kind(option, 0),
                    default: option.get("default").and_then(default_of),
                    is_required: required.contains(&name.as_str()) && !(tag && depth > 0),
                    description: self.description(option),
                });
                self.collect_inner(option, &full, depth + 1, found);
            }
        }
    }

    fn collect_inner(&self, option: &'s Value, name: &str, depth: usize, found: &mut Vec<Described>) {
        self.collect(option, &format!("{name}."), depth, found);
        for way in self.ways(option) {
            if let Some(items) = way.get("items") {
                self.collect(items, &format!("{name}[]."), depth, found);
            }
            if let Some(values) = way.get("additionalProperties").filter(|values| values.is_object()) {
                self.collect(values, &format!("{name}.*."), depth, found);
            }
        }
    }

    /// The description of an option with those of the values it can have.
    fn description(&self, option: &'s Value) -> String {
        let own = option.get("description").or_else(|| self.resolved(option).get("description"));
        let mut text = own.and_then(Value::as_str).unwrap_or_default().to_owned();
        for way in self.ways(option) {
            let told = way.get("description").and_then(Value::as_str);
            if let (Some(value), Some(told)) = (way.get("const").and_then(Value::as_str), told) {
                text += &format!("\n- `{value}`: {}", told.replace('\n', " "));
            }
        }
        text
    }

    /// The kind of a value, in words.
    fn kind(&self, schema: &'s Value, depth: usize) -> String {
        if depth >= DEEPEST {
            return "a value".to_owned();
        }
        let mut kinds: Vec<String> = Vec::new();
        for way in self.ways(schema) {
            let kind = self.one_kind(way, depth);
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        // Sizes and times may be given as plain numbers, which is said once, where they are explained.
        if kinds.iter().any(|kind| kind == "size" || kind == "time span") {
            kinds.retain(|kind| !kind.starts_with("whole number") && !kind.starts_with("number"));
        }
        match kinds.as_slice() {
            [] => "nothing".to_owned(),
            [one] => one.clone(),
            [all @ .., last] => format!("{} or {last}", all.join(", ")),
        }
    }

    fn one_kind(&self, way: &'s Value, depth: usize) -> String {
        if let Some(value) = way.get("const") {
            return code(value);
        }
        if let Some(values) = way.get("enum").and_then(Value::as_array) {
            let values: Vec<String> = values.iter().filter(|value| !value.is_null()).map(code).collect();
            return match values.as_slice() {
                [all @ .., last] if !all.is_empty() => format!("{} or {last}", all.join(", ")),
                _ => values.join(""),
            };
        }
        let types: Vec<&str> = match way.get("type") {
            Some(Value::String(one)) => vec![one],
            Some(Value::Array(several)) => several.iter().filter_map(Value::as_str).collect(),
            _ if way.get("properties").is_some() => vec!["object"],
            _ => Vec::new(),
        };
        let words = types.iter().filter(|name| **name != "null").map(|name| match *name {
            "string" => text_kind(way),
            "integer" => format!("whole number{}", range(way)),
            "number" => format!("number{}", range(way)),
            "boolean" => "true or false".to_owned(),
            "array" => match way.get("items") {
                Some(items) => format!("list of {}", self.kind(items, depth + 1)),
                None => "list".to_owned(),
            },
            "object" => match way.get("additionalProperties").filter(|values| values.is_object()) {
                Some(values) => format!("mapping of names to {}", self.kind(values, depth + 1)),
                None => OPTIONS.to_owned(),
            },
            other => other.to_owned(),
        });
        let words: Vec<String> = words.collect();
        if words.is_empty() { "any value".to_owned() } else { words.join(" or ") }
    }
}

fn text_kind(way: &Value) -> String {
    match way.get("format").and_then(Value::as_str) {
        None => "text".to_owned(),
        Some("byte-size") => "size".to_owned(),
        Some("time-span") => "time span".to_owned(),
        Some("regex") => "regular expression".to_owned(),
        Some("sql") => "SQL expression".to_owned(),
        Some(other) => other.replace('-', " "),
    }
}

fn range(way: &Value) -> String {
    let bound = |key: &str| way.get(key).filter(|bound| bound.as_f64() != Some(0.0) || key == "maximum");
    match (bound("minimum"), bound("maximum")) {
        // The bounds of the machine's types say nothing to a person.
        (None, Some(most))
            if most.as_f64().is_some_and(|most| most < 1e6 && ![255.0, 65535.0].contains(&most)) =>
        {
            format!(" up to {most}")
        }
        (Some(least), Some(most)) if most.as_f64().is_some_and(|most| most < 1e6) => {
            format!(" from {least} to {most}")
        }
        (Some(least), _) => format!(" from {least}"),
        _ => String::new(),
    }
}

fn code(value: &Value) -> String {
    match value {
        Value::String(text) => format!("`{text}`"),
        other => format!("`{other}`"),
    }
}

/// A default worth a mention.
fn default_of(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::Array(items) if items.is_empty() => None,
        Value::Object(entries) if entries.is_empty() => None,
        Value::String(text) if text.is_empty() => None,
        Value::String(text) if text.contains(char::is_control) => Some(format!("`{}`", text.escape_debug())),
        Value::String(text) => Some(format!("`{text}`")),
        other => Some(format!("`{other}`")),
    }
}
