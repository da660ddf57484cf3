//! Reads the shapes that `schemars` produces: the alternative readings of a schema, and the keywords of each.

use serde_json::Value as Json;

/// The most alternative readings that are tried for one value.
const MOST_BRANCHES: usize = 512;

/// The most references and combinations of schemas that are followed for one value.
const DEEPEST: usize = 32;

/// A schema that is an object, not `true` or `false`.
pub(super) type Object = serde_json::Map<String, Json>;

/// All schemas that hold for one value at once.
pub(super) type Layers<'s> = Vec<&'s Object>;

/// Returns every alternative reading of a schema within `root`, each with its layers, references resolved.
pub(super) fn branches<'s>(root: &'s Json, schema: &'s Json) -> Vec<Layers<'s>> {
    branches_within(root, schema, DEEPEST)
}

fn branches_within<'s>(root: &'s Json, schema: &'s Json, depth: usize) -> Vec<Layers<'s>> {
    let object = match schema {
        Json::Bool(false) => return Vec::new(),
        Json::Object(object) if depth > 0 => object,
        _ => return vec![Vec::new()],
    };
    let mut branches: Vec<Layers<'s>> = vec![vec![object]];
    let mut combine = |with: Vec<Layers<'s>>| {
        let mut combined = Vec::with_capacity(branches.len() * with.len());
        for branch in &branches {
            for other in &with {
                if combined.len() < MOST_BRANCHES {
                    combined.push(branch.iter().chain(other).copied().collect());
                }
            }
        }
        branches = combined;
    };
    if let Some(target) =
        object.get("$ref").and_then(Json::as_str).and_then(|reference| resolve(root, reference))
    {
        combine(branches_within(root, target, depth - 1));
    }
    for part in array(object, "allOf") {
        combine(branches_within(root, part, depth - 1));
    }
    for choice in ["oneOf", "anyOf"] {
        if let Some(parts) = object.get(choice).and_then(Json::as_array) {
            combine(parts.iter().flat_map(|part| branches_within(root, part, depth - 1)).collect());
        }
    }
    branches
}

fn resolve<'s>(root: &'s Json, reference: &str) -> Option<&'s Json> {
    root.pointer(reference.strip_prefix('#')?)
}

/// Returns the elements of a keyword that holds a list; none if the keyword is absent.
pub(super) fn array<'s>(object: &'s Object, keyword: &str) -> impl Iterator<Item = &'s Json> + use<'s> {
    object.get(keyword).and_then(Json::as_array).into_iter().flatten()
}

/// Returns the schema of the key `name`.
pub(super) fn property<'s>(layers: &Layers<'s>, name: &str) -> Option<&'s Json> {
    layers.iter().find_map(|layer| layer.get("properties")?.get(name))
}

/// Returns the schema of a key that matches a pattern. `schemars` describes maps with numeric keys by such
/// patterns.
pub(super) fn by_pattern<'s>(layers: &Layers<'s>, name: &str) -> Option<&'s Json> {
    let patterns = layers.iter().filter_map(|layer| layer.get("patternProperties")?.as_object()).flatten();
    let matching = |pattern: &str| regex::Regex::new(pattern).is_ok_and(|pattern| pattern.is_match(name));
    patterns.into_iter().find(|(pattern, _)| matching(pattern)).map(|(_, schema)| schema)
}

/// Returns the names of all keys.
pub(super) fn properties<'s>(layers: &Layers<'s>) -> impl Iterator<Item = &'s str> {
    layers
        .iter()
        .filter_map(|layer| layer.get("properties")?.as_object())
        .flat_map(Object::keys)
        .map(String::as_str)
}

/// Returns the only allowed values: those of `const` and `enum`.
pub(super) fn constants<'s>(layers: &Layers<'s>) -> impl Iterator<Item = &'s Json> {
    layers.iter().flat_map(|layer| layer.get("const").into_iter().chain(array(layer, "enum")))
}

/// Returns the only key of an externally tagged variant, and the schema of its value.
pub(super) fn external_tag<'s>(layers: &Layers<'s>) -> Option<(&'s str, &'s Json)> {
    let mut properties = layers.iter().filter_map(|layer| layer.get("properties")?.as_object()).flatten();
    let (name, schema) = properties.next()?;
    let closed = layers.iter().any(|layer| layer.get("additionalProperties") == Some(&Json::Bool(false)));
    let required = layers.iter().flat_map(|layer| array(layer, "required")).any(|required| required == name);
    (closed && required && properties.next().is_none()).then_some((name, schema))
}

/// Returns the key whose constant distinguishes the variants of an internally tagged enum, with the branch of
/// each constant.
pub(super) fn internal_tag<'a, 's>(
    branches: &[&'a Layers<'s>],
) -> Option<(&'s str, Vec<(&'s str, &'a Layers<'s>)>)> {
    let first = branches.first()?;
    for tag in properties(first) {
        let constant =
            |layers: &&'a Layers<'s>| Some((property(layers, tag)?.get("const")?.as_str()?, *layers));
        if let Some(marked) = branches.iter().map(constant).collect() {
            return Some((tag, marked));
        }
    }
    None
}

/// Returns the types that a value may have, if the schemas restrict them.
pub(super) fn types<'s>(layers: &Layers<'s>) -> Option<Vec<&'s str>> {
    layers.iter().find_map(|layer| match layer.get("type")? {
        Json::String(kind) => Some(vec![kind.as_str()]),
        Json::Array(kinds) => Some(kinds.iter().filter_map(Json::as_str).collect()),
        _ => None,
    })
}

/// True if values of this type are accepted.
pub(super) fn allows(layers: &Layers<'_>, kind: &str) -> bool {
    types(layers).is_none_or(|types| types.contains(&kind))
}

/// True if the schemas name this type explicitly.
pub(super) fn has_type(layers: &Layers<'_>, kind: &str) -> bool {
    types(layers).is_some_and(|types| types.contains(&kind))
}
