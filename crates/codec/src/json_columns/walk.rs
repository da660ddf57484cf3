//! The first pass: walks each payload once, and stores the positions of its members' values.

use std::collections::{BTreeMap, HashSet};

use arrow_array::{Array, BinaryViewArray};
use hashbrown::HashMap;

use super::columns::Column;
use super::convert::fits;
use super::scan::{Fault, as_text, fault, key, skip_blanks, unescape, value};
use super::spans::Span;
use super::{DEEPEST, LONGEST, Nulls, Wanted};
use crate::columns::FieldType;
use crate::json::find_special;
use crate::timestamps::{TimeFormat, TimeParser};

/// The option that limits the fields if there is no memory for more.
const MEMORY_LIMIT: &str = "memory";

/// The index that means no node, no column or no group.
const NONE: u32 = u32::MAX;

/// The most batches for which a field that does not occur is kept.
const KEPT: u32 = 8;

/// The most values that one walk makes with enough memory, NULLs included: rows times columns. Each takes 24
/// bytes or more. One record with a thousand members may be among many small ones.
const CELLS: usize = 1 << 19;

/// A walk makes one value for this many bytes of the memory. A worker on each core holds its walk.
const MEMORY: usize = 256;

/// A walk knows one field for this many bytes of the memory, but always [`FIELDS`]. A field takes about 2 KiB
/// with its name, its part of the schema and its array.
const FIELD_MEMORY: usize = 4 << 10;
const FIELDS: usize = 1024;

/// The maximum length of the names of all fields, nested ones in full: this many bytes, or this many for each
/// field that is allowed. An outer key is part of the name of each field in it, and is in the record once.
const NAMES: usize = 1 << 20;
const NAME: usize = 256;

/// The fewest records that one walk takes, if there are as many.
const FEWEST: usize = 16;

/// The result of the first pass.
pub(super) struct Walked<'a> {
    /// The valid payloads. A NULL is an empty text.
    pub(super) texts: Vec<&'a str>,
    /// The rows of the others, with the reasons for rejecting them.
    pub(super) failed: Vec<(u32, String)>,
    /// The number of payloads that were walked.
    pub(super) rows: usize,
}

/// A key in an object. The key belongs to a group, which is the path of the object.
#[derive(Debug)]
struct Node {
    /// The bytes `"key":` of a record that has no blanks and no escapes there.
    quoted: Box<[u8]>,
    /// The same bytes as a number, to compare sixteen bytes at once, if the key is short enough.
    window: u128,
    mask: u128,
    /// The node that followed in the previous record.
    follower: u32,
    parent: u32,
    key: Box<str>,
    /// The length of the whole name.
    length: usize,
    /// The column of its values, or `NONE`.
    column: u32,
    /// The group of its members, if nested objects are flattened.
    group: u32,
    /// True if the options ask for its values.
    wanted: bool,
    /// True if an object here must be flattened.
    descend: bool,
}

/// The objects at one path.
#[derive(Debug, Default)]
struct Group {
    /// The names that lead to the objects, each followed by a dot.
    path: String,
    members: HashMap<Box<str>, u32>,
    first: u32,
}

/// The first pass, and its state between records.
pub(super) struct Walk {
    fields: Option<HashSet<String>>,
    types: BTreeMap<String, FieldType>,
    flatten: bool,
    prefix: String,
    pub(super) nulls: Nulls,
    max_fields: usize,
    /// The most fields for which there is memory.
    room: usize,
    /// The most values that one walk makes.
    cells: usize,
    nodes: Vec<Node>,
    groups: Vec<Group>,
    pub(super) columns: Vec<Column>,
    by_name: HashMap<String, u32>,
    /// The length of the names of all nodes.
    names: usize,
    pub(super) unescaped: String,
    pub(super) times: TimeParser,
    /// The units per second of the times of these members, by path.
    pub(super) units: &'static [(&'static str, i64)],
    /// True if a record of the batch was rejected because fields of earlier batches use up `max_fields`.
    pub(super) overflowed: bool,
}

impl Walk {
    pub(super) fn new(wanted: Wanted) -> Self {
        let Wanted { fields, types, flatten, prefix, nulls, max_fields } = wanted;
        Self {
            fields,
            types,
            flatten,
            prefix,
            nulls,
            max_fields,
            room: usize::MAX,
            cells: CELLS,
            nodes: Vec::new(),
            groups: vec![Group { first: NONE, ..Group::default() }],
            columns: Vec::new(),
            by_name: HashMap::new(),
            names: 0,
            unescaped: String::new(),
            times: TimeParser::new(TimeFormat::Auto, 0),
            units: &[],
            overflowed: false,
        }
    }

    /// Limits the fields and the values of one walk to a part of this memory, in bytes.
    pub(super) fn within(&mut self, memory: usize) {
        self.room = (memory / FIELD_MEMORY).max(FIELDS);
        self.cells = (memory / MEMORY).clamp(CELLS / 32, CELLS);
    }

    /// Walks the payloads of a batch, or the first of them if all would take too much memory. Stops early if
    /// [`overflowed`](Self::overflowed).
    ///
    /// Fields that no longer occur stay for a while, as NULLs, so that the schema is the same from batch to
    /// batch.
    pub(super) fn batch<'a>(&mut self, payload: &'a BinaryViewArray) -> Walked<'a> {
        if self.columns.iter().any(|column| column.unused > KEPT) {
            self.forget(0, 0, 1);
        }
        self.columns.iter_mut().for_each(|column| column.spans.clear());
        self.overflowed = false;
        let carried = !self.columns.is_empty();
        let mut texts = Vec::with_capacity(payload.len());
        let mut failed = Vec::new();
        for row in 0..payload.len() {
            if row >= FEWEST && row * self.columns.len() > self.cells {
                return Walked { texts, failed, rows: row };
            }
            if payload.is_null(row) {
                texts.push("");
                continue;
            }
            match self.record(payload.value(row), texts.len()) {
                Ok(text) => texts.push(text),
                Err(fault) => {
                    let is_full = matches!(fault, Fault::TooMany { .. } | Fault::LongNames { .. });
                    self.overflowed = carried && is_full;
                    // Alone, the record may fit.
                    let is_part = matches!(fault, Fault::TooMany { limit: MEMORY_LIMIT, .. }) && row > 0;
                    if self.overflowed || is_part {
                        return Walked { texts, failed, rows: row };
                    }
                    failed.push((row as u32, fault.to_string()));
                }
            }
        }
        Walked { texts, failed, rows: payload.len() }
    }

    /// Removes the nodes, columns and groups from these indexes on.
    pub(super) fn forget(&mut self, nodes: usize, columns: usize, groups: usize) {
        for node in self.nodes.drain(nodes..) {
            self.names -= node.length;
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

    /// Walks one payload. A faulty payload leaves no trace.
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

    /// Walks an object. Starts after its `{` and returns the index after its `}`.
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

    /// Compares the next key with the expected one and with its follower, in case this record lacks the
    /// expected one.
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

    /// Reads a key and its colon. Finds its node, or creates one.
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

    /// Creates a node for a new key. Returns `NONE` if the key is not wanted and too many keys are known.
    fn add(&mut self, key: &str, group: u32, at: usize) -> Result<u32, Fault> {
        let length = self.length_of(key, group, at)?;
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
        // If objects here are flattened, a value of another kind may never occur.
        let column = if wanted && !descend { self.column_of(&path, at)? } else { NONE };
        let quoted = quoted(key);
        let (mut window, mut mask) = ([0; 16], [0; 16]);
        for ((byte, window), mask) in quoted.iter().zip(&mut window).zip(&mut mask) {
            (*window, *mask) = (*byte, 0xff);
        }
        let node = self.nodes.len() as u32;
        self.names += length;
        self.nodes.push(Node {
            length,
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

    /// Returns the length of the whole name of a new key, if there is room for it.
    fn length_of(&self, key: &str, group: u32, at: usize) -> Result<usize, Fault> {
        let most = NAMES.max(self.max_fields.saturating_mul(NAME));
        let length = self.groups[group as usize].path.len() + key.len();
        if self.names + length > most { Err(Fault::LongNames { at, most }) } else { Ok(length) }
    }

    fn column_of(&mut self, path: &str, at: usize) -> Result<u32, Fault> {
        let name = format!("{}{path}", self.prefix);
        if let Some(&column) = self.by_name.get(&name) {
            return Ok(column);
        }
        if self.columns.len() >= self.max_fields {
            return Err(Fault::TooMany { at, most: self.max_fields, limit: "max_fields" });
        }
        if self.columns.len() >= self.room {
            return Err(Fault::TooMany { at, most: self.room, limit: MEMORY_LIMIT });
        }
        let column = self.columns.len() as u32;
        let forced = self.types.get(path).copied();
        let last = forced.unwrap_or(FieldType::Text);
        let units = self.units.iter().find(|(of, _)| *of == path && forced == Some(FieldType::Timestamp));
        let parser = |(_, units): &(_, i64)| Box::new(TimeParser::new(TimeFormat::Numbers(*units), 0));
        self.columns.push(Column {
            name: name.clone(),
            forced,
            last,
            is_number: false,
            unused: 0,
            spans: Vec::new(),
            times: units.map(parser),
        });
        self.by_name.insert(name, column);
        Ok(column)
    }

    /// Walks a value and stores its span in its column.
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
                let times = column.times.as_deref_mut().unwrap_or(&mut self.times);
                if !span.is_null() && !fits(wanted, kind, token, &mut self.unescaped, times) {
                    return Err(Fault::Unfit { at, name: column.name.as_str().into(), wanted });
                }
            }
            column.set(row, span);
        }
        Ok(end)
    }

    /// Returns the column of a value that is not an object, at a path where objects are flattened.
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

/// Returns the bytes of a key in a record that has no blanks there. A key with escapes is always looked up:
/// 0xff never occurs in a text, so the comparison never succeeds.
fn quoted(key: &str) -> Box<[u8]> {
    match find_special(key.as_bytes(), 0) {
        None => format!("\"{key}\":").into_bytes().into_boxed_slice(),
        Some(_) => Box::from([0xff]),
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
