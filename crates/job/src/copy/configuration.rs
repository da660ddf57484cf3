//! Builds the configuration of a copy from its options.
//!
//! The position of each node is in the text of the command line, so that a mistake in a condition is shown
//! there.

use thalweg_config::{Document, Key, Node, Span, Value};
use thalweg_redact::with_variables;

use super::endpoints::{Endpoints, is_stream, shown};
use super::pace::Pace;
use super::rows::{Encode, Parse, Rows};
use super::{CopyOptions, ObjectLinks};

/// The name of the source.
const SOURCE: &str = "origin";
/// The name of the pipeline.
const PIPELINE: &str = "copy";
/// The name of the sink.
pub(super) const SINK: &str = "target";

/// The command line, as mistakes show it.
struct Line {
    text: String,
}

impl Line {
    fn word(&mut self, word: &str) -> Span {
        let quote = if word.is_empty() || word.contains(char::is_whitespace) { "'" } else { "" };
        self.text.push(' ');
        self.text.push_str(quote);
        let start = self.text.len();
        self.text.push_str(word);
        let end = self.text.len();
        self.text.push_str(quote);
        Span::new(start, end)
    }

    fn option(&mut self, name: &str, value: &str) -> Node {
        self.word(name);
        let span = self.word(value);
        text(value, span)
    }

    /// An option `NAME=VALUE`.
    fn pair(&mut self, option: &str, (name, value): &(String, String)) -> (Key, Node) {
        self.word(option);
        let whole = self.word(&format!("{name}={value}"));
        let middle = whole.start + name.len();
        let key = Key { name: name.clone(), span: Span::new(whole.start, middle) };
        (key, text(value, Span::new(middle + 1, whole.end)))
    }

    fn list(&mut self, option: &str, names: &[String]) -> Node {
        self.word(option);
        let span = self.word(&names.join(","));
        Node::new(span, Value::Sequence(names.iter().map(|name| text(name, span)).collect()))
    }
}

fn text(value: &str, span: Span) -> Node {
    Node::new(span, Value::String(value.to_owned()))
}

/// A mapping under construction.
struct Mapping {
    span: Span,
    entries: Vec<(Key, Node)>,
}

impl Mapping {
    fn new(span: Span) -> Self {
        Self { span, entries: Vec::new() }
    }

    fn put(&mut self, name: &str, node: Node) {
        self.entries.push((Key { name: name.to_owned(), span: node.span }, node));
    }

    fn number(&mut self, name: &str, number: Option<usize>) {
        if let Some(number) = number {
            self.put(name, Node::plain(self.span, &number.to_string()));
        }
    }

    fn done(self) -> Node {
        Node::new(self.span, Value::Mapping(self.entries))
    }

    /// Nests the mapping as the only entry of another mapping.
    fn called(self, name: &str) -> Node {
        let mut outer = Self::new(self.span);
        outer.put(name, self.done());
        outer.done()
    }
}

/// Builds the configuration of a copy.
pub(super) fn document(options: &CopyOptions, endpoints: &Endpoints, pace: Pace) -> Document {
    let mut line = Line { text: "thalweg".to_owned() };
    let command = line.word("copy");
    let (mut from, mut to) = urls(options, endpoints, &mut line, command);
    let transforms = transforms(options, &mut line, command, &mut to);
    match options.existing {
        Some(existing) => to.put("existing", line.option("--existing", existing.name())),
        // A copy that is done leaves no state, and the next one is to replace what it wrote.
        None if options.rows.parse.is_some() && !is_stream(&endpoints.to) => {
            to.put("existing", text("replace", command));
        }
        None => {}
    }
    if let Some(kind) = &options.content_type {
        to.put("content_type", line.option("--content-type", kind));
    }
    if options.symlinks == Some(ObjectLinks::Files) {
        from.put("symlinks", line.option("--symlinks", "files"));
    }
    if let Some(slice) = &options.pace.slice_size {
        from.put("slice_size", line.option("--slice-size", slice));
    }
    if let Some(size) = &options.pace.part_size {
        to.put("part_size", line.option("--part-size", size));
    }
    from.number("readers", pace.readers);
    from.number("queue", pace.queue);
    to.number("writers", pace.writers);
    let pipeline = pipeline(options, pace, transforms, command);

    let mut root = Mapping::new(command);
    let mut section = |name: &str, inner: &str, node: Node| {
        let mut section = Mapping::new(command);
        section.put(inner, node);
        root.put(name, section.done());
    };
    // The kind of the source of a stream only stands for one that gives files.
    section("sources", SOURCE, from.called(if is_stream(&endpoints.from) { "files" } else { "objects" }));
    section("pipelines", PIPELINE, pipeline.done());
    section("sinks", SINK, to.called(if is_stream(&endpoints.to) { "stdout" } else { "objects" }));
    Document::made("the command line", &line.text, root.done())
}

/// Returns a copy of a node with variables in place of secrets.
pub(super) fn printable(node: &Node) -> Node {
    let Value::Mapping(entries) = &node.value else { return node.clone() };
    let shown = entries.iter().map(|(key, value)| {
        let url = value.as_str().filter(|url| key.name == "url" && url.contains("://"));
        let shown = match url.and_then(with_variables) {
            Some(shown) => Node::with_variables(value.span, &shown),
            None => printable(value),
        };
        (key.clone(), shown)
    });
    Node::new(node.span, Value::Mapping(shown.collect()))
}

/// The options of the source and of the sink, with their URLs. The text of the command line contains no
/// secrets.
fn urls(options: &CopyOptions, endpoints: &Endpoints, line: &mut Line, command: Span) -> (Mapping, Mapping) {
    let mut from = Mapping::new(command);
    let span = line.word(&shown(&options.from));
    from.put(if is_stream(&endpoints.from) { "path" } else { "url" }, text(&endpoints.from, span));
    let mut to = Mapping::new(command);
    let span = line.word(&shown(&options.to));
    if !is_stream(&endpoints.to) {
        to.put("url", text(&endpoints.to, span));
    }
    for (name, patterns) in [("include", &options.include), ("exclude", &options.exclude)] {
        let patterns: Vec<Node> =
            patterns.iter().map(|pattern| line.option(&format!("--{name}"), pattern)).collect();
        if let Some(first) = patterns.first() {
            from.put(name, Node::new(first.span, Value::Sequence(patterns)));
        }
    }
    (from, to)
}

fn pipeline(options: &CopyOptions, pace: Pace, transforms: Vec<Node>, command: Span) -> Mapping {
    let mut pipeline = Mapping::new(command);
    pipeline.put("from", text(SOURCE, command));
    if options.rows.unordered {
        pipeline.put("ordered", Node::plain(command, "false"));
    }
    pipeline.number("concurrency", pace.concurrency);
    if !transforms.is_empty() {
        pipeline.put("transforms", Node::new(command, Value::Sequence(transforms)));
    }
    pipeline.put("to", text(SINK, command));
    pipeline
}

/// The transforms of rows. The encoding goes into the options of the sink.
fn transforms(options: &CopyOptions, line: &mut Line, command: Span, to: &mut Mapping) -> Vec<Node> {
    let rows = &options.rows;
    let Some(form) = rows.parse else { return Vec::new() };
    let (mut transforms, delimiter) = parse(rows, form, line, command);
    transforms.extend(change(rows, line, command));
    encode(rows, delimiter, line, command, to);
    transforms
}

/// The transforms that parse rows, and the delimiter if one is given.
fn parse(rows: &Rows, form: Parse, line: &mut Line, command: Span) -> (Vec<Node>, Option<Node>) {
    let mut parsed = Mapping::new(command);
    if !rows.columns.is_empty() {
        parsed.put("columns", line.list("--columns", &rows.columns));
    }
    let delimiter = rows.delimiter.as_ref().map(|delimiter| line.option("--delimiter", delimiter));
    if let Some(delimiter) = &delimiter {
        parsed.put("delimiter", delimiter.clone());
    }
    if !rows.types.is_empty() {
        let entries = rows.types.iter().map(|pair| line.pair("--type", pair)).collect();
        parsed.put("types", Node::new(command, Value::Mapping(entries)));
    }
    let mut lines = Mapping::new(command);
    if let Some(charset) = &rows.charset {
        let reader = if form == Parse::Csv { &mut parsed } else { &mut lines };
        reader.put("charset", line.option("--charset", charset));
    }
    let transforms = match form {
        Parse::Avro => vec![parsed.called("avro")],
        Parse::Csv => vec![parsed.called("csv")],
        Parse::Lines => vec![lines.called("lines")],
        Parse::Jsonl => vec![lines.called("lines"), parsed.called("parse_json")],
    };
    (transforms, delimiter)
}

/// The transforms that filter and change rows.
fn change(rows: &Rows, line: &mut Line, command: Span) -> Vec<Node> {
    let component = |name: &str, options: Node| {
        let mut component = Mapping::new(options.span);
        component.put(name, options);
        component.done()
    };
    let mut transforms = Vec::new();
    if let Some(condition) = &rows.condition {
        transforms.push(component("filter", line.option("--where", condition)));
    }
    if !rows.set.is_empty() {
        let entries = rows.set.iter().map(|pair| line.pair("--set", pair)).collect();
        transforms.push(component("set", Node::new(command, Value::Mapping(entries))));
    }
    if !rows.keep.is_empty() {
        transforms.push(component("keep", line.list("--keep", &rows.keep)));
    }
    transforms
}

/// Adds the encoding of rows to the options of the sink.
fn encode(rows: &Rows, delimiter: Option<Node>, line: &mut Line, command: Span, to: &mut Mapping) {
    let mut encode = Mapping::new(command);
    let encoded = rows.written();
    encode.put("format", text(encoded.name(), command));
    // Rows without any of these fields have none, and would be written as their whole text.
    let is_named = !rows.keep.is_empty() && !rows.keep.iter().any(|name| name.contains('*'));
    let has_fields = matches!(encoded, Encode::Json | Encode::Csv | Encode::Logfmt);
    if rows.parse == Some(Parse::Jsonl) && is_named && has_fields {
        let names = rows.keep.iter().map(|name| text(name, command)).collect();
        encode.put("fields", Node::new(command, Value::Sequence(names)));
    }
    match (encoded, &rows.template, delimiter) {
        (Encode::Text, Some(template), _) => encode.put("template", line.option("--template", template)),
        // Without `--encode`, CSV keeps its delimiter.
        (Encode::Csv, _, Some(delimiter)) if rows.encode.is_none() => encode.put("delimiter", delimiter),
        _ => {}
    }
    match encode.entries.len() {
        _ if encoded == Encode::Raw => {}
        1 => to.put("encode", text(encoded.name(), command)),
        _ => to.put("encode", encode.done()),
    }
}
