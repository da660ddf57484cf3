//! The schema of the batches with their new columns.

use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_schema::ArrowError;
use thalweg_record::Batch;

use super::walk::Walk;
use crate::columns::{FieldType, Layout, number_field};

/// The positions of the new columns among the fields of a batch. The layout is kept while the names and types
/// stay the same, because expressions downstream are compiled for a schema.
#[derive(Default)]
pub(super) struct Shape {
    known: Vec<(String, FieldType, bool)>,
    layout: Layout,
}

impl Shape {
    pub(super) fn set(&mut self, batch: Batch, new: Vec<ArrayRef>, walk: &Walk) -> Result<Batch, ArrowError> {
        let now = walk.columns.iter().map(|column| (&column.name, &column.last, &column.is_number));
        if !self.known.iter().map(|(name, kind, number)| (name, kind, number)).eq(now) {
            let now = walk.columns.iter().map(|column| (column.name.clone(), column.last, column.is_number));
            self.known = now.collect();
            let fields = self.known.iter().map(|(name, kind, is_number)| {
                Arc::new(if *is_number { number_field(name) } else { kind.field(name) })
            });
            self.layout = Layout::new(fields.collect());
        }
        self.layout.extend(batch, new)
    }
}
