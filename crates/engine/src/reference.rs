//! The options of a component in words, derived from the JSON schema of its configuration struct.
//!
//! `thalweg components NAME`, the reference pages and the Python package show the same text, so a doc comment
//! is written once. See [`Definition::reference`].

use serde_json::{Map, Value, json};

use crate::registry::Definition;

/// The options of a component.
#[derive(Debug)]
pub struct Reference {
    /// Its options, each followed by its own options.
    pub options: Vec<OptionReference>,
    /// The kind of value that the component accepts instead of options, such as "list of text"; `None` for
    /// options.
    pub kind: Option<String>,
}

/// An option of a component, or of another option.
#[derive(Debug)]
pub struct OptionReference {
    /// Its path, such as `rotate.size`.
    pub name: String,
    /// The number of options that contain it.
    pub depth: usize,
    /// The kind of its value, such as "whole number from 1".
    pub kind: String,
    /// Its default, in backticks.
    pub default: Option<String>,
    /// True if it must be given.
    pub required: bool,
    /// Its doc comment, with those of its possible values.
    pub description: String,
}

impl OptionReference {
    /// Returns its kind, whether it is required, and its default, in one line.
    pub fn facts(&self) -> String {
        let required = if self.required { ", required" } else { "" };
        let default = self.default.as_ref().map(|default| format!(", by default {default}"));
        format!("{}{required}{}", self.kind, default.unwrap_or_default())
    }
}

impl Definition {
    /// Returns the options in words.
    pub fn reference(&self) -> Reference {
        let schema = Value::from((self.schema)());
        let walker = Walker { root: &schema };
        let mut options = Vec::new();
        walker.collect(&schema, "", 0, &mut options);
        let kind = walker.kind(&schema, 0);
        Reference { options, kind: (kind != OPTIONS).then_some(kind) }
    }

    /// Returns everything that is known about the component, for programs.
    pub fn to_json(&self) -> Value {
        json!({
            "role": self.role.name(),
            "name": self.name,
            "summary": self.summary(),
            "description": self.description(),
            "schema": (self.schema)(),
            "example": self.example,
        })
    }
}

/// The kind of a value that has options itself.
const OPTIONS: &str = "options";

/// The depth at which a type that contains itself is cut off.
const DEEPEST: usize = 6;

struct Walker<'s> {
    root: &'s Value,
}

impl<'s> Walker<'s> {
    fn resolved(&self, schema: &'s Value) -> &'s Value {
        let reference = schema.get("$ref").and_then(Value::as_str).and_then(|text| text.strip_prefix('#'));
        reference.and_then(|pointer| self.root.pointer(pointer)).unwrap_or(schema)
    }

    /// Returns the alternatives of a schema, without `null`, which means that the option is left out.
    fn ways(&self, schema: &'s Value) -> Vec<&'s Value> {
        let schema = self.resolved(schema);
        let is_null = |way: &&Value| way.get("type").and_then(Value::as_str) == Some("null");
        match ["anyOf", "oneOf"].into_iter().find_map(|key| schema.get(key)?.as_array()) {
            Some(ways) => ways.iter().filter(|way| !is_null(way)).flat_map(|way| self.ways(way)).collect(),
            None => vec![schema],
        }
    }

    /// Collects the options of an object, each followed by its own options.
    fn collect(&self, schema: &'s Value, prefix: &str, depth: usize, found: &mut Vec<OptionReference>) {
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
                found.push(OptionReference {
                    name: full.clone(),
                    depth,
                    kind: self.kind(option, 0),
                    default: option.get("default").and_then(default_of),
                    required: required.contains(&name.as_str()) && !(tag && depth > 0),
                    description: self.description(option),
                });
                self.collect_inner(option, &full, depth + 1, found);
            }
        }
    }

    fn collect_inner(&self, option: &'s Value, name: &str, depth: usize, found: &mut Vec<OptionReference>) {
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

    /// Returns the description of an option and of its possible values.
    fn description(&self, option: &'s Value) -> String {
        let own = option.get("description").or_else(|| self.resolved(option).get("description"));
        let mut text = own.and_then(Value::as_str).unwrap_or_default().to_owned();
        for way in self.ways(option) {
            let description = way.get("description").and_then(Value::as_str);
            if let (Some(value), Some(description)) = (way.get("const").and_then(Value::as_str), description)
            {
                text += &format!("\n- `{value}`: {}", description.replace('\n', " "));
            }
        }
        text
    }

    /// Returns the kind of a value in words.
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
        // Sizes and time spans also accept plain numbers; their own page says so once.
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
        // The bounds of machine types are no information.
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

/// Renders a default; `None` for one that is empty.
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
