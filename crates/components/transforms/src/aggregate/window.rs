//! A window: its groups, and the acks of their messages.

use hashbrown::HashMap;
use serde_json::Value;
use thalweg_engine::Error;
use thalweg_record::Ack;

use super::accumulator::Scratch;
use super::function::Kind;
use super::group::{BLOCK, Group, Rows};
use super::timing::is_reachable;
use crate::open::Open;

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

    /// Adds a message. Returns by how many bytes the window grew or shrank, and the entry of the journal that
    /// is out of date now.
    pub(super) fn add(&mut self, rows: &Rows<'_>, row: usize, scratch: &mut Scratch) -> (isize, Option<u64>) {
        let Some(&hash) = rows.hashes.get(row) else { return (0, None) };
        self.count = self.count.saturating_add(1);
        let groups = &mut self.groups;
        let mut grown = 0_isize;
        let place = *self.places.entry(hash).or_insert_with(|| {
            let group = Group::new(rows, row, hash);
            grown = group.bytes().cast_signed();
            groups.push(group);
            groups.len() as u32 - 1
        }) as usize;
        // Messages are in the order in which they come.
        grown += self.groups[place].add(rows, row, 0, scratch);
        let block = place / BLOCK;
        if self.blocks.len() <= block {
            self.blocks.resize(block + 1, None);
        }
        (grown, self.blocks[block].take())
    }

    /// Returns its groups, and the acks of their messages.
    pub(super) fn into_parts(self) -> (Vec<Group>, Ack) {
        (self.groups, self.ack)
    }
}
