//! A window: its groups, and the acks of their messages.

use std::sync::Arc;

use arrow_array::{ArrayRef, BinaryViewArray, TimestampMicrosecondArray};
use arrow_schema::{ArrowError, Field};
use hashbrown::HashMap;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thalweg_codec::columns::FieldType;
use thalweg_engine::Error;
use thalweg_record::{Ack, Batch, Meta, Outcome};

use super::accumulator::{Accumulator, result_type};
use super::function::Kind;
use super::timing::is_reachable;
use crate::open::Open;
use crate::scalar::{Column, Scalar, View, column};

/// The number of groups that are saved together.
const BLOCK: usize = 128;
/// The most messages of a batch of results.
const ROWS: usize = 8192;

/// The messages with one key.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Group {
    /// The upper and lower half of the hash of the key.
    hash: (u64, u64),
    /// The key, in the order of `by`.
    keys: Box<[Scalar]>,
    /// One for each function.
    pub(super) values: Box<[Accumulator]>,
}

impl Group {
    /// The key of a map of groups.
    pub(super) fn hash(&self) -> u128 {
        (u128::from(self.hash.0) << 64) | u128::from(self.hash.1)
    }

    /// True if it fits the options: a state may be damaged.
    pub(super) fn is_valid(&self, keys: usize, kinds: &[Kind]) -> bool {
        self.keys.len() == keys
            && self.values.len() == kinds.len()
            && self.values.iter().zip(kinds).all(|(value, kind)| value.is_valid(*kind))
    }

    /// The memory of the group, with its place in the map.
    fn bytes(&self) -> usize {
        const PLACE: usize = 2 * (size_of::<u128>() + size_of::<u32>() + 1);
        let keys: usize = self.keys.iter().map(|key| size_of::<Scalar>() + key.view().heap()).sum();
        let values: usize = self.values.iter().map(|value| size_of::<Accumulator>() + value.heap()).sum();
        size_of::<Self>() + PLACE + keys + values
    }
}

/// The values of the functions in a batch, and the hashes of the keys.
pub(super) struct Rows<'a> {
    pub(super) hashes: &'a [u128],
    pub(super) keys: &'a [Column],
    pub(super) kinds: &'a [Kind],
    /// One for each function. None for `count(*)`.
    pub(super) values: &'a [Option<Column>],
}

/// The groups of a time, or of a number of messages.
#[derive(Debug)]
pub(super) struct Window {
    places: HashMap<u128, u32>,
    groups: Vec<Group>,
    /// The number of its messages.
    pub(super) count: u64,
    /// The entry of the journal that has a block of groups, if it has changed no more since.
    blocks: Vec<Option<u64>>,
    /// The acks of messages that no checkpoint covers, and the number of their batches.
    pub(super) ack: Ack,
    pub(super) held: usize,
}

impl Open for Window {
    const PLURAL: &'static str = "windows";

    fn new(ack: Ack) -> Self {
        Self { places: HashMap::new(), groups: Vec::new(), count: 0, blocks: Vec::new(), ack, held: 0 }
    }

    fn is_possible(start: i64) -> bool {
        is_reachable(start)
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
        &mut self.blocks
    }

    fn block(&self, block: usize) -> serde_json::Result<Value> {
        let start = (block * BLOCK).min(self.groups.len());
        serde_json::to_value(&self.groups[start..(start + BLOCK).min(self.groups.len())])
    }

    fn is_whole(&self) -> bool {
        self.blocks.len() == self.groups.len().div_ceil(BLOCK)
    }
}

impl Window {
    /// The number of its groups.
    pub(super) fn len(&self) -> usize {
        self.groups.len()
    }

    /// True if it has a group of this key.
    pub(super) fn has(&self, hash: u128) -> bool {
        self.places.contains_key(&hash)
    }

    /// The memory of its groups.
    pub(super) fn bytes(&self) -> usize {
        self.groups.iter().map(Group::bytes).sum()
    }

    /// Adds the groups of a block that was saved as an entry of the journal.
    pub(super) fn restore_block(
        &mut self,
        entry: u64,
        groups: Value,
        keys: usize,
        kinds: &[Kind],
    ) -> Result<(), Error> {
        let groups: Vec<Group> = serde_json::from_value(groups).map_err(crate::unusable_state)?;
        for group in groups {
            let place = self.groups.len() as u32;
            let is_new = self.places.insert(group.hash(), place).is_none();
            if !is_new || !group.is_valid(keys, kinds) {
                return Err(crate::unusable_state("a group does not fit the options"));
            }
            self.groups.push(group);
        }
        self.blocks.push(Some(entry));
        Ok(())
    }

    /// Adds a message. `bytes` is memory for the time of the call. Returns by how many bytes the window grew
    /// or shrank, and the entry of the journal that is out of date now.
    pub(super) fn add(&mut self, rows: &Rows<'_>, row: usize, bytes: &mut Vec<u8>) -> (isize, Option<u64>) {
        let Some(&hash) = rows.hashes.get(row) else { return (0, None) };
        self.count = self.count.saturating_add(1);
        let groups = &mut self.groups;
        let mut grown = 0_isize;
        let place = *self.places.entry(hash).or_insert_with(|| {
            let group = Group {
                hash: ((hash >> 64) as u64, hash as u64),
                keys: rows.keys.iter().map(|key| key.view(row).to_scalar()).collect(),
                values: rows.kinds.iter().map(|kind| Accumulator::new(*kind)).collect(),
            };
            grown = group.bytes().cast_signed();
            groups.push(group);
            groups.len() as u32 - 1
        }) as usize;
        for (value, column) in self.groups[place].values.iter_mut().zip(rows.values) {
            let Some(column) = column else {
                value.add(View::Bool(true), bytes);
                continue;
            };
            let view = column.view(row);
            if !view.is_null() {
                let before = value.heap();
                value.add(view, bytes);
                grown += value.heap().cast_signed() - before.cast_signed();
            }
        }
        let block = place / BLOCK;
        if self.blocks.len() <= block {
            self.blocks.resize(block + 1, None);
        }
        (grown, self.blocks[block].take())
    }

    /// Returns the results as batches, with the acks of the window. `meta` describes where they are from,
    /// `times` are the start and the end of the window, if it has any.
    pub(super) fn results(
        self,
        names: &Names<'_>,
        kinds: &[Kind],
        times: Option<(i64, i64)>,
        meta: &Arc<Meta>,
    ) -> Result<Vec<Batch>, ArrowError> {
        let mut batches = Vec::with_capacity(self.groups.len().div_ceil(ROWS));
        let mut groups = self.groups.into_iter();
        drop(self.places);
        loop {
            let part: Vec<Group> = groups.by_ref().take(ROWS).collect();
            if part.is_empty() {
                break;
            }
            let rows = part.len();
            let mut fields: Vec<(Field, ArrayRef)> = Vec::with_capacity(names.len() + 2);
            if let Some((start, end)) = times {
                for (name, time) in [(START, start), (END, end)] {
                    let times = TimestampMicrosecondArray::from_value(time, rows).with_timezone("UTC");
                    fields.push((FieldType::Timestamp.field(name), Arc::new(times)));
                }
            }
            for (at, name) in names.by.iter().enumerate() {
                let keys: Vec<Scalar> =
                    part.iter().map(|group| group.keys.get(at).cloned().unwrap_or_default()).collect();
                fields.push(column(name, &keys, FieldType::Text));
            }
            for (at, (name, kind)) in names.values.iter().zip(kinds).enumerate() {
                let results = part.iter().map(|group| group.values.get(at).map(|value| value.result(*kind)));
                let results: Vec<Scalar> = results.map(Option::unwrap_or_default).collect();
                fields.push(column(name, &results, result_type(*kind)));
            }
            let payload = BinaryViewArray::from_iter_values(std::iter::repeat_n(&b""[..], rows));
            let ack = self.ack.split();
            batches.push(Batch::new(payload, meta.clone(), ack).set_fields(fields)?);
        }
        // All results have parts of the ack; the rest covers none.
        self.ack.settle(Outcome::Filtered);
        Ok(batches)
    }
}

/// The fields of the times of a window.
pub(super) const START: &str = "window_start";
pub(super) const END: &str = "window_end";

/// The names of the fields of results.
pub(super) struct Names<'a> {
    pub(super) by: &'a [String],
    pub(super) values: &'a [String],
}

impl Names<'_> {
    fn len(&self) -> usize {
        self.by.len() + self.values.len()
    }
}
