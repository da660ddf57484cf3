//! The size of batches before a transform that lets messages wait.
//!
//! A checkpoint moves past a batch when all of it is settled. Behind a slow `limit`, a batch of ten thousand
//! messages takes longer than a run that is stopped soon: each such run would begin with the same message. So
//! batches on the way to the transform have no more messages than pass it in a moment, and few of them wait
//! there. (Rejected: to count settled messages within a batch. The state of a sink would then have to be that
//! of a moment when a part of a batch is on its way.)
//!
//! Only main outputs lead to it here. Errors, and what `route` sorts out, are often few, and would slow down
//! all others.

use super::{Destination, Segment};
use thalweg_record::Output;

/// The time in which the messages of a batch pass, in seconds.
const SPAN: f64 = 0.25;
/// Smaller batches cost more than the messages in them.
const LEAST_ROWS: usize = 16;
/// From here on, batches are this small anyway.
const MOST_ROWS: usize = 16 << 10;
/// The least memory of a message in a batch, in bytes: its view, and its position.
const ROW: usize = 24;
/// The number of batches that wait before other transforms on the way.
const WAITING: usize = 4;

/// The most messages of a batch that enters each segment, if a transform behind its entrance has a rate.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Pace {
    rows: Vec<Option<usize>>,
    /// True if the transform is in the segment itself.
    is_rated: Vec<bool>,
}

impl Pace {
    pub(super) fn of(segments: &[Segment]) -> Self {
        let own: Vec<Option<usize>> = segments.iter().map(own_rows).collect();
        let mut pace = Self { is_rated: own.iter().map(Option::is_some).collect(), rows: own };
        // Segments lead to each other without circles.
        for _ in 0..segments.len() {
            for (at, segment) in segments.iter().enumerate() {
                let behind = main_stages(segment).filter_map(|to| pace.rows_to(to)).min();
                pace.rows[at] = smallest(pace.rows[at], behind);
            }
        }
        pace
    }

    /// Returns the most messages of a batch that enters a stage. None if there is no such limit.
    pub(super) fn rows_to(&self, to: Destination) -> Option<usize> {
        match to {
            Destination::Segment(number) => self.rows.get(number).copied().flatten(),
            // Messages that the slow way of a failover does not take go another way.
            Destination::Failover(_) | Destination::Sink(_) | Destination::DeadLetters => None,
        }
    }

    /// Returns the segments whose channels are small, with the bytes that may wait in each.
    pub(crate) fn channels(&self) -> impl Iterator<Item = (Destination, usize)> {
        let each = self.rows.iter().zip(&self.is_rated).enumerate();
        each.filter_map(|(number, (rows, is_rated))| {
            // One byte is one batch.
            let bytes = if *is_rated { 1 } else { (*rows)? * ROW * WAITING };
            rows.map(|_| (Destination::Segment(number), bytes))
        })
    }
}

/// Returns the most messages of a batch for the slowest transform of a segment.
fn own_rows(segment: &Segment) -> Option<usize> {
    let rates = segment.operators.iter().filter_map(|operator| operator.node.config.rate());
    let rows = rates.reduce(f64::min)? * SPAN;
    // A conversion of a number that is too large gives the largest.
    Some((rows as usize).max(LEAST_ROWS)).filter(|rows| *rows < MOST_ROWS)
}

/// Returns the stages that the main outputs of a segment lead to.
fn main_stages(segment: &Segment) -> impl Iterator<Item = Destination> {
    let outputs = segment.operators.iter().filter_map(|operator| operator.outputs.get(&Output::Main));
    outputs.flat_map(|targets| targets.iter()).filter_map(|target| target.stage())
}

fn smallest(one: Option<usize>, other: Option<usize>) -> Option<usize> {
    one.into_iter().chain(other).min()
}
