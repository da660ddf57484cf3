//! Results as messages.

use std::sync::Arc;

use arrow_array::{ArrayRef, BinaryViewArray, TimestampMicrosecondArray};
use arrow_schema::{ArrowError, Field};
use thalweg_codec::columns::FieldType;
use thalweg_record::{Ack, Batch, Meta, Outcome};

use super::accumulator::result_type;
use super::function::Kind;
use super::group::Group;
use crate::scalar::{Scalar, column};

/// The most messages of a batch of results.
const ROWS: usize = 8192;
/// The memory of the groups in a batch of results, in bytes, after which another batch begins.
const BYTES: usize = 4 << 20;

/// The fields of the times of a window.
pub(super) const START: &str = "window_start";
pub(super) const END: &str = "window_end";

/// The names of the fields of results, and the functions.
pub(super) struct Form<'a> {
    pub(super) by: &'a [String],
    pub(super) values: &'a [String],
    pub(super) kinds: &'a [Kind],
    /// True if windows have a start and an end.
    pub(super) has_times: bool,
}

/// A group and the start and the end of its window.
pub(super) type Timed = (i64, i64, Group);

impl Form<'_> {
    /// Returns the results of groups as batches, with the acks of all their messages. `meta` describes where
    /// they are from.
    pub(super) fn results(
        &self,
        groups: impl Iterator<Item = Timed>,
        meta: &Arc<Meta>,
        ack: Ack,
    ) -> Result<Vec<Batch>, ArrowError> {
        let mut batches = Vec::new();
        let mut groups = groups.fuse();
        loop {
            let (mut part, mut bytes): (Vec<Timed>, usize) = (Vec::new(), 0);
            while part.len() < ROWS
                && bytes < BYTES
                && let Some(next) = groups.next()
            {
                bytes += next.2.bytes();
                part.push(next);
            }
            if part.is_empty() {
                break;
            }
            let payload = BinaryViewArray::from_iter_values(std::iter::repeat_n(&b""[..], part.len()));
            batches.push(Batch::new(payload, meta.clone(), ack.split()).set_fields(self.fields(&part))?);
        }
        // All results have parts of the ack; the rest covers none.
        ack.settle(Outcome::Filtered);
        Ok(batches)
    }

    fn fields(&self, part: &[Timed]) -> Vec<(Field, ArrayRef)> {
        let mut fields: Vec<(Field, ArrayRef)> = Vec::with_capacity(self.by.len() + self.values.len() + 2);
        if self.has_times {
            let starts: TimestampMicrosecondArray = part.iter().map(|(start, ..)| Some(*start)).collect();
            let ends: TimestampMicrosecondArray = part.iter().map(|(_, end, _)| Some(*end)).collect();
            for (name, times) in [(START, starts), (END, ends)] {
                fields.push((FieldType::Timestamp.field(name), Arc::new(times.with_timezone("UTC"))));
            }
        }
        for (at, name) in self.by.iter().enumerate() {
            let keys = part.iter().map(|(.., group)| group.keys.get(at).cloned().unwrap_or_default());
            fields.push(column(name, &keys.collect::<Vec<_>>(), FieldType::Text));
        }
        for (at, (name, kind)) in self.values.iter().zip(self.kinds).enumerate() {
            let results =
                part.iter().map(|(.., group)| group.values.get(at).map(|value| value.result(*kind)));
            let results: Vec<Scalar> = results.map(Option::unwrap_or_default).collect();
            fields.push(column(name, &results, result_type(*kind)));
        }
        fields
    }
}
