//! Pipelines on one line: `parse_json | filter status >= 500 | keep host, status`.
//!
//! The text becomes a configuration: a source, a pipeline of these transforms, and a sink. Every part keeps
//! its place in the text, so a mistake is shown there. Each part is the name of a transform and its value, in
//! the shortest form that the transform allows:
//!
//! - nothing: `parse_json`
//! - a text, such as an expression, which needs no quotes: `filter status >= 500`
//! - names, if the transform takes a list: `keep host, status`
//! - options, or names with expressions: `set total: a + b, ok: total < 10`, also with `=` in place of `:`
//! - YAML in brackets or quotes, as in a file: `parse_csv {header: true}`
//!
//! `|` between quotes or brackets, and `||`, which joins texts in an expression, do not end a part.

mod secrets;

use std::ops::Range;

use thalweg_config::{Diagnostics, Document, Key, Node, Span, Value};
use thalweg_engine::{Built, KnownFields, Registry, Role, Step};

use secrets::hide_secrets;

use crate::error::LoadError;

/// The name by which mistakes are shown.
const NAME: &str = "pipe";

/// A pipeline on one line, with its input and output.
#[derive(Debug, Clone, Default)]
pub struct PipeOptions {
    /// The transforms.
    pub transforms: String,
    /// The files to read; none is the standard input.
    pub input: Vec<String>,
    /// The file to write; none is the standard output.
    pub output: Option<String>,
    /// The format of the input, as in `parse_json`; CSV has a header.
    pub parse: Option<String>,
    /// The character set of the input. The output is in UTF-8.
    pub charset: Option<String>,
    /// The format of the output. Without it, JSON if a transform parses the messages or adds fields to them,
    /// and their payload if none does.
    pub encode: Option<String>,
}

impl PipeOptions {
    /// The sink that shows messages that could not be processed.
    pub const REJECTED: &str = "rejected";

    /// Returns the configuration.
    ///
    /// # Errors
    /// If the text is not a list of transforms. Unknown transforms and wrong options are found later, with
    /// all other mistakes.
    pub fn document(&self, registry: &Registry) -> Result<Document, LoadError> {
        let text = &self.transforms;
        let mut mistakes = Diagnostics::new(NAME, text);
        let mut transforms: Vec<Node> = self.parse.iter().map(|format| parser(format)).collect();
        let ranges = split(text, 0..text.len(), b'|');
        let is_empty = text.trim().is_empty();
        for range in ranges.into_iter().filter(|_| !is_empty) {
            transforms.extend(part(text, range, registry, &mut mistakes));
        }
        let encode = match &self.encode {
            Some(format) => Some(format.as_str()),
            None => has_fields(&transforms, registry).then_some("json"),
        };
        let main = mapping([
            ("from", word("input")),
            ("transforms", Node::new(Span::default(), Value::Sequence(transforms))),
            ("to", word("output")),
        ]);
        let errors = mapping([
            ("from", word("main.errors")),
            ("transforms", Node::new(Span::default(), Value::Sequence(vec![few()]))),
            ("to", word(Self::REJECTED)),
        ]);
        let root = mapping([
            ("sources", mapping([("input", self.source())])),
            ("pipelines", mapping([("main", main), ("errors", errors)])),
            ("sinks", mapping([("output", self.sink(encode)), (Self::REJECTED, rejected())])),
        ]);
        Ok(mistakes.into_result(Document::made(NAME, text, root))?)
    }

    /// Returns the configuration to show, with variables in place of secrets.
    ///
    /// # Errors
    /// As [`document`](Self::document).
    pub fn printable(&self, registry: &Registry) -> Result<Node, LoadError> {
        let mut root = self.document(registry)?.root().clone();
        let path = ["pipelines", "main", "transforms"];
        let transforms = path.iter().try_fold(&mut root, |node, name| entry(node, name));
        if let Some(Value::Sequence(transforms)) = transforms.map(|node| &mut node.value) {
            transforms.iter_mut().for_each(|transform| hide_secrets(transform, registry));
        }
        Ok(root)
    }

    fn source(&self) -> Node {
        let charset = self.charset.as_deref().map(|charset| ("charset", word(charset)));
        if self.input.is_empty() {
            return match charset {
                Some(charset) => mapping([("stdin", mapping([charset]))]),
                None => word("stdin"),
            };
        }
        let paths = self.input.iter().map(|path| word(path)).collect();
        let paths = Node::new(Span::default(), Value::Sequence(paths));
        mapping([("file", mapping(std::iter::once(("path", paths)).chain(charset)))])
    }

    fn sink(&self, encode: Option<&str>) -> Node {
        let mut options = Vec::new();
        if let Some(path) = &self.output {
            // A name is no template.
            options.push(("path", word(&path.replace('{', "{{").replace('}', "}}"))));
        }
        if let Some(format) = encode {
            options.push(("encode", word(format)));
        }
        let kind = if self.output.is_some() { "file" } else { "stdout" };
        mapping([(kind, mapping(options))])
    }
}

/// Returns the value of a key.
fn entry<'n>(node: &'n mut Node, name: &str) -> Option<&'n mut Node> {
    let Value::Mapping(entries) = &mut node.value else { return None };
    entries.iter_mut().find(|(key, _)| key.name == name).map(|(_, value)| value)
}

/// Not all rejected messages are shown: a file in another format would fill the terminal.
fn few() -> Node {
    let rate = Node::plain(Span::default(), "20");
    mapping([("limit", mapping([("rate", rate), ("on_excess", word("drop"))]))])
}

/// Rejected messages are lines on the standard error output, with the reason.
fn rejected() -> Node {
    let template = word("{error_component}: {error_reason}");
    let encode = mapping([("format", word("text")), ("template", template)]);
    let escape = Node::plain(Span::default(), "true");
    let options = [("target", word("stderr")), ("encode", encode), ("escape", escape)];
    mapping([("stdout", mapping(options))])
}

/// True if messages have fields to write at the end: a transform parses them, or adds some and none writes
/// them into the payload.
fn has_fields(transforms: &[Node], registry: &Registry) -> bool {
    const WRITE: [&str; 2] = ["encode", "template"];
    let is_any = |is_wanted: &dyn Fn(&str) -> bool| transforms.iter().filter_map(kind).any(is_wanted);
    let adds = |node: &Node| step(node, registry).is_some_and(|step| adds_fields(&step));
    is_any(&|kind| kind.starts_with("parse_"))
        || !is_any(&|kind| WRITE.contains(&kind)) && transforms.iter().any(adds)
}

fn adds_fields(step: &Step) -> bool {
    step.fields_after(KnownFields::none()).names().next().is_some()
}

/// Returns a transform, if its options are right.
fn step(node: &Node, registry: &Registry) -> Option<Step> {
    let nothing = Node::new(node.span, Value::Mapping(Vec::new()));
    let options = node.entries().first().map_or(&nothing, |(_, options)| options);
    // Mistakes are found later, with all others.
    let mut mistakes = Diagnostics::new(NAME, "");
    match registry.get(Role::Transform, kind(node)?)?.decode(options, node.span, &mut mistakes)? {
        Built::Transform(step) => Some(step),
        Built::Source(_) | Built::Sink(_) => None,
    }
}

fn parser(format: &str) -> Node {
    let format = if format == "jsonl" { "json" } else { format };
    let name = format!("parse_{format}");
    match format {
        "csv" => mapping([(name.as_str(), mapping([("header", Node::plain(Span::default(), "true"))]))]),
        _ => word(&name),
    }
}

fn word(text: &str) -> Node {
    Node::new(Span::default(), Value::String(text.to_owned()))
}

fn mapping<'a>(entries: impl IntoIterator<Item = (&'a str, Node)>) -> Node {
    let entry = |(name, node): (&str, Node)| (Key { name: name.to_owned(), span: node.span }, node);
    Node::new(Span::default(), Value::Mapping(entries.into_iter().map(entry).collect()))
}

fn kind(node: &Node) -> Option<&str> {
    node.as_str().or_else(|| Some(node.entries().first()?.0.name.as_str()))
}

/// Reads one part: the name of a transform and its value.
fn part(text: &str, range: Range<usize>, registry: &Registry, mistakes: &mut Diagnostics) -> Option<Node> {
    let range = trimmed(text, range);
    if range.is_empty() {
        let span = Span::new(range.start.saturating_sub(1), range.start);
        mistakes.error(span, "There is no transform here.").help("Each `|` stands between two transforms.");
        return None;
    }
    let is_end = |c: char| !(c.is_alphanumeric() || c == '_');
    let end = text[range.clone()].find(is_end).map_or(range.end, |length| range.start + length);
    let span = Span::new(range.start, end);
    let key = Key { name: text[range.start..end].to_owned(), span };
    if key.name.is_empty() {
        let message = "A part begins with the name of a transform.";
        mistakes.error(Span::new(range.start, range.end), message).help(other_form(&text[range]));
        return None;
    }
    let rest = trimmed(text, end..range.end);
    if rest.is_empty() {
        return Some(Node::new(span, Value::String(key.name)));
    }
    if text[rest.clone()].starts_with(':') {
        let message = format!("No colon follows the name `{}` here.", key.name);
        let options = text[rest.clone()].trim_start_matches(':').trim_start();
        let help = format!("Leave the colon out: `{} {options}`.", key.name);
        mistakes.error(Span::new(rest.start, rest.start + 1), message).help(help);
        return None;
    }
    let value = value(text, rest, Form::of(registry, &key.name), mistakes)?;
    Some(Node::new(Span::new(range.start, range.end), Value::Mapping(vec![(key, value)])))
}

/// Says how a part that begins like a path, a pattern or another expression is written.
fn other_form(part: &str) -> &'static str {
    match part.chars().next() {
        Some('.') => "To choose fields, write `keep s`; a path in an expression has no dot at its start.",
        Some('/') => "To choose messages by a text, write `filter payload LIKE '%error%'`.",
        _ => "Write for example `filter status >= 500`.",
    }
}

/// The form of a transform's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// A list of names.
    Names,
    /// Names that the user chooses, with values: `set`, `rename`.
    Named,
    /// Options, or an expression.
    Other,
}

impl Form {
    fn of(registry: &Registry, name: &str) -> Self {
        let Some(known) = registry.get(Role::Transform, name) else { return Self::Other };
        let schema = &known.to_json()["schema"];
        let is_list = |schema: &serde_json::Value| schema["type"] == "array";
        // A list with one element may be given without its brackets.
        let is_any_list = schema["anyOf"].as_array().is_some_and(|forms| forms.iter().any(is_list));
        match schema["type"].as_str() {
            _ if is_list(schema) || is_any_list => Self::Names,
            Some("object") if schema["additionalProperties"].is_object() => Self::Named,
            _ => Self::Other,
        }
    }
}

/// Reads the value of a transform.
fn value(text: &str, range: Range<usize>, form: Form, mistakes: &mut Diagnostics) -> Option<Node> {
    let span = Span::new(range.start, range.end);
    if is_yaml(&text[range.clone()]) {
        return yaml(text, range, mistakes);
    }
    let items = split(text, range.clone(), b',');
    if form == Form::Names {
        return names(text, span, items, mistakes);
    }
    let separators = if form == Form::Named { &[':', '='][..] } else { &[':'] };
    let pair = |item: Range<usize>| separators.iter().find_map(|&by| pair(text, item.clone(), by));
    let pairs: Option<Vec<_>> = items.into_iter().map(pair).collect();
    let Some(pairs) = pairs else {
        if form == Form::Named {
            let message = "Each name has a colon and its value.";
            mistakes.error(span, message).help("Write for example `rename h: host`, or `set total: a + b`.");
            return None;
        }
        return Some(Node::new(span, Value::String(text[range].to_owned())));
    };
    let mut entries = Vec::new();
    for (key, value) in pairs {
        let node = match is_yaml(&text[value.clone()]) {
            true => yaml(text, value, mistakes)?,
            false => Node::plain(Span::new(value.start, value.end), &text[value]),
        };
        entries.push((key, node));
    }
    Some(Node::new(span, Value::Mapping(entries)))
}

/// Reads names with commas between them.
fn names(text: &str, span: Span, items: Vec<Range<usize>>, mistakes: &mut Diagnostics) -> Option<Node> {
    let mut names = Vec::new();
    for item in items.into_iter().map(|item| trimmed(text, item)) {
        let span = Span::new(item.start, item.end);
        let name = &text[item];
        if name.contains(char::is_whitespace) {
            let words: Vec<&str> = name.split_whitespace().collect();
            let (several, one) = (words.join(", "), words.join(" "));
            let help = format!("Write `{several}`, or `[\"{one}\"]` if it is one name.");
            mistakes.error(span, "A comma is missing between these names.").help(help);
            return None;
        }
        names.push(Node::new(span, Value::String(name.to_owned())));
    }
    Some(Node::new(span, Value::Sequence(names)))
}

/// Reads `name: value`, if a text has this form. Another character may stand in place of the colon.
fn pair(text: &str, range: Range<usize>, by: char) -> Option<(Key, Range<usize>)> {
    let range = trimmed(text, range);
    let (before, _) = text[range.clone()].split_once(by)?;
    let name = before.trim_end();
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || "_-.*".contains(c));
    let after = range.start + before.len() + by.len_utf8();
    // `::` casts in SQL, and `==` compares elsewhere.
    let is_pair = is_name && !text[after..range.end].starts_with(by);
    is_pair.then(|| {
        let key = Key { name: name.to_owned(), span: Span::new(range.start, range.start + name.len()) };
        (key, trimmed(text, after..range.end))
    })
}

/// True for brackets, and for quotes around the whole: `'a' = b` is an expression.
fn is_yaml(text: &str) -> bool {
    let Some(first) = text.chars().next() else { return false };
    let is_quoted =
        |quote| text.len() > 1 && text.ends_with(quote) && !text[1..text.len() - 1].contains(quote);
    match first {
        '{' | '[' => true,
        '"' | '\'' => is_quoted(first),
        _ => false,
    }
}

/// Parses a part of the text as YAML. The text before it becomes blanks, so that its nodes have their places
/// in the text.
fn yaml(text: &str, range: Range<usize>, mistakes: &mut Diagnostics) -> Option<Node> {
    let blank = |c: char| if c == '\n' { "\n".to_owned() } else { " ".repeat(c.len_utf8()) };
    let padded: String = text[..range.start].chars().map(blank).chain([text[range].to_owned()]).collect();
    match Document::parse(NAME, &padded) {
        Ok(document) => Some(document.root().clone()),
        Err(wrong) => {
            wrong.iter().for_each(|mistake| mistakes.push(mistake.clone()));
            None
        }
    }
}

fn trimmed(text: &str, range: Range<usize>) -> Range<usize> {
    let part = &text[range.clone()];
    let start = range.start + (part.len() - part.trim_start().len());
    start..(range.start + part.trim_end().len()).max(start)
}

/// Splits a part of the text at a character that is alone, and not between quotes or brackets.
fn split(text: &str, range: Range<usize>, at: u8) -> Vec<Range<usize>> {
    let bytes = text.as_bytes();
    let (mut parts, mut start, mut depth, mut quote) = (Vec::new(), range.start, 0_usize, None);
    let mut position = range.start;
    while position < range.end {
        let byte = bytes[position];
        match (quote, byte) {
            (Some(open), _) if byte == open => quote = None,
            (Some(_), _) => {}
            (None, b'\'' | b'"') => quote = Some(byte),
            (None, b'(' | b'[' | b'{') => depth += 1,
            (None, b')' | b']' | b'}') => depth = depth.saturating_sub(1),
            (None, _) if byte == at && bytes.get(position + 1) == Some(&at) => position += 1,
            (None, _) if byte == at && depth == 0 => {
                parts.push(start..position);
                start = position + 1;
            }
            _ => {}
        }
        position += 1;
    }
    parts.push(start..range.end);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transforms(text: &str) -> String {
        let options = PipeOptions { transforms: text.to_owned(), ..PipeOptions::default() };
        let document = options.document(&crate::registry()).unwrap_or_else(|error| panic!("{error}"));
        let main = document.root().get("pipelines").and_then(|all| all.get("main")).unwrap();
        main.get("transforms").unwrap().items().iter().map(shown).collect::<Vec<_>>().join(" | ")
    }

    fn shown(node: &Node) -> String {
        match &node.value {
            Value::Mapping(entries) => {
                let entries: Vec<_> =
                    entries.iter().map(|(key, node)| format!("{}={}", key.name, shown(node))).collect();
                format!("{{{}}}", entries.join("; "))
            }
            Value::Sequence(items) => format!("[{}]", items.iter().map(shown).collect::<Vec<_>>().join("; ")),
            _ => node.text().unwrap_or_default().to_owned(),
        }
    }

    #[test]
    fn values_have_the_shortest_form() {
        assert_eq!(
            transforms("parse_json | filter status >= 500 | keep host, http_* "),
            "parse_json | {filter=status >= 500} | {keep=[host; http_*]}"
        );
        assert_eq!(
            transforms("set total: coalesce(a, b) + 1, ok: total < 10 | sample one_in: 10"),
            "{set={total=coalesce(a, b) + 1; ok=total < 10}} | {sample={one_in=10}}"
        );
        assert_eq!(
            transforms("parse_csv {header: true, types: {n: int}} | filter \"n > 1\" | filter 'a' = b"),
            "{parse_csv={header=true; types={n=int}}} | {filter=n > 1} | {filter='a' = b}"
        );
    }

    #[test]
    fn a_bar_in_an_expression_ends_nothing() {
        assert_eq!(
            transforms("filter a || b = 'x|y' | filter regexp_like(c, 'd|e') | filter \"f | g\""),
            "{filter=a || b = 'x|y'} | {filter=regexp_like(c, 'd|e')} | {filter=f | g}"
        );
        assert_eq!(transforms("filter a::text = 'b'"), "{filter=a::text = 'b'}");
        assert_eq!(transforms(""), "");
    }

    #[test]
    fn a_name_may_have_an_equals_sign_where_names_are_chosen() {
        assert_eq!(transforms("set s2 = s + 1, ok=s = 1"), "{set={s2=s + 1; ok=s = 1}}");
        assert_eq!(transforms("rename h=host, a: b"), "{rename={h=host; a=b}}");
        assert_eq!(transforms("filter s = 1"), "{filter=s = 1}");
    }

    #[test]
    fn a_part_in_another_form_is_answered_with_ours() {
        for (text, message) in [
            (".s", "A part begins with the name of a transform. (To choose fields, write `keep s`;"),
            ("/error/", "(To choose messages by a text, write `filter payload LIKE '%error%'`.)"),
            ("rename h to host", "Each name has a colon and its value. (Write for example `rename h: host`,"),
            (
                "set: { b: \"a + 1\" }",
                "No colon follows the name `set` here. (Leave the colon out: `set { b: \"a + 1\" }`.)",
            ),
            ("filter: a = 1", "(Leave the colon out: `filter a = 1`.)"),
            ("keep h s", "A comma is missing between these names. (Write `h, s`, or `[\"h s\"]`"),
        ] {
            let options = PipeOptions { transforms: text.to_owned(), ..PipeOptions::default() };
            let error = options.document(&crate::registry()).unwrap_err().to_string();
            assert!(error.contains(message), "{text}: {error}");
        }
    }

    #[test]
    fn fields_are_written_if_a_transform_adds_some() {
        let encode = |text: &str| {
            let options = PipeOptions { transforms: text.to_owned(), ..PipeOptions::default() };
            let document = options.document(&crate::registry()).unwrap();
            let output = document.root().get("sinks").and_then(|sinks| sinks.get("output")).unwrap().clone();
            output.get("stdout").unwrap().get("encode").and_then(Node::as_str).map(str::to_owned)
        };
        for adds in ["parse_json", "set a: 1", "add_sequence into: n", "split_fields fields: [a, b]"] {
            assert_eq!(encode(adds).as_deref(), Some("json"), "{adds}");
        }
        for none in ["", "trim", "set payload: upper(payload)", "filter a = 1", "set a: 1 | encode logfmt"] {
            assert_eq!(encode(none), None, "{none}");
        }
    }

    #[test]
    fn the_name_of_the_output_is_no_template() {
        let options = PipeOptions { output: Some("o{n}.txt".to_owned()), ..PipeOptions::default() };
        let document = options.document(&crate::registry()).unwrap();
        let output = document.root().get("sinks").and_then(|sinks| sinks.get("output")).unwrap();
        let path = output.get("file").and_then(|file| file.get("path")).and_then(Node::as_str);
        assert_eq!(path, Some("o{{n}}.txt"));
    }

    #[test]
    fn a_secret_is_not_printed() {
        let printed = |transforms: &str| {
            let options = PipeOptions { transforms: transforms.to_owned(), ..PipeOptions::default() };
            let root = options.printable(&crate::registry()).unwrap();
            thalweg_config::write(&root, &thalweg_config::Comments::default())
        };
        for secret in
            ["secret: correcthorse", "secret: 'correcthorse battery'", "{field: a, secret: correcthorse}"]
        {
            let text = match secret.starts_with('{') {
                true => printed(&format!("hash_text {secret}")),
                false => printed(&format!("hash_text field: a, {secret}")),
            };
            assert!(text.contains("secret: \"${SECRET}\"") && !text.contains("correcthorse"), "{text}");
        }
        assert!(printed("hash_text field: a, secret: '${KEY_1}'").contains("secret: \"${KEY_1}\""));
        for nested in [
            "hash_text {field: a, x: [{token: correcthorse, y: {api-token: [correcthorse, 12]}}]}",
            "unknown_one {auth: {password: correcthorse}}",
        ] {
            let text = printed(nested);
            let is_variable = text.contains("${TOKEN}") && text.contains("${API_TOKEN}")
                || text.contains("password: \"${PASSWORD}\"");
            assert!(is_variable && !text.contains("correcthorse") && !text.contains("12"), "{text}");
        }
        // These names are fields.
        let fields = printed("rename password: pass | set token: lower(a)");
        assert!(fields.contains("password: pass") && fields.contains("token: lower(a)"), "{fields}");
    }

    #[test]
    fn parts_have_their_places() {
        let text = "parse_json | keep {a: [}";
        let options = PipeOptions { transforms: text.to_owned(), ..PipeOptions::default() };
        let Err(LoadError::Mistakes(mistakes)) = options.document(&crate::registry()) else { panic!() };
        assert!(mistakes.iter().all(|mistake| mistake.span.start >= text.find('{').unwrap()), "{mistakes}");
        let options =
            PipeOptions { transforms: "parse_json | | keep a".to_owned(), ..PipeOptions::default() };
        let error = options.document(&crate::registry()).unwrap_err().to_string();
        assert!(error.contains("There is no transform here."), "{error}");
    }
}
