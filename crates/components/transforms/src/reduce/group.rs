//! An open group: the messages of a key that become one.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::BinaryViewArray;
use arrow_schema::ArrowError;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thalweg_codec::columns::FieldType;
use thalweg_engine::Error;
use thalweg_record::{Ack, Batch, Meta, PayloadWriter};

use super::Options;
use super::merge::{Merged, Payload, Strategy, added};
use crate::clock::now;
use crate::open::Open;
use crate::scalar::{Column, Scalar, column};

/// The most fields of a group, unless its first message has more, and of several groups in a batch.
const MOST_FIELDS: usize = 1024;
/// The most values in a batch of merged messages, with those that are NULL. Messages may have different
/// fields, and each column has a place for each message.
const MOST_VALUES: usize = 1 << 18;
/// The most messages, and bytes of content, of such a batch.
const MOST_ROWS: usize = 8192;
const MOST_BYTES: usize = 1 << 20;

/// A column of a batch.
pub(super) struct Read {
    pub(super) name: Box<str>,
    pub(super) strategy: Option<Strategy>,
    pub(super) values: Column,
}

/// A message of a batch, and where it is from.
pub(super) struct Message<'a> {
    pub(super) payload: &'a [u8],
    pub(super) columns: &'a [Read],
    pub(super) row: usize,
    pub(super) meta: &'a Meta,
    pub(super) is_record: bool,
}

/// The content of a group, as it is saved.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Content {
    /// The upper and lower half of the hash of the key.
    hash: (u64, u64),
    /// When the group began, in microseconds since 1970.
    pub(super) begun: i64,
    /// Where its first message is from.
    source: Box<str>,
    path: Option<Box<str>>,
    /// True if a message has fields, or had some.
    is_record: bool,
    payload: Payload,
    fields: Vec<(Box<str>, Merged)>,
}

/// The messages of a key that become one.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) content: Content,
    /// The number of its messages.
    pub(super) count: u64,
    /// The size of the merged message so far, in bytes.
    pub(super) bytes: usize,
    /// When it ends if no message comes, in microseconds since 1970.
    pub(super) due: i64,
    /// True if the batch that is being read has messages of it.
    pub(super) is_touched: bool,
    /// The entry of the journal that has it, if it has not changed since.
    pub(super) entry: [Option<u64>; 1],
    /// The acks of messages that no checkpoint covers, and the number of their batches.
    pub(super) ack: Ack,
    pub(super) held: usize,
}

impl Open for Group {
    const PLURAL: &'static str = "groups";

    fn new(ack: Ack) -> Self {
        Self {
            content: Content::default(),
            count: 0,
            bytes: 0,
            due: 0,
            is_touched: false,
            entry: [None],
            ack,
            held: 0,
        }
    }

    fn is_possible(number: i64) -> bool {
        (0..i64::MAX / 2).contains(&number)
    }

    fn count(&mut self) -> &mut u64 {
        &mut self.count
    }

    fn ack(&mut self) -> &mut Ack {
        &mut self.ack
    }

    fn has_settled(&mut self) {
        self.held = 0;
    }

    fn entries(&mut self) -> &mut [Option<u64>] {
        &mut self.entry
    }

    fn block(&self, _: usize) -> serde_json::Result<Value> {
        serde_json::to_value(&self.content)
    }

    fn is_whole(&self) -> bool {
        self.count > 0 && self.entry[0].is_some()
    }
}

impl Group {
    /// The memory of the group, with its places in maps.
    pub(super) fn memory(&self) -> usize {
        const PLACE: usize = size_of::<Group>() + 128;
        let path = self.content.path.as_ref().map_or(0, |path| path.len());
        PLACE + self.content.source.len() + path + self.bytes
    }

    /// Begins a group of a key.
    pub(super) fn begin(ack: Ack, hash: u128, begun: i64, meta: &Meta) -> Self {
        let content = Content {
            hash: ((hash >> 64) as u64, hash as u64),
            begun,
            source: Box::from(&*meta.source),
            path: meta.path.as_deref().map(Box::from),
            ..Content::default()
        };
        Self { content, ..Self::new(ack) }
    }

    /// The hash of its key.
    pub(super) fn hash(&self) -> u128 {
        (u128::from(self.content.hash.0) << 64) | u128::from(self.content.hash.1)
    }

    /// Reads what was saved as an entry of the journal.
    pub(super) fn restore(&mut self, entry: u64, saved: Value, options: &Options) -> Result<(), Error> {
        let is_first = self.entry[0].is_none();
        self.content = serde_json::from_value(saved).map_err(crate::unusable_state)?;
        let is_valid = |(name, merged): &(Box<str>, Merged)| merged.is_of(options.strategy(name));
        if !is_first || !self.content.fields.iter().all(is_valid) {
            return Err(crate::unusable_state("a group does not fit the options"));
        }
        self.entry = [Some(entry)];
        self.bytes = self.measured();
        Ok(())
    }

    /// Returns the size of the merged message so far, in bytes.
    fn measured(&self) -> usize {
        let content = &self.content;
        let of = |(name, merged): &(Box<str>, Merged)| {
            size_of::<(Box<str>, Merged)>() + name.len() + merged.heap()
        };
        content.payload.0.len() + content.fields.iter().map(of).sum::<usize>()
    }

    /// True if a message can be added without more than `most` bytes, or too many fields.
    pub(super) fn has_room(&self, message: &Message<'_>, options: &Options, most: usize) -> bool {
        let payload = options.payload();
        let mut bytes =
            self.bytes + self.content.payload.growth(payload, message.payload, &options.separator);
        let (mut fields, mut from) = (self.content.fields.len(), 0);
        for Read { name, strategy, values } in message.columns {
            let value = values.view(message.row);
            if value.is_null() {
                continue;
            }
            // Otherwise a message of very many fields would be compared with all of the group.
            if fields > MOST_FIELDS {
                return false;
            }
            match place(&self.content.fields, name, from) {
                Some(place) => {
                    bytes += self.content.fields[place].1.growth(*strategy, value);
                    from = place + 1;
                }
                None => {
                    bytes += size_of::<(Box<str>, Merged)>() + name.len() + added(value);
                    fields += 1;
                }
            }
        }
        bytes <= most && fields <= MOST_FIELDS
    }

    /// True if no message can be added without more than `most` bytes.
    pub(super) fn is_full(&self, options: &Options, most: usize) -> bool {
        let between = options.payload().between(&options.separator).unwrap_or_default();
        self.bytes.saturating_add(between.len()) > most
    }

    /// Adds a message.
    pub(super) fn add(&mut self, message: &Message<'_>, options: &Options) {
        let separator = &options.separator;
        let held = self.content.payload.0.len().cast_signed();
        self.content.payload.add(options.payload(), message.payload, self.count, separator);
        let mut grown = self.content.payload.0.len().cast_signed() - held;
        self.content.is_record |= message.is_record;
        // The fields of one message have different names.
        let known = self.content.fields.len();
        let mut from = 0;
        for Read { name, strategy, values } in message.columns {
            let value = values.view(message.row);
            if value.is_null() {
                continue;
            }
            if let Some(place) = place(&self.content.fields[..known], name, from) {
                let merged = &mut self.content.fields[place].1;
                let held = merged.heap().cast_signed();
                merged.add(*strategy, value, separator);
                grown += merged.heap().cast_signed() - held;
                from = place + 1;
            } else {
                let merged = Merged::new(*strategy, value, separator);
                grown += (size_of::<(Box<str>, Merged)>() + name.len() + merged.heap()).cast_signed();
                self.content.fields.push((name.clone(), merged));
            }
        }
        self.bytes = self.bytes.saturating_add_signed(grown);
        self.count = self.count.saturating_add(1);
    }
}

/// The place of a field. Messages of a group mostly have the same fields in the same order, so the search
/// begins at `from`.
fn place(fields: &[(Box<str>, Merged)], name: &str, from: usize) -> Option<usize> {
    let (before, after) = fields.split_at(from.min(fields.len()));
    let is_it = |(known, _): &(Box<str>, Merged)| **known == *name;
    let found = after.iter().position(is_it).map(|place| place + before.len());
    found.or_else(|| before.iter().position(is_it))
}

/// True if two groups can be in one batch.
fn is_alike(one: &Content, other: &Content) -> bool {
    (&one.source, &one.path, one.is_record) == (&other.source, &other.path, other.is_record)
}

/// Returns merged messages as batches, in their order.
pub(super) fn batches(groups: Vec<Group>, no_ack: impl Fn() -> Ack) -> Result<Vec<Batch>, ArrowError> {
    let mut batches = Vec::new();
    let mut part: Vec<Group> = Vec::new();
    // The places of the fields in the batch, and the size of its content in bytes.
    let mut places: HashMap<Box<str>, usize> = HashMap::new();
    let mut bytes = 0;
    for group in groups {
        let fields = &group.content.fields;
        let new = fields.iter().filter(|(name, _)| !places.contains_key(name)).count();
        let is_full = part.len() >= MOST_ROWS
            || bytes + group.bytes > MOST_BYTES
            || places.len() + new > MOST_FIELDS
            || (part.len() + 1) * (places.len() + new) > MOST_VALUES;
        if part.last().is_some_and(|last| is_full || !is_alike(&last.content, &group.content)) {
            batches.push(batch(std::mem::take(&mut part), std::mem::take(&mut places), &no_ack)?);
            bytes = 0;
        }
        for (name, _) in &group.content.fields {
            let next = places.len();
            places.entry(name.clone()).or_insert(next);
        }
        bytes += group.bytes;
        part.push(group);
    }
    if !part.is_empty() {
        batches.push(batch(part, places, &no_ack)?);
    }
    Ok(batches)
}

/// Returns a batch of merged messages that are [alike](is_alike).
fn batch(
    groups: Vec<Group>,
    places: HashMap<Box<str>, usize>,
    no_ack: &impl Fn() -> Ack,
) -> Result<Batch, ArrowError> {
    let rows = groups.len();
    let bytes = groups.iter().map(|group| group.content.payload.0.len()).sum();
    let mut payloads = PayloadWriter::with_capacity(bytes, rows);
    let mut values: Vec<Vec<Scalar>> = vec![vec![Scalar::Null; rows]; places.len()];
    let (mut ack, mut meta, mut is_record) = (no_ack(), None, false);
    for (row, group) in groups.into_iter().enumerate() {
        let Content { source, path, payload, fields, is_record: has_fields, .. } = group.content;
        payloads.push(&payload.0);
        is_record |= has_fields;
        for (name, merged) in fields {
            let column = places.get(&name).and_then(|place| values.get_mut(*place));
            if let Some(value) = column.and_then(|column| column.get_mut(row)) {
                *value = merged.result();
            }
        }
        ack.merge(group.ack);
        meta.get_or_insert((source, path));
    }
    let (source, path) = meta.unwrap_or_default();
    let (source, path) = (Arc::from(source), path.map(Arc::from));
    // A merged message has no position: those of others may be before and after those of its messages.
    let meta = Meta { source, path, sequence: None, time_us: now(), number: 0 };
    let payload: BinaryViewArray = payloads.finish();
    let mut names: Vec<(usize, Box<str>)> = places.into_iter().map(|(name, place)| (place, name)).collect();
    names.sort_unstable();
    let fields = names.iter().zip(&values).map(|((_, name), values)| column(name, values, FieldType::Text));
    let batch = Batch::new(payload, Arc::new(meta), ack).set_fields(fields.collect::<Vec<_>>())?;
    Ok(if is_record { batch.into_records() } else { batch })
}
