//! For tests: batches with text fields.

use std::sync::Arc;

use arrow_array::{ArrayRef, StringViewArray};
use thalweg_record::Batch;

use crate::columns::FieldType;

/// A batch of these payloads with these text fields.
///
/// # Panics
/// If a field has not one value for each payload.
pub fn with_text(payloads: &[&str], columns: &[(&str, &[Option<&str>])]) -> Batch {
    let fields = columns.iter().map(|(name, values)| {
        (FieldType::Text.field(name), Arc::new(StringViewArray::from(values.to_vec())) as ArrayRef)
    });
    thalweg_record::testing::batch(payloads).set_fields(fields).expect("a value for each payload")
}
