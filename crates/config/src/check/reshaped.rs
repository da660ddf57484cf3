//! A value of the wrong kind in the form that is wanted, with the names that the user wrote.

use thalweg_redact::is_named_like_a_secret;

use super::Context;
use crate::{Node, Value};

/// The most names that are repeated, and the longest.
const MOST: usize = 5;
const LONGEST: usize = 40;

/// Returns the keys of a mapping as a list. `None` for `{name}`, which is probably a text without its quotes.
pub(super) fn as_list(node: &Node) -> Option<String> {
    let entries = node.as_mapping()?;
    if entries.iter().all(|(_, value)| value.is_null()) {
        return None;
    }
    let names = plain_names(entries.iter().map(|(key, _)| Some(key.name.as_str())))?;
    Some(format!("[{}]", names.join(", ")))
}

/// Returns a list of names or of mappings, or a text such as `a = 1`, as one mapping.
pub(super) fn as_mapping(node: &Node, context: &Context<'_>) -> Option<String> {
    if context.name.is_some_and(|name| name == "auth" || is_named_like_a_secret(name)) {
        return None;
    }
    let names = match &node.value {
        Value::Sequence(items) => plain_names(items.iter().map(name_of))?,
        Value::String(text) if !node.substituted => {
            plain_names(std::iter::once(text.split_once('=').map(|(name, _)| name.trim())))?
        }
        _ => return None,
    };
    let entries: Vec<String> = names.iter().map(|name| format!("{name}: …")).collect();
    Some(format!("{{ {} }}", entries.join(", ")))
}

/// Returns the name in an element of a list: of a mapping with one key, or the element itself.
fn name_of(item: &Node) -> Option<&str> {
    match item.entries() {
        [(key, _)] => Some(key.name.as_str()),
        [] if !item.substituted => item.as_str(),
        _ => None,
    }
}

/// Returns the names, if all of them are names.
fn plain_names<'n>(names: impl Iterator<Item = Option<&'n str>>) -> Option<Vec<&'n str>> {
    let is_plain = |name: &&str| {
        name.len() <= LONGEST
            && name.starts_with(|first: char| first.is_alphabetic() || first == '_')
            && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.'))
    };
    let names: Option<Vec<&str>> = names.take(MOST + 1).map(|name| name.filter(is_plain)).collect();
    names.filter(|names| (1..=MOST).contains(&names.len()))
}
