//! The schema that batches leave with.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::{Schema, SchemaRef};
use thalweg_engine::Error;
use thalweg_record::Batch;

use super::walk::Walk;
use crate::shared::columns::FieldType;

/// How the columns stand beside the fields that a batch had already, kept while that stays the same: expressions
/// downstream are compiled for a schema.
#[derive(Default)]
pub(super) struct Shape {
    input: Option<SchemaRef>,
    types: Vec<FieldType>,
    output: Option<SchemaRef>,
    /// Where each column goes.
    places: Vec<usize>,
}

impl Shape {
    pub(super) fn set(&mut self, batch: Batch, new: Vec<ArrayRef>, walk: &Walk) -> Result<Batch, Error> {
        let input = batch.fields().schema_ref();
        let same_input = self.input.as_ref().is_some_and(|known| Arc::ptr_eq(known, input) || known == input);
        let same_types = self.types.iter().eq(walk.columns.iter().map(|column| &column.last))
            && self.output.as_ref().is_some_and(|output| {
                let names = self.places.iter().filter_map(|&place| output.fields().get(place));
                names.map(|field| field.name()).eq(walk.columns.iter().map(|column| &column.name))
            });
        let output = match &self.output {
            Some(output) if same_input && same_types => output.clone(),
            _ => {
                let mut fields = input.fields().to_vec();
                self.places.clear();
                for column in &walk.columns {
                    let field = Arc::new(column.last.field(&column.name));
                    match fields.iter().position(|existing| existing.name() == &column.name) {
                        Some(place) => {
                            fields[place] = field;
                            self.places.push(place);
                        }
                        None => {
                            self.places.push(fields.len());
                            fields.push(field);
                        }
                    }
                }
                self.types = walk.columns.iter().map(|column| column.last).collect();
                self.input = Some(input.clone());
                self.output.insert(Arc::new(Schema::new(fields))).clone()
            }
        };
        let mut columns = batch.fields().columns().to_vec();
        for (column, &place) in new.into_iter().zip(&self.places) {
            match columns.get_mut(place) {
                Some(replaced) => *replaced = column,
                None => columns.push(column),
            }
        }
        let options = RecordBatchOptions::new().with_row_count(Some(batch.rows()));
        Ok(batch.with_fields(RecordBatch::try_new_with_options(output, columns, &options)?)?)
    }
}
