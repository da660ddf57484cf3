//! The messages of one key: its values, and the accumulators of the functions.

use serde::{Deserialize, Serialize};

use super::accumulator::{Accumulator, Scratch};
use super::function::Kind;
use crate::scalar::{Column, Scalar, View};

/// The number of groups that are saved together: a mask has a bit for each.
pub(super) const BLOCK: usize = u128::BITS as usize;

/// The messages with one key.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Group {
    /// The upper and lower half of the hash of the key.
    hash: (u64, u64),
    /// The key, in the order of `by`.
    pub(super) keys: Box<[Scalar]>,
    /// One for each function.
    pub(super) values: Box<[Accumulator]>,
}

/// The values of the functions in a batch, and the hashes of the keys.
pub(super) struct Rows<'a> {
    pub(super) hashes: &'a [u128],
    pub(super) keys: &'a [Column],
    pub(super) kinds: &'a [Kind],
    /// One for each function. None for `count(*)`.
    pub(super) values: &'a [Option<Column>],
}

impl Group {
    /// Starts a group with the key of a message, but without the message.
    pub(super) fn new(rows: &Rows<'_>, row: usize, hash: u128) -> Self {
        Self {
            hash: ((hash >> 64) as u64, hash as u64),
            keys: rows.keys.iter().map(|key| key.view(row).to_scalar()).collect(),
            values: rows.kinds.iter().map(|kind| Accumulator::new(*kind)).collect(),
        }
    }

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
    pub(super) fn bytes(&self) -> usize {
        const PLACE: usize = 2 * (size_of::<u128>() + size_of::<u32>() + 1);
        let keys: usize = self.keys.iter().map(|key| size_of::<Scalar>() + key.view().heap()).sum();
        let values: usize = self.values.iter().map(|value| size_of::<Accumulator>() + value.heap()).sum();
        size_of::<Self>() + PLACE + keys + values
    }

    /// Adds a message. `at` is its place in the order of messages. Returns by how many bytes the group grew
    /// or shrank.
    pub(super) fn add(&mut self, rows: &Rows<'_>, row: usize, at: i64, scratch: &mut Scratch) -> isize {
        let mut grown = 0_isize;
        for (value, column) in self.values.iter_mut().zip(rows.values) {
            let Some(column) = column else {
                value.add(View::Bool(true), at, scratch);
                continue;
            };
            let view = column.view(row);
            if !view.is_null() {
                let before = value.heap();
                value.add(view, at, scratch);
                grown += value.heap().cast_signed() - before.cast_signed();
            }
        }
        grown
    }

    /// Adds the messages of another group of the key.
    pub(super) fn merge(&mut self, other: Self, scratch: &mut Scratch) {
        for (value, other) in self.values.iter_mut().zip(other.values) {
            value.merge(other, scratch);
        }
    }
}
