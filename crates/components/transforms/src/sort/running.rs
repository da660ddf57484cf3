//! The transform as it runs.
//!
//! A checkpoint that has the messages so far settles their acks. Without one, they are settled when the
//! output is delivered, unless a run starts over from the beginning of its input anyway. The output leaves
//! batch by batch, as the next stages have room for it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use thalweg_engine::{Error, Outputs, Transform};
use thalweg_record::{Ack, Batch, Outcome, Settlement};

use super::chunk::{Piece, copied};
use super::kept::{KeptInput, unneeded};
use super::merge::Merge;
use super::sorter::Sorter;
use crate::open::no_ack;

/// The most batches whose acks wait for the output. With little memory they are fewer.
const MOST_HELD: usize = 1 << 16;
/// The memory of an ack that waits, in bytes.
const ACK: usize = 128;
/// The part of the budget for acks: one in this many bytes.
const PART: usize = 8;
/// The part of the budget for a batch that leaves.
const BATCH_PART: usize = 16;
/// The least size of a batch that leaves, in bytes.
const LEAST: usize = 4 << 10;

/// When the acks of messages are settled.
pub(super) enum Acks {
    /// At a checkpoint, which has the messages.
    Checkpoint(Box<KeptInput>),
    /// When the output is delivered.
    Output,
    /// At once: a run starts over.
    AtOnce,
}

pub(super) struct Sorting {
    component: Arc<str>,
    pub(super) sorter: Sorter,
    acks: Acks,
    /// The acks that wait, and the number of their batches.
    ack: Ack,
    held: usize,
    most_held: usize,
    /// The rest of the output, once it leaves.
    output: Option<Merge>,
    /// The size of a batch that leaves, in bytes.
    size: usize,
}

/// Returns an ack of one origin that settles these acks. Their own parts would each have all of their
/// origins, which are as many as the batches that came.
fn together(component: &Arc<str>, acks: Ack) -> Ack {
    if acks.is_noop() {
        return acks;
    }
    let has_failover = acks.has_failover();
    let answer = move |Settlement { outcome, rejected, reason }: Settlement| match (outcome, reason) {
        (Outcome::Rejected, _) => acks.reject(rejected),
        (Outcome::Failed, Some(reason)) => acks.fail(&reason),
        (outcome, _) => acks.settle(outcome),
    };
    match has_failover {
        true => Ack::with_failover(component.clone(), answer),
        false => Ack::new(component.clone(), answer),
    }
}

impl Sorting {
    /// Sends batches of `batch_bytes`, and fewer with little `memory`, both in bytes.
    pub(super) fn new(name: &str, sorter: Sorter, acks: Acks, batch_bytes: usize, memory: usize) -> Self {
        let component: Arc<str> = name.into();
        Self {
            ack: no_ack(&component),
            component,
            sorter,
            acks,
            held: 0,
            most_held: MOST_HELD.min(memory / PART / ACK),
            output: None,
            size: batch_bytes.min(memory / BATCH_PART).max(LEAST),
        }
    }

    /// Takes the messages of a batch whose keys can be computed; the others leave by `errors`. Returns the
    /// batch if its values are too large together, or the rest of one that had such others.
    fn collect(&mut self, batch: Batch, out: &mut Outputs) -> Result<Option<Batch>, Error> {
        let Some(values) = self.sorter.values(&batch) else {
            return Ok(Some(batch));
        };
        if !values.failed.is_empty() {
            return Ok(out.reject(batch, values.failed.into_iter().collect())?);
        }
        let bytes = copied(&batch)?;
        if let Acks::Checkpoint(kept) = &mut self.acks {
            kept.add(&bytes)?;
        }
        self.hold(batch)?;
        let beside = self.held * ACK;
        self.sorter.add(Piece::of(bytes)?, &values.columns, beside)?;
        Ok(None)
    }

    /// Keeps the ack of a batch, whose messages are copied.
    fn hold(&mut self, mut batch: Batch) -> Result<(), Error> {
        let ack = batch.take_ack();
        if let Acks::AtOnce = self.acks {
            ack.settle(Outcome::Delivered);
            return Ok(());
        }
        self.ack.merge(ack);
        self.held += 1;
        match self.acks {
            Acks::Output if self.held > self.most_held => Err(Error::permanent(format!(
                "{} batches wait for the end of the input to be acknowledged, and more do not fit into memory; give more \
                 `memory`, or sort in a run that reads files, whose messages need not wait",
                self.most_held
            ))),
            _ => Ok(()),
        }
    }

    /// Begins to send all messages.
    fn begin(&mut self, out: &mut Outputs) -> Result<(), Error> {
        if self.sorter.is_empty() {
            return Ok(());
        }
        self.output = Some(self.sorter.merge(self.size)?);
        let mut all = std::mem::replace(&mut self.ack, no_ack(&self.component));
        if let Acks::Checkpoint(kept) = &mut self.acks {
            kept.leaves(&mut all);
        }
        self.ack = together(&self.component, all);
        self.send(out)
    }

    /// Sends the next batch.
    fn send(&mut self, out: &mut Outputs) -> Result<(), Error> {
        let Some(merge) = &mut self.output else { return Ok(()) };
        let next = merge.next()?;
        if let Some((batch, _)) = next {
            out.send(batch.with_ack(self.ack.split()));
            // The next batch leaves when there is room for it.
            out.hold(Duration::ZERO);
        } else {
            self.output = None;
            self.held = 0;
            // All batches have parts of the ack; the rest covers none.
            std::mem::replace(&mut self.ack, no_ack(&self.component)).settle(Outcome::Filtered);
        }
        self.sorter.count_merge(self.output.as_ref(), self.held * ACK);
        Ok(())
    }
}

impl Transform for Sorting {
    fn apply(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
        let mut waiting = VecDeque::from([batch]);
        while let Some(batch) = waiting.pop_front() {
            let rows = batch.rows();
            let Some(left) = self.collect(batch, out)? else { continue };
            if left.rows() < rows {
                waiting.push_front(left);
                continue;
            }
            let (first, rest) = left.split_at(rows / 2);
            rest.into_iter().for_each(|rest| waiting.push_front(rest));
            waiting.push_front(first);
        }
        Ok(())
    }

    fn resume(&mut self, out: &mut Outputs) -> Result<(), Error> {
        self.send(out)
    }

    fn finish(&mut self, out: &mut Outputs) -> Result<(), Error> {
        self.begin(out)
    }

    /// Messages that the state has are left to the next run.
    fn stop(&mut self, out: &mut Outputs) -> Result<(), Error> {
        match self.acks {
            Acks::Checkpoint(_) => Ok(()),
            Acks::Output | Acks::AtOnce => self.begin(out),
        }
    }

    fn pre_commit(&mut self) -> Result<(), Error> {
        let Acks::Checkpoint(kept) = &mut self.acks else { return Ok(()) };
        kept.keep(std::mem::replace(&mut self.ack, no_ack(&self.component)))?;
        self.held = 0;
        // Sources may wait for the memory of the acks, so no batch need come that gives it back.
        self.sorter.count(0);
        Ok(())
    }

    fn has_failed(&self) -> bool {
        matches!(&self.acks, Acks::Checkpoint(kept) if kept.has_failed())
    }

    fn is_delivering(&self) -> bool {
        matches!(&self.acks, Acks::Checkpoint(kept) if kept.is_delivering())
    }

    fn has_news(&self) -> bool {
        matches!(&self.acks, Acks::Checkpoint(kept) if kept.has_news())
    }

    fn state(&mut self) -> Option<Value> {
        match &mut self.acks {
            Acks::Checkpoint(kept) => kept.state(),
            Acks::Output | Acks::AtOnce => None,
        }
    }

    fn restore(&mut self, saved: Value) -> Result<(), Error> {
        match &mut self.acks {
            Acks::Checkpoint(kept) => kept.restore(saved, |bytes| self.sorter.add_again(bytes)),
            Acks::Output | Acks::AtOnce => unneeded(saved),
        }
    }
}
