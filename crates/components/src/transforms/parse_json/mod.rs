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
//! The alternative was a general parser's tree of each record, walked into the columns. The example `hot_path`
//! measures both: the tree alone takes longer than all of this, since it stores what this one only notes the place of.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use arrow_array::{
    Array, ArrayRef, BinaryViewArray, BooleanArray, Float64Array, Int64Array, RecordBatch,
    RecordBatchOptions, TimestampMicrosecondArray,
};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer, ScalarBuffer};
use arrow_schema::{Schema, SchemaRef};
use hashbrown::HashMap;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_engine::{Context, Error, Mistake, Outlets, Transform, TransformConfig};
use thalweg_record::{Batch, TextBuilder};

mod scan;

use crate::shared::columns::FieldType;
use crate::shared::json::find_special;
use scan::{Fault, Kind, as_text, fault, key, skip_blanks, unescape, value};

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
mod tests;
