//! Reads a document: turns the parser's events into a tree of nodes.
//!
//! An event parser provides exact positions and allows limits on depth and on the expansion of aliases. Both
//! are counted here while the tree grows. A document beyond a limit is rejected at the position where it
//! exceeds it.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use granit_parser::{Event, Parser, ScalarStyle, Tag};

use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::secrets::{Hidden, keep_written};
use crate::{Key, Node, Span, Value, nearest, substitute, syntax};

/// The deepest nesting of mappings and lists. Real configurations need about ten levels; functions walk the
/// tree recursively.
const DEEPEST: usize = 64;

/// The most that aliases may add, in bytes of text plus 64 per node. Without a limit, a few lines could
/// expand to terabytes.
const LARGEST_EXPANSION: usize = 16 << 20;

/// A parsed file.
#[derive(Clone, Debug)]
pub struct Document {
    name: String,
    text: Arc<str>,
    directory: PathBuf,
    root: Node,
    hidden: Hidden,
}

impl Document {
    /// The largest document, in bytes. Without a limit, a wrong path such as `/dev/zero` takes all memory.
    pub const MAX_BYTES: usize = 16 << 20;

    /// Parses YAML or JSON. Messages show `name`, usually the path.
    ///
    /// # Errors
    /// Returns mistakes of syntax, duplicate keys and unknown anchors. An empty file, or a file with several
    /// documents, is also a mistake.
    pub fn parse(name: &str, text: &str) -> Result<Document, Diagnostics> {
        let text: Arc<str> = text.into();
        let mut builder = Builder::new(Diagnostics::shared(name, text.clone()));
        builder.read(&text);
        let directory = Path::new(name).parent().map(Path::to_owned).unwrap_or_default();
        let Builder { mut diagnostics, root, .. } = builder;
        match root {
            Some(root) if !root.is_null() => {
                keep_written(&root);
                let hidden = Hidden::of(&root);
                diagnostics.into_result(Document { name: name.to_owned(), text, directory, root, hidden })
            }
            _ => {
                if diagnostics.is_empty() {
                    diagnostics
                        .error(Span::default(), format!("`{name}` is empty."))
                        .help("Nothing but comments or blank space was found in it.");
                }
                Err(diagnostics)
            }
        }
    }

    /// Reads the file and substitutes variables, as [`open`](Self::open) and [`substitute`](Self::substitute)
    /// do.
    ///
    /// # Errors
    /// Returns the errors of both.
    pub fn load(path: &Path, variables: &dyn Fn(&str) -> Option<String>) -> Result<Document, Diagnostics> {
        let mut document = Self::open(path)?;
        let mut diagnostics = document.diagnostics();
        document.substitute(variables, &mut diagnostics);
        diagnostics.into_result(document)
    }

    /// Reads the text of a document.
    ///
    /// # Errors
    /// Returns an error if it cannot be read, or has more than [`MAX_BYTES`](Self::MAX_BYTES).
    pub fn read(input: impl Read) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        input.take(Self::MAX_BYTES as u64 + 1).read_to_end(&mut bytes)?;
        if bytes.len() > Self::MAX_BYTES {
            let message =
                format!("it is larger than {} MiB, the limit of a configuration", Self::MAX_BYTES >> 20);
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
        }
        Ok(bytes)
    }

    /// Reads and parses the file without substituting variables: in files of other programs, `${` may mean
    /// something else.
    ///
    /// # Errors
    /// Returns the errors of [`parse`](Self::parse), or an error if the file cannot be read or is not UTF-8.
    pub fn open(path: &Path) -> Result<Document, Diagnostics> {
        let name = path.display().to_string();
        let bytes = File::open(path).and_then(Self::read).map_err(|error| {
            let mut diagnostics = Diagnostics::new(&name, "");
            let problem = diagnostics.error(Span::default(), format!("`{name}` cannot be read: {error}."));
            if error.kind() == std::io::ErrorKind::NotFound {
                problem.help("Is the path right? It is relative to the directory the command runs in.");
            }
            diagnostics
        })?;
        let text = String::from_utf8(bytes).map_err(|error| {
            let at = error.utf8_error().valid_up_to();
            let mut diagnostics = Diagnostics::new(&name, &String::from_utf8_lossy(error.as_bytes()));
            diagnostics
                .error(Span::new(at, at + 1), "This is not UTF-8 text.")
                .help("Save the file in the encoding UTF-8.");
            diagnostics
        })?;
        let mut document = Self::parse(&name, &text)?;
        document.directory = path.parent().map(Path::to_owned).unwrap_or_default();
        Ok(document)
    }

    /// Returns the same document with another tree, for example its translation from another dialect. The
    /// positions of the new nodes refer to the text of this document.
    pub fn with_root(&self, root: Node) -> Document {
        let (text, hidden) = (self.text.clone(), self.hidden.clone());
        Document { name: self.name.clone(), text, directory: self.directory.clone(), root, hidden }
    }

    /// Creates a document without YAML, for example from a command line. The positions of its nodes refer to
    /// `text`.
    pub fn made(name: &str, text: &str, root: Node) -> Document {
        keep_written(&root);
        let hidden = Hidden::of(&root);
        Document { name: name.to_owned(), text: text.into(), directory: PathBuf::new(), root, hidden }
    }

    /// Returns the root node. In a configuration it is a mapping.
    pub fn root(&self) -> &Node {
        &self.root
    }

    /// Returns the name to show in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the text as it was written, before any substitution.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns an empty collection for mistakes in this document.
    pub fn diagnostics(&self) -> Diagnostics {
        Diagnostics::hiding(&self.name, self.text.clone(), self.hidden.clone())
    }

    /// Substitutes variables and the content of files in the scalars.
    ///
    /// - `${NAME}` is the variable; `${NAME:-default}` has a default for a missing or empty variable.
    /// - `${file:path}` is the content of a file without its last newline. The path is relative to the
    ///   document.
    /// - `$$` is a `$`. A `$` without a following `{` stays as it is.
    ///
    /// Keys are not substituted. An unquoted scalar is typed after the substitution, so `${PORT}` can be a
    /// number; the structure cannot change.
    pub fn substitute(&mut self, variables: &dyn Fn(&str) -> Option<String>, diagnostics: &mut Diagnostics) {
        substitute::substitute(&mut self.root, &self.text, &self.directory, variables, diagnostics);
        keep_written(&self.root);
    }
}

/// A node with the sizes that the limits need when an alias repeats it.
#[derive(Clone)]
struct Built {
    node: Node,
    /// The number of nested levels of mappings and lists.
    height: usize,
    /// The approximate size in bytes.
    weight: usize,
}

impl Built {
    fn scalar(node: Node, length: usize) -> Self {
        Self { node, height: 0, weight: NODE_WEIGHT + length }
    }
}

const NODE_WEIGHT: usize = 64;

/// A mapping or list whose end has not been read yet.
struct Open {
    start: usize,
    end: usize,
    anchor: usize,
    height: usize,
    weight: usize,
    content: Content,
}

enum Content {
    Sequence(Vec<Node>),
    Mapping {
        entries: Vec<(Key, Node)>,
        names: HashMap<String, Span>,
        key: Option<Key>,
        merges: Vec<(Key, Node)>,
    },
}

struct Builder {
    diagnostics: Diagnostics,
    open: Vec<Open>,
    anchored: HashMap<usize, Built>,
    anchor_names: Vec<String>,
    expanded: usize,
    root: Option<Node>,
}

/// The document exceeds a limit, and the mistake has been reported.
struct Stop;

impl Builder {
    fn new(diagnostics: Diagnostics) -> Self {
        Self {
            diagnostics,
            open: Vec::new(),
            anchored: HashMap::new(),
            anchor_names: Vec::new(),
            expanded: 0,
            root: None,
        }
    }

    fn read(&mut self, text: &str) {
        let options = granit_parser::options! {
            emit_unresolved_aliases: true,
            emit_anchor_events: true,
            emit_comments: false,
            flow_nesting_limit: DEEPEST,
            block_nesting_limit: DEEPEST,
        };
        let mut documents = 0;
        for next in Parser::new_from_str_with_options(text, options) {
            let (event, place) = match next {
                Ok(next) => next,
                Err(error) => {
                    self.diagnostics.push(syntax::explain(text, &error));
                    return;
                }
            };
            let span = place.byte_range().map(Span::from).unwrap_or_default();
            if let Event::DocumentStart(..) = event {
                documents += 1;
                if documents > 1 {
                    self.diagnostics
                        .error(span, "A second document starts here, but a file holds one.")
                        .label("second document")
                        .help("Remove the `---`, or put what follows into a file of its own.");
                    return;
                }
            }
            if self.event(event, span).is_err() {
                return;
            }
        }
    }

    fn event(&mut self, event: Event<'_>, span: Span) -> Result<(), Stop> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                if style == ScalarStyle::Plain
                    && self.is_before_key()
                    && let Some(mistake) = syntax::unseen_in_key(&text, span)
                {
                    self.diagnostics.push(mistake);
                }
                let node = self.scalar(&text, style, tag.as_deref(), span);
                self.add(Built::scalar(node, text.len()), anchor)
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.collection(tag.as_deref(), "seq", span);
                self.start(span, anchor, Content::Sequence(Vec::new()))
            }
            Event::MappingStart(_, anchor, tag) => {
                self.collection(tag.as_deref(), "map", span);
                let (entries, merges) = (Vec::new(), Vec::new());
                self.start(
                    span,
                    anchor,
                    Content::Mapping { entries, names: HashMap::new(), key: None, merges },
                )
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(span),
            Event::Anchor(_, name) => {
                self.anchor_names.push(name.into_owned());
                Ok(())
            }
            Event::Alias(anchor) => self.alias(anchor, span),
            Event::UnresolvedAlias(name) => {
                let names = self.anchor_names.iter().map(String::as_str);
                let help = match nearest(&name, names) {
                    Some(near) => format!("Did you mean `*{near}`?"),
                    None => format!(
                        "Define it before with `&{name}`, or put quotes around a text that starts with `*`."
                    ),
                };
                self.diagnostics.error(span, format!("There is no anchor `{name}`.")).help(help);
                self.add(Built::scalar(Node::new(span, Value::Null), 0), 0)
            }
            _ => Ok(()),
        }
    }

    /// True if the next node is a key of a mapping.
    fn is_before_key(&self) -> bool {
        matches!(self.open.last(), Some(Open { content: Content::Mapping { key: None, .. }, .. }))
    }

    fn scalar(&mut self, text: &str, style: ScalarStyle, tag: Option<&Tag>, span: Span) -> Node {
        let plain = style == ScalarStyle::Plain;
        match tag.map(|tag| (tag.core_suffix(), tag)) {
            None if plain => Node::plain(span, text),
            Some((Some("bool" | "int" | "float" | "null"), _)) => Node::plain(span, text),
            None | Some((Some("str"), _)) => Node::new(span, Value::String(text.to_owned())),
            // `! text` is text.
            Some((_, tag)) if tag.suffix().is_empty() || tag.suffix() == "!" => {
                Node::new(span, Value::String(text.to_owned()))
            }
            Some((_, tag)) => {
                self.unknown_tag(tag, span);
                Node::plain(span, text)
            }
        }
    }

    fn collection(&mut self, tag: Option<&Tag>, expected: &str, span: Span) {
        if let Some(tag) = tag.filter(|tag| !tag.is_yaml_core_schema_tag(expected)) {
            self.unknown_tag(tag, span);
        }
    }

    fn unknown_tag(&mut self, tag: &Tag, span: Span) {
        self.diagnostics
            .error(span, format!("The tag `{}` has no effect here.", tag.original()))
            .help("Remove it, or put quotes around a text that starts with `!`.");
    }

    fn start(&mut self, span: Span, anchor: usize, content: Content) -> Result<(), Stop> {
        if self.open.len() >= DEEPEST {
            return self.too_deep(span);
        }
        self.open.push(Open {
            start: span.start,
            end: span.end,
            anchor,
            height: 1,
            weight: NODE_WEIGHT,
            content,
        });
        Ok(())
    }

    fn too_deep(&mut self, span: Span) -> Result<(), Stop> {
        self.diagnostics.push(syntax::too_deep(span));
        Err(Stop)
    }

    fn end(&mut self, span: Span) -> Result<(), Stop> {
        let Some(open) = self.open.pop() else { return Ok(()) };
        // The end event of a flow collection is at its bracket. That of a block collection is at the token
        // after it, so the last entry determines the end.
        let end = if span.end > span.start { span.end } else { open.end };
        let value = match open.content {
            Content::Sequence(items) => Value::Sequence(items),
            Content::Mapping { entries, merges, .. } => Value::Mapping(self.merge(entries, merges)),
        };
        let node = Node::new(Span::new(open.start, end), value);
        self.add(Built { node, height: open.height, weight: open.weight }, open.anchor)
    }

    /// Returns the entries of a mapping and those that `<<` adds. Its own entries take precedence, then
    /// earlier merges.
    fn merge(&mut self, mut entries: Vec<(Key, Node)>, merges: Vec<(Key, Node)>) -> Vec<(Key, Node)> {
        if merges.is_empty() {
            return entries;
        }
        let mut names: HashSet<String> = entries.iter().map(|(key, _)| key.name.clone()).collect();
        for (key, node) in merges {
            let sources = match node.value {
                Value::Sequence(items) => items,
                _ => vec![node],
            };
            for source in sources {
                let kind = source.kind();
                let Value::Mapping(merged) = source.value else {
                    self.diagnostics
                        .error(
                            key.span,
                            format!("`<<` needs a mapping or a list of mappings, but this is {kind}."),
                        )
                        .help("Write `<<: *name`, where `&name` stands before a mapping.");
                    continue;
                };
                for (name, value) in merged {
                    if names.insert(name.name.clone()) {
                        entries.push((name, value));
                    }
                }
            }
        }
        entries
    }

    fn alias(&mut self, anchor: usize, span: Span) -> Result<(), Stop> {
        let Some(built) = self.anchored.get(&anchor) else {
            self.diagnostics
                .error(span, "This alias repeats a value that contains it.")
                .help("An alias can only repeat what was written before it.");
            return self.add(Built::scalar(Node::new(span, Value::Null), 0), 0);
        };
        self.expanded = self.expanded.saturating_add(built.weight);
        if self.expanded > LARGEST_EXPANSION {
            self.diagnostics
                .error(span, "Up to here, aliases repeat more than 16 MiB of the document.")
                .help("Write it with fewer aliases to aliases.");
            return Err(Stop);
        }
        if self.open.len() + built.height > DEEPEST {
            return self.too_deep(span);
        }
        let mut built = built.clone();
        if self.is_before_key() {
            built.node.span = span; // As a key, it is wrong here, not at its definition.
        }
        self.add_ending(built, 0, span.end)
    }

    /// Adds a finished node to the innermost open collection.
    fn add(&mut self, built: Built, anchor: usize) -> Result<(), Stop> {
        let end = built.node.span.end;
        self.add_ending(built, anchor, end)
    }

    fn add_ending(&mut self, built: Built, anchor: usize, end: usize) -> Result<(), Stop> {
        if anchor != 0 {
            self.anchored.insert(anchor, built.clone());
        }
        let Built { node, height, weight } = built;
        let Some(open) = self.open.last_mut() else {
            self.root.get_or_insert(node);
            return Ok(());
        };
        open.end = open.end.max(end);
        open.height = open.height.max(height + 1);
        open.weight = open.weight.saturating_add(weight);
        match &mut open.content {
            Content::Sequence(items) => items.push(node),
            Content::Mapping { entries, names, key, merges } => match key.take() {
                None => {
                    let Some(name) =
                        node.text().map(str::to_owned).or_else(|| Some(node.raw.clone()?.into()))
                    else {
                        let message = format!("A key is text, but this is {}.", node.kind());
                        let help = "Put quotes around a key or a value that starts with `{` or `[`.";
                        self.diagnostics.error(node.span, message).help(help);
                        *key = Some(Key { name: String::new(), span: node.span });
                        return Ok(());
                    };
                    *key = Some(Key { name, span: node.span });
                }
                Some(key) if key.name == "<<" => merges.push((key, node)),
                Some(key) => match names.get(&key.name) {
                    Some(&first) => {
                        let mut duplicate =
                            Diagnostic::new(key.span, format!("The key `{}` is given twice.", key.name));
                        duplicate.label("and again here").help("Keep one of the two.");
                        self.diagnostics.push_with(duplicate, [(first, "given here".to_owned())]);
                    }
                    None => {
                        names.insert(key.name.clone(), key.span);
                        entries.push((key, node));
                    }
                },
            },
        }
        Ok(())
    }
}
