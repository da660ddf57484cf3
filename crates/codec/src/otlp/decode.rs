//! Turns requests into columns, without an object for each record.
//!
//! A request is a tree: resources, scopes, records, and for metrics their points below a metric. The reader
//! walks it once and remembers one place on each level, so what it holds does not grow with the request. A
//! batch ends after a number of rows or a size of JSON: a record of two bytes takes as much memory in columns
//! as any other. It also ends after a size of the values that its rows share: a sink that writes each row by
//! itself writes them as often as there are rows.
//!
//! A request that is not valid is an error as a whole. A record that is valid but has a value without a place
//! in its column is rejected by itself.

use std::ops::Range;

use arrow_array::{ArrayRef, BinaryViewArray, RecordBatch, UInt32Array, cast::AsArray};
use arrow_buffer::Buffer;
use arrow_schema::ArrowError;
use arrow_select::take::take;
use thalweg_record::{Budget, ViewBuilder};

use super::Signal;
use super::fill::{Filling, Level, named};
use super::plan::Plan;
use super::schema::SPAN_NAME;
use super::to_json::MOST_ESCAPED;
use super::walk::{Walk, Written};
use crate::protobuf::fault::Fault;

/// The most values that are made at once with enough memory, NULLs included: rows times columns.
const CELLS: usize = 1 << 19;

/// One value is made at once for this many bytes of the memory.
const MEMORY: usize = 256;

/// The fewest rows that are made at once, if there are as many.
const FEWEST: usize = 16;

/// The size of the JSON after which a batch is complete with enough memory, in bytes.
const PIECE: usize = 4 << 20;

/// A batch is complete when its rows share this many times the size of its JSON. A value counts once for each
/// row that has it.
const SHARED: usize = 4;

/// The records of a part of a request.
#[derive(Debug)]
pub struct Records {
    /// The payload of each: of a log record its body, of a span or a metric its name.
    pub payload: BinaryViewArray,
    /// The columns.
    pub fields: RecordBatch,
}

/// A part of a request.
#[derive(Debug)]
pub struct Decoded {
    /// The records that can be used.
    pub records: Records,
    /// Others, each with the reason to reject it. The value concerned is NULL.
    pub rejected: Option<(Records, Vec<String>)>,
}

/// Reads one request in its binary form.
#[derive(Debug)]
pub struct Decoder {
    plan: &'static Plan,
    signal: Signal,
    buffer: Buffer,
    walk: Walk,
    filling: Filling,
    most_rows: usize,
    /// The size of the JSON after which a batch is complete.
    most_json: usize,
    /// The maximum size of the JSON of a record.
    longest: usize,
}

impl Decoder {
    /// Reads a request, in parts that fit into this budget.
    ///
    /// # Errors
    /// If the request is too long.
    pub fn new(signal: Signal, buffer: Buffer, budget: &Budget) -> Result<Self, String> {
        if u32::try_from(buffer.len()).is_err() {
            return Err("is longer than 4 GiB".to_owned());
        }
        let plan = Plan::of(signal);
        let cells = (budget.limit() / MEMORY).clamp(CELLS / 32, CELLS);
        let longest = budget.longest_text().max(2 * buffer.len());
        Ok(Self {
            plan,
            signal,
            walk: Walk::new(buffer.len()),
            filling: Filling::new(longest, buffer.len()),
            most_rows: (cells / plan.schema.fields().len().max(1)).max(FEWEST),
            most_json: PIECE.min(budget.longest_text()),
            longest,
            buffer,
        })
    }

    /// Returns at most this number of records at once, if there is a number.
    #[must_use]
    pub fn of_rows(mut self, most: Option<usize>) -> Self {
        if let Some(most) = most {
            self.most_rows = self.most_rows.min(most.max(1));
            // The sender does not know that batches are smaller here.
            self.filling.repeats_groups_without_limit();
        }
        self
    }

    /// Returns about how many bytes the JSON of a record may take while a part is made: those that are
    /// written, and their copy in a column.
    pub fn working_memory(&self) -> usize {
        2 * self.longest.min(self.buffer.len().saturating_mul(MOST_ESCAPED))
    }

    /// True if all records were returned.
    pub fn is_done(&self) -> bool {
        self.walk.is_done
    }

    /// Returns the next records. None at the end of the request.
    ///
    /// # Errors
    /// The reason why the request is not valid.
    pub fn part(&mut self) -> Result<Option<Decoded>, String> {
        let buffer = self.buffer.clone();
        let bytes = buffer.as_slice();
        self.filling.begin(self.plan, &buffer);
        self.walk.mark(Written::Before);
        let mut payload = ViewBuilder::over(std::slice::from_ref(&buffer), 64);
        while payload.len() < self.most_rows
            && self.filling.written < self.most_json
            && self.filling.shared < SHARED * self.most_json
        {
            let place = self.walk.next(self.plan, bytes);
            let row = match place.map_err(|fault| format!("is not valid: {fault}"))? {
                Some(row) => row,
                None => {
                    self.walk.is_done = true;
                    break;
                }
            };
            let filled = self.row(bytes, row, &mut payload);
            filled.map_err(|fault| {
                format!("is not valid: in its record {} (from 0), {fault}", self.walk.rows)
            })?;
            self.walk.rows += 1;
        }
        if payload.is_empty() {
            return Ok(None);
        }
        let decoded = self.filling.finish(self.plan, payload.finish());
        decoded.map(Some).map_err(|error| format!("does not fit into columns: {error}"))
    }

    /// Fills the row of a record.
    fn row(&mut self, bytes: &[u8], row: Range<usize>, payload: &mut ViewBuilder) -> Result<(), Fault> {
        let Self { plan, signal, walk, filling, .. } = self;
        let record = bytes.get(row).unwrap_or_default();
        filling.row = payload.len();
        filling.before = filling.written;
        if let Some(mapped) = &plan.record {
            filling.fill(mapped, record)?;
        }
        if let (Some(metrics), Some(metric)) = (&plan.metrics, &walk.metric) {
            filling.point(metrics, metric, bytes, record)?;
        }
        for (level, mapped, url, group) in [
            (Level::Scope, &plan.scope, plan.scope_schema_url, &walk.scope),
            (Level::Resource, &plan.resource, plan.resource_schema_url, &walk.resource),
        ] {
            if let Some(group) = group {
                filling.group(level, (mapped, url), group, bytes)?;
            }
        }
        filling.constant(plan.signal, signal.name());
        walk.mark(Written::Now);
        filling.end_row()?;
        match signal {
            Signal::Logs => filling.body(record, payload),
            Signal::Traces => named(record, SPAN_NAME, payload),
            Signal::Metrics => {
                let name = walk.metric.as_ref().map(|metric| metric.name.clone());
                payload.push(bytes.get(name.unwrap_or_default()).unwrap_or_default());
                Ok(())
            }
        }
    }
}

impl Records {
    /// Returns the records of these rows.
    pub(super) fn taken(&self, rows: Vec<u32>) -> Result<Self, ArrowError> {
        let rows = UInt32Array::from(rows);
        let columns = self.fields.columns().iter().map(|column| take(column, &rows, None));
        let columns: Vec<ArrayRef> = columns.collect::<Result<_, _>>()?;
        let payload = take(&self.payload, &rows, None)?.as_binary_view().clone();
        Ok(Self { payload, fields: RecordBatch::try_new(self.fields.schema(), columns)? })
    }
}
