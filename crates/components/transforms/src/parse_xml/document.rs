//! Reads a document into a list of nodes, and writes it as a JSON object.
//!
//! The nodes are in the order of the document, in one list that is reused for all messages. Nodes with the
//! same name under the same element are linked, wherever they are: they become one member of the object. The
//! rejected alternative is a tree of values, with a map and an allocation for each element.

use std::hash::BuildHasher;
use std::ops::Range;

use hashbrown::hash_table::Entry;
use hashbrown::{DefaultHashBuilder, HashSet, HashTable};
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::{BytesRef, BytesStart, Event};
use quick_xml::{Reader, XmlVersion};
use serde::de::IgnoredAny;
use thalweg_codec::columns::shortened;
use thalweg_codec::json::write_text;

use super::{ParseXml, rules};
use crate::objects::ObjectSyntax;

/// The maximum depth of elements. Each is at most two levels of JSON, an object in a list, and readers of
/// JSON stop at 127 levels.
const DEEPEST: usize = 60;

/// The maximum number of elements, attributes and texts of a document. Each takes about 80 bytes.
const MOST: usize = 1 << 20;

/// The number of nodes, and of bytes, for which memory is kept between documents.
const USUAL: usize = 16 << 10;

/// The index that means no node.
const NONE: usize = usize::MAX;

/// The reason for rejecting a document with other text than blanks before or after its elements.
const OUTSIDE: &str = "there is text outside of the root element";

/// The part of a document that a node stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Element,
    Attribute,
    /// A piece of text between two tags of elements.
    Text,
}

#[derive(Debug)]
struct Node {
    part: Part,
    parent: usize,
    /// The range of its name as a member in [`Document::texts`].
    name: Range<usize>,
    /// The range of the value of an attribute or text in [`Document::texts`].
    value: Range<usize>,
    /// The index after the last node within this one.
    end: usize,
    /// The next node of the same name under the same element.
    next: usize,
    /// True if no node of the same name under the same element comes before.
    is_first: bool,
}

/// Reads documents, in memory that is reused.
pub(super) struct Document {
    options: ParseXml,
    nodes: Vec<Node>,
    /// The elements that are open.
    open: Vec<usize>,
    /// The last node of each name under each element.
    last: HashTable<usize>,
    hasher: DefaultHashBuilder,
    /// Names and values, decoded. It begins with the name of texts.
    texts: String,
    /// Where the text that is not complete begins in `texts`.
    begun: usize,
    /// True if there was a document type.
    has_type: bool,
}

impl ObjectSyntax for Document {
    fn write(&mut self, message: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
        let text = simdutf8::basic::from_utf8(message).map_err(|_| thalweg_codec::not_utf8(message))?;
        self.clear();
        self.read(text)?;
        self.write_root(out);
        Ok(())
    }
}

impl Document {
    /// Creates a reader with these options.
    pub(super) fn new(options: &ParseXml) -> Self {
        Self {
            options: options.clone(),
            nodes: Vec::new(),
            open: Vec::new(),
            last: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
            texts: String::new(),
            begun: 0,
            has_type: false,
        }
    }

    fn clear(&mut self) {
        // One large document must not keep its memory.
        self.nodes.clear();
        self.nodes.shrink_to(USUAL);
        self.last.clear();
        self.last.shrink_to(USUAL, |_| 0);
        self.texts.clear();
        self.texts.shrink_to(USUAL);
        self.open.clear();
        self.texts.push_str(&self.options.text_key);
        self.begun = self.texts.len();
        self.has_type = false;
    }

    fn read(&mut self, text: &str) -> Result<(), String> {
        if let Some((at, character)) = rules::forbidden(text) {
            let code = u32::from(character);
            return Err(format!("is not XML, at byte {at}: the character U+{code:04X} may not occur"));
        }
        let document = text.strip_prefix('\u{feff}').unwrap_or(text);
        let offset = (text.len() - document.len()) as u64;
        let mut reader = Reader::from_str(document);
        loop {
            let at = reader.buffer_position();
            let event = reader.read_event().map_err(|error| {
                format!("is not XML, at byte {}: {error}", offset + reader.error_position())
            })?;
            if matches!(event, Event::Eof) {
                break;
            }
            self.event(&event, document, at as usize)
                .map_err(|reason| format!("is not XML, at byte {}: {reason}", offset + at))?;
        }
        match self.open.last().and_then(|open| self.nodes.get(*open)) {
            Some(open) => {
                let name = shortened(self.piece(&open.name));
                Err(format!("is not XML: the element `{name}` is not closed"))
            }
            None if self.nodes.is_empty() => Err("is not XML: there is no element".to_owned()),
            None => Ok(()),
        }
    }

    /// Reads the part of a document that begins at byte `at`.
    fn event(&mut self, event: &Event<'_>, document: &str, at: usize) -> Result<(), String> {
        match event {
            Event::Start(start) => self.start(start),
            Event::Empty(start) => self.start(start).and_then(|()| self.end()),
            Event::End(_) => self.end(),
            Event::Text(piece) if piece.contains("]]>") => Err("there is `]]>` in a text".to_owned()),
            Event::Text(piece) => self.text(&piece.xml10_content()),
            Event::CData(_) if self.open.is_empty() => Err(OUTSIDE.to_owned()),
            Event::CData(piece) => self.text(&piece.xml10_content()),
            Event::GeneralRef(reference) => self.reference(reference),
            Event::Comment(comment) => rules::comment(comment),
            Event::PI(instruction) => rules::target(instruction.target()),
            Event::Decl(_) if at > 0 => Err("the declaration is not at the beginning".to_owned()),
            Event::Decl(declaration) => match declaration.version() {
                Ok(_) => Ok(()),
                Err(error) => Err(error.to_string()),
            },
            Event::DocType(_) => self.document_type(document.get(at..).unwrap_or_default()),
            Event::Eof => Ok(()),
        }
    }

    /// Reads the document type at the beginning of a text.
    fn document_type(&mut self, text: &str) -> Result<(), String> {
        let is_second = std::mem::replace(&mut self.has_type, true);
        match is_second || !self.nodes.is_empty() || !text.starts_with("<!DOCTYPE") {
            true => Err("a document type is written `<!DOCTYPE`, once, before the root element".to_owned()),
            false => Ok(()),
        }
    }

    fn piece(&self, range: &Range<usize>) -> &str {
        self.texts.get(range.clone()).unwrap_or_default()
    }

    fn start(&mut self, start: &BytesStart<'_>) -> Result<(), String> {
        if self.open.is_empty() && !self.nodes.is_empty() {
            return Err("there is a second root element".to_owned());
        }
        if self.open.len() >= DEEPEST {
            return Err(format!("elements are nested deeper than {DEEPEST} levels"));
        }
        self.end_text()?;
        let name = start.name().into_inner();
        rules::name(name)?;
        let name = self.keep(self.used(name));
        let element = self.add(Part::Element, name, 0..0)?;
        self.open.push(element);
        self.attributes(start)
    }

    fn attributes(&mut self, start: &BytesStart<'_>) -> Result<(), String> {
        // Attributes that are left out or renamed are compared here, and others as nodes. The library's check
        // compares each attribute with all others.
        let is_changed = !self.options.attributes || self.options.remove_namespaces;
        let mut names = HashSet::new();
        for attribute in start.attributes().with_checks(false) {
            let attribute = attribute.map_err(|error| error.to_string())?;
            let key = attribute.key.into_inner();
            rules::attribute(start.attributes_raw(), key, &attribute.value)?;
            let value =
                attribute.normalized_value(XmlVersion::Implicit1_0).map_err(|error| error.to_string())?;
            if let Some((_, character)) = rules::forbidden(&value) {
                return Err(forbidden_reference(character));
            }
            if is_changed && !names.insert(key) {
                return Err(twice(key));
            }
            let is_declaration = key == "xmlns" || key.starts_with("xmlns:");
            if !self.options.attributes || is_declaration && self.options.remove_namespaces {
                continue;
            }
            self.texts.push_str(&self.options.attribute_prefix);
            let name = self.keep(self.used(key));
            let value = self.keep(&value);
            self.add(Part::Attribute, name, value)?;
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), String> {
        self.end_text()?;
        let end = self.nodes.len();
        if let Some(open) = self.open.pop().and_then(|open| self.nodes.get_mut(open)) {
            open.end = end;
        }
        Ok(())
    }

    fn text(&mut self, piece: &str) -> Result<(), String> {
        if !self.open.is_empty() {
            self.texts.push_str(piece);
        } else if !piece.trim_ascii().is_empty() {
            return Err(OUTSIDE.to_owned());
        }
        Ok(())
    }

    fn reference(&mut self, reference: &BytesRef<'_>) -> Result<(), String> {
        if self.open.is_empty() {
            return Err(OUTSIDE.to_owned());
        }
        if let Some(character) = reference.resolve_char_ref().map_err(|error| error.to_string())? {
            if !rules::is_character(character) {
                return Err(forbidden_reference(character));
            }
            return self.text(character.encode_utf8(&mut [0; 4]));
        }
        let known = resolve_predefined_entity(reference);
        self.text(known.ok_or_else(|| format!("the entity `&{};` is unknown", shortened(reference)))?)
    }

    /// Adds the text since the last tag of an element, if it has any but blanks.
    fn end_text(&mut self) -> Result<(), String> {
        let piece = self.texts.get(self.begun..).unwrap_or_default();
        let start = self.texts.len() - piece.trim_ascii_start().len();
        let value = start..start + piece.trim_ascii().len();
        self.begun = self.texts.len();
        if !value.is_empty() {
            self.add(Part::Text, 0..self.options.text_key.len(), value)?;
        }
        Ok(())
    }

    /// Returns the part of a name that is used.
    fn used<'a>(&self, name: &'a str) -> &'a str {
        match name.rsplit_once(':') {
            Some((_, local)) if self.options.remove_namespaces => local,
            _ => name,
        }
    }

    /// Ends a name or a value with this text. Returns its range.
    fn keep(&mut self, text: &str) -> Range<usize> {
        self.texts.push_str(text);
        let start = std::mem::replace(&mut self.begun, self.texts.len());
        start..self.begun
    }

    /// Adds a node under the element that is open, and links it to the last one of the same name.
    fn add(&mut self, part: Part, name: Range<usize>, value: Range<usize>) -> Result<usize, String> {
        let Self { nodes, last, texts, hasher, .. } = self;
        let index = nodes.len();
        if index >= MOST {
            return Err(format!("there are more than {MOST} elements, attributes and texts"));
        }
        let parent = self.open.last().copied().unwrap_or(NONE);
        let key_of =
            |parent: usize, name: &Range<usize>| (parent, texts.get(name.clone()).unwrap_or_default());
        let node_key = |at: usize| nodes.get(at).map(|node| key_of(node.parent, &node.name));
        let key = key_of(parent, &name);
        let entry = last.entry(
            hasher.hash_one(key),
            |at| node_key(*at) == Some(key),
            |at| node_key(*at).map_or(0, |key| hasher.hash_one(key)),
        );
        let before = match entry {
            Entry::Occupied(mut found) => Some(std::mem::replace(found.get_mut(), index)),
            Entry::Vacant(vacant) => {
                vacant.insert(index);
                None
            }
        };
        if let Some(before) = before.and_then(|before| nodes.get_mut(before)) {
            before.next = index;
            let is_twice = part == Part::Attribute && before.part == Part::Attribute;
            if is_twice && !self.options.remove_namespaces {
                let name = texts.get(name.start + self.options.attribute_prefix.len()..name.end);
                return Err(twice(name.unwrap_or_default()));
            }
        }
        let is_first = before.is_none();
        nodes.push(Node { part, parent, name, value, end: index + 1, next: NONE, is_first });
        Ok(index)
    }

    fn write_root(&self, out: &mut Vec<u8>) {
        let Some(root) = self.nodes.first() else { return };
        if self.options.keep_root {
            out.push(b'{');
            self.write_member(0, root, out);
            out.push(b'}');
        } else {
            self.write_members(0, root, out);
        }
    }

    fn write_node(&self, index: usize, node: &Node, out: &mut Vec<u8>) {
        let first = self.nodes.get(index + 1).filter(|_| node.end > index + 1);
        match (node.part, first) {
            (Part::Element, None) => out.extend_from_slice(b"null"),
            (Part::Element, Some(first)) if first.part == Part::Text && node.end == index + 2 => {
                self.write_value(first, out);
            }
            (Part::Element, Some(_)) => self.write_members(index, node, out),
            _ => self.write_value(node, out),
        }
    }

    /// Writes the nodes under an element as an object.
    fn write_members(&self, index: usize, node: &Node, out: &mut Vec<u8>) {
        let mut before = b'{';
        let mut at = index + 1;
        while let Some(child) = self.nodes.get(at).filter(|_| at < node.end) {
            if child.is_first {
                out.push(before);
                before = b',';
                self.write_member(at, child, out);
            }
            at = child.end;
        }
        if before == b'{' {
            out.push(b'{');
        }
        out.push(b'}');
    }

    /// Writes a node and those of the same name.
    fn write_member(&self, index: usize, node: &Node, out: &mut Vec<u8>) {
        let name = self.piece(&node.name);
        write_text(name, out);
        out.push(b':');
        let is_list = node.part == Part::Element && node.parent != NONE && self.is_list(name);
        if node.next == NONE && !is_list {
            return self.write_node(index, node, out);
        }
        let mut next = Some((index, node));
        let mut before = b'[';
        while let Some((index, node)) = next {
            out.push(before);
            before = b',';
            self.write_node(index, node, out);
            next = self.nodes.get(node.next).map(|following| (node.next, following));
        }
        out.push(b']');
    }

    fn is_list(&self, name: &str) -> bool {
        self.options.lists.iter().any(|list| list == name || list == "*")
    }

    fn write_value(&self, node: &Node, out: &mut Vec<u8>) {
        let value = self.piece(&node.value);
        match self.options.infer_types && is_typed(value) {
            true => out.extend_from_slice(value.as_bytes()),
            false => write_text(value, out),
        }
    }
}

fn twice(attribute: &str) -> String {
    format!("the attribute `{}` occurs twice", shortened(attribute))
}

fn forbidden_reference(character: char) -> String {
    format!("the character U+{:04X} may not occur, also as a reference", u32::from(character))
}

/// True if a text is a number or a boolean in JSON.
fn is_typed(text: &str) -> bool {
    let begins = |first: &u8| first.is_ascii_digit() || *first == b'-';
    let is_number = text.as_bytes().first().is_some_and(begins);
    match text {
        "true" | "false" => true,
        _ => is_number && serde_json::from_str::<IgnoredAny>(text).is_ok(),
    }
}
