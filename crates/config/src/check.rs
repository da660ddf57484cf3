//! Holding a node against a JSON schema, and finding everything that is wrong with it.
//!
//! A validator for JSON schemas answers "does not match any of the branches". A person wants to know which
//! branch they were in. So this walker knows the few shapes that `schemars` derives from Rust types, and why:
//!
//! - a struct is `properties`, `required` and `additionalProperties: false`;
//! - an enum is `oneOf`, and how its variants are told apart depends on how it is tagged: by a constant
//!   (`mode: fast`), by the only key (`file: { ... }`), by a key with a constant in it (`type: file`), or not at
//!   all. The branch is chosen by that mark first, and only when there is none by which has the fewest mistakes;
//! - `Option<T>` is `anyOf` with null; `#[serde(flatten)]` is `properties` beside `oneOf`.
//!
//! The keywords of a schema, of what it refers to and of the branch chosen are *layers* of one type, so that a
//! key known to any of them is known. Keywords that `schemars` does not produce are ignored: decoding has
//! the last word.

use std::cell::Cell;
use std::collections::HashSet;

use schemars::Schema;
use serde_json::Value as Json;

use crate::{Diagnostic, Diagnostics, Key, Node, Span, Value, format, nearest, place, scalar};

/// A JSON schema: one of `schemars`, or plain JSON.
pub trait AsSchema {
    /// The schema as JSON.
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

/// Checks, and if nothing is wrong gives the node as its schema wants it; none, if it is as it should be.
///
/// A number where text is asked for is made text, as it was written, and so on. Decoding could do this where it
/// knows what is asked for, but within untagged enums and flattened structs `serde` does not ask.
pub(crate) fn retyping<S: AsSchema + ?Sized>(
    node: &Node,
    schema: &S,
    diagnostics: &mut Diagnostics,
) -> Result<Option<Node>, usize> {
    let mut found = Found::default();
    let source = diagnostics.text();
    let checker = Checker { root: schema.as_schema(), source, fuel: Cell::new(MOST_STEPS) };
    checker.node(node, schema.as_schema(), &Context { name: None, place: node.span }, &mut found);
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

/// The node with those below it that are among `those` made what their schema wants.
fn retyped(node: &Node, those: &HashSet<*const Node>) -> Node {
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
    Node { span: node.span, value, raw, substituted: node.substituted }
}

/// What one way to read a node came to.
#[derive(Default)]
struct Found {
    mistakes: Vec<Diagnostic>,
    /// Nodes that fit once they are made another type, by their addresses.
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

/// The message without the values of variables, which may be secrets: as they stand in the document instead.
pub(crate) fn without_secret(node: &Node, message: &str, source: &str) -> String {
    /// What is shorter is no secret, and would be found in the words around it.
    const SHORTEST: usize = 4;
    let mut message = message.to_owned();
    let mut nodes = vec![node];
    while let Some(node) = nodes.pop() {
        match &node.value {
            Value::Sequence(items) => nodes.extend(items),
            Value::Mapping(entries) => nodes.extend(entries.iter().map(|(_, value)| value)),
            _ => {
                let secret = node.text().filter(|text| node.substituted && text.len() >= SHORTEST);
                if let (Some(secret), Some(written)) = (secret, source.get(node.span.start..node.span.end)) {
                    message = message.replace(secret, written);
                }
            }
        }
    }
    message
}

/// Trying the branches of untagged enums inside of untagged enums could take forever.
const MOST_STEPS: usize = 300_000;

/// As many ways to read one value are tried.
const MOST_BRANCHES: usize = 512;

/// How deep references and combinations of schemas are followed for one value.
const DEEPEST: usize = 32;

/// How many names a message lists.
const LISTED: usize = 16;

type Object = serde_json::Map<String, Json>;

/// All the schemas that hold for one value at once.
type Layers<'s> = Vec<&'s Object>;

/// Where a value stands.
struct Context<'a> {
    /// The key it is the value of.
    name: Option<&'a str>,
    /// That key, or the value itself.
    place: Span,
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
        let branches = self.branches(schema, DEEPEST);
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

    /// All the ways to read a schema, each with its layers, references resolved.
    fn branches(&self, schema: &'s Json, depth: usize) -> Vec<Layers<'s>> {
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
            object.get("$ref").and_then(Json::as_str).and_then(|reference| self.resolve(reference))
        {
            combine(self.branches(target, depth - 1));
        }
        for part in array(object, "allOf") {
            combine(self.branches(part, depth - 1));
        }
        for choice in ["oneOf", "anyOf"] {
            if let Some(parts) = object.get(choice).and_then(Json::as_array) {
                combine(parts.iter().flat_map(|part| self.branches(part, depth - 1)).collect());
            }
        }
        branches
    }

    fn resolve(&self, reference: &str) -> Option<&'s Json> {
        self.root.pointer(reference.strip_prefix('#')?)
    }

    /// Checks against the branch that was meant.
    fn choose(&self, node: &Node, branches: &[Layers<'s>], context: &Context<'_>, mistakes: &mut Found) {
        let names: Vec<&str> =
            branches.iter().flat_map(|layers| constants(layers)).filter_map(Json::as_str).collect();
        if let Value::Mapping(entries) = &node.value
            && self.choose_mapping(node, entries, branches, &names, context, mistakes)
        {
            return;
        }
        if node.text().is_some_and(|text| names.contains(&text)) {
            if node.as_str().is_none() {
                mistakes.retyped.insert(std::ptr::from_ref(node));
            }
            return;
        }
        let mut fitting = Vec::new();
        for wanted in [Fit::Exact, Fit::Lenient] {
            if fitting.is_empty() {
                let fits = |layers: &&Layers<'s>| fit(node, layers) == wanted;
                fitting = branches.iter().filter(fits).collect();
            }
        }
        // Names that this is not are told all at once, not branch by branch.
        let free: Vec<_> =
            fitting.iter().copied().filter(|layers| !constants(layers).any(Json::is_string)).collect();
        if !free.is_empty() {
            return self.best(node, &free, context, mistakes);
        }
        let tags: Vec<&str> =
            branches.iter().filter_map(|layers| external_tag(layers)).map(|(tag, _)| tag).collect();
        match node.text() {
            Some(text) if tags.contains(&text) => {
                let mut mistake = Diagnostic::new(node.span, format!("`{text}` needs options."));
                mistake.help(format!("Write `{text}: ...`, with its options after the colon."));
                mistakes.push(mistake);
            }
            Some(_) if !names.is_empty() || !tags.is_empty() => {
                mistakes.push(self.unknown_name(node, &names, &tags, context));
            }
            _ => mistakes.push(self.wrong_type(node, branches, context)),
        }
    }

    /// Chooses by the marks that mappings have. Whether there were any.
    fn choose_mapping(
        &self,
        node: &Node,
        entries: &[(Key, Node)],
        branches: &[Layers<'s>],
        names: &[&str],
        context: &Context<'_>,
        mistakes: &mut Found,
    ) -> bool {
        let mappings: Vec<&Layers<'s>> =
            branches.iter().filter(|layers| fit(node, layers) == Fit::Exact).collect();
        let tagged: Vec<(&str, &'s Json)> =
            mappings.iter().filter_map(|layers| external_tag(layers)).collect();
        if !tagged.is_empty() {
            let tag_of = |name: &str| tagged.iter().find(|(tag, _)| *tag == name);
            let mut known =
                entries.iter().filter_map(|(key, value)| Some((key, value, tag_of(&key.name)?.1)));
            if let Some((first, value, schema)) = known.next() {
                let inner = Context { name: Some(&first.name), place: first.span };
                self.node(value, schema, &inner, mistakes);
                for (key, _) in entries.iter().filter(|(key, _)| key.span != first.span) {
                    let message = format!("`{}` cannot stand beside `{}`.", key.name, first.name);
                    let mut mistake = Diagnostic::new(key.span, message);
                    mistake.help(match tag_of(&key.name) {
                        Some(_) => "Only one of them can be given here.".to_owned(),
                        None => format!("If it belongs to `{}`, indent it further.", first.name),
                    });
                    mistakes.push(mistake);
                }
                return true;
            }
            if mappings.len() == tagged.len() {
                match entries {
                    [(key, value)] if names.contains(&key.name.as_str()) && value.is_null() => {}
                    [] => {
                        let what = context.name.map_or("This".to_owned(), |name| format!("`{name}`"));
                        let mut mistake =
                            Diagnostic::new(self.place(node, context), format!("{what} is empty."));
                        let tags = tagged.iter().map(|(tag, _)| *tag);
                        mistakes.push(mistake.help(format!("It can be {}.", list(tags, "or"))).clone());
                    }
                    _ => {
                        let tags: Vec<&str> = tagged.iter().map(|(tag, _)| *tag).collect();
                        for (key, _) in entries {
                            let message = match context.name {
                                Some(name) => format!("`{}` is not known in `{name}`.", key.name),
                                None => format!("`{}` is not known here.", key.name),
                            };
                            let mut mistake = Diagnostic::new(key.span, message);
                            mistake.help(suggestion(
                                &key.name,
                                tags.iter().chain(names).copied(),
                                "It can be",
                                "or",
                            ));
                            mistakes.push(mistake);
                        }
                    }
                }
                return true;
            }
            let untagged: Vec<_> =
                mappings.into_iter().filter(|layers| external_tag(layers).is_none()).collect();
            self.best(node, &untagged, context, mistakes);
            return true;
        }
        if mappings.len() > 1
            && let Some((tag, marked)) = internal_tag(&mappings)
        {
            let given = node.get(tag);
            let text = given.and_then(Node::text);
            if let Some((_, layers)) = marked.iter().find(|(name, _)| Some(*name) == text) {
                self.layers(node, layers, context, mistakes);
                return true;
            }
            let names: Vec<&str> = marked.iter().map(|(name, _)| *name).collect();
            match given {
                Some(value) => {
                    let place = node.key(tag).map_or(value.span, |key| key.span);
                    mistakes.push(self.unknown_name(value, &names, &[], &Context { name: Some(tag), place }));
                }
                None => {
                    let mut mistake = self.missing(node, tag, context);
                    mistake.help(format!("It is {}.", list(names.iter().copied(), "or")));
                    mistakes.push(mistake);
                }
            }
            return true;
        }
        false
    }

    /// Checks against each of the branches, and reports the mistakes of the one that has the fewest.
    fn best(&self, node: &Node, branches: &[&Layers<'s>], context: &Context<'_>, mistakes: &mut Found) {
        let mut best: Option<Found> = None;
        for layers in branches {
            let mut found = Found::default();
            self.layers(node, layers, context, &mut found);
            if best.as_ref().is_none_or(|best| found.len() < best.len()) {
                best = Some(found);
            }
            if best.as_ref().is_some_and(|best| best.len() == 0) {
                break;
            }
        }
        if let Some(best) = best {
            mistakes.mistakes.extend(best.mistakes);
            mistakes.retyped.extend(best.retyped);
        }
    }

    /// Checks against schemas that all hold.
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

    fn number(
        &self,
        node: &Node,
        number: &Number,
        layers: &Layers<'s>,
        context: &Context<'_>,
        mistakes: &mut Found,
    ) {
        let name = subject(context);
        let mut wrong = |message: String| mistakes.push(Diagnostic::new(node.span, message));
        let bound = |keyword: &str| layers.iter().find_map(|layer| layer.get(keyword));
        let compare = |bound: &Json| number.partial_cmp(bound);
        if let Some(least) =
            bound("minimum").filter(|least| compare(least).is_some_and(std::cmp::Ordering::is_lt))
        {
            return wrong(format!("{name} must be at least {least}, but it is {}.", self.shown(node)));
        }
        if let Some(least) =
            bound("exclusiveMinimum").filter(|least| compare(least).is_some_and(std::cmp::Ordering::is_le))
        {
            return wrong(format!("{name} must be more than {least}, but it is {}.", self.shown(node)));
        }
        if let Some(most) =
            bound("maximum").filter(|most| compare(most).is_some_and(std::cmp::Ordering::is_gt))
        {
            return wrong(format!("{name} must be at most {most}, but it is {}.", self.shown(node)));
        }
        if let Some(most) =
            bound("exclusiveMaximum").filter(|most| compare(most).is_some_and(std::cmp::Ordering::is_ge))
        {
            return wrong(format!("{name} must be less than {most}, but it is {}.", self.shown(node)));
        }
        let format = bound("format").and_then(Json::as_str).unwrap_or("");
        let (least, most): (i128, i128) = match format {
            "int8" => (i8::MIN.into(), i8::MAX.into()),
            "int16" => (i16::MIN.into(), i16::MAX.into()),
            "int32" => (i32::MIN.into(), i32::MAX.into()),
            "int64" | "int" => (i64::MIN.into(), i64::MAX.into()),
            "uint8" => (0, u8::MAX.into()),
            "uint16" => (0, u16::MAX.into()),
            "uint32" => (0, u32::MAX.into()),
            "uint64" | "uint" => (0, u64::MAX.into()),
            _ => return,
        };
        let fits = match number {
            Number::Whole(value) => (least..=most).contains(value),
            // Beyond 128 bits, or with a fraction: the type has been looked at.
            Number::Fraction(value) => (least as f64..=most as f64).contains(value),
        };
        if !fits {
            wrong(format!("{name} must be from {least} to {most}, but it is {}.", self.shown(node)));
        }
    }

    fn text(&self, node: &Node, layers: &Layers<'s>, context: &Context<'_>, mistakes: &mut Found) {
        let Some(text) = node.text() else { return };
        for layer in layers {
            if let Some(check) = layer.get("format").and_then(Json::as_str).and_then(format::registered)
                && let Err(error) = check(text)
            {
                let span = match error.range {
                    Some(range) => place::within(self.source, node.span, text, range),
                    None => node.span,
                };
                let hide = |message: &str| without_secret(node, message, self.source);
                let mut mistake = Diagnostic::new(span, hide(&error.message));
                mistake.help = error.help.map(|help| hide(&help));
                return mistakes.push(mistake);
            }
            let length = || text.chars().count() as u64;
            if let Some(least) =
                layer.get("minLength").and_then(Json::as_u64).filter(|least| length() < *least)
            {
                let message = match least {
                    1 => format!("{} is empty.", subject(context)),
                    _ => format!("{} is too short: it needs at least {least} characters.", subject(context)),
                };
                mistakes.push(Diagnostic::new(node.span, message));
            }
            if let Some(most) = layer.get("maxLength").and_then(Json::as_u64).filter(|most| length() > *most)
            {
                let message = format!("{} is too long: it has room for {most} characters.", subject(context));
                mistakes.push(Diagnostic::new(node.span, message));
            }
            if let Some(pattern) = layer.get("pattern").and_then(Json::as_str)
                && regex::Regex::new(pattern).is_ok_and(|pattern| !pattern.is_match(text))
            {
                let message = format!("{} does not have the form it should.", subject(context));
                let mut mistake = Diagnostic::new(node.span, message);
                mistake.help(format!("It must match the regular expression `{pattern}`."));
                mistakes.push(mistake);
            }
        }
    }

    fn sequence(
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
                    self.node(item, schema, &Context { name: None, place: item.span }, mistakes);
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

    fn mapping(
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
        let mut meant: Vec<&str> = Vec::new();
        for (key, value) in entries {
            let inner = Context { name: Some(&key.name), place: key.span };
            if let Some(schema) =
                property(layers, &key.name).or_else(|| by_pattern(layers, &key.name)).or(others)
            {
                self.node(value, schema, &inner, mistakes);
            } else if closed {
                let message = match context.name {
                    Some(name) => format!("`{name}` has no option `{}`.", key.name),
                    None => format!("`{}` is not an option here.", key.name),
                };
                let free = || properties(layers).filter(|name| node.get(name).is_none());
                let near = nearest(&key.name, free());
                meant.extend(near);
                let mut mistake = Diagnostic::new(key.span, message);
                mistake.label("unknown option").help(match near {
                    Some(near) => format!("Did you mean `{near}`?"),
                    None if properties(layers).next().is_none() => "It takes no options.".to_owned(),
                    None => format!("It accepts {}.", list(properties(layers), "and")),
                });
                mistakes.push(mistake);
            }
        }
        let mut required: Vec<&str> =
            layers.iter().flat_map(|layer| array(layer, "required")).filter_map(Json::as_str).collect();
        required.dedup();
        for name in required {
            // A misspelt key is one mistake, not an unknown key and a missing one.
            if node.get(name).is_some() || meant.contains(&name) {
                continue;
            }
            let mut mistake = self.missing(node, name, context);
            if let Some(help) = property(layers, name).and_then(|schema| self.explained(name, schema)) {
                mistake.help(help);
            }
            mistakes.push(mistake);
        }
    }

    fn missing(&self, node: &Node, name: &str, context: &Context<'_>) -> Diagnostic {
        let message = match context.name {
            Some(parent) => format!("`{parent}` needs the option `{name}`."),
            None => format!("The option `{name}` is missing."),
        };
        let mut mistake = Diagnostic::new(self.place(node, context), message);
        mistake.label(format!("`{name}` is missing here"));
        mistake
    }

    /// Where to show that something about the whole of a collection is wrong: at itself if it is short, otherwise at
    /// its key.
    fn place(&self, node: &Node, context: &Context<'_>) -> Span {
        let written = self.source.get(node.span.start..node.span.end).unwrap_or("");
        if node.is_null() || (written.contains('\n') && context.name.is_some()) {
            return context.place;
        }
        match node.entries() {
            [(first, _), ..] if written.contains('\n') => first.span,
            _ => node.span,
        }
    }

    /// What the schema says of a key: the first sentence of its documentation, and an example.
    fn explained(&self, name: &str, schema: &'s Json) -> Option<String> {
        let branches = self.branches(schema, DEEPEST);
        let layers = branches.first()?;
        let text = layers.iter().find_map(|layer| layer.get("description")).and_then(Json::as_str);
        let sentence = text.map(|text| {
            let paragraph = text.split("\n\n").next().unwrap_or(text).replace('\n', " ");
            let end = paragraph.find(". ").map_or(paragraph.len(), |end| end + 1);
            paragraph.get(..end).unwrap_or(&paragraph).trim_end_matches('.').to_owned()
        });
        match (sentence, example(layers)) {
            (Some(sentence), Some(example)) => Some(format!("{sentence}. For example `{name}: {example}`.")),
            (Some(sentence), None) => Some(format!("{sentence}.")),
            (None, Some(example)) => Some(format!("For example `{name}: {example}`.")),
            (None, None) => None,
        }
    }

    fn wrong_type(&self, node: &Node, branches: &[Layers<'s>], context: &Context<'_>) -> Diagnostic {
        let mut expected: Vec<String> = Vec::new();
        for layers in branches {
            for phrase in phrases(layers) {
                if !expected.contains(&phrase) && phrase != "nothing" {
                    expected.push(phrase);
                }
            }
        }
        let expected = match expected.split_last() {
            None => "something else".to_owned(),
            Some((last, [])) => last.clone(),
            Some((last, others)) => format!("{} or {last}", others.join(", ")),
        };
        if node.is_null() {
            let message = match context.name {
                Some(name) => format!("`{name}` has no value."),
                None => "A value is missing.".to_owned(),
            };
            let mut mistake = Diagnostic::new(context.place, message);
            mistake.help(format!("It should be {expected}."));
            return mistake;
        }
        let is = match &node.value {
            Value::Integer(_) | Value::Float(_) | Value::Bool(_) => self.shown(node),
            Value::String(_) => match self.shown(node) {
                shown if shown.starts_with('`') => format!("the text {shown}"),
                other => other,
            },
            _ => node.kind().to_owned(),
        };
        let message = match context.name {
            Some(name) => format!("`{name}` should be {expected}, but it is {is}."),
            None => format!("This should be {expected}, but it is {is}."),
        };
        let mut mistake = Diagnostic::new(self.place(node, context), message);
        let wants = |kind: &str| branches.iter().any(|layers| has_type(layers, kind));
        let written = self.source.get(node.span.start..node.span.end).unwrap_or("");
        match node.text().map(str::trim) {
            Some("yes" | "Yes" | "on" | "On" | "y") if wants("boolean") => {
                mistake.help("Write `true`.");
            }
            Some("no" | "No" | "off" | "Off" | "n") if wants("boolean") => {
                mistake.help("Write `false`.");
            }
            Some(text) if wants("object") && text.contains(':') && !text.contains(char::is_whitespace) => {
                mistake.help("Is a space missing after the colon?");
            }
            Some(_)
                if wants("array") && !wants("object") && written.len() < 40 && !written.contains('\n') =>
            {
                mistake.help(format!("Put it in brackets: `[{written}]`."));
            }
            None if wants("string") && written.starts_with(['{', '[']) => {
                mistake.help("Put quotes around a text that starts with `{` or `[`.");
            }
            _ => {
                if let Some(example) = branches.iter().find_map(|layers| example(layers)) {
                    mistake.help(match context.name {
                        Some(name) => format!("For example `{name}: {example}`."),
                        None => format!("For example `{example}`."),
                    });
                }
            }
        }
        mistake
    }

    /// A text that is none of the names there are.
    fn unknown_name(&self, node: &Node, names: &[&str], tags: &[&str], context: &Context<'_>) -> Diagnostic {
        let Some(text) = node.text() else {
            let mut mistake = Diagnostic::new(
                node.span,
                match context.name {
                    Some(name) if node.is_null() => format!("`{name}` has no value."),
                    Some(name) => format!("`{name}` should be a name, but it is {}.", node.kind()),
                    None => format!("This should be a name, but it is {}.", node.kind()),
                },
            );
            if node.is_null() {
                mistake.span = context.place;
            }
            mistake.help(format!("It can be {}.", list(names.iter().chain(tags).copied(), "or")));
            return mistake;
        };
        let shown = self.shown(node);
        let message = match context.name {
            Some(name) => format!("`{name}` cannot be {shown}."),
            None => format!("{shown} is not known here."),
        };
        let mut mistake = Diagnostic::new(node.span, message);
        mistake.help(suggestion(text, names.iter().chain(tags).copied(), "It can be", "or"));
        mistake
    }

    /// A scalar in backticks: as it stands in the document if a variable was put in, since that may be a secret.
    fn shown(&self, node: &Node) -> String {
        /// Longer texts are not repeated in a message.
        const LONGEST: usize = 60;
        let written = self.source.get(node.span.start..node.span.end);
        let text = if node.substituted { written } else { node.text() };
        match text.filter(|text| text.chars().count() <= LONGEST && !text.contains('\n')) {
            Some("") => "an empty text".to_owned(),
            Some(text) => format!("`{text}`"),
            None => node.kind().to_owned(),
        }
    }
}

/// What a message is about.
fn subject(context: &Context<'_>) -> String {
    context.name.map_or_else(|| "This".to_owned(), |name| format!("`{name}`"))
}

/// "Did you mean", or else all there is.
fn suggestion<'a>(
    name: &str,
    names: impl Iterator<Item = &'a str> + Clone,
    expected: &str,
    and: &str,
) -> String {
    match nearest(name, names.clone()) {
        Some(near) => format!("Did you mean `{near}`?"),
        None => format!("{expected} {}.", list(names, and)),
    }
}

/// `a`, `b` and `c`.
fn list<'a>(names: impl Iterator<Item = &'a str>, and: &str) -> String {
    let mut seen: Vec<String> = Vec::new();
    for name in names {
        let name = format!("`{name}`");
        if !seen.contains(&name) {
            seen.push(name);
        }
    }
    if seen.len() > LISTED {
        let more = seen.len() - LISTED;
        seen.truncate(LISTED);
        seen.push(format!("{more} more"));
    }
    match seen.split_last() {
        None => "nothing".to_owned(),
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} {and} {last}", others.join(", ")),
    }
}

fn array<'s>(object: &'s Object, keyword: &str) -> impl Iterator<Item = &'s Json> + use<'s> {
    object.get(keyword).and_then(Json::as_array).into_iter().flatten()
}

fn property<'s>(layers: &Layers<'s>, name: &str) -> Option<&'s Json> {
    layers.iter().find_map(|layer| layer.get("properties")?.get(name))
}

/// Maps whose keys are numbers have a pattern for them.
fn by_pattern<'s>(layers: &Layers<'s>, name: &str) -> Option<&'s Json> {
    let patterns = layers.iter().filter_map(|layer| layer.get("patternProperties")?.as_object()).flatten();
    let matching = |pattern: &str| regex::Regex::new(pattern).is_ok_and(|pattern| pattern.is_match(name));
    patterns.into_iter().find(|(pattern, _)| matching(pattern)).map(|(_, schema)| schema)
}

fn properties<'s>(layers: &Layers<'s>) -> impl Iterator<Item = &'s str> {
    layers
        .iter()
        .filter_map(|layer| layer.get("properties")?.as_object())
        .flat_map(Object::keys)
        .map(String::as_str)
}

/// The values that are all there is: `const` and `enum`.
fn constants<'s>(layers: &Layers<'s>) -> impl Iterator<Item = &'s Json> {
    layers.iter().flat_map(|layer| layer.get("const").into_iter().chain(array(layer, "enum")))
}

fn is_constant(node: &Node, constant: &Json) -> bool {
    match constant {
        Json::String(name) => node.text() == Some(name),
        Json::Number(_) => {
            number(node).is_some_and(|number| number.partial_cmp(constant) == Some(std::cmp::Ordering::Equal))
        }
        Json::Bool(value) => node.as_bool() == Some(*value),
        Json::Null => node.is_null(),
        _ => true,
    }
}

/// The only key of an externally tagged variant, and the schema of its value.
fn external_tag<'s>(layers: &Layers<'s>) -> Option<(&'s str, &'s Json)> {
    let mut properties = layers.iter().filter_map(|layer| layer.get("properties")?.as_object()).flatten();
    let (name, schema) = properties.next()?;
    let closed = layers.iter().any(|layer| layer.get("additionalProperties") == Some(&Json::Bool(false)));
    let required = layers.iter().flat_map(|layer| array(layer, "required")).any(|required| required == name);
    (closed && required && properties.next().is_none()).then_some((name, schema))
}

/// The key by whose constant the variants of an internally tagged enum are told apart.
fn internal_tag<'a, 's>(branches: &[&'a Layers<'s>]) -> Option<(&'s str, Vec<(&'s str, &'a Layers<'s>)>)> {
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

/// How well the type of a value fits.
#[derive(Clone, Copy, PartialEq)]
enum Fit {
    Exact,
    /// It is decoded all the same: a number as text, a text as the number it is, nothing as a mapping without
    /// entries.
    Lenient,
    No,
}

/// The types a value may have, if the schemas say so.
fn types<'s>(layers: &Layers<'s>) -> Option<Vec<&'s str>> {
    layers.iter().find_map(|layer| match layer.get("type")? {
        Json::String(kind) => Some(vec![kind.as_str()]),
        Json::Array(kinds) => Some(kinds.iter().filter_map(Json::as_str).collect()),
        _ => None,
    })
}

/// Whether values of this type are accepted.
fn allows(layers: &Layers<'_>, kind: &str) -> bool {
    types(layers).is_none_or(|types| types.contains(&kind))
}

/// Whether values of this type are asked for.
fn has_type(layers: &Layers<'_>, kind: &str) -> bool {
    types(layers).is_some_and(|types| types.contains(&kind))
}

fn fit(node: &Node, layers: &Layers<'_>) -> Fit {
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

/// A number with as many digits as it has.
enum Number {
    Whole(i128),
    Fraction(f64),
}

impl Number {
    fn partial_cmp(&self, bound: &Json) -> Option<std::cmp::Ordering> {
        let bound = bound.as_number()?;
        let exact = bound.as_i128();
        match (self, exact) {
            (Self::Whole(value), Some(bound)) => Some(value.cmp(&bound)),
            (Self::Whole(value), None) => (*value as f64).partial_cmp(&bound.as_f64()?),
            (Self::Fraction(value), _) => value.partial_cmp(&bound.as_f64()?),
        }
    }
}

/// The number that a node is, or that its text is.
fn number(node: &Node) -> Option<Number> {
    let typed;
    let (value, text) = match &node.value {
        Value::String(text) => {
            typed = scalar::number(text.trim())?;
            (&typed, Some(text.trim()))
        }
        value => (value, node.raw.as_deref()),
    };
    match value {
        Value::Integer(value) => Some(Number::Whole((*value).into())),
        Value::Float(value) => Some(match text.and_then(|text| text.parse().ok()) {
            Some(whole) => Number::Whole(whole),
            // A float has whole numbers up to here; `1e6` is one of them.
            None if value.fract() == 0.0 && value.abs() <= 9_007_199_254_740_992.0 => {
                Number::Whole(*value as i128)
            }
            None => Number::Fraction(*value),
        }),
        _ => None,
    }
}

/// What is expected, in words.
fn phrases(layers: &Layers<'_>) -> Vec<String> {
    let names: Vec<&str> = constants(layers).filter_map(Json::as_str).collect();
    if !names.is_empty() {
        return names.into_iter().map(|name| format!("`{name}`")).collect();
    }
    let format = layers.iter().find_map(|layer| layer.get("format")).and_then(Json::as_str).unwrap_or("");
    match format {
        "byte-size" => return vec!["a size such as `256MiB`".to_owned()],
        "time-span" => return vec!["a length of time such as `5s`".to_owned()],
        _ => {}
    }
    let types = types(layers).unwrap_or_default();
    let phrase = |kind: &str| match kind {
        "null" => "nothing",
        "boolean" => "`true` or `false`",
        "integer" => "a whole number",
        "number" => "a number",
        "string" if format == "regex" => "a regular expression",
        "string" => "text",
        "array" => "a list",
        _ => "a mapping",
    };
    types.into_iter().map(|kind| phrase(kind).to_owned()).collect()
}

/// The first example of the schemas, as it would be written.
fn example(layers: &Layers<'_>) -> Option<String> {
    let example = layers.iter().find_map(|layer| array(layer, "examples").next())?;
    match example {
        Json::String(text) => {
            let plain = matches!(scalar::typed(text), Value::String(_))
                && !text.contains([':', '#', '\'', '"', '\n', '{', '}', '[', ']', ','])
                && text
                    .starts_with(|first: char| first.is_alphanumeric() || matches!(first, '/' | '.' | '_'));
            Some(if plain { text.clone() } else { format!("'{}'", text.replace('\'', "''")) })
        }
        other => Some(other.to_string()),
    }
}
