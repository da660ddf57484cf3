//! Writes nodes as YAML that people can read.
//!
//! [`Document::parse`](crate::Document::parse) and [`Document::substitute`](crate::Document::substitute) read
//! the output back as the same nodes: texts that look like numbers are quoted, and a `$` that would start a
//! variable is doubled. Short values are written on one line between braces; longer values are indented.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::{Node, Value, scalar};

/// The longest line in characters. A longer value is split over several lines.
const WIDTH: usize = 100;

/// The longest key, in characters, that needs no question mark: YAML allows 1024 with quotes.
const LONGEST_KEY: usize = 1000;

/// The number of outer levels that are never written on one line: the sections, and the names in them.
const OPEN_LEVELS: usize = 2;

/// Comments, each with the place in the tree before which it is written.
///
/// A place is the keys and indexes that lead to a node, joined by `/`: `pipelines/main/transforms/2`. The
/// empty place is the head of the document.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Comments(BTreeMap<String, Vec<String>>);

impl Comments {
    /// Adds a comment at a place, after the comments already there. An identical comment is not repeated.
    pub fn add(&mut self, place: impl Into<String>, text: impl Into<String>) {
        let texts = self.0.entry(place.into()).or_default();
        let text = text.into();
        if !texts.contains(&text) {
            texts.push(text);
        }
    }

    /// Returns the comments at a place.
    pub fn at(&self, place: &str) -> &[String] {
        self.0.get(place).map_or(&[], Vec::as_slice)
    }

    fn any_below(&self, place: &str) -> bool {
        let prefix = format!("{place}/");
        self.0.range(prefix.clone()..).next().is_some_and(|(key, _)| key.starts_with(&prefix))
    }
}

/// Writes a tree as YAML, with comments.
pub fn write(root: &Node, comments: &Comments) -> String {
    let mut writer = Writer { out: String::new(), comments };
    writer.comment("", 0);
    if !writer.out.is_empty() {
        writer.out.push('\n');
    }
    match &root.value {
        Value::Mapping(entries) if !entries.is_empty() => writer.mapping(root, "", 0, 0),
        Value::Sequence(items) if !items.is_empty() => writer.sequence(root, "", 0, 0),
        _ => {
            writer.out.push_str(&flow(root));
            writer.out.push('\n');
        }
    }
    writer.out
}

struct Writer<'a> {
    out: String,
    comments: &'a Comments,
}

impl Writer<'_> {
    fn comment(&mut self, place: &str, indent: usize) {
        for text in self.comments.at(place) {
            for line in text.lines().flat_map(|line| wrapped(line, WIDTH.saturating_sub(indent + 2))) {
                let line = format!("{:indent$}# {line}", "");
                self.out.push_str(line.trim_end());
                self.out.push('\n');
            }
        }
    }

    fn mapping(&mut self, node: &Node, place: &str, indent: usize, level: usize) {
        for (index, (key, value)) in node.entries().iter().enumerate() {
            let place = join(place, &key.name);
            if level == 0 && index > 0 && !value.entries().is_empty() {
                self.out.push('\n');
            }
            self.comment(&place, indent);
            let _ = write!(self.out, "{:indent$}", "");
            self.key(&key.name, indent);
            let column = indent + key.name.chars().count() + 2;
            self.value(value, &place, indent, level + 1, column);
        }
    }

    /// Writes a key and its colon. A reader looks for the colon only within [`LONGEST_KEY`].
    fn key(&mut self, name: &str, indent: usize) {
        let text = scalar_text(name, false);
        let _ = match text.chars().count() > LONGEST_KEY {
            true => write!(self.out, "? {text}\n{:indent$}:", ""),
            false => write!(self.out, "{text}:"),
        };
    }

    fn sequence(&mut self, node: &Node, place: &str, indent: usize, level: usize) {
        for (index, item) in node.items().iter().enumerate() {
            let place = join(place, &index.to_string());
            self.comment(&place, indent);
            let _ = write!(self.out, "{:indent$}-", "");
            match item.entries() {
                // The usual element: one key with its options.
                [(key, value)] if !self.comments.any_below(&place) => {
                    self.out.push(' ');
                    self.key(&key.name, indent + 2);
                    let column = indent + key.name.chars().count() + 4;
                    self.value(value, &join(&place, &key.name), indent + 2, level + 1, column);
                }
                _ => self.value(item, &place, indent, level + 1, indent + 2),
            }
        }
    }

    /// Writes the value after a key or a dash, with its line feed.
    fn value(&mut self, node: &Node, place: &str, indent: usize, level: usize, column: usize) {
        let empty = node.entries().is_empty() && node.items().is_empty();
        if !empty && (level < OPEN_LEVELS || self.comments.any_below(place)) {
            self.block(node, place, indent, level);
            return;
        }
        let line = flow(node);
        if empty || column + line.chars().count() <= WIDTH && is_plain_enough(node) {
            if !line.is_empty() {
                self.out.push(' ');
                self.out.push_str(&line);
            }
            self.out.push('\n');
        } else {
            self.block(node, place, indent, level);
        }
    }

    fn block(&mut self, node: &Node, place: &str, indent: usize, level: usize) {
        self.out.push('\n');
        match &node.value {
            Value::Sequence(_) => self.sequence(node, place, indent + 2, level),
            _ => self.mapping(node, place, indent + 2, level),
        }
    }
}

/// True if the node is readable on one line. Lists of mappings are not, nor nodes with more than four nested
/// levels.
fn is_plain_enough(node: &Node) -> bool {
    fn depth(node: &Node) -> usize {
        let below = node.items().iter().chain(node.entries().iter().map(|(_, value)| value));
        let deepest = below.map(depth).max();
        deepest.map_or(usize::from(!node.entries().is_empty()), |deepest| deepest + 1)
    }
    fn lists_mappings(node: &Node) -> bool {
        node.items().iter().any(|item| !item.entries().is_empty())
            || node.entries().iter().any(|(_, value)| lists_mappings(value))
    }
    depth(node) <= 4 && !lists_mappings(node)
}

fn join(place: &str, name: &str) -> String {
    if place.is_empty() { name.to_owned() } else { format!("{place}/{name}") }
}

fn wrapped(line: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in line.split(' ') {
        let full = lines
            .last()
            .is_some_and(|line| !line.is_empty() && line.chars().count() + 1 + word.chars().count() > width);
        if full {
            lines.push(String::new());
        }
        if let Some(last) = lines.last_mut() {
            if !last.is_empty() {
                last.push(' ');
            }
            last.push_str(word);
        }
    }
    lines
}

/// Returns a node on one line.
fn flow(node: &Node) -> String {
    match &node.value {
        Value::Null => "null".to_owned(),
        Value::String(text) => scalar_text(text, !node.has_variables),
        Value::Sequence(items) => {
            let items: Vec<String> = items.iter().map(flow).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Mapping(entries) if entries.is_empty() => "{}".to_owned(),
        Value::Mapping(entries) => {
            let entry = |(key, value): &(crate::Key, Node)| {
                format!("{}: {}", scalar_text(&key.name, false), flow(value))
            };
            let entries: Vec<String> = entries.iter().map(entry).collect();
            format!("{{ {} }}", entries.join(", "))
        }
        Value::Bool(value) => value.to_string(),
        Value::Integer(value) => value.to_string(),
        Value::Float(value) => float(*value, node.raw.as_deref()),
    }
}

fn float(value: f64, written: Option<&str>) -> String {
    match written {
        Some(text) if scalar::number(text).is_some() && !text.contains('$') => text.to_owned(),
        _ if value.is_nan() => ".nan".to_owned(),
        _ if value.is_infinite() => if value > 0.0 { ".inf" } else { "-.inf" }.to_owned(),
        _ => format!("{value:?}"),
    }
}

/// Returns a text, quoted if necessary. With `escapes`, each `$` is doubled if it would start a variable:
/// keys are not substituted.
fn scalar_text(text: &str, escapes: bool) -> String {
    let escaped;
    let text = if escapes && (text.contains("${") || text.contains("$$")) {
        escaped = text.replace('$', "$$");
        escaped.as_str()
    } else {
        text
    };
    if is_plain(text) {
        return text.to_owned();
    }
    let printable = text.chars().all(|character| !character.is_control() && is_ordinary(character));
    if printable && !text.contains('\'') && text.contains(['"', '\\']) {
        return format!("'{text}'");
    }
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\0' => quoted.push_str("\\0"),
            _ if character.is_control() || !is_ordinary(character) => {
                let code = u32::from(character);
                let _ = if code > 0xFFFF {
                    write!(quoted, "\\U{code:08X}")
                } else {
                    write!(quoted, "\\u{code:04X}")
                };
            }
            _ => quoted.push(character),
        }
    }
    quoted.push('"');
    quoted
}

/// True if YAML readers accept the character unescaped between quotes. Line separators and byte order marks
/// are not accepted.
fn is_ordinary(character: char) -> bool {
    !matches!(character, '\u{85}' | '\u{2028}' | '\u{2029}' | '\u{FEFF}' | '\u{FFFE}' | '\u{FFFF}')
}

/// True if a text needs no quotes, even between braces.
fn is_plain(text: &str) -> bool {
    let safe = |character: char| {
        character.is_alphanumeric() && is_ordinary(character)
            || matches!(character, '_' | '-' | '.' | '/' | '+' | '(' | ')' | '$' | '=' | '^' | '~' | ';')
            || character == ' '
            || character == ':'
    };
    let Some(first) = text.chars().next() else { return false };
    let starts_well = first.is_alphanumeric() || matches!(first, '_' | '.' | '/' | '(' | '$' | '^' | '+');
    starts_well
        && text.chars().all(safe)
        && !text.contains(": ")
        && !text.ends_with([':', ' '])
        && !text.contains("  ")
        && text != "..."
        && matches!(scalar::typed(text), Value::String(_))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Document, Key, Span};
    use proptest::prelude::*;

    fn node(value: Value) -> Node {
        Node::new(Span::default(), value)
    }

    fn read_back(text: &str) -> Node {
        let mut document = Document::parse("t.yaml", text).unwrap_or_else(|wrong| panic!("{wrong}\n{text}"));
        let mut diagnostics = document.diagnostics();
        document.substitute(&|_| None, &mut diagnostics);
        assert!(diagnostics.is_empty(), "{diagnostics}\n{text}");
        document.root().clone()
    }

    fn scalars() -> impl Strategy<Value = Value> {
        let texts = prop_oneof![
            any::<String>(),
            "[ -~]{0,12}",
            "[\\[\\]{}:,#&*!|>'\"%@`$ \n\t-]{0,8}",
            prop::sample::select(vec![
                "true",
                "null",
                "~",
                "1",
                "1.5",
                "0x1f",
                "",
                " a",
                "a ",
                "---",
                "...",
                "- a",
                "a: b",
                "a #b",
                "${A}",
                "$$",
                "$",
                "$${",
                "<<",
                "%",
                "?",
                "? a",
                "=",
                "yes",
                "\u{85}",
                "\u{feff}x",
            ])
            .prop_map(str::to_owned),
        ];
        prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::Bool),
            any::<i64>().prop_map(Value::Integer),
            prop::num::f64::NORMAL.prop_map(Value::Float),
            texts.prop_map(Value::String),
        ]
    }

    fn trees() -> impl Strategy<Value = Node> {
        scalars().prop_map(node).prop_recursive(4, 40, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(|items| node(Value::Sequence(items))),
                prop::collection::btree_map("[ -~]{1,8}|[a-z]{1,5}|[^<]{1,3}", inner, 0..5).prop_map(|map| {
                    let key = |name| Key { name, span: Span::default() };
                    node(Value::Mapping(map.into_iter().map(|(name, value)| (key(name), value)).collect()))
                }),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back_as_the_same(tree in trees(), comment in "[ -~\n]{0,200}") {
            let root = node(Value::Mapping(vec![(Key { name: "root".into(), span: Span::default() }, tree)]));
            let mut comments = Comments::default();
            comments.add("root", comment.clone());
            comments.add("root/0", comment);
            let text = write(&root, &comments);
            prop_assert_eq!(read_back(&text), root, "{}", text);
        }
    }

    #[test]
    fn variables_stay_in_a_text_that_has_them() {
        let text = "a://${USER}:${PASSWORD}@b?c=$$d";
        let key = |name: &str| Key { name: name.to_owned(), span: Span::default() };
        let url = Node::with_variables(Span::default(), text);
        let plain = node(Value::String("${USER}".to_owned()));
        let root = node(Value::Mapping(vec![(key("url"), url), (key("other"), plain)]));
        let text = write(&root, &Comments::default());
        assert_eq!(text, "url: \"a://${USER}:${PASSWORD}@b?c=$$d\"\nother: \"$${USER}\"\n");
        let mut document = Document::parse("t.yaml", &text).unwrap_or_else(|wrong| panic!("{wrong}"));
        let mut diagnostics = document.diagnostics();
        document.substitute(&|name| Some(name.to_lowercase()), &mut diagnostics);
        assert!(diagnostics.is_empty(), "{diagnostics}");
        let url = document.root().get("url").and_then(Node::as_str);
        assert_eq!(url, Some("a://user:password@b?c=$d"));
    }

    #[test]
    fn keys_beyond_the_limit_of_yaml_read_back() {
        let key = |name: String| Key { name, span: Span::default() };
        let long = || node(Value::Mapping(vec![(key("k \" ".repeat(700)), node(Value::Integer(1)))]));
        let list = node(Value::Sequence(vec![long(), long()]));
        let root = node(Value::Mapping(vec![(key("a".into()), long()), (key("x".repeat(1100)), list)]));
        let text = write(&root, &Comments::default());
        assert_eq!(read_back(&text), root, "{text}");
    }

    #[test]
    fn it_looks_as_if_a_person_had_written_it() {
        let text = "\
# What this is.

memory: 256MiB

sources:
  # Where it comes from.
  in: { generate: { message: \"%256s\", count: 100 } }

pipelines:
  main:
    from: in
    transforms:
      # First this.
      - parse_json: { flatten: true }
      - rename: { test: foobar, \"test.*\": \"foobar.*\" }
      - filter: \"a > 1 AND b <> 'x'\"
    to: [out, other]
";
        let mut comments = Comments::default();
        comments.add("", "What this is.");
        comments.add("sources/in", "Where it comes from.");
        comments.add("pipelines/main/transforms/0", "First this.");
        let root = read_back(text);
        assert_eq!(write(&root, &comments), text);
    }
}
