//! The JSON schema of a whole configuration, for editors.
//!
//! It describes what [`read`](crate::read) accepts, as far as a schema can. `thalweg check` checks which
//! names exist and how they are connected.

use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value, json};

use crate::component::Flow;
use crate::graph::Targets;
use crate::registry::{Definition, Registry, Role, inlined_schema};
use crate::settings::{BufferSettings, ByKey, Failover, PipelineSettings, Settings};

/// Returns the JSON schema (draft 2020-12) of configurations with the components of a registry.
pub fn schema(registry: &Registry) -> Value {
    let mut shared = Map::new();
    for role in [Role::Source, Role::Transform, Role::Sink] {
        let choices: Vec<Value> = registry
            .iter()
            .filter(|known| known.role == role)
            .flat_map(|known| forms(known, &mut shared))
            .collect();
        shared.insert(role.name().to_owned(), json!({ "oneOf": choices }));
    }
    shared.insert("to".to_owned(), to());
    shared.insert("pipeline".to_owned(), pipeline());

    let mut properties = properties_of::<Settings>();
    let sections = [
        ("sources", "source", "The sources of messages, by name."),
        ("pipelines", "pipeline", "The pipelines between sources and sinks, by name."),
        ("sinks", "sink", "The sinks of messages, by name."),
    ];
    for (section, what, description) in sections {
        let content = json!({
            "description": description,
            "type": "object",
            "propertyNames": { "pattern": r"^[\p{L}\p{N}_-]+$" },
            "additionalProperties": { "$ref": format!("#/$defs/{what}") },
            "minProperties": 1,
        });
        properties.insert(section.to_owned(), content);
    }
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "https://thalweg.dev/schema.json",
        "title": "thalweg configuration",
        "description": "Sources that read messages, pipelines that process them, and sinks that write them.",
        "type": "object",
        "properties": properties,
        "required": ["sources", "pipelines", "sinks"],
        "additionalProperties": false,
        "$defs": shared,
    })
}

/// Returns the forms of a component: an object with one key, and its name alone if it needs no options.
fn forms(known: &Definition, shared: &mut Map<String, Value>) -> Vec<Value> {
    let mut options = Value::from((known.schema)());
    hoist(&mut options, &format!("{}.{}.", known.role.name(), known.name), shared);
    if let Some(options) = options.as_object_mut() {
        options.remove("$schema");
        options.remove("title");
    }
    let name = known.name;
    let is_optional = options.get("type") == Some(&json!("object"))
        && options.get("required").and_then(Value::as_array).is_none_or(Vec::is_empty);
    let summary = known.summary();
    let mut forms = Vec::new();
    if is_optional {
        options = json!({ "anyOf": [options, { "type": "null" }] });
        forms.push(json!({ "const": name, "description": summary }));
    }
    let mut properties = Map::from_iter([(name.to_owned(), options)]);
    if known.role == Role::Transform && known.takes == Some(Flow::Files) {
        let mut targets = bare(inlined_schema::<Targets>());
        describe(&mut targets, "The files that it applies to, in a pipeline with `on_error: carry`.");
        properties.insert("for".to_owned(), targets);
    }
    if known.role == Role::Sink {
        properties.insert("buffer".to_owned(), bare(inlined_schema::<BufferSettings>()));
    }
    forms.push(json!({
        "type": "object",
        "description": summary,
        "properties": properties,
        "required": [name],
        "additionalProperties": false,
    }));
    forms
}

/// Moves the definitions of a schema into those of the whole. A schema has definitions if a type contains
/// itself.
fn hoist(schema: &mut Value, prefix: &str, shared: &mut Map<String, Value>) {
    let Some(Value::Object(definitions)) = schema.as_object_mut().and_then(|schema| schema.remove("$defs"))
    else {
        return;
    };
    rename(schema, prefix);
    for (name, mut definition) in definitions {
        rename(&mut definition, prefix);
        shared.insert(format!("{prefix}{name}"), definition);
    }
}

fn rename(schema: &mut Value, prefix: &str) {
    match schema {
        Value::Object(object) => {
            for (key, value) in object {
                match value.as_str().and_then(|reference| reference.strip_prefix("#/$defs/")) {
                    Some(name) if key == "$ref" => *value = format!("#/$defs/{prefix}{name}").into(),
                    _ => rename(value, prefix),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| rename(item, prefix)),
        _ => {}
    }
}

fn names(what: &str) -> Value {
    json!({ "type": "array", "items": { "type": "string" }, "minItems": 1, "description": what })
}

fn pipeline() -> Value {
    let mut properties = properties_of::<PipelineSettings>();
    let mut from = json!({ "anyOf": [{ "type": "string" }, names("Several feeds.")] });
    describe(
        &mut from,
        "The input: sources, other pipelines (`main`), their named outputs (`main.server_errors`), or rejected \
         messages (`main.errors`). A pipeline that the `to` of another one names needs none.",
    );
    properties.insert("from".to_owned(), from);
    let transforms = json!({
        "description": "The transforms of each message, in order.",
        "type": ["array", "null"],
        "items": { "$ref": "#/$defs/transform" },
    });
    properties.insert("transforms".to_owned(), transforms);
    properties.insert("to".to_owned(), json!({ "$ref": "#/$defs/to" }));
    properties.insert("buffer".to_owned(), bare(inlined_schema::<BufferSettings>()));
    json!({
        "type": "object",
        "properties": properties,
                "additionalProperties": false,
    })
}

fn to() -> Value {
    let one_way = |name: &str, content: Value| {
        json!({
            "type": "object",
            "properties": { name: content },
            "required": [name],
            "additionalProperties": false,
        })
    };
    json!({
        "description": "The target: a sink or another pipeline, a list of them (each gets a copy), or a way to choose among them.",
        "anyOf": [
            { "type": "string" },
            names("Each of these gets a copy."),
            one_way("round_robin", names("Each message goes to the next of these in turn.")),
            one_way("random", names("Each message goes to one of these at random.")),
            one_way("failover", names("Each batch goes to the first of these; if it cannot be delivered, to the next.")),
            one_way("failover", bare(inlined_schema::<Failover>())),
            one_way("by_key", bare(inlined_schema::<ByKey>())),
        ],
    })
}

fn describe(schema: &mut Value, description: &str) {
    if let Some(schema) = schema.as_object_mut() {
        schema.insert("description".to_owned(), description.into());
    }
}

fn bare(schema: Schema) -> Value {
    let mut schema = Value::from(schema);
    if let Some(schema) = schema.as_object_mut() {
        schema.remove("$schema");
        schema.remove("title");
    }
    schema
}

fn properties_of<T: JsonSchema>() -> Map<String, Value> {
    match inlined_schema::<T>().get_mut("properties").map(Value::take) {
        Some(Value::Object(properties)) => properties,
        _ => Map::new(),
    }
}
