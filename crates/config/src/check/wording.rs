//! The wording of mistakes.

use serde_json::Value as Json;

use super::schema::{self, Layers, array, constants, has_type, types};
use super::{Checker, Context, former, reshaped};
use crate::{Diagnostic, Node, Span, Value, nearest, scalar};

/// The most names that a message lists.
const LISTED: usize = 16;

impl<'s> Checker<'s> {
    /// Reports a required key that is missing.
    pub(super) fn missing(&self, node: &Node, name: &str, context: &Context<'_>) -> Diagnostic {
        let message = match context.name {
            Some(parent) => format!("`{parent}` needs the option `{name}`."),
            None => format!("The option `{name}` is missing."),
        };
        let mut mistake = Diagnostic::new(self.place(node, context), message);
        mistake.label(format!("`{name}` is missing here"));
        mistake
    }

    /// Returns the position to show for a mistake about a whole collection: the collection itself if it fits
    /// on one line, otherwise its key.
    pub(super) fn place(&self, node: &Node, context: &Context<'_>) -> Span {
        let written = self.source.get(node.span.start..node.span.end).unwrap_or("");
        if node.is_null() || (written.contains('\n') && context.name.is_some()) {
            return context.place;
        }
        match node.entries() {
            [(first, _), ..] if written.contains('\n') => first.span,
            _ => node.span,
        }
    }

    /// Returns the first sentence of a key's documentation and an example, from the schema.
    pub(super) fn explained(&self, name: &str, schema: &'s Json) -> Option<String> {
        described(name, schema::branches(self.root, schema).first()?)
    }

    /// Reports a value whose type fits none of `branches`.
    pub(super) fn wrong_type(
        &self,
        node: &Node,
        branches: &[Layers<'s>],
        context: &Context<'_>,
    ) -> Diagnostic {
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
            Value::Integer(_) | Value::Float(_) | Value::Bool(_) => self.shown(node, context),
            Value::String(_) => match self.shown(node, context) {
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
                if wants("array")
                    && !wants("object")
                    && !context.hides(node)
                    && written.len() < 40
                    && !written.contains('\n') =>
            {
                mistake.help(format!("Put it in brackets: `[{written}]`."));
            }
            None if node.as_sequence().is_some() && branches.iter().any(is_condition) => {
                mistake.help("Join several conditions with `AND` in one text.");
            }
            None if node.as_sequence().is_some_and(|items| items.len() > 1)
                && wants("string")
                && !wants("array")
                && !wants("object") =>
            {
                mistake.help("It takes one value.");
            }
            None if wants("array")
                && let Some(list) = reshaped::as_list(node) =>
            {
                mistake.help(match context.name {
                    Some(name) => format!("Write a list: `{name}: {list}`."),
                    None => format!("Write a list: `{list}`."),
                });
            }
            None if node.as_mapping().is_some()
                && let Some(choice) = only_choice(branches) =>
            {
                mistake.help(match context.name {
                    Some(name) => format!("It takes one word, as in `{name}: {choice}`."),
                    None => format!("It takes one word, such as `{choice}`."),
                });
            }
            None if wants("string") && written.starts_with(['{', '[']) => {
                mistake.help("Put quotes around a text that starts with `{` or `[`.");
            }
            Some(text)
                if context.name == Some("rate")
                    && wants("number")
                    && let Some(count) = rate(text) =>
            {
                mistake.help(format!(
                    "Write the number alone, as `rate: {count}`. In `limit` the time is `per: 1s` beside it."
                ));
            }
            _ => {
                let own = branches.iter().any(is_open).then(|| reshaped::as_mapping(node, context)).flatten();
                let found = own.or_else(|| branches.iter().find_map(|layers| example(layers)));
                if let Some(example) = found.or_else(|| branches.iter().find_map(form)) {
                    mistake.help(match context.name {
                        Some(name) => format!("For example `{name}: {example}`."),
                        None => format!("For example `{example}`."),
                    });
                }
            }
        }
        mistake
    }

    /// Reports a text that is none of the known names.
    pub(super) fn unknown_name(
        &self,
        node: &Node,
        names: &[&str],
        tags: &[&str],
        context: &Context<'_>,
    ) -> Diagnostic {
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
        if let Some(name) = context.name.filter(|_| context.hides(node)) {
            let mut mistake = Diagnostic::new(node.span, format!("`{name}` cannot have this value."));
            mistake.help(format!("It can be {}.", list(names.iter().chain(tags).copied(), "or")));
            return mistake;
        }
        if let Some(mistake) = former::value(text, node.span, names.iter().chain(tags).copied()) {
            return mistake;
        }
        let shown = self.shown(node, context);
        let message = match context.name {
            Some(name) => format!("`{name}` cannot be {shown}."),
            None => format!("{shown} is not known here."),
        };
        let mut mistake = Diagnostic::new(node.span, message);
        mistake.help(suggestion(text, names.iter().chain(tags).copied(), "It can be", "or"));
        mistake
    }

    /// Returns a scalar in backticks. A scalar with a substituted variable is shown as written in the
    /// document, since its value may be a secret. Of an option that is named like a secret, only the kind of
    /// the value is shown.
    pub(super) fn shown(&self, node: &Node, context: &Context<'_>) -> String {
        /// Longer texts are not repeated in a message.
        const LONGEST: usize = 60;
        if context.hides(node) {
            return node.kind().to_owned();
        }
        let written = self.source.get(node.span.start..node.span.end);
        let text = if node.substituted { written } else { node.text() };
        match text.filter(|text| text.chars().count() <= LONGEST && !text.contains('\n')) {
            Some("") => "an empty text".to_owned(),
            Some(text) => format!("`{text}`"),
            None => node.kind().to_owned(),
        }
    }
}

/// Returns the first sentence of a key's documentation and an example.
pub(super) fn described(name: &str, layers: &Layers<'_>) -> Option<String> {
    let text = layers.iter().find_map(|layer| layer.get("description")).and_then(Json::as_str);
    let sentence = text.map(|text| {
        let paragraph = text.split("\n\n").next().unwrap_or(text).replace('\n', " ");
        let end = paragraph.find(". ").map_or(paragraph.len(), |end| end + 1);
        paragraph.get(..end).unwrap_or(&paragraph).trim_end_matches('.').to_owned()
    });
    match (sentence, example(layers)) {
        (Some(sentence), Some(example)) if !sentence.contains("for example") => {
            Some(format!("{sentence}. For example `{name}: {example}`."))
        }
        (Some(sentence), _) => Some(format!("{sentence}.")),
        (None, Some(example)) => Some(format!("For example `{name}: {example}`.")),
        (None, None) => None,
    }
}

/// Returns the message with every substituted value, which may be a secret, replaced by its text in the
/// document.
pub(crate) fn without_secret(node: &Node, message: &str, source: &str) -> String {
    /// A shorter value is not a secret, and would match parts of other words.
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

/// Returns the subject of a message: the key in backticks, or "This".
pub(super) fn subject(context: &Context<'_>) -> String {
    context.name.map_or_else(|| "This".to_owned(), |name| format!("`{name}`"))
}

/// Other words for the names of types.
const WORDS: [(&str, &str); 13] = [
    ("boolean", "bool"),
    ("date", "timestamp"),
    ("datetime", "timestamp"),
    ("decimal", "float"),
    ("double", "float"),
    ("int64", "int"),
    ("integer", "int"),
    ("long", "int"),
    ("number", "float"),
    ("str", "text"),
    ("string", "text"),
    ("time", "timestamp"),
    ("varchar", "text"),
];

/// Returns "Did you mean", or else a list of all names.
pub(super) fn suggestion<'a>(
    name: &str,
    names: impl Iterator<Item = &'a str> + Clone,
    expected: &str,
    and: &str,
) -> String {
    let lower = name.to_lowercase();
    let word = WORDS.iter().find(|(word, _)| *word == lower).map(|(_, ours)| *ours);
    let word = word.filter(|ours| names.clone().any(|name| name == *ours));
    match word.or_else(|| nearest(name, names.clone())) {
        Some(near) => format!("Did you mean `{near}`?"),
        None => format!("{expected} {}.", list(names, and)),
    }
}

/// Returns `a`, `b` and `c`.
pub(super) fn list<'a>(names: impl Iterator<Item = &'a str>, and: &str) -> String {
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

/// Returns the expected values in words.
fn phrases(layers: &Layers<'_>) -> Vec<String> {
    let names: Vec<&str> = constants(layers).filter_map(Json::as_str).collect();
    if !names.is_empty() {
        return names.into_iter().map(|name| format!("`{name}`")).collect();
    }
    let format = layers.iter().find_map(|layer| layer.get("format")).and_then(Json::as_str).unwrap_or("");
    match format {
        "byte-size" => return vec!["a size such as `256MiB`".to_owned()],
        "time-span" => return vec!["a length of time such as `5s`".to_owned()],
        "cron-expression" => return vec!["times such as `*/5 * * * *`".to_owned()],
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

/// Returns the number of a rate such as `10/s`.
fn rate(text: &str) -> Option<&str> {
    let (count, unit) = text.split_once('/')?;
    let count = count.trim();
    let is_time =
        matches!(unit.trim(), "s" | "sec" | "second" | "m" | "min" | "minute" | "h" | "hour" | "d" | "day");
    let is_number = !count.is_empty() && count.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    (is_time && is_number).then_some(count)
}

/// Returns one of the words that are accepted, if nothing else is.
fn only_choice(branches: &[Layers<'_>]) -> Option<String> {
    let words = |layers: &Layers<'_>| constants(layers).find_map(Json::as_str).map(str::to_owned);
    let is_choice = |layers: &Layers<'_>| words(layers).is_some() || !has_type(layers, "string");
    branches.iter().all(is_choice).then(|| branches.iter().find_map(words)).flatten()
}

/// True for the schemas of a mapping whose keys the user chooses.
fn is_open(layers: &Layers<'_>) -> bool {
    layers.iter().any(|layer| layer.get("additionalProperties").is_some_and(Json::is_object))
        && schema::properties(layers).next().is_none()
}

/// True for the schemas of an expression.
fn is_condition(layers: &Layers<'_>) -> bool {
    layers.iter().any(|layer| layer.get("format").and_then(Json::as_str) == Some("sql"))
}

/// Returns the form of a mapping, as it would be written in YAML: with its required options, or the first
/// one.
fn form(layers: &Layers<'_>) -> Option<String> {
    if !has_type(layers, "object") {
        return None;
    }
    let required = layers.iter().flat_map(|layer| array(layer, "required")).filter_map(Json::as_str);
    let mut names: Vec<&str> = required.collect();
    if names.is_empty() {
        names.extend(schema::properties(layers).next());
    }
    if names.is_empty() && is_open(layers) {
        names.push("a_name");
    }
    let entries: Vec<String> = names.iter().map(|name| format!("{name}: …")).collect();
    (!entries.is_empty()).then(|| format!("{{ {} }}", entries.join(", ")))
}

/// Returns the first example of the schemas, as it would be written in YAML.
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
