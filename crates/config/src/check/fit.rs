//! Decides whether the type of a value fits, and converts a value that fits leniently.

use std::collections::HashSet;

use super::number::{Number, number};
use super::schema::{Layers, types};
use crate::{Node, Value, scalar};

/// How well the type of a value fits.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Fit {
    Exact,
    /// The value is decoded after a conversion: a number to text, a text to the number it spells, or no value
    /// to an empty mapping.
    Lenient,
    No,
}

/// Returns how well the type of `node` fits.
pub(super) fn fit(node: &Node, layers: &Layers<'_>) -> Fit {
    let Some(types) = types(layers) else { return Fit::Exact };
    let has = |kind: &str| types.contains(&kind);
    let whole = matches!(number(node), Some(Number::Whole(_)));
    let exact = match &node.value {
        Value::Null => has("null"),
        Value::Bool(_) => has("boolean"),
        Value::Integer(_) => has("integer") || has("number"),
        Value::Float(_) => has("number") || has("integer") && whole,
        Value::String(_) => has("string"),
        Value::Sequence(_) => has("array"),
        Value::Mapping(_) => has("object"),
    };
    if exact {
        return Fit::Exact;
    }
    let lenient = match &node.value {
        Value::Null => has("object"),
        Value::Bool(_) | Value::Integer(_) | Value::Float(_) => has("string") && node.text().is_some(),
        Value::String(text) => {
            has("boolean") && matches!(scalar::typed(text.trim()), Value::Bool(_))
                || has("integer") && whole
                || has("number") && number(node).is_some()
        }
        _ => false,
    };
    if lenient { Fit::Lenient } else { Fit::No }
}

/// Returns a copy of the node in which each node of `those` is converted to the type that its schema
/// requires.
pub(super) fn retyped(node: &Node, those: &HashSet<*const Node>) -> Node {
    let mut raw = node.raw.clone();
    let value = match &node.value {
        Value::Sequence(items) => Value::Sequence(items.iter().map(|item| retyped(item, those)).collect()),
        Value::Mapping(entries) => {
            Value::Mapping(entries.iter().map(|(key, value)| (key.clone(), retyped(value, those))).collect())
        }
        value if !those.contains(&std::ptr::from_ref(node)) => value.clone(),
        Value::Null => Value::Mapping(Vec::new()),
        Value::String(text) => {
            raw = Some(text.trim().into());
            scalar::typed(text.trim())
        }
        value => node.text().map_or_else(|| value.clone(), |text| Value::String(text.to_owned())),
    };
    let Node { span, substituted, has_variables, .. } = *node;
    Node { span, value, raw, substituted, has_variables }
}
