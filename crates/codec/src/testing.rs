//! Batches with text fields, for tests.

use std::sync::Arc;

use arrow_array::{ArrayRef, StringViewArray};
use thalweg_record::Batch;

use crate::columns::FieldType;

/// Creates a batch with these payloads and text fields.
///
/// # Panics
/// If a field does not have one value per payload.
pub fn with_text(payloads: &[&str], columns: &[(&str, &[Option<&str>])]) -> Batch {
    let fields = columns.iter().map(|(name, values)| {
        (FieldType::Text.field(name), Arc::new(StringViewArray::from(values.to_vec())) as ArrayRef)
    });
    thalweg_record::testing::batch(payloads).set_fields(fields).expect("a value for each payload")
}
