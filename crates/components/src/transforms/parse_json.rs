//! Parses payloads that are JSON objects into columns.
//!
//! Two passes. The first walks each payload once: it checks the whole grammar, and notes for each member only
//! where its value stands and of what kind it is (eight bytes). The second goes a column at a time: by then the
//! kinds of all its values are known, so the type of the column is decided before a single value is converted, and
//! a column of mixed types needs no undoing. Texts without escapes and nested values are views of the payload.
//!
//! Records of one stream resemble each other. So each key remembers which key followed it last, and the walk
//! compares the bytes at hand with that one (sixteen at once) before it looks for the end of the key and hashes it.
//!
//! A general parser that gives a tree, or even one that gives lazy values, was several times slower: it
//! must find and store what this one knows from the record before.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::sync::Arc;

use arrow_array::{
    Array, ArrayRef, BinaryViewArray, BooleanArray, Float64Array, Int64Array, RecordBatch,
    RecordBatchOptions, TimestampMicrosecondArray,
};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use hashbrown::HashMap;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_engine::{Context, Error, Mistake, Outlets, Transform, TransformConfig};
use thalweg_record::{Batch, TextBuilder};

use crate::shared::json::find_special;

/// How deep a record may be nested, itself included; the same as other parsers have.
const DEEPEST: usize = 127;

/// The longest record: lengths share 32 bits with the kind of the value.
const LONGEST: usize = 1 << 28;

/// Stands for no node, no column or no group.
const NONE: u32 = u32::MAX;

/// Parses payloads that are JSON objects, such as the lines of a JSON Lines file, into fields.
///
/// Each member becomes a field. Its type is found from the values of a batch: whole numbers, numbers, booleans
/// or text; nested and mixed values are kept as JSON text. Members that a record lacks are NULL. A payload that
/// is not a JSON object leaves by `errors` with the reason. Payloads stay as they are.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ParseJsonConfig {
    /// Only these members become fields; the others are checked and skipped, which is faster. The default is all.
    #[schemars(length(min = 1))]
    fields: Option<Vec<String>>,
    /// Members that must have a certain type: `int`, `float`, `bool`, `text`, `timestamp` or `json`. A text that
    /// holds such a value is converted; a record with a value that does not fit leaves by `errors`. A timestamp is
    /// a text as in RFC 3339, or a number of seconds since 1970 (whole numbers of 12 or more digits are milli-,
    /// micro- or nanoseconds, by their size).
    types: BTreeMap<String, FieldType>,
    /// Whether the members of nested objects become fields, called `outer.inner`. Otherwise a nested object
    /// is one field that holds its JSON text. The default is `false`.
    flatten: bool,
    /// What to put before the name of each field, for example `json_`. The default is nothing.
    prefix: String,
    /// How many different fields a batch may have; a record with further ones leaves by `errors`. It protects
    /// against data where names are values. The default is 1024.
    #[schemars(range(min = 1, max = 65_536))]
    max_fields: usize,
}

impl Default for ParseJsonConfig {
    fn default() -> Self {
        Self { fields: None, types: BTreeMap::new(), flatten: false, prefix: String::new(), max_fields: 1024 }
    }
}

/// The type of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum FieldType {
    /// Whole numbers of 64 bits.
    Int,
    /// Numbers.
    Float,
    /// `true` and `false`.
    Bool,
    /// Text.
    Text,
    /// Points in time.
    Timestamp,
    /// JSON text of any value.
    Json,
}

impl FieldType {
    fn field(self, name: &str) -> Field {
        let data_type = match self {
            FieldType::Int => DataType::Int64,
            FieldType::Float => DataType::Float64,
            FieldType::Bool => DataType::Boolean,
            FieldType::Text | FieldType::Json => DataType::Utf8View,
            FieldType::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        };
        let field = Field::new(name, data_type, true);
        match self {
            FieldType::Json => field.with_metadata(
                [("ARROW:extension:name".to_owned(), "arrow.json".to_owned())].into_iter().collect(),
            ),
            _ => field,
        }
    }

    fn name(self) -> &'static str {
        match self {
            FieldType::Int => "a whole number of 64 bits",
            FieldType::Float => "a number",
            FieldType::Bool => "a boolean",
            FieldType::Text => "text",
            FieldType::Timestamp => "a point in time",
            FieldType::Json => "JSON",
        }
    }
}

impl TransformConfig for ParseJsonConfig {
    const NAME: &'static str = "parse_json";
    const EXAMPLE: &'static str = r#"
sources:
  messages:
    generate:
      message: '{"id": %6d, "name": "%12s", "score": %2f}'
      count: 1000
pipelines:
  main:
    from: messages
    transforms:
      - parse_json: { types: { score: float } }
    to: nowhere
sinks:
  nowhere: { discard: {} }
"#;

    fn check(&self) -> Vec<Mistake> {
        let Some(fields) = &self.fields else { return Vec::new() };
        let missing = self.types.keys().filter(|name| !fields.contains(name));
        let mistake = |name| Mistake {
            option: "types",
            message: format!("`types` names `{name}`, which is not among `fields`."),
            help: Some(format!("Add `{name}` to `fields`, or take it out of `types`.")),
        };
        missing.map(mistake).collect()
    }

    fn build(&self, _: &Context) -> Result<Box<dyn Transform>, Error> {
        Ok(Box::new(ParseJson { walk: Walk::new(self), shape: Shape::default() }))
    }
}

struct ParseJson {
    walk: Walk,
    shape: Shape,
}

impl Transform for ParseJson {
    fn apply(&mut self, batch: Batch, out: &mut Outlets) -> Result<(), Error> {
        let payload = batch.payload().clone();
        let (mut texts, mut failed) = self.walk.batch(&payload);
        if self.walk.overflowed {
            // Fields that were seen in earlier batches may be what leaves no room.
            self.walk.forget(0, 0, 1);
            (texts, failed) = self.walk.batch(&payload);
        }
        if failed.is_empty() {
            let columns = self.walk.columns(&texts, payload.data_buffers());
            out.send(self.shape.set(batch, columns, &self.walk)?);
            return Ok(());
        }
        // What is left may have been copied to a buffer of its own, so that is what the columns must stand on.
        let Some(batch) = out.reject(batch, failed)? else { return Ok(()) };
        let payload = batch.payload().clone();
        let texts: Vec<&str> =
            payload.iter().map(|value| as_text(value.unwrap_or_default()).unwrap_or_default()).collect();
        let columns = self.walk.columns(&texts, payload.data_buffers());
        out.send(self.shape.set(batch, columns, &self.walk)?);
        Ok(())
    }
}

/// Why a payload was rejected.
#[derive(Debug)]
enum Fault {
    Syntax { at: usize, what: &'static str },
    Unfit { at: usize, name: Box<str>, wanted: FieldType },
    TooMany { at: usize, most: usize },
    TooLong,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Syntax { at, what } => write!(f, "is not a JSON object: {what} at byte {at}"),
            Fault::Unfit { at, name, wanted } => write!(f, "`{name}` at byte {at} is not {}", wanted.name()),
            Fault::TooMany { at, most } => {
                write!(f, "has a new field at byte {at}, but there are {most} already (see `max_fields`)")
            }
            Fault::TooLong => write!(f, "is longer than {LONGEST} bytes"),
        }
    }
}

#[cold]
fn fault<T>(at: usize, what: &'static str) -> Result<T, Fault> {
    Err(Fault::Syntax { at, what })
}

fn as_text(payload: &[u8]) -> Result<&str, Fault> {
    match simdutf8::basic::from_utf8(payload) {
        Ok(text) => Ok(text),
        Err(_) => match std::str::from_utf8(payload) {
            Ok(text) => Ok(text),
            Err(error) => fault(error.valid_up_to(), "invalid UTF-8"),
        },
    }
}

/// What the first byte of a value, and for numbers its form, tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
enum Kind {
    Missing = 0,
    Null,
    Bool,
    /// A whole number of at most 18 digits.
    Int,
    /// A whole number that may not fit 64 bits.
    LongInt,
    Float,
    Text,
    EscapedText,
    Nested,
}

/// A set of kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Kinds(u32);

impl Kinds {
    const NULLS: Kinds = Kinds(1 << Kind::Missing as u32 | 1 << Kind::Null as u32);
    const INTS: Kinds = Kinds(1 << Kind::Int as u32 | 1 << Kind::LongInt as u32);
    const NUMBERS: Kinds = Kinds(Self::INTS.0 | 1 << Kind::Float as u32);
    const BOOLS: Kinds = Kinds(1 << Kind::Bool as u32);
    const TEXTS: Kinds = Kinds(1 << Kind::Text as u32 | 1 << Kind::EscapedText as u32);

    fn of(spans: &[Span]) -> Self {
        Self(spans.iter().fold(0, |kinds, span| kinds | 1 << (span.word >> Span::SHIFT)))
    }

    fn without(self, others: Kinds) -> Kinds {
        Kinds(self.0 & !others.0)
    }

    fn within(self, others: Kinds) -> bool {
        self.without(others).0 == 0
    }

    fn has(self, others: Kinds) -> bool {
        self.0 & others.0 != 0
    }
}

/// Where a value stands in its payload, and its kind.
#[derive(Debug, Clone, Copy)]
struct Span {
    start: u32,
    /// The length, and in the upper four bits the kind.
    word: u32,
}

impl Span {
    const SHIFT: u32 = 28;
    const MISSING: Span = Span { start: 0, word: 0 };

    #[inline]
    fn new(start: usize, end: usize, kind: Kind) -> Self {
        Self { start: start as u32, word: (end - start) as u32 | (kind as u32) << Self::SHIFT }
    }

    #[inline]
    fn is_null(self) -> bool {
        self.word >> Self::SHIFT <= Kind::Null as u32
    }

    /// The value as it stands in the payload.
    #[inline]
    fn token(self, text: &str) -> &str {
        let start = self.start as usize;
        text.get(start..start + (self.word & ((1 << Self::SHIFT) - 1)) as usize).unwrap_or_default()
    }
}

/// A key in an object. Its place is known by the group (the object's path) that it belongs to.
#[derive(Debug)]
struct Node {
    /// `"key":` as it stands in a record that has no blanks and no escapes there.
    quoted: Box<[u8]>,
    /// The same as a number to compare sixteen bytes at once with, where it is short enough.
    window: u128,
    mask: u128,
    /// The node that came next in the record before.
    follower: u32,
    parent: u32,
    key: Box<str>,
    /// Where its values go, if anywhere.
    column: u32,
    /// The group of its members, where objects are flattened.
    group: u32,
    /// Whether the user asked for its values.
    wanted: bool,
    /// Whether an object here is to be looked into.
    descend: bool,
}

/// The objects at one path.
#[derive(Debug, Default)]
struct Group {
    /// The names that lead here, each with a dot behind it.
    path: String,
    members: HashMap<Box<str>, u32>,
    first: u32,
}

#[derive(Debug)]
struct Column {
    name: String,
    forced: Option<FieldType>,
    /// The type in the batch before.
    last: FieldType,
    spans: Vec<Span>,
}

impl Column {
    #[inline]
    fn set(&mut self, row: usize, span: Span) {
        if self.spans.len() == row {
            self.spans.push(span);
        } else if let Some(earlier) = self.spans.get_mut(row) {
            *earlier = span;
        } else {
            self.spans.resize(row, Span::MISSING);
            self.spans.push(span);
        }
    }
}

/// The first pass, and what it remembers from record to record.
struct Walk {
    fields: Option<HashSet<String>>,
    types: BTreeMap<String, FieldType>,
    flatten: bool,
    prefix: String,
    max_fields: usize,
    nodes: Vec<Node>,
    groups: Vec<Group>,
    columns: Vec<Column>,
    by_name: HashMap<String, u32>,
    unescaped: String,
    /// Whether a record of the batch was rejected for want of room that earlier batches take.
    overflowed: bool,
}

impl Walk {
    fn new(config: &ParseJsonConfig) -> Self {
        Self {
            fields: config.fields.as_ref().map(|fields| fields.iter().cloned().collect()),
            types: config.types.clone(),
            flatten: config.flatten,
            prefix: config.prefix.clone(),
            max_fields: config.max_fields,
            nodes: Vec::new(),
            groups: vec![Group { first: NONE, ..Group::default() }],
            columns: Vec::new(),
            by_name: HashMap::new(),
            unescaped: String::new(),
            overflowed: false,
        }
    }

    /// Walks the payloads of a batch: gives the good ones as text, and the rows of the others with the reasons.
    ///
    /// Fields that no longer occur stay, as NULLs, so that the schema is the same from batch to batch.
    fn batch<'a>(&mut self, payload: &'a BinaryViewArray) -> (Vec<&'a str>, Vec<(u32, String)>) {
        self.columns.iter_mut().for_each(|column| column.spans.clear());
        self.overflowed = false;
        let carried = !self.columns.is_empty();
        let mut texts = Vec::with_capacity(payload.len());
        let mut failed = Vec::new();
        for row in 0..payload.len() {
            match self.record(payload.value(row), texts.len()) {
                Ok(text) => texts.push(text),
                Err(fault) => {
                    self.overflowed |= carried && matches!(fault, Fault::TooMany { .. });
                    failed.push((row as u32, fault.to_string()));
                }
            }
        }
        (texts, failed)
    }

    /// Forgets the nodes, columns and groups from these numbers on.
    fn forget(&mut self, nodes: usize, columns: usize, groups: usize) {
        for node in self.nodes.drain(nodes..) {
            if let Some(group) = self.groups.get_mut(node.parent as usize) {
                group.members.remove(&node.key);
            }
        }
        for column in self.columns.drain(columns..) {
            self.by_name.remove(&column.name);
        }
        self.groups.truncate(groups);
        let none_from = |link: &mut u32, end: usize| {
            if *link as usize >= end {
                *link = NONE;
            }
        };
        for node in &mut self.nodes {
            none_from(&mut node.follower, nodes);
            none_from(&mut node.column, columns);
            none_from(&mut node.group, groups);
        }
        self.groups.iter_mut().for_each(|group| none_from(&mut group.first, nodes));
    }

    /// Walks one payload. One that is at fault leaves no trace.
    fn record<'a>(&mut self, payload: &'a [u8], row: usize) -> Result<&'a str, Fault> {
        let text = as_text(payload)?;
        let known = (self.nodes.len(), self.columns.len(), self.groups.len());
        match self.top(text.as_bytes(), row) {
            Ok(()) => Ok(text),
            Err(fault) => {
                if self.nodes.len() > known.0 || self.columns.len() > known.1 || self.groups.len() > known.2 {
                    self.forget(known.0, known.1, known.2);
                }
                self.columns.iter_mut().for_each(|column| column.spans.truncate(row));
                Err(fault)
            }
        }
    }

    fn top(&mut self, bytes: &[u8], row: usize) -> Result<(), Fault> {
        if bytes.len() >= LONGEST {
            return Err(Fault::TooLong);
        }
        let at = skip_blanks(bytes, 0);
        if bytes.get(at) != Some(&b'{') {
            return fault(at, "expected `{`");
        }
        let at = self.object(bytes, at + 1, 0, 1, row)?;
        let at = skip_blanks(bytes, at);
        if at < bytes.len() { fault(at, "there is more after the object") } else { Ok(()) }
    }

    /// Walks an object from behind its `{` to behind its `}`.
    fn object(
        &mut self,
        bytes: &[u8],
        at: usize,
        group: u32,
        depth: usize,
        row: usize,
    ) -> Result<usize, Fault> {
        let mut at = skip_blanks(bytes, at);
        if bytes.get(at) == Some(&b'}') {
            return Ok(at + 1);
        }
        let mut expected = self.groups.get(group as usize).map_or(NONE, |group| group.first);
        let mut previous = NONE;
        loop {
            let node = match self.predict(bytes, at, expected) {
                Some((node, after)) => {
                    at = after;
                    node
                }
                None => {
                    let (node, after) = self.look_up(bytes, at, group)?;
                    at = after;
                    match self.nodes.get_mut(previous as usize) {
                        Some(previous) => previous.follower = node,
                        None => self.groups[group as usize].first = node,
                    }
                    node
                }
            };
            at = skip_blanks(bytes, at);
            at = self.member(bytes, at, node, depth, row)?;
            previous = node;
            expected = self.nodes.get(node as usize).map_or(NONE, |node| node.follower);
            at = skip_blanks(bytes, at);
            match bytes.get(at) {
                Some(b',') => at = skip_blanks(bytes, at + 1),
                Some(b'}') => return Ok(at + 1),
                _ => return fault(at, "expected `,` or `}`"),
            }
        }
    }

    /// Whether the key at hand is the expected one, or the one after it (if that one is missing in this record).
    #[inline]
    fn predict(&self, bytes: &[u8], at: usize, expected: u32) -> Option<(u32, usize)> {
        let node = self.nodes.get(expected as usize)?;
        if node.is_at(bytes, at) {
            return Some((expected, at + node.quoted.len()));
        }
        let second = node.follower;
        let node = self.nodes.get(second as usize)?;
        node.is_at(bytes, at).then(|| (second, at + node.quoted.len()))
    }

    /// Reads a key and its colon, and finds its node or makes one.
    fn look_up(&mut self, bytes: &[u8], at: usize, group: u32) -> Result<(u32, usize), Fault> {
        let (end, after, escaped) = key(bytes, at)?;
        let raw = std::str::from_utf8(bytes.get(at + 1..end).unwrap_or_default()).unwrap_or_default();
        let mut unescaped = std::mem::take(&mut self.unescaped);
        let name = if escaped { unescape(raw, &mut unescaped) } else { raw };
        let found = self.groups.get(group as usize).and_then(|group| group.members.get(name)).copied();
        let node = match found {
            Some(node) => Ok(node),
            None => self.add(name, group, at),
        };
        self.unescaped = unescaped;
        Ok((node?, after))
    }

    /// Makes a node for a key that was not seen before, or none if it is not wanted and too many are known.
    fn add(&mut self, key: &str, group: u32, at: usize) -> Result<u32, Fault> {
        let path = format!("{}{key}", self.groups[group as usize].path);
        let wanted = self.fields.as_ref().is_none_or(|fields| fields.contains(&path));
        let descend = self.flatten
            && self.fields.as_ref().is_none_or(|fields| {
                let inside = |field: &String| {
                    field.strip_prefix(path.as_str()).is_some_and(|rest| rest.starts_with('.'))
                };
                fields.iter().any(inside)
            });
        if !wanted && !descend && self.nodes.len() > 4 * self.max_fields {
            return Ok(NONE);
        }
        // Where objects are looked into, there may never be a value of another kind.
        let column = if wanted && !descend { self.column_of(&path, at)? } else { NONE };
        // A key that has escapes is always looked up: 0xff is in no text, so it is never found at hand.
        let quoted = match find_special(key.as_bytes(), 0) {
            None => format!("\"{key}\":").into_bytes().into_boxed_slice(),
            Some(_) => Box::from([0xff]),
        };
        let (mut window, mut mask) = ([0; 16], [0; 16]);
        for ((byte, window), mask) in quoted.iter().zip(&mut window).zip(&mut mask) {
            (*window, *mask) = (*byte, 0xff);
        }
        let node = self.nodes.len() as u32;
        self.nodes.push(Node {
            window: u128::from_le_bytes(window),
            mask: u128::from_le_bytes(mask),
            quoted,
            follower: NONE,
            parent: group,
            key: key.into(),
            column,
            group: NONE,
            wanted,
            descend,
        });
        self.groups[group as usize].members.insert(key.into(), node);
        Ok(node)
    }

    fn column_of(&mut self, path: &str, at: usize) -> Result<u32, Fault> {
        let name = format!("{}{path}", self.prefix);
        if let Some(&column) = self.by_name.get(&name) {
            return Ok(column);
        }
        if self.columns.len() >= self.max_fields {
            return Err(Fault::TooMany { at, most: self.max_fields });
        }
        let column = self.columns.len() as u32;
        let forced = self.types.get(path).copied();
        let last = forced.unwrap_or(FieldType::Text);
        self.columns.push(Column { name: name.clone(), forced, last, spans: Vec::new() });
        self.by_name.insert(name, column);
        Ok(column)
    }

    /// Walks a value and notes it in its column.
    #[inline]
    fn member(
        &mut self,
        bytes: &[u8],
        at: usize,
        node: u32,
        depth: usize,
        row: usize,
    ) -> Result<usize, Fault> {
        let (mut column, descend) =
            self.nodes.get(node as usize).map_or((NONE, false), |node| (node.column, node.descend));
        if descend && bytes.get(at) == Some(&b'{') {
            // An object without members would leave no trace as columns, so it stays a value.
            let inside = skip_blanks(bytes, at + 1);
            if bytes.get(inside) != Some(&b'}') {
                if depth >= DEEPEST {
                    return fault(at, "nested too deep");
                }
                let group = self.group_of(node);
                return self.object(bytes, inside, group, depth + 1, row);
            }
        }
        let (end, kind) = value(bytes, at, depth)?;
        if descend && column == NONE {
            column = self.column_of_object(node, at)?;
        }
        if let Some(column) = self.columns.get_mut(column as usize) {
            let span = Span::new(at, end, kind);
            if let Some(wanted) = column.forced {
                let token = std::str::from_utf8(bytes.get(at..end).unwrap_or_default()).unwrap_or_default();
                if !span.is_null() && !fits(wanted, kind, token, &mut self.unescaped) {
                    return Err(Fault::Unfit { at, name: column.name.as_str().into(), wanted });
                }
            }
            column.set(row, span);
        }
        Ok(end)
    }

    /// The column of a value that is no object, where objects are looked into.
    fn column_of_object(&mut self, node: u32, at: usize) -> Result<u32, Fault> {
        let Some(found) = self.nodes.get(node as usize).filter(|node| node.wanted) else { return Ok(NONE) };
        let path = format!("{}{}", self.groups[found.parent as usize].path, found.key);
        let column = self.column_of(&path, at)?;
        self.nodes[node as usize].column = column;
        Ok(column)
    }

    fn group_of(&mut self, node: u32) -> u32 {
        let groups = self.groups.len() as u32;
        let node = &mut self.nodes[node as usize];
        if node.group == NONE {
            node.group = groups;
            let path = format!("{}{}.", self.groups[node.parent as usize].path, node.key);
            self.groups.push(Group { path, members: HashMap::new(), first: NONE });
        }
        node.group
    }
}

impl Node {
    #[inline]
    fn is_at(&self, bytes: &[u8], at: usize) -> bool {
        let Some(rest) = bytes.get(at..) else { return false };
        match rest.first_chunk::<16>() {
            Some(chunk) if self.quoted.len() <= 16 => u128::from_le_bytes(*chunk) & self.mask == self.window,
            _ => rest.starts_with(&self.quoted),
        }
    }
}

#[inline]
fn skip_blanks(bytes: &[u8], mut at: usize) -> usize {
    while let Some(b' ' | b'\n' | b'\r' | b'\t') = bytes.get(at) {
        at += 1;
    }
    at
}

/// From behind the opening quote: where the closing quote stands, and whether there are escapes before it.
#[inline]
fn string(bytes: &[u8], at: usize) -> Result<(usize, bool), Fault> {
    let mut from = at;
    let mut escaped = false;
    loop {
        let Some(special) = find_special(bytes, from) else { return fault(at - 1, "a text without an end") };
        match bytes.get(special) {
            Some(b'"') => return Ok((special, escaped)),
            Some(b'\\') => {
                from = escape(bytes, special)?;
                escaped = true;
            }
            _ => return fault(special, "a control character in a text"),
        }
    }
}

/// From a backslash to behind the escape.
fn escape(bytes: &[u8], at: usize) -> Result<usize, Fault> {
    match bytes.get(at + 1) {
        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok(at + 2),
        Some(b'u') => match code_unit(bytes, at) {
            Some(0xd800..=0xdbff) => match code_unit(bytes, at + 6) {
                Some(0xdc00..=0xdfff) => Ok(at + 12),
                _ => fault(at, "half of a surrogate pair"),
            },
            Some(0xdc00..=0xdfff) => fault(at, "half of a surrogate pair"),
            Some(_) => Ok(at + 6),
            None => fault(at, "an escape that is not `\\u` and four hexadecimal digits"),
        },
        _ => fault(at, "an unknown escape"),
    }
}

/// The number in a `\u0000` at `at`.
fn code_unit(bytes: &[u8], at: usize) -> Option<u32> {
    let (prefix, digits) = bytes.get(at..at + 6)?.split_at(2);
    if prefix != b"\\u" {
        return None;
    }
    digits.iter().try_fold(0, |number, &digit| Some(number << 4 | char::from(digit).to_digit(16)?))
}

/// Decodes the escapes of a text that [`string`] has accepted.
fn unescape<'a>(raw: &str, decoded: &'a mut String) -> &'a str {
    decoded.clear();
    let mut rest = raw;
    while let Some(at) = memchr::memchr(b'\\', rest.as_bytes()) {
        decoded.push_str(&rest[..at]);
        let bytes = rest.as_bytes();
        let (character, length) = match bytes.get(at + 1) {
            Some(b'b') => ('\u{8}', 2),
            Some(b'f') => ('\u{c}', 2),
            Some(b'n') => ('\n', 2),
            Some(b'r') => ('\r', 2),
            Some(b't') => ('\t', 2),
            Some(b'u') => match (code_unit(bytes, at), code_unit(bytes, at + 6)) {
                (Some(high @ 0xd800..=0xdbff), Some(low @ 0xdc00..=0xdfff)) => {
                    let code = 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
                    (char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER), 12)
                }
                (code, _) => (code.and_then(char::from_u32).unwrap_or(char::REPLACEMENT_CHARACTER), 6),
            },
            Some(&other) => (char::from(other), 2),
            None => break,
        };
        decoded.push(character);
        rest = rest.get(at + length..).unwrap_or_default();
    }
    decoded.push_str(rest);
    decoded
}

/// From the opening quote of a key: where its closing quote stands, where its value begins (or blanks before
/// it), and whether it has escapes.
fn key(bytes: &[u8], at: usize) -> Result<(usize, usize, bool), Fault> {
    if bytes.get(at) != Some(&b'"') {
        return fault(at, "expected a key in quotes");
    }
    let (end, escaped) = string(bytes, at + 1)?;
    let colon = skip_blanks(bytes, end + 1);
    if bytes.get(colon) != Some(&b':') {
        return fault(colon, "expected `:`");
    }
    Ok((end, colon + 1, escaped))
}

/// Where the value that begins at `at` ends, and its kind.
#[inline]
fn value(bytes: &[u8], at: usize, depth: usize) -> Result<(usize, Kind), Fault> {
    match bytes.get(at) {
        Some(b'{' | b'[') => Ok((nested(bytes, at, depth)?, Kind::Nested)),
        _ => scalar(bytes, at),
    }
}

#[inline]
fn scalar(bytes: &[u8], at: usize) -> Result<(usize, Kind), Fault> {
    let word = |word: &[u8], kind| match bytes.get(at..at + word.len()) {
        Some(found) if found == word => Ok((at + word.len(), kind)),
        _ => fault(at, "expected a value"),
    };
    match bytes.get(at) {
        Some(b'"') => {
            let (end, escaped) = string(bytes, at + 1)?;
            Ok((end + 1, if escaped { Kind::EscapedText } else { Kind::Text }))
        }
        Some(b'-' | b'0'..=b'9') => number(bytes, at),
        Some(b't') => word(b"true", Kind::Bool),
        Some(b'f') => word(b"false", Kind::Bool),
        Some(b'n') => word(b"null", Kind::Null),
        _ => fault(at, "expected a value"),
    }
}

#[inline]
fn skip_digits(bytes: &[u8], mut at: usize) -> usize {
    while bytes.get(at).is_some_and(u8::is_ascii_digit) {
        at += 1;
    }
    at
}

#[inline]
fn number(bytes: &[u8], at: usize) -> Result<(usize, Kind), Fault> {
    let first = at + usize::from(bytes.get(at) == Some(&b'-'));
    let mut end = match bytes.get(first) {
        Some(b'0') => first + 1,
        Some(b'1'..=b'9') => skip_digits(bytes, first + 1),
        _ => return fault(first, "expected a digit"),
    };
    let digits = end - first;
    let mut kind = match digits {
        // Only a floating-point number keeps the sign of `-0`.
        1 if first > at && bytes.get(first) == Some(&b'0') => Kind::Float,
        ..=18 => Kind::Int,
        _ => Kind::LongInt,
    };
    let mut may_overflow = digits > 300;
    if bytes.get(end) == Some(&b'.') {
        let fraction = end + 1;
        end = skip_digits(bytes, fraction);
        if end == fraction {
            return fault(end, "expected a digit");
        }
        kind = Kind::Float;
    }
    if let Some(b'e' | b'E') = bytes.get(end) {
        let exponent = end + 1 + usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        end = skip_digits(bytes, exponent);
        if end == exponent {
            return fault(end, "expected a digit");
        }
        kind = Kind::Float;
        may_overflow = true;
    }
    if may_overflow && !parse_std_float(bytes.get(at..end).unwrap_or_default()).is_finite() {
        return fault(at, "a number too large");
    }
    Ok((end, kind))
}

fn parse_std_float(token: &[u8]) -> f64 {
    std::str::from_utf8(token).ok().and_then(|token| token.parse().ok()).unwrap_or(f64::NAN)
}

/// From the `{` or `[` of a nested value to behind its end. What it is inside of is kept as a bit for each level.
fn nested(bytes: &[u8], at: usize, depth: usize) -> Result<usize, Fault> {
    let mut at = at;
    let mut objects: u128 = 0;
    let mut levels = 0;
    'value: loop {
        match bytes.get(at) {
            Some(&open @ (b'{' | b'[')) => {
                levels += 1;
                if depth + levels > DEEPEST {
                    return fault(at, "nested too deep");
                }
                let is_object = open == b'{';
                objects = objects << 1 | u128::from(is_object);
                at = skip_blanks(bytes, at + 1);
                match (bytes.get(at), is_object) {
                    (Some(b'}'), true) | (Some(b']'), false) => {}
                    (_, true) => {
                        at = skip_blanks(bytes, key(bytes, at)?.1);
                        continue 'value;
                    }
                    (_, false) => continue 'value,
                }
            }
            _ => at = scalar(bytes, at)?.0,
        }
        loop {
            at = skip_blanks(bytes, at);
            match (bytes.get(at), objects & 1 == 1) {
                (Some(b','), true) => {
                    at = skip_blanks(bytes, at + 1);
                    at = skip_blanks(bytes, key(bytes, at)?.1);
                    continue 'value;
                }
                (Some(b','), false) => {
                    at = skip_blanks(bytes, at + 1);
                    continue 'value;
                }
                (Some(b'}'), true) | (Some(b']'), false) => {
                    at += 1;
                    levels -= 1;
                    objects >>= 1;
                    if levels == 0 {
                        return Ok(at);
                    }
                }
                (_, true) => return fault(at, "expected `,` or `}`"),
                (_, false) => return fault(at, "expected `,` or `]`"),
            }
        }
    }
}

/// The text that a token in quotes stands for.
#[inline]
fn text_of<'a>(token: &'a str, escaped: bool, decoded: &'a mut String) -> &'a str {
    let raw = token.get(1..token.len().saturating_sub(1)).unwrap_or_default();
    if escaped { unescape(raw, decoded) } else { raw }
}

/// What a value is parsed from where a type is forced: what is in the quotes, if there are any.
fn bare<'a>(kind: Kind, token: &'a str, decoded: &'a mut String) -> &'a str {
    match kind {
        Kind::Text | Kind::EscapedText => text_of(token, kind == Kind::EscapedText, decoded).trim(),
        _ => token,
    }
}

fn fits(wanted: FieldType, kind: Kind, token: &str, decoded: &mut String) -> bool {
    match wanted {
        FieldType::Text | FieldType::Json => true,
        _ if kind == Kind::Nested => false,
        FieldType::Int => kind == Kind::Int || to_int(bare(kind, token, decoded)).is_some(),
        FieldType::Float => kind != Kind::Bool && to_float(bare(kind, token, decoded)).is_some(),
        FieldType::Bool => matches!(bare(kind, token, decoded), "true" | "false"),
        FieldType::Timestamp => kind != Kind::Bool && to_timestamp(bare(kind, token, decoded)).is_some(),
    }
}

/// A whole number, also one written `3.0` or `1e3`.
fn to_int(text: &str) -> Option<i64> {
    if let Ok(number) = text.parse() {
        return Some(number);
    }
    let number = text.parse::<f64>().ok()?;
    (number.fract() == 0.0 && number.abs() <= EXACT as f64).then_some(number as i64)
}

/// The largest whole number up to which all have an `f64` of their own.
const EXACT: u64 = 1 << 53;

fn to_float(text: &str) -> Option<f64> {
    text.parse::<f64>().ok().filter(|number| number.is_finite())
}

/// Microseconds since 1970.
fn to_timestamp(text: &str) -> Option<i64> {
    if let Ok(number) = text.parse::<i64>() {
        let size = number.unsigned_abs();
        return if size < 100_000_000_000 {
            number.checked_mul(1_000_000)
        } else if size < 100_000_000_000_000 {
            number.checked_mul(1_000)
        } else if size < 100_000_000_000_000_000 {
            Some(number)
        } else {
            Some(number.div_euclid(1_000))
        };
    }
    if let Some(seconds) = to_float(text) {
        let micros = (seconds * 1e6).round();
        return (micros.abs() < i64::MAX as f64).then_some(micros as i64);
    }
    let time = arrow_cast::parse::string_to_datetime(&chrono::Utc, text).ok()?;
    Some(time.timestamp_micros())
}

/// A whole number of at most 18 digits.
#[inline]
fn short_int(token: &[u8]) -> i64 {
    let (negative, digits) = match token {
        [b'-', digits @ ..] => (true, digits),
        _ => (false, token),
    };
    let number = digits.iter().fold(0i64, |number, &digit| number * 10 + i64::from(digit & 15));
    if negative { -number } else { number }
}

/// A number as the grammar has it. With at most 15 digits and no exponent, one division of two numbers that are
/// both exact gives the nearest `f64`; the standard library does the rest.
#[inline]
fn float(token: &str) -> f64 {
    const POWERS: [f64; 16] =
        [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15];
    let (negative, digits) = match token.as_bytes() {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    if digits.len() <= 16 {
        let (mut mantissa, mut fraction, mut plain) = (0u64, None, true);
        for (at, &byte) in digits.iter().enumerate() {
            match byte {
                b'0'..=b'9' => mantissa = mantissa * 10 + u64::from(byte & 15),
                b'.' => fraction = Some(digits.len() - at - 1),
                _ => plain = false,
            }
        }
        if plain && mantissa <= EXACT {
            let number = mantissa as f64 / POWERS[fraction.unwrap_or(0) & 15];
            return if negative { -number } else { number };
        }
    }
    token.parse().unwrap_or(f64::NAN)
}

/// The second pass.
impl Walk {
    /// The columns of a batch whose good payloads are `texts`.
    fn columns(&mut self, texts: &[&str], base: &[Buffer]) -> Vec<ArrayRef> {
        let decoded = &mut self.unescaped;
        self.columns.iter_mut().map(|column| column.build(texts, base, decoded)).collect()
    }
}

impl Column {
    fn build(&mut self, texts: &[&str], base: &[Buffer], decoded: &mut String) -> ArrayRef {
        self.spans.resize(texts.len(), Span::MISSING);
        let kinds = Kinds::of(&self.spans);
        self.last = self.forced.unwrap_or_else(|| self.decide(kinds, texts));
        let present = |row: usize| self.spans.get(row).is_some_and(|span| !span.is_null());
        let nulls = || {
            let present = || NullBuffer::new(BooleanBuffer::collect_bool(texts.len(), present));
            kinds.has(Kinds::NULLS).then(present)
        };
        let values = || self.spans.iter().zip(texts).map(|(span, text)| (*span, span.token(text)));
        // Where a type is forced, a value of another kind may have been accepted: those parse what is in it.
        match self.last {
            FieldType::Int => {
                let numbers: Vec<i64> = if kinds.within(Kinds(Kinds::NULLS.0 | 1 << Kind::Int as u32)) {
                    values()
                        .map(|(span, token)| if span.is_null() { 0 } else { short_int(token.as_bytes()) })
                        .collect()
                } else {
                    values()
                        .map(|(span, token)| to_int(bare(span.kind(), token, decoded)).unwrap_or(0))
                        .collect()
                };
                Arc::new(Int64Array::new(ScalarBuffer::from(numbers), nulls()))
            }
            FieldType::Float => {
                let number = |(span, token): (Span, &str)| match span.kind() {
                    Kind::Missing | Kind::Null => 0.0,
                    Kind::Int | Kind::LongInt | Kind::Float => float(token),
                    kind => to_float(bare(kind, token, decoded)).unwrap_or(0.0),
                };
                let numbers: Vec<f64> = values().map(number).collect();
                Arc::new(Float64Array::new(ScalarBuffer::from(numbers), nulls()))
            }
            FieldType::Bool => {
                let value = |row: usize| {
                    let (Some(span), Some(text)) = (self.spans.get(row), texts.get(row)) else {
                        return false;
                    };
                    bare(span.kind(), span.token(text), decoded) == "true"
                };
                Arc::new(BooleanArray::new(BooleanBuffer::collect_bool(texts.len(), value), nulls()))
            }
            FieldType::Timestamp => {
                let time = |(span, token): (Span, &str)| {
                    to_timestamp(bare(span.kind(), token, decoded)).unwrap_or(0)
                };
                let times: Vec<i64> = values().map(time).collect();
                Arc::new(
                    TimestampMicrosecondArray::new(ScalarBuffer::from(times), nulls()).with_timezone("UTC"),
                )
            }
            FieldType::Text => {
                let mut builder = TextBuilder::over(base, texts.len());
                for (span, token) in values() {
                    match span.kind() {
                        Kind::Missing | Kind::Null => builder.push_null(),
                        Kind::Text => builder.push(text_of(token, false, decoded)),
                        Kind::EscapedText => builder.push(text_of(token, true, decoded)),
                        _ => builder.push(token),
                    }
                }
                Arc::new(builder.finish())
            }
            FieldType::Json => {
                let mut builder = TextBuilder::over(base, texts.len());
                for (span, token) in values() {
                    if span.is_null() {
                        builder.push_null();
                    } else {
                        builder.push(token);
                    }
                }
                Arc::new(builder.finish())
            }
        }
    }

    /// The type that holds all values of the batch and loses nothing of any.
    fn decide(&self, kinds: Kinds, texts: &[&str]) -> FieldType {
        let present = kinds.without(Kinds::NULLS);
        let all_ints = |fits: fn(i64) -> bool| {
            let mut ints =
                self.spans.iter().zip(texts).filter(|(span, _)| Kinds::of(&[**span]).within(Kinds::INTS));
            ints.all(|(span, text)| span.token(text).parse().is_ok_and(fits))
        };
        let exact = |number: i64| number.unsigned_abs() <= EXACT;
        if present == Kinds(0) {
            self.last
        } else if present.within(Kinds::INTS) {
            // A field of fractions whose values happen to be whole in this batch stays one.
            match self.last {
                FieldType::Float if all_ints(exact) => FieldType::Float,
                _ if present == Kinds(1 << Kind::Int as u32) || all_ints(|_| true) => FieldType::Int,
                _ => FieldType::Json,
            }
        } else if present.within(Kinds::NUMBERS) {
            if !present.has(Kinds::INTS) || all_ints(exact) { FieldType::Float } else { FieldType::Json }
        } else if present.within(Kinds::BOOLS) {
            FieldType::Bool
        } else if present.within(Kinds::TEXTS) {
            FieldType::Text
        } else {
            FieldType::Json
        }
    }
}

impl Span {
    #[inline]
    fn kind(self) -> Kind {
        match self.word >> Self::SHIFT {
            0 => Kind::Missing,
            1 => Kind::Null,
            2 => Kind::Bool,
            3 => Kind::Int,
            4 => Kind::LongInt,
            5 => Kind::Float,
            6 => Kind::Text,
            7 => Kind::EscapedText,
            _ => Kind::Nested,
        }
    }
}

/// How the columns stand beside the fields that a batch had already, kept while that stays the same: expressions
/// downstream are compiled for a schema.
#[derive(Default)]
struct Shape {
    input: Option<SchemaRef>,
    types: Vec<FieldType>,
    output: Option<SchemaRef>,
    /// Where each column goes.
    places: Vec<usize>,
}

impl Shape {
    fn set(&mut self, batch: Batch, new: Vec<ArrayRef>, walk: &Walk) -> Result<Batch, Error> {
        let input = batch.fields().schema_ref();
        let same_input = self.input.as_ref().is_some_and(|known| Arc::ptr_eq(known, input) || known == input);
        let same_types = self.types.iter().eq(walk.columns.iter().map(|column| &column.last))
            && self.output.as_ref().is_some_and(|output| {
                let names = self.places.iter().filter_map(|&place| output.fields().get(place));
                names.map(|field| field.name()).eq(walk.columns.iter().map(|column| &column.name))
            });
        let output = match &self.output {
            Some(output) if same_input && same_types => output.clone(),
            _ => {
                let mut fields = input.fields().to_vec();
                self.places.clear();
                for column in &walk.columns {
                    let field = Arc::new(column.last.field(&column.name));
                    match fields.iter().position(|existing| existing.name() == &column.name) {
                        Some(place) => {
                            fields[place] = field;
                            self.places.push(place);
                        }
                        None => {
                            self.places.push(fields.len());
                            fields.push(field);
                        }
                    }
                }
                self.types = walk.columns.iter().map(|column| column.last).collect();
                self.input = Some(input.clone());
                self.output.insert(Arc::new(Schema::new(fields))).clone()
            }
        };
        let mut columns = batch.fields().columns().to_vec();
        for (column, &place) in new.into_iter().zip(&self.places) {
            match columns.get_mut(place) {
                Some(replaced) => *replaced = column,
                None => columns.push(column),
            }
        }
        let options = RecordBatchOptions::new().with_row_count(Some(batch.rows()));
        Ok(batch.with_fields(RecordBatch::try_new_with_options(output, columns, &options)?)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};
    use thalweg_engine::Output;
    use thalweg_engine::testing::{Given, apply, batch, context, options, transform_conforms, try_options};

    fn parsed(yaml: &str, payloads: &[&str]) -> Given {
        apply::<ParseJsonConfig>(yaml, [batch(payloads)])
    }

    fn rows(payloads: &[&str]) -> Vec<Value> {
        parsed("{}", payloads).main()
    }

    fn reason(yaml: &str, payload: &str) -> String {
        parsed(yaml, &[payload]).errors().pop().map(|(_, reason)| reason).unwrap_or_default()
    }

    #[test]
    fn it_conforms() {
        transform_conforms::<ParseJsonConfig>("{}", &[r#"{"a":1}"#, "", "[]", r#"{"a":"x"}"#, "{}"]);
        transform_conforms::<ParseJsonConfig>("{ flatten: true }", &[r#"{"a":{"b":1}}"#, "{"]);
        transform_conforms::<ParseJsonConfig>("{}", &["nothing", "of this", "is JSON"]);
    }

    #[test]
    fn types_come_from_all_values_of_a_batch() {
        let found = rows(&[
            r#"{"int":1,"float":2,"bool":true,"text":"a","mixed":1,"nested":[1, 2]}"#,
            r#" { "int" : -2 , "float":2.5,"bool":false,"text":"a longer \"text\" \u00e9\ud83d\ude00","mixed":"a" , "nested":{"a":null}} "#,
            r#"{"text":null}"#,
        ]);
        assert_eq!(
            found,
            [
                json!({"int": 1, "float": 2.0, "bool": true, "text": "a", "mixed": "1", "nested": "[1, 2]"}),
                json!({"int": -2, "float": 2.5, "bool": false, "text": "a longer \"text\" é😀",
                       "mixed": "\"a\"", "nested": "{\"a\":null}"}),
                json!({}),
            ]
        );
    }

    #[test]
    fn numbers_that_no_type_holds_stay_json_text() {
        assert_eq!(rows(&[r#"{"n":9223372036854775807}"#])[0], json!({"n": i64::MAX}));
        assert_eq!(rows(&[r#"{"n":9223372036854775808}"#])[0], json!({"n": "9223372036854775808"}));
        let mixed = rows(&[r#"{"n":9007199254740993}"#, r#"{"n":0.5}"#]);
        assert_eq!(mixed, [json!({"n": "9007199254740993"}), json!({"n": "0.5"})]);
        let minus_zero = rows(&[r#"{"n":-0}"#]);
        assert!(minus_zero[0]["n"].as_f64().is_some_and(f64::is_sign_negative));
    }

    #[test]
    fn of_a_key_given_twice_the_last_value_counts() {
        assert_eq!(rows(&[r#"{"a":1,"b":2,"a":"x"}"#]), [json!({"a": "x", "b": 2})]);
    }

    #[test]
    fn keys_with_escapes_are_found_and_do_not_disguise_mistakes() {
        assert_eq!(rows(&[r#"{"a\"b":1}"#, r#"{"a\u0022b":2}"#]), [json!({"a\"b": 1}), json!({"a\"b": 2})]);
        let given = parsed("{}", &[r#"{"a\"b":1}"#, r#"{"a"b":1}"#]);
        assert_eq!((given.main().len(), given.errors().len()), (1, 1));
    }

    #[test]
    fn the_reason_says_what_and_where() {
        assert_eq!(reason("{}", r#"{"a":1 "b":2}"#), "is not a JSON object: expected `,` or `}` at byte 7");
        assert_eq!(reason("{}", "[1]"), "is not a JSON object: expected `{` at byte 0");
        assert_eq!(reason("{}", r#"{"a":NaN}"#), "is not a JSON object: expected a value at byte 5");
        assert_eq!(reason("{}", "{} x"), "is not a JSON object: there is more after the object at byte 3");
        assert_eq!(
            reason("{}", r#"{"a":"\ud800"}"#),
            "is not a JSON object: half of a surrogate pair at byte 6"
        );
        assert_eq!(reason("{}", r#"{"a":1e400}"#), "is not a JSON object: a number too large at byte 5");
        assert_eq!(
            reason("{ types: { a: int } }", r#"{"a":"x"}"#),
            "`a` at byte 5 is not a whole number of 64 bits"
        );
        let given = apply::<ParseJsonConfig>("{}", [batch([&b"{\"a\":\"\xff\"}"[..]])]);
        assert_eq!(given.errors()[0].1, "is not a JSON object: invalid UTF-8 at byte 6");
    }

    #[test]
    fn depth_is_bounded_like_that_of_other_parsers() {
        let deep = |open: &str, inner: &str, close: &str, levels: usize| {
            format!(r#"{{"a":{}{inner}{}}}"#, open.repeat(levels), close.repeat(levels))
        };
        for yaml in ["{}", "{ flatten: true }"] {
            for levels in [126, 127, 100_000] {
                for payload in [deep("[", "1", "]", levels), deep(r#"{"a":"#, "1", "}", levels)] {
                    let fits = serde_json::from_str::<Value>(&payload).is_ok();
                    assert_eq!(fits, levels == 126);
                    assert_eq!(reason(yaml, &payload).is_empty(), fits, "{levels}");
                }
            }
        }
    }

    #[test]
    fn forced_types_convert_texts_or_reject() {
        let yaml = "{ types: { i: int, f: float, b: bool, t: text, at: timestamp, j: json } }";
        let payload = r#"{"i":"12","f":3,"b":"true","t":12.50,"at":"2026-01-02T03:04:05.678Z","j":"x"}"#;
        let expected =
            json!({"i": 12, "f": 3.0, "b": true, "t": "12.50", "at": 1_767_323_045_678_000i64, "j": "\"x\""});
        assert_eq!(parsed(yaml, &[payload]).main(), [expected]);
        for time in ["1767323045", "1767323045000", "1767323045000000", "1767323045000000000", "1767323045.0"]
        {
            let row = &parsed(yaml, &[&format!(r#"{{"at":{time}}}"#)]).main()[0];
            assert_eq!(row["at"], 1_767_323_045_000_000i64, "{time}");
        }
        for wrong in
            [r#"{"i":1.5}"#, r#"{"i":true}"#, r#"{"f":"x"}"#, r#"{"b":1}"#, r#"{"at":"soon"}"#, r#"{"i":[]}"#]
        {
            assert_eq!(parsed(yaml, &[wrong]).errors().len(), 1, "{wrong}");
        }
        assert_eq!(parsed(yaml, &[r#"{"i":null}"#]).main(), [json!({})]);
    }

    #[test]
    fn only_the_fields_asked_for_are_made() {
        let payload = r#"{"a":1,"b":{"c":[2],"d":3},"e":4}"#;
        assert_eq!(parsed("{ fields: [e, a] }", &[payload]).main(), [json!({"a": 1, "e": 4})]);
        let flat = parsed("{ fields: [b.d], flatten: true, prefix: 'x_' }", &[payload]);
        assert_eq!(flat.main(), [json!({"x_b.d": 3})]);
        assert_eq!(options::<ParseJsonConfig>("{ fields: [a], types: { b: int } }").check().len(), 1);
        assert!(try_options::<ParseJsonConfig>("{ types: { b: integer } }").is_err());
    }

    #[test]
    fn nested_objects_are_flattened_on_demand() {
        let given = parsed(
            "{ flatten: true }",
            &[
                r#"{"a":{"b":1,"c":{"d":"x"},"e":{}},"f":[{"g":1}]}"#,
                r#"{"a":{"c":{"d":"y"},"b":2},"a.b":3}"#,
            ],
        );
        assert_eq!(
            given.main(),
            [
                json!({"a.b": 1, "a.c.d": "x", "a.e": "{}", "f": r#"[{"g":1}]"#}),
                json!({"a.b": 3, "a.c.d": "y"}),
            ]
        );
    }

    fn schemas(yaml: &str, batches: &[&[&str]]) -> Vec<SchemaRef> {
        let given = apply::<ParseJsonConfig>(yaml, batches.iter().map(|texts| batch(*texts)));
        given.outputs[&Output::Main].iter().map(|batch| batch.fields().schema()).collect()
    }

    #[test]
    fn the_schema_stays_the_same_while_the_fields_fit_it() {
        let schemas = schemas(
            "{}",
            &[
                &[r#"{"a":1,"b":1.5}"#],
                &[r#"{"b":2,"a":3}"#, "{"],
                &[r#"{"a":null}"#],
                &[r#"{"c":1}"#],
                &[r#"{"a":1}"#],
            ],
        );
        assert!(Arc::ptr_eq(&schemas[0], &schemas[1]) && Arc::ptr_eq(&schemas[0], &schemas[2]));
        assert_eq!(schemas[3].fields().len(), 3);
        assert!(Arc::ptr_eq(&schemas[3], &schemas[4]));
    }

    #[test]
    fn names_that_are_values_do_not_pile_up() {
        let record = |names: std::ops::Range<u32>| {
            let members: Vec<String> = names.map(|n| format!("\"{n}\":1")).collect();
            format!("{{{}}}", members.join(","))
        };
        assert!(reason("{ max_fields: 10 }", &record(0..11)).starts_with("has a new field at byte 61"));
        let batches: Vec<String> = (0..100).map(|n| record(n * 6..n * 6 + 6)).collect();
        let given = apply::<ParseJsonConfig>("{ max_fields: 10 }", batches.iter().map(|b| batch([b])));
        assert_eq!((given.main().len(), given.errors().len()), (100, 0));
        assert!(given.outputs[&Output::Main].iter().all(|batch| batch.fields().num_columns() <= 10));
    }

    #[test]
    fn a_rejected_record_leaves_no_trace() {
        let given = parsed(
            "{ flatten: true }",
            &[r#"{"a":1,"o":{"x":1}}"#, r#"{"a":2,"new":1,"o":{"y":{"z":1}},"#, r#"{"a":3,"o":{"y":2}}"#],
        );
        assert_eq!(given.main(), [json!({"a": 1, "o.x": 1}), json!({"a": 3, "o.y": 2})]);
        let names: Vec<_> = given.outputs[&Output::Main][0]
            .fields()
            .schema()
            .fields()
            .iter()
            .map(|f| f.name().clone())
            .collect();
        assert_eq!(names, ["a", "o.x", "o.y"]);
    }

    #[test]
    fn fields_of_the_same_name_are_replaced() {
        let batch = batch([r#"{"b":1}"#]);
        let old: ArrayRef = Arc::new(Int64Array::from(vec![9]));
        let field = |name| Field::new(name, DataType::Int64, true);
        let batch = batch.set_fields([(field("a"), old.clone()), (field("b"), old)]).unwrap();
        assert_eq!(apply::<ParseJsonConfig>("{}", [batch]).main(), [json!({"a": 9, "b": 1})]);
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            (-1000..1000i64).prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            "\\PC{0,20}".prop_map(Value::from),
            "[a\"\\\\\n\u{1}é😀]{0,20}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 16, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::vec(("[a-c\"é]{0,3}", inner), 0..4)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    fn any_object() -> impl Strategy<Value = Value> {
        prop::collection::vec(("[a-d\"]{1,2}", any_json()), 0..6)
            .prop_map(|members| Value::Object(members.into_iter().collect()))
    }

    /// The value of a field in a row, as the JSON that it stands for.
    fn back(schema: &Schema, name: &str, value: &Value) -> Value {
        let field = schema.field_with_name(name).unwrap();
        match (field.metadata().is_empty(), value) {
            (false, Value::String(json)) => serde_json::from_str(json).unwrap(),
            _ => value.clone(),
        }
    }

    fn same(a: &Value, b: &Value) -> bool {
        match (a, b) {
            (Value::Number(a), Value::Number(b)) => {
                a == b
                    || a.as_f64()
                        .zip(b.as_f64())
                        .is_some_and(|(a, b)| a == b || (a - b).abs() <= a.abs() * 1e-15)
            }
            (Value::Array(a), Value::Array(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
            }
            (Value::Object(a), Value::Object(b)) => {
                a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| same(a, b)))
            }
            _ => a == b,
        }
    }

    /// Compares a batch of texts with what `serde_json` makes of each.
    fn agrees(texts: &[String]) -> Result<(), TestCaseError> {
        let config = options::<ParseJsonConfig>("{}");
        let mut transform = config.build(&context()).unwrap();
        for chunk in texts.chunks(4) {
            let mut out = Outlets::new("test".into());
            transform.apply(batch(chunk), &mut out).unwrap();
            let mut given = Given::default();
            for (output, batch) in out.take() {
                given.outputs.entry(output).or_default().push(batch);
            }
            let expected: Vec<_> = chunk
                .iter()
                .filter_map(|text| match serde_json::from_str::<Value>(text) {
                    Ok(Value::Object(object)) => Some(object),
                    _ => None,
                })
                .collect();
            let found = given.main();
            prop_assert_eq!(found.len(), expected.len(), "{:?}: {:?}", chunk, given.errors());
            for (found, expected) in found.iter().zip(&expected) {
                let schema = given.outputs[&Output::Main][0].fields().schema();
                let expected = Value::Object(
                    expected
                        .iter()
                        .filter(|(_, v)| !v.is_null())
                        .map(|(k, v)| (k.clone(), v.clone()))
                        .collect(),
                );
                let found = found.as_object().unwrap().iter();
                let found = Value::Object(found.map(|(k, v)| (k.clone(), back(&schema, k, v))).collect());
                prop_assert!(same(&found, &expected), "{} is not {}", found, expected);
            }
            for batch in given.outputs.values().flatten() {
                for column in batch.fields().columns() {
                    column.to_data().validate_full().unwrap();
                }
            }
        }
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]

        #[test]
        fn objects_are_parsed_as_serde_json_parses_them(objects in prop::collection::vec(any_object(), 1..12), pretty in any::<bool>()) {
            let write = |object| if pretty { serde_json::to_string_pretty(object) } else { serde_json::to_string(object) };
            agrees(&objects.iter().map(|object| write(object).unwrap()).collect::<Vec<_>>())?;
        }

        #[test]
        fn mutilated_text_is_accepted_when_serde_json_accepts_it(
            objects in prop::collection::vec(any_object(), 1..6),
            wounds in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0..3u8), 6),
        ) {
            const PIECES: [&str; 32] = [
                "{", "}", "[", "]", ",", ":", "\"", "\\", "-", "0", "00", "1", "1e400", "e", ".", "-0", "1E-9", "nul", "null",
                "true", " ", "\t", "\u{1}", "é", "\\u12", "\\ud800", "\\udc00", "\\ud83d\\ude00", "\\n", "\\x", "\"a\":", "123456789012345678901",
            ];
            let texts: Vec<String> = objects.iter().zip(wounds).map(|(object, (at, piece, kind))| {
                let mut text: Vec<char> = object.to_string().chars().collect();
                let at = at.index(text.len());
                let piece = PIECES[piece.index(PIECES.len())].chars();
                match kind {
                    0 => { text.remove(at); }
                    1 => { text.splice(at..at, piece); }
                    _ => { text.splice(at..=at, piece); }
                }
                text.into_iter().collect()
            }).collect();
            agrees(&texts)?;
        }

        #[test]
        fn no_text_panics(texts in prop::collection::vec("[{}\\[\\]\",:0-9a-b\\\\u .eE-]{0,40}", 1..8)) {
            agrees(&texts)?;
        }

        #[test]
        fn fast_floats_are_the_nearest(mantissa in any::<u64>(), digits in 1..18u32, point in 0..18usize, negative in any::<bool>()) {
            let mut text = (mantissa % 10u64.pow(digits)).to_string();
            if point > 0 && point < text.len() {
                text.insert(point, '.');
            }
            if negative {
                text.insert(0, '-');
            }
            prop_assert_eq!(float(&text).to_bits(), text.parse::<f64>().unwrap().to_bits());
        }
    }
}
