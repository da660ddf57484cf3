//! Collects messages in memory and in files, and gives them back in their order.

use std::collections::BTreeMap;

use thalweg_engine::{Error, Temporaries};
use thalweg_expression::Evaluator;
use thalweg_record::{Batch, Share};

use super::chunk::{Chunk, Piece};
use super::merge::{Input, Merge};
use super::order::Direction;
use super::run::{Reader, Run};
use crate::kept::Kept;
use crate::scalar::{Column, field};

/// The number of runs of a size that are merged into one.
const MERGED: usize = 8;
/// The part of the budget for messages in memory: one in this many bytes.
const PART: usize = 8;
/// The part of the budget for a block of a run.
const BLOCK_PART: usize = 256;
/// The least and the largest size of a block, in bytes.
const BLOCKS: [usize; 2] = [4 << 10, 256 << 10];

/// The values by which messages are sorted.
pub(super) struct Values {
    pub(super) columns: Vec<Column>,
    /// The messages of which a value cannot be computed, and why. It is NULL.
    pub(super) failed: BTreeMap<u32, String>,
}

/// Messages in memory and in files.
pub(super) struct Sorter {
    names: Vec<String>,
    evaluators: Vec<Evaluator>,
    directions: Vec<Direction>,
    chunk: Chunk,
    /// In the order in which their messages came.
    runs: Vec<Run>,
    temporary: Temporaries,
    memory: Kept,
    /// The most memory of a chunk, in bytes.
    most: usize,
    /// The size of a block, in bytes.
    block: usize,
}

impl Sorter {
    /// Sorts by these fields.
    pub(super) fn new<'a>(
        fields: impl Iterator<Item = (&'a str, Direction)>,
        memory: &Share,
        temporary: Temporaries,
    ) -> Result<Self, Error> {
        let budget = memory.budget();
        let (names, directions): (Vec<String>, Vec<Direction>) =
            fields.map(|(name, direction)| (name.to_owned(), direction)).unzip();
        let evaluator = |name: &String| field(name).map(|field| Evaluator::new(field).within(budget));
        let evaluators = names.iter().map(evaluator);
        let [least, largest] = BLOCKS;
        Ok(Self {
            evaluators: evaluators.collect::<Result<_, Error>>()?,
            names,
            directions,
            chunk: Chunk::default(),
            runs: Vec::new(),
            temporary,
            memory: Kept::new(memory),
            most: budget.limit() / PART,
            block: (budget.limit() / BLOCK_PART).clamp(least, largest),
        })
    }

    /// Returns the values of a batch. None if those of all its messages are too large together.
    pub(super) fn values(&mut self, batch: &Batch) -> Option<Values> {
        let mut values = Values { columns: Vec::new(), failed: BTreeMap::new() };
        let mut held = 0;
        for (evaluator, name) in self.evaluators.iter_mut().zip(&self.names) {
            let mut evaluated = evaluator.evaluate_beside(held, batch);
            held = evaluated.held;
            if evaluated.is_too_large && batch.rows() > 1 {
                return None;
            }
            for (row, reason) in std::mem::take(&mut evaluated.failed) {
                let reason = || format!("the key `{name}` cannot be computed: {reason}");
                values.failed.entry(row).or_insert_with(reason);
            }
            values.columns.push(Column::of(&evaluated));
        }
        Some(values)
    }

    /// Adds messages with these values. `beside` is the memory to count beside theirs, in bytes.
    ///
    /// # Errors
    /// If they do not fit into memory, and a file cannot be written.
    pub(super) fn add(&mut self, piece: Piece, columns: &[Column], beside: usize) -> Result<(), Error> {
        self.chunk.add(piece, columns, &self.directions);
        if self.chunk.bytes() > self.most {
            self.spill()?;
        }
        self.count(beside);
        Ok(())
    }

    /// Adds messages of an earlier run.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub(super) fn add_again(&mut self, bytes: Vec<u8>) -> Result<(), Error> {
        let mut waiting = vec![Piece::of(bytes)?];
        while let Some(piece) = waiting.pop() {
            match self.values(&piece.batch) {
                Some(values) => self.add(piece, &values.columns, 0)?,
                None => waiting.extend(piece.halves().rev()),
            }
        }
        Ok(())
    }

    /// Counts the memory of the messages, and `beside` it, on the budget.
    pub(super) fn count(&mut self, beside: usize) {
        self.memory.set(self.chunk.bytes() + beside);
    }

    /// Counts the memory of a merge, and `beside` it, on the budget.
    pub(super) fn count_merge(&mut self, merge: Option<&Merge>, beside: usize) {
        self.memory.set(merge.map_or(0, Merge::bytes) + beside);
    }

    /// True if it has no messages.
    pub(super) fn is_empty(&self) -> bool {
        self.chunk.is_empty() && self.runs.is_empty()
    }

    /// Moves the messages in memory to a file.
    fn spill(&mut self) -> Result<(), Error> {
        let sorted = std::mem::take(&mut self.chunk).sorted();
        let merge = Merge::new(vec![Input::Memory(sorted)], self.block);
        self.count_merge(Some(&merge), 0);
        self.runs.push(Run::write(&self.temporary, 0, merge)?);
        while let Some(level) = self.runs.last().map(|run| run.level) {
            let alike = self.runs.iter().rev().take_while(|run| run.level == level).count();
            if alike < MERGED {
                break;
            }
            let parts = self.runs.drain(self.runs.len() - alike..);
            let inputs = parts.map(|run| Reader::new(run).map(Input::File)).collect::<Result<Vec<_>, _>>()?;
            let merge = Merge::new(inputs, self.block);
            self.count_merge(Some(&merge), 0);
            self.runs.push(Run::write(&self.temporary, level + 1, merge)?);
        }
        Ok(())
    }

    /// Returns all messages in their order, in batches of this size in bytes. None are left.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub(super) fn merge(&mut self, size: usize) -> Result<Merge, Error> {
        let runs = self.runs.drain(..).map(|run| Reader::new(run).map(Input::File));
        let mut inputs = runs.collect::<Result<Vec<_>, _>>()?;
        let chunk = std::mem::take(&mut self.chunk);
        if !chunk.is_empty() {
            inputs.push(Input::Memory(chunk.sorted()));
        }
        Ok(Merge::new(inputs, size))
    }

    /// Keeps at most this many bytes in memory, and blocks of this size.
    #[cfg(test)]
    pub(super) fn shrink(&mut self, most: usize, block: usize) {
        (self.most, self.block) = (most, block);
    }
}
