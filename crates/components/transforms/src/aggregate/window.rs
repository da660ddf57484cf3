//! A window: its groups, and the acks of their messages.

use hashbrown::HashMap;
use thalweg_record::Ack;

use super::accumulator::Scratch;
use super::group::{BLOCK, Group, Rows};

/// The groups of a time, or of a number of messages.
#[derive(Debug)]
pub(super) struct Window {
    places: HashMap<u128, u32>,
    groups: Vec<Group>,
    /// The number of its messages.
    pub(super) count: u64,
    /// The entry of the journal that has a block of groups, if it has changed no more since.
    pub(super) blocks: Vec<Option<u64>>,
    /// The acks of messages that no checkpoint covers, and the number of their batches.
    pub(super) ack: Ack,
    pub(super) held: usize,
}

impl Window {
    pub(super) fn new(ack: Ack) -> Self {
        Self { places: HashMap::new(), groups: Vec::new(), count: 0, blocks: Vec::new(), ack, held: 0 }
    }

    /// The number of its groups.
    pub(super) fn len(&self) -> usize {
        self.groups.len()
    }

    /// True if it has a group of this key.
    pub(super) fn has(&self, hash: u128) -> bool {
        self.places.contains_key(&hash)
    }

    /// The groups of a block.
    pub(super) fn block(&self, block: usize) -> &[Group] {
        let start = (block * BLOCK).min(self.groups.len());
        &self.groups[start..(start + BLOCK).min(self.groups.len())]
    }

    /// The memory of its groups.
    pub(super) fn bytes(&self) -> usize {
        self.groups.iter().map(Group::bytes).sum()
    }

    /// Adds a group that was saved. Returns false if there is one of that key.
    pub(super) fn restore(&mut self, group: Group) -> bool {
        let place = self.groups.len() as u32;
        let is_new = self.places.insert(group.hash(), place).is_none();
        self.groups.push(group);
        is_new
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
