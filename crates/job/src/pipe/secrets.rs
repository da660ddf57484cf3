//! Variables in place of the secrets of transforms, for a configuration that is printed.

use serde_json::Value as Json;
use thalweg_config::{Node, Value};
use thalweg_engine::{Registry, Role};
use thalweg_redact::is_named_like_a_secret;

/// Puts variables in place of the options of a transform that are named like secrets, at any depth. A name
/// that the user chooses, as in `rename`, is no option.
pub(super) fn hide_secrets(transform: &mut Node, registry: &Registry) {
    let Value::Mapping(entries) = &mut transform.value else { return };
    for (key, options) in entries {
        let Some(known) = registry.get(Role::Transform, &key.name) else {
            hide_options(options, &Json::Null, &[&Json::Null]);
            continue;
        };
        let schema = &known.to_json()["schema"];
        hide_options(options, schema, &[schema]);
    }
}

/// Puts variables in place of secrets in a value that has one of these schemas within `root`. The tree has
/// the limited depth of a document.
fn hide_options(node: &mut Node, root: &Json, schemas: &[&Json]) {
    let layers: Vec<&Json> = schemas.iter().flat_map(|schema| layers(root, schema, DEEPEST)).collect();
    match &mut node.value {
        Value::Sequence(items) => {
            let inner: Vec<&Json> = layers.iter().filter_map(|layer| layer.get("items")).collect();
            items.iter_mut().for_each(|item| hide_options(item, root, &inner));
        }
        Value::Mapping(entries) => {
            let others = layers.iter().filter_map(|layer| layer.get("additionalProperties"));
            let others: Vec<&Json> = others.filter(|schema| schema.is_object()).collect();
            for (key, value) in entries {
                let known = layers.iter().filter_map(|layer| layer.get("properties")?.get(&key.name));
                let known: Vec<&Json> = known.collect();
                let is_option = !known.is_empty() || others.is_empty();
                match is_option && is_named_like_a_secret(&key.name) {
                    true => hide_values(value, &key.name),
                    false => hide_options(value, root, if known.is_empty() { &others } else { &known }),
                }
            }
        }
        _ => {}
    }
}

/// Puts a variable in place of each text and number in the value of an option.
fn hide_values(node: &mut Node, name: &str) {
    match &mut node.value {
        Value::Sequence(items) => items.iter_mut().for_each(|item| hide_values(item, name)),
        Value::Mapping(entries) => entries.iter_mut().for_each(|(_, value)| hide_values(value, name)),
        _ => {
            let variable = match node.text() {
                Some(text) if text.starts_with("${") && text.ends_with('}') => text.to_owned(),
                Some(_) => format!("${{{}}}", variable(name)),
                None => return,
            };
            *node = Node::with_variables(node.span, &variable);
        }
    }
}

/// Returns the name of a variable for an option.
fn variable(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }).collect()
}

/// The most references and choices that are followed in a schema.
const DEEPEST: usize = 16;

/// Returns a schema, and those that it refers to or chooses from.
fn layers<'s>(root: &'s Json, schema: &'s Json, depth: usize) -> Vec<&'s Json> {
    let mut found = vec![schema];
    let Some(depth) = depth.checked_sub(1) else { return found };
    let target = schema.get("$ref").and_then(Json::as_str).and_then(|reference| reference.strip_prefix('#'));
    let target = target.and_then(|place| root.pointer(place));
    let choices = ["allOf", "anyOf", "oneOf"].iter().filter_map(|choice| schema.get(*choice)?.as_array());
    let next = target.into_iter().chain(choices.flatten());
    found.extend(next.flat_map(|next| layers(root, next, depth)));
    found
}
