//! Adds new columns to batches, and removes rejected messages from them unchanged.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::{ArrayRef, BinaryViewArray, RecordBatch, RecordBatchOptions};
use arrow_schema::{ArrowError, FieldRef, Schema, SchemaRef};
use thalweg_record::{Batch, Outputs, all_but};

use crate::names::same;

/// The positions of new columns among the columns of a batch. They are computed once per schema.
#[derive(Debug, Default)]
pub struct Layout {
    fields: Vec<FieldRef>,
    /// The schema for which the positions were computed, and the schema that results.
    from: Option<SchemaRef>,
    to: Option<SchemaRef>,
    indexes: Vec<usize>,
}

impl Layout {
    /// Creates a layout for these new fields.
    pub fn new(fields: Vec<FieldRef>) -> Self {
        Self { fields, ..Self::default() }
    }

    /// Adds a field.
    pub(super) fn add(&mut self, field: FieldRef) {
        self.fields.push(field);
        self.from = None;
    }

    /// Adds the new columns to a batch. A column replaces an existing column of the same name; otherwise it
    /// is added at the end. Without any, the messages are records without fields.
    pub fn extend(&mut self, batch: Batch, new: Vec<ArrayRef>) -> Result<Batch, ArrowError> {
        let from = batch.fields().schema();
        let to = match (&self.from, &self.to) {
            (Some(known), Some(to)) if same(known, &from) => to.clone(),
            _ => {
                let mut fields = from.fields().to_vec();
                self.indexes.clear();
                // There may be ten thousands of fields.
                let names = from.fields().iter().map(|field| field.name().clone());
                let mut places: HashMap<String, usize> = names.zip(0..).collect();
                for field in &self.fields {
                    let index = *places.entry(field.name().clone()).or_insert(fields.len());
                    match fields.get_mut(index) {
                        Some(known) => *known = field.clone(),
                        None => fields.push(field.clone()),
                    }
                    self.indexes.push(index);
                }
                let to = Arc::new(Schema::new(fields));
                self.from = Some(from);
                self.to = Some(to.clone());
                to
            }
        };
        let mut columns = batch.fields().columns().to_vec();
        for (column, &index) in new.into_iter().zip(&self.indexes) {
            match columns.get_mut(index) {
                Some(known) => *known = column,
                None => columns.push(column),
            }
        }
        let options = RecordBatchOptions::new().with_row_count(Some(batch.rows()));
        let batch = batch.with_fields(RecordBatch::try_new_with_options(to, columns, &options)?)?;
        Ok(batch.into_records())
    }

    /// Rejects the failed messages as they were, and sends the rest with the new columns. Each new column has
    /// one value per message of the batch, including the failed ones.
    pub fn give(
        &mut self,
        batch: Batch,
        columns: Vec<ArrayRef>,
        failed: Vec<(u32, String)>,
        out: &mut Outputs,
    ) -> Result<(), ArrowError> {
        let before = Before::of(&batch);
        let batch = self.extend(batch, columns)?;
        let rest = before.reject(batch, failed, out)?;
        out.send(rest);
        Ok(())
    }
}

/// A copy of a batch's contents before a transform changes them. Rejected messages leave with these contents,
/// so that they can be replayed.
pub struct Before {
    payload: BinaryViewArray,
    fields: RecordBatch,
}

impl Before {
    /// Copies the present contents of the batch. The copy shares its buffers.
    pub fn of(batch: &Batch) -> Self {
        Self { payload: batch.payload().clone(), fields: batch.fields().clone() }
    }

    /// Rejects the failed messages with their former contents. Returns the rest with the contents of `now`.
    pub fn reject(
        self,
        now: Batch,
        failed: Vec<(u32, String)>,
        out: &mut Outputs,
    ) -> Result<Option<Batch>, ArrowError> {
        if failed.is_empty() {
            return Ok(Some(now));
        }
        let (rows, reasons): (Vec<u32>, Vec<String>) = failed.into_iter().unzip();
        let was = now.share().with_payload(self.payload)?.with_fields(self.fields)?;
        if let Some(was) = was.select(&rows)? {
            out.reject(was, (0..).zip(reasons).collect())?;
        }
        let keep = all_but(now.rows(), rows);
        now.filter(&keep)
    }
}

/// Rejects all messages of a batch for the same reason.
pub fn reject_all(batch: Batch, reason: &str, out: &mut Outputs) -> Result<(), ArrowError> {
    let failed = (0..batch.rows() as u32).map(|row| (row, reason.to_owned())).collect();
    let rest = out.reject(batch, failed)?;
    out.send(rest);
    Ok(())
}
