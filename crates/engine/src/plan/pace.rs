//! The size of batches before a transform that lets messages wait.
//!
//! A checkpoint moves past a batch when all of it is settled. Behind a slow `limit`, a batch of ten thousand
//! messages takes longer than a run that is stopped soon: each such run would begin with the same message. So
//! batches on the way to the transform have no more messages than pass it in a moment, and few of them wait
//! there. This is the size for messages that all get there; where many are dropped on the way, it grows
//! ([`Rows`](crate::source_output::Rows)). (Rejected: to count settled messages within a batch. The state of
//! a sink would then have to be that of a moment when a part of a batch is on its way.)
//!
//! Only main outputs lead to it here. Errors, and what `route` sorts out, are often few, and would slow down
//! all others. A segment that they lead to keeps a large channel for the same reason: a stage waits until
//! there is room in all channels behind it. So does the way of a failover, whose batches take another way
//! when there is none.

use std::time::Duration;

use super::{Destination, Segment};
use thalweg_record::Output;

/// The time in which the messages of a batch pass.
pub(crate) const SPAN: Duration = Duration::from_millis(250);
/// Smaller batches cost more than the messages in them.
const LEAST_ROWS: usize = 16;
/// From here on, batches are this small anyway.
pub(crate) const MOST_ROWS: usize = 16 << 10;
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
    /// True if batches come another way than from main outputs.
    has_others: Vec<bool>,
}

impl Pace {
    /// `others` are the stages that the errors of sources and sinks lead to, and the ways of failovers.
    pub(super) fn of(segments: &[Segment], others: impl IntoIterator<Item = Destination>) -> Self {
        let own: Vec<Option<usize>> = segments.iter().map(own_rows).collect();
        let is_rated = own.iter().map(Option::is_some).collect();
        let mut pace = Self { rows: own, is_rated, has_others: vec![false; segments.len()] };
        for to in segments.iter().flat_map(other_stages).chain(others) {
            if let Destination::Segment(number) = to {
                pace.has_others[number] = true;
            }
        }
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
        let each = self.rows.iter().zip(&self.is_rated).zip(&self.has_others).enumerate();
        each.filter(|(_, (_, has_others))| !**has_others).filter_map(|(number, ((rows, is_rated), _))| {
            let rows = (*rows)?;
            // One byte is one batch.
            let bytes = if *is_rated { 1 } else { rows * ROW * WAITING };
            Some((Destination::Segment(number), bytes))
        })
    }
}

/// Returns the most messages of a batch for the slowest transform of a segment.
fn own_rows(segment: &Segment) -> Option<usize> {
    let rates = segment.operators.iter().filter_map(|operator| operator.node.config.rate());
    let rows = rates.reduce(f64::min)? * SPAN.as_secs_f64();
    // A conversion of a number that is too large gives the largest.
    Some((rows as usize).max(LEAST_ROWS)).filter(|rows| *rows < MOST_ROWS)
}

/// Returns the stages that the main outputs of a segment lead to.
fn main_stages(segment: &Segment) -> impl Iterator<Item = Destination> {
    stages(segment, |output| *output == Output::Main)
}

/// Returns the stages that its other outputs lead to.
fn other_stages(segment: &Segment) -> impl Iterator<Item = Destination> {
    stages(segment, |output| *output != Output::Main)
}

/// Returns the stages that the chosen outputs of a segment lead to.
fn stages(segment: &Segment, is_chosen: fn(&Output) -> bool) -> impl Iterator<Item = Destination> {
    let outputs = segment.operators.iter().flat_map(|operator| &operator.outputs);
    let chosen = outputs.filter(move |(output, _)| is_chosen(output));
    chosen.flat_map(|(_, targets)| targets.iter()).filter_map(|target| target.stage())
}

fn smallest(one: Option<usize>, other: Option<usize>) -> Option<usize> {
    one.into_iter().chain(other).min()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use super::super::{Operator, Target};
    use super::*;
    use crate::component::{Cost, Flow, Step, Transform, TransformConfig};
    use crate::graph::{Passed, Targets, TransformNode};
    use crate::settings::OnError;
    use crate::{Context, Error};

    /// A transform that lets this number of messages pass in a second.
    struct Rated(Option<f64>);

    impl TransformConfig for Rated {
        fn rate(&self) -> Option<f64> {
            self.0
        }

        fn build(&self, _: &Context) -> Result<Box<dyn Transform>, Error> {
            Err(Error::permanent("it is only planned"))
        }
    }

    /// A segment with one transform, whose outputs lead to other segments.
    fn segment(rate: Option<f64>, to: &[(Output, usize)]) -> Segment {
        let mut outputs: BTreeMap<Output, Arc<[Target]>> = BTreeMap::new();
        for (output, number) in to {
            outputs.insert(*output, [Target::Stage(Destination::Segment(*number))].into());
        }
        let node = TransformNode {
            name: "main.step".into(),
            kind: "step",
            config: Step::Messages(Arc::new(Rated(rate))),
            targets: Targets::All,
            before: Passed::default(),
        };
        let operator = Operator { node, on_error: OnError::Divert, delivers: false, outputs };
        Segment {
            name: "main".into(),
            operators: vec![operator],
            parallelism: 1,
            is_fixed: false,
            ordered: true,
            takes: Flow::Messages,
            cost: Cost::Small,
            sequential: false,
        }
    }

    #[test]
    fn batches_on_the_way_to_a_rate_are_small_and_few_of_them_wait() {
        let segments = [segment(None, &[(Output::Main, 1)]), segment(Some(1000.0), &[]), segment(None, &[])];
        let pace = Pace::of(&segments, []);
        let rows = [0, 1, 2].map(|number| pace.rows_to(Destination::Segment(number)));
        assert_eq!(rows, [Some(250), Some(250), None]);
        let expected = [(Destination::Segment(0), 250 * ROW * WAITING), (Destination::Segment(1), 1)];
        assert_eq!(pace.channels().collect::<Vec<_>>(), expected);
        assert_eq!(Pace::of(&[segment(Some(0.1), &[])], []).rows, [Some(LEAST_ROWS)]);
        assert_eq!(Pace::of(&[segment(Some(1e9), &[])], []).rows, [None]);
    }

    /// One rejected message that waited there held back all others.
    #[test]
    fn a_channel_for_errors_and_sorted_out_messages_is_not_small() {
        for output in [Output::Errors, Output::Named(0)] {
            let others = segment(None, &[(output, 1), (Output::Main, 2)]);
            let pace = Pace::of(&[others, segment(Some(10.0), &[]), segment(None, &[])], []);
            assert_eq!(pace.rows, [None, Some(LEAST_ROWS), None], "{output:?}");
            assert_eq!(pace.channels().count(), 0, "{output:?}");
        }
        let pace = Pace::of(&[segment(Some(10.0), &[])], [Destination::Sink(0), Destination::Segment(0)]);
        assert_eq!(pace.channels().count(), 0);
    }
}
