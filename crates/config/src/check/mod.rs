//! Compares a node with a JSON schema and finds every mistake in it.
//!
//! A general validator reports "does not match any of the branches". A user wants the mistakes of the branch
//! they meant. This walker therefore knows the few shapes that `schemars` derives from Rust types:
//!
//! - A struct is `properties`, `required` and `additionalProperties: false`.
//! - An enum is `oneOf`. Its tagging decides how a branch is recognised: by a constant (`mode: fast`), by the
//!   only key (`file: { ... }`), or by a key with a constant value (`type: file`). An untagged enum has no
//!   such tag: the branch with the fewest mistakes is chosen.
//! - `Option<T>` is `anyOf` with null; `#[serde(flatten)]` is `properties` beside `oneOf`.
//!
//! A schema, its references and the chosen branch are *layers* of one type. A key is known if any layer knows
//! it. Keywords that `schemars` does not produce are ignored: decoding makes the final decision.
//!
//! See docs/decisions/025-the-document-is-walked-its-options-are-decoded.md.

use std::cell::Cell;
use std::cmp::Ordering;
use std::collections::HashSet;

use schemars::Schema;
use serde_json::Value as Json;
use thalweg_redact::is_named_like_a_secret;

use crate::{Diagnostic, Diagnostics, Node, Span, Value};

mod choose;
mod collection;
mod fit;
mod former;
mod number;
mod reshaped;
mod schema;
mod text;
mod wording;

use fit::{Fit, fit, retyped};
use number::number;
use schema::{Layers, allows, constants};
pub(crate) use wording::without_secret;

/// A JSON schema, either from `schemars` or as plain JSON.
pub trait AsSchema {
    /// Returns the schema as JSON.
    fn as_schema(&self) -> &Json;
}

impl AsSchema for Schema {
    fn as_schema(&self) -> &Json {
        self.as_value()
    }
}

impl AsSchema for Json {
    fn as_schema(&self) -> &Json {
        self
    }
}

/// Checks `node` against a JSON schema and adds every mistake to `diagnostics`.
pub fn check<S: AsSchema + ?Sized>(node: &Node, schema: &S, diagnostics: &mut Diagnostics) {
    let _only_the_mistakes_are_wanted = retyping(node, schema, diagnostics);
}

/// Checks `node` and, without mistakes, returns a copy whose scalars have the types of the schema, or `None`
/// if `node` already has them.
///
/// For example, a number where the schema wants text becomes text, as it was written. Decoding could convert
/// most values, but inside untagged enums and flattened structs `serde` does not say which type it wants.
pub(crate) fn retyping<S: AsSchema + ?Sized>(
    node: &Node,
    schema: &S,
    diagnostics: &mut Diagnostics,
) -> Result<Option<Node>, usize> {
    let mut found = Found::default();
    let source = diagnostics.text();
    let checker = Checker { root: schema.as_schema(), source, fuel: Cell::new(MOST_STEPS) };
    checker.node(
        node,
        schema.as_schema(),
        &Context { name: None, place: node.span, key: KeyKind::Chosen },
        &mut found,
    );
    let count = found.len();
    for mistake in found.mistakes {
        diagnostics.push(mistake);
    }
    match count {
        0 if found.retyped.is_empty() => Ok(None),
        0 => Ok(Some(retyped(node, &found.retyped))),
        _ => Err(count),
    }
}

/// The result of reading a node in one particular way.
#[derive(Default)]
struct Found {
    mistakes: Vec<Diagnostic>,
    /// Addresses of the nodes that fit after a conversion to another type.
    retyped: HashSet<*const Node>,
}

impl Found {
    fn push(&mut self, mistake: Diagnostic) {
        self.mistakes.push(mistake);
    }

    fn len(&self) -> usize {
        self.mistakes.len()
    }
}

/// Limits the work: branches of untagged enums inside untagged enums could take exponential time.
const MOST_STEPS: usize = 300_000;

/// The position of a value.
struct Context<'a> {
    /// The key of the value.
    name: Option<&'a str>,
    /// The position of that key, or of the value if it has no key.
    place: Span,
    /// Whether the key is an option, or a name that the user chose, such as that of a field.
    key: KeyKind,
}

impl Context<'_> {
    /// True if no message may repeat this value, which is a secret or stands in the place of one.
    fn hides(&self, node: &Node) -> bool {
        let is_named = |name: &str| name == "auth" || is_named_like_a_secret(name);
        self.key == KeyKind::Option && self.name.is_some_and(is_named) && node.text().is_some()
    }
}

/// The kind of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeyKind {
    /// A key that the schema names.
    Option,
    /// A key that the user chose, or no key.
    Chosen,
}

struct Checker<'s> {
    root: &'s Json,
    source: &'s str,
    fuel: Cell<usize>,
}

impl<'s> Checker<'s> {
    fn node(&self, node: &Node, schema: &'s Json, context: &Context<'_>, mistakes: &mut Found) {
        let fuel = self.fuel.get();
        if fuel == 0 {
            return;
        }
        self.fuel.set(fuel - 1);
        let branches = schema::branches(self.root, schema);
        match branches.as_slice() {
            [] => {
                let message = match context.name {
                    Some(name) => format!("`{name}` cannot be given here."),
                    None => "Nothing can be given here.".to_owned(),
                };
                mistakes.push(Diagnostic::new(context.place, message));
            }
            [layers] => self.layers(node, layers, context, mistakes),
            _ => self.choose(node, &branches, context, mistakes),
        }
    }

    /// Checks against schemas that must all hold.
    fn layers(&self, node: &Node, layers: &Layers<'s>, context: &Context<'_>, mistakes: &mut Found) {
        match fit(node, layers) {
            Fit::No => return mistakes.push(self.wrong_type(node, std::slice::from_ref(layers), context)),
            Fit::Lenient => {
                mistakes.retyped.insert(std::ptr::from_ref(node));
            }
            Fit::Exact => {}
        }
        let mut constants = constants(layers).peekable();
        if constants.peek().is_some() {
            let constants: Vec<&Json> = constants.collect();
            if !constants.iter().any(|constant| is_constant(node, constant)) {
                let names: Vec<&str> = constants.iter().filter_map(|constant| constant.as_str()).collect();
                mistakes.push(if names.is_empty() {
                    let accepted = constants.iter().map(|constant| constant.to_string()).collect::<Vec<_>>();
                    self.unknown_name(
                        node,
                        &accepted.iter().map(String::as_str).collect::<Vec<_>>(),
                        &[],
                        context,
                    )
                } else {
                    self.unknown_name(node, &names, &[], context)
                });
            }
            return;
        }
        match &node.value {
            Value::Sequence(items) => self.sequence(node, items, layers, context, mistakes),
            Value::Mapping(entries) => self.mapping(node, entries, layers, context, mistakes),
            Value::Null => {
                if allows(layers, "object") && !allows(layers, "null") {
                    self.mapping(node, &[], layers, context, mistakes);
                }
            }
            _ => {
                let numeric = allows(layers, "integer") || allows(layers, "number");
                let before = mistakes.len();
                if numeric && let Some(number) = number(node) {
                    self.number(node, &number, layers, context, mistakes);
                }
                if allows(layers, "string") && mistakes.len() == before {
                    self.text(node, layers, context, mistakes);
                }
            }
        }
    }
}

fn is_constant(node: &Node, constant: &Json) -> bool {
    match constant {
        Json::String(name) => node.text() == Some(name),
        Json::Number(_) => {
            number(node).is_some_and(|number| number.partial_cmp(constant) == Some(Ordering::Equal))
        }
        Json::Bool(value) => node.as_bool() == Some(*value),
        Json::Null => node.is_null(),
        _ => true,
    }
}
