//! The schema of the batches with their new columns.

use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_schema::ArrowError;
use thalweg_record::Batch;

use super::walk::Walk;
use crate::columns::{FieldType, Layout};

/// The positions of the new columns among the fields of a batch. The layout is kept while the names and types
/// stay the same, because expressions downstream are compiled for a schema.
#[derive(Default)]
pub(super) struct Shape {
    known: Vec<(String, FieldType)>,
    layout: Layout,
}

impl Shape {
    pub(super) fn set(&mut self, batch: Batch, new: Vec<ArrayRef>, walk: &Walk) -> Result<Batch, ArrowError> {
        let now = walk.columns.iter().map(|column| (&column.name, &column.last));
        if !self.known.iter().map(|(name, kind)| (name, kind)).eq(now) {
            self.known = walk.columns.iter().map(|column| (column.name.clone(), column.last)).collect();
            let fields = self.known.iter().map(|(name, kind)| Arc::new(kind.field(name)));
            self.layout = Layout::new(fields.collect());
        }
        self.layout.extend(batch, new)
    }
}
