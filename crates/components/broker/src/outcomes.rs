//! The messages of a batch on their way to a server.
//!
//! After a temporary error, the engine calls the sink with the same batch. It is recognised by the address of
//! its payload views, and its messages keep the outcomes that they have. The payload is held until then, so
//! that no other batch can occupy the same memory.

use std::ops::{Deref, DerefMut};

use arrow_array::{Array, BinaryViewArray};
use thalweg_record::{Batch, Lease, is_same_payload};

/// How far a message is on its way, or its outcome. `W` says where it is between the sink and the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Row<W> {
    /// To be sent.
    Unsent,
    /// Sent, without an outcome.
    Underway(W),
    /// Confirmed.
    Done,
    /// Refused for good, for this reason.
    Refused(String),
}

/// The messages of a batch, as a slice of [`Row`]s.
#[derive(Debug)]
pub struct Outcomes<W> {
    payload: Option<BinaryViewArray>,
    rows: Vec<Row<W>>,
    /// Covers the memory of the rows, and what the sink copies of the messages.
    _memory: Option<Lease>,
}

impl<W> Default for Outcomes<W> {
    fn default() -> Self {
        Self { payload: None, rows: Vec::new(), _memory: None }
    }
}

impl<W> Deref for Outcomes<W> {
    type Target = [Row<W>];

    fn deref(&self) -> &[Row<W>] {
        &self.rows
    }
}

impl<W> DerefMut for Outcomes<W> {
    fn deref_mut(&mut self) -> &mut [Row<W>] {
        &mut self.rows
    }
}

impl<W> Outcomes<W> {
    /// True if these are the messages of another batch than this one, or of none.
    pub fn are_of_another(&self, batch: &Batch) -> bool {
        self.payload.as_ref().is_none_or(|known| !is_same_payload(known, batch.payload()))
    }

    /// Begins a batch: all of its messages are to be sent. `memory` is held until its end.
    pub fn begin(&mut self, batch: &Batch, memory: Lease) {
        let payload = batch.payload();
        let rows = std::iter::repeat_with(|| Row::Unsent).take(payload.len()).collect();
        *self = Self { payload: Some(payload.clone()), rows, _memory: Some(memory) };
    }

    /// The number of messages that were confirmed or refused.
    pub fn settled(&self) -> usize {
        self.rows.iter().filter(|row| matches!(row, Row::Done | Row::Refused(_))).count()
    }

    /// The number of messages without an outcome.
    pub fn missing(&self) -> usize {
        self.rows.len() - self.settled()
    }

    /// Notes that all messages without an outcome are refused.
    pub fn refuse_rest(&mut self, reason: &str) {
        let rest = self.rows.iter_mut().filter(|row| matches!(row, Row::Unsent | Row::Underway(_)));
        rest.for_each(|row| *row = Row::Refused(reason.to_owned()));
    }

    /// Ends the batch. Returns the refused rows in order.
    pub fn finish(&mut self) -> Vec<(u32, String)> {
        let rows = std::mem::take(self).rows.into_iter().enumerate();
        let refused = rows.filter_map(|(number, row)| match row {
            Row::Refused(reason) => Some((number as u32, reason)),
            _ => None,
        });
        refused.collect()
    }
}

#[cfg(test)]
mod tests {
    use thalweg_engine::testing::{batch, context};

    use super::*;

    #[test]
    fn the_same_batch_keeps_its_outcomes_and_another_one_begins_anew() {
        let (first, second) = (batch(["a", "b", "c"]), batch(["d"]));
        let memory = context().memory;
        let mut rows = Outcomes::<u8>::default();
        assert!(rows.are_of_another(&first));
        rows.begin(&first, memory.claim(10));
        rows[1] = Row::Refused("too long".to_owned());
        assert!(!rows.are_of_another(&first) && rows.are_of_another(&second));
        assert_eq!(rows.finish(), [(1, "too long".to_owned())]);
        assert!(rows.are_of_another(&first));
        rows.begin(&second, memory.claim(10));
        assert_eq!(rows[..], [Row::Unsent]);
    }

    #[test]
    fn only_messages_without_an_outcome_are_refused_with_the_rest() {
        let mut rows = Outcomes::default();
        rows.begin(&batch(["a", "b", "c", "d"]), context().memory.claim(10));
        (rows[1], rows[2], rows[3]) = (Row::Underway(7), Row::Done, Row::Refused("no".to_owned()));
        assert_eq!((rows.settled(), rows.missing()), (2, 2));
        rows.refuse_rest("down");
        assert_eq!((rows.settled(), rows.missing()), (4, 0));
        let refused = [(0, "down"), (1, "down"), (3, "no")].map(|(row, reason)| (row, reason.to_owned()));
        assert_eq!(rows.finish(), refused);
    }
}
