//! Lists and mappings: their elements and entries, missing keys and unknown keys.

use serde_json::Value as Json;

use super::schema::{Layers, array, branches, by_pattern, properties, property};
use super::wording::{list, subject};
use super::{Checker, Context, Found, KeyKind, former};
use crate::{Diagnostic, Key, Node, nearest};

/// Beyond this many mistakes in one mapping, unknown keys are reported without a suggestion.
const MOST_SUGGESTED: usize = 1000;

impl<'s> Checker<'s> {
    /// Checks the elements of a list and their number.
    pub(super) fn sequence(
        &self,
        node: &Node,
        items: &[Node],
        layers: &Layers<'s>,
        context: &Context<'_>,
        mistakes: &mut Found,
    ) {
        for layer in layers {
            let first: Vec<&Json> = array(layer, "prefixItems").collect();
            for (index, item) in items.iter().enumerate() {
                let schema = first.get(index).copied().or_else(|| layer.get("items"));
                if let Some(schema) = schema {
                    let inner = Context { name: None, place: item.span, key: KeyKind::Chosen };
                    self.node(item, schema, &inner, mistakes);
                }
            }
            let count =
                |count: u64| if count == 1 { "1 element".to_owned() } else { format!("{count} elements") };
            let have = items.len() as u64;
            let has = if have == 0 { "is empty".to_owned() } else { format!("has {have}") };
            if let Some(least) = layer.get("minItems").and_then(Json::as_u64).filter(|least| have < *least) {
                let message = format!("{} needs at least {}, but it {has}.", subject(context), count(least));
                mistakes.push(Diagnostic::new(self.place(node, context), message));
            }
            if let Some(most) = layer.get("maxItems").and_then(Json::as_u64).filter(|most| have > *most) {
                let message = format!("{} takes at most {}, but it {has}.", subject(context), count(most));
                mistakes.push(Diagnostic::new(self.place(node, context), message));
            }
        }
    }

    /// Checks the entries of a mapping and reports missing keys.
    pub(super) fn mapping(
        &self,
        node: &Node,
        entries: &[(Key, Node)],
        layers: &Layers<'s>,
        context: &Context<'_>,
        mistakes: &mut Found,
    ) {
        let closed = layers.iter().any(|layer| {
            ["additionalProperties", "unevaluatedProperties"]
                .iter()
                .any(|key| layer.get(*key) == Some(&Json::Bool(false)))
        });
        let others = layers
            .iter()
            .find_map(|layer| layer.get("additionalProperties").filter(|other| other.is_object()));
        // Keys that a mistake already mentions.
        let mut suggested: Vec<&str> = Vec::new();
        // The options that are not given, once an unknown key needs a suggestion.
        let mut free: Option<Vec<&str>> = None;
        for (key, value) in entries {
            let option = property(layers, &key.name);
            let kind = if option.is_some() { KeyKind::Option } else { KeyKind::Chosen };
            let inner = Context { name: Some(&key.name), place: key.span, key: kind };
            if let Some(schema) = option.or_else(|| by_pattern(layers, &key.name)).or(others) {
                self.node(value, schema, &inner, mistakes);
            } else if closed {
                let message = match context.name {
                    Some(name) => format!("`{name}` has no option `{}`.", key.name),
                    None => format!("Unknown option `{}`.", key.name),
                };
                let mut mistake = Diagnostic::new(key.span, message);
                mistake.label("unknown option");
                if mistakes.len() < MOST_SUGGESTED {
                    let free = free.get_or_insert_with(|| {
                        properties(layers).filter(|name| node.get(name).is_none()).collect()
                    });
                    suggested.extend(self.suggest(&mut mistake, key, free, layers, context));
                }
                mistakes.push(mistake);
            }
        }
        for name in layers.iter().flat_map(|layer| array(layer, "required")).filter_map(Json::as_str) {
            // A misspelt key is one mistake, not an unknown key plus a missing one. A key that two layers
            // require is also one mistake.
            if node.get(name).is_some() || suggested.contains(&name) {
                continue;
            }
            suggested.push(name);
            let mut mistake = self.missing(node, name, context);
            if let Some(help) = property(layers, name).and_then(|schema| self.explained(name, schema)) {
                mistake.help(help);
            }
            mistakes.push(mistake);
        }
    }

    /// Adds to the mistake of an unknown key what was probably meant, and returns the name of that option.
    fn suggest<'a>(
        &self,
        mistake: &mut Diagnostic,
        key: &Key,
        free: &[&'a str],
        layers: &Layers<'s>,
        context: &Context<'_>,
    ) -> Option<&'a str> {
        if let Some((name, former)) = former::option(&key.name, key.span, free.iter().copied()) {
            *mistake = former;
            // The mistake takes the place of a second one, that the option is missing.
            let is_required = layers.iter().any(|layer| array(layer, "required").any(|other| other == name));
            if mistake.help.is_none() && is_required {
                mistake.help = property(layers, name).and_then(|schema| self.explained(name, schema));
            }
            return Some(name);
        }
        let address = property(layers, "address").and_then(|schema| schema.get("description")?.as_str());
        if let Some(sentence) = former::elsewhere(&key.name, context.name, address) {
            mistake.help(sentence);
            return None;
        }
        let near_inside = self.near_inside(&key.name, layers);
        let is_nearest =
            |own: &&str| near_inside.is_none_or(|(_, inner)| nearest(&key.name, [*own, inner]) == Some(*own));
        let near = nearest(&key.name, free.iter().copied()).filter(is_nearest);
        let inside = || properties(layers).find(|outer| self.has_inside(outer, &key.name, layers));
        mistake.help(match near {
            Some(near) => format!("Did you mean `{near}`?"),
            None if let Some(outer) = inside() => {
                format!("It is an option of `{outer}`: write `{outer}: {{ {}: … }}`.", key.name)
            }
            None if let Some((outer, near)) = near_inside => {
                format!(
                    "Did you mean `{near}`? It is an option of `{outer}`: write `{outer}: {{ {near}: … }}`."
                )
            }
            None if properties(layers).next().is_none() => "It takes no options.".to_owned(),
            None => format!("It accepts {}.", list(properties(layers), "and")),
        });
        near
    }

    /// True if an option has an option of this name in turn.
    fn has_inside(&self, outer: &str, name: &str, layers: &Layers<'s>) -> bool {
        let schema = property(layers, outer);
        let inner = schema.map(|schema| branches(self.root, schema)).unwrap_or_default();
        inner.iter().any(|layers| property(layers, name).is_some())
    }

    /// Returns an option, and the one in it that was probably meant.
    fn near_inside(&self, name: &str, layers: &Layers<'s>) -> Option<(&'s str, &'s str)> {
        properties(layers).find_map(|outer| {
            let inner = branches(self.root, property(layers, outer)?);
            let near = nearest(name, inner.iter().flat_map(properties))?;
            Some((outer, near))
        })
    }
}
