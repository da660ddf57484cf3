//! Pipelines on one line: `parse_json | filter status >= 500 | keep host, status`.
//!
//! The text becomes a configuration: a source, a pipeline of these transforms, and a sink. Every part keeps
//! its place in the text, so a mistake is shown there. Each part is the name of a transform and its value, in
//! the shortest form that the transform allows:
//!
//! - nothing: `parse_json`
//! - a text, such as an expression, which needs no quotes: `filter status >= 500`
//! - names, if the transform takes a list: `keep host, status`
//! - options, or names with expressions: `set total: a + b, ok: total < 10`
//! - YAML in brackets or quotes, as in a file: `parse_csv {header: true}`
//!
//! `|` between quotes or brackets, and `||`, which joins texts in an expression, do not end a part.

use std::ops::Range;

use thalweg_config::{Diagnostics, Document, Key, Node, Span, Value};
use thalweg_engine::{Registry, Role};

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
    /// The format of the output. Without it, JSON if a transform parses the messages, and their payload if
    /// none does.
    pub encode: Option<String>,
}

impl PipeOptions {
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
        let parses = |node: &Node| kind(node).is_some_and(|kind| kind.starts_with("parse_"));
        let encode = match &self.encode {
            Some(format) => Some(format.as_str()),
            None => transforms.iter().any(parses).then_some("json"),
        };
        let main = mapping([
            ("from", word("input")),
            ("transforms", Node::new(Span::default(), Value::Sequence(transforms))),
            ("to", word("output")),
        ]);
        let errors = mapping([("from", word("main.errors")), ("to", word("rejected"))]);
        let root = mapping([
            ("sources", mapping([("input", self.source())])),
            ("pipelines", mapping([("main", main), ("errors", errors)])),
            ("sinks", mapping([("output", self.sink(encode)), ("rejected", rejected())])),
        ]);
        Ok(mistakes.into_result(Document::made(NAME, text, root))?)
    }

    fn source(&self) -> Node {
        if self.input.is_empty() {
            return word("stdin");
        }
        let paths = self.input.iter().map(|path| word(path)).collect();
        let paths = Node::new(Span::default(), Value::Sequence(paths));
        mapping([("file", mapping([("path", paths)]))])
    }

    fn sink(&self, encode: Option<&str>) -> Node {
        let mut options = Vec::new();
        if let Some(path) = &self.output {
            options.push(("path", word(path)));
        }
        if let Some(format) = encode {
            options.push(("encode", word(format)));
        }
        let kind = if self.output.is_some() { "file" } else { "stdout" };
        mapping([(kind, mapping(options))])
    }
}

/// Rejected messages are lines on the standard error output, with the reason.
fn rejected() -> Node {
    let template = word("{error_component}: {error_reason}");
    let encode = mapping([("format", word("text")), ("template", template)]);
    mapping([("stdout", mapping([("target", word("stderr")), ("encode", encode)]))])
}

fn parser(format: &str) -> Node {
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
    let rest = trimmed(text, end..range.end);
    if rest.is_empty() {
        return Some(Node::new(span, Value::String(key.name)));
    }
    let value = value(text, rest, takes_list(registry, &key.name), mistakes)?;
    Some(Node::new(Span::new(range.start, range.end), Value::Mapping(vec![(key, value)])))
}

fn takes_list(registry: &Registry, name: &str) -> bool {
    registry.get(Role::Transform, name).is_some_and(|known| known.to_json()["schema"]["type"] == "array")
}

/// Reads the value of a transform.
fn value(text: &str, range: Range<usize>, is_list: bool, mistakes: &mut Diagnostics) -> Option<Node> {
    let span = Span::new(range.start, range.end);
    if is_yaml(&text[range.clone()]) {
        return yaml(text, range, mistakes);
    }
    let items = split(text, range.clone(), b',');
    if is_list {
        let names = items.into_iter().map(|item| trimmed(text, item));
        let names = names
            .map(|item| Node::new(Span::new(item.start, item.end), Value::String(text[item].to_owned())));
        return Some(Node::new(span, Value::Sequence(names.collect())));
    }
    let pairs: Option<Vec<_>> = items.into_iter().map(|item| pair(text, item)).collect();
    let Some(pairs) = pairs else { return Some(Node::new(span, Value::String(text[range].to_owned()))) };
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

/// Reads `name: value`, if a text has this form.
fn pair(text: &str, range: Range<usize>) -> Option<(Key, Range<usize>)> {
    let range = trimmed(text, range);
    let (name, _) = text[range.clone()].split_once(':')?;
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || "_-.*".contains(c));
    let end = range.start + name.len();
    // `::` casts in SQL.
    let is_pair = is_name && !text[end + 1..range.end].starts_with(':');
    is_pair.then(|| {
        let key = Key { name: name.to_owned(), span: Span::new(range.start, end) };
        (key, trimmed(text, end + 1..range.end))
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
