//! Conversion of messages to record batches for Python, and back.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BinaryViewArray, RecordBatch, RecordBatchOptions};
use arrow_cast::cast;
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Schema};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};
use thalweg_record::{PAYLOAD, ViewBuilder};

use super::capsules;

/// A batch for Python, which imports it through `__arrow_c_array__`.
#[pyclass(module = "thalweg._thalweg", frozen)]
pub struct Batch(pub RecordBatch);

#[pymethods]
impl Batch {
    /// Returns the capsule of the schema.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        capsules::schema(py, &self.0)
    }

    /// Returns the capsules of the schema and of the columns.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        // The protocol lets a producer ignore the requested schema; the consumer then casts.
        let _ = requested_schema;
        PyTuple::new(py, [capsules::schema(py, &self.0)?, capsules::array(py, &self.0)?])
    }
}

/// How messages are shown to Python.
#[derive(Debug, Clone, Copy, Default)]
pub struct Shape {
    /// True if view columns stay views. Otherwise they are copied into column types that all functions of
    /// `pyarrow` accept.
    pub views: bool,
    /// True if messages with fields also get a column `payload`.
    pub payload: bool,
}

/// Returns the messages of a batch as rows. Messages without fields have one column, `payload`.
pub fn rows_of(batch: &thalweg_record::Batch, shape: Shape) -> Result<RecordBatch, ArrowError> {
    let fields = batch.fields();
    let mut schema: Vec<FieldRef> = fields.schema().fields().to_vec();
    let mut columns = fields.columns().to_vec();
    let has_payload = schema.iter().any(|field| field.name() == PAYLOAD);
    if columns.is_empty() || shape.payload && !has_payload {
        schema.push(Arc::new(Field::new(PAYLOAD, DataType::BinaryView, false)));
        columns.push(Arc::new(batch.payload().clone()));
    }
    if !shape.views {
        for (field, column) in schema.iter_mut().zip(&mut columns) {
            let plain = plain(field.data_type());
            if plain != *field.data_type() {
                *column = cast(column, &plain)?;
                *field = Arc::new(field.as_ref().clone().with_data_type(plain));
            }
        }
    }
    RecordBatch::try_new(Arc::new(Schema::new(schema)), columns)
}

/// Returns the approximate size in bytes of what [`rows_of`] copied out of views.
pub fn copied(rows: &RecordBatch, shape: Shape) -> usize {
    if shape.views { 0 } else { bytes_of(rows) }
}

/// Returns the size in bytes of the rows within their buffers.
pub fn bytes_of(rows: &RecordBatch) -> usize {
    let columns = rows.columns().iter();
    columns.map(|column| column.to_data().get_slice_memory_size().unwrap_or_default()).sum()
}

/// Returns the equivalent type without views.
fn plain(of: &DataType) -> DataType {
    let inner = |field: &FieldRef| Arc::new(field.as_ref().clone().with_data_type(plain(field.data_type())));
    match of {
        DataType::Utf8View => DataType::Utf8,
        DataType::BinaryView => DataType::Binary,
        DataType::List(field) => DataType::List(inner(field)),
        DataType::LargeList(field) => DataType::LargeList(inner(field)),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(inner).collect()),
        other => other.clone(),
    }
}

/// Rows from Python, divided into payloads and fields. Payloads exist if there is a column of that name.
pub struct Parts {
    /// The payloads.
    pub payload: Option<BinaryViewArray>,
    /// The other columns.
    pub fields: RecordBatch,
}

/// Divides rows into payloads and fields.
///
/// # Errors
/// A sentence that says why the rows cannot be messages.
pub fn parts(rows: &RecordBatch) -> Result<Parts, String> {
    let schema = rows.schema();
    let mut payload = None;
    let (mut fields, mut columns): (Vec<FieldRef>, Vec<ArrayRef>) = (Vec::new(), Vec::new());
    for (field, column) in schema.fields().iter().zip(rows.columns()) {
        if field.name() == PAYLOAD && payload.is_none() {
            payload = Some(payload_of(column)?);
        } else if field.name() == PAYLOAD || fields.iter().any(|known| known.name() == field.name()) {
            return Err(format!("two columns are called `{}`", field.name()));
        } else {
            fields.push(field.clone());
            columns.push(column.clone());
        }
    }
    let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
    let fields = RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options);
    Ok(Parts { payload, fields: fields.map_err(|error| error.to_string())? })
}

fn payload_of(column: &ArrayRef) -> Result<BinaryViewArray, String> {
    let of = column.data_type();
    if !matches!(
        of,
        DataType::Binary
            | DataType::LargeBinary
            | DataType::BinaryView
            | DataType::Utf8
            | DataType::LargeUtf8
            | DataType::Utf8View
    ) {
        return Err(format!("the column `{PAYLOAD}` has the type {of}; it must be bytes or text"));
    }
    let views = cast(column, &DataType::BinaryView).map_err(|error| error.to_string())?;
    let views = views.as_binary_view();
    if views.null_count() == 0 {
        return Ok(views.clone());
    }
    let mut filled = ViewBuilder::over(views.data_buffers(), views.len());
    views.iter().for_each(|value| filled.push(value.unwrap_or_default()));
    Ok(filled.finish())
}

/// Returns empty payloads. They keep the memory of `base` alive.
pub fn empty_payload(base: &[arrow_buffer::Buffer], rows: usize) -> BinaryViewArray {
    let mut payload = ViewBuilder::over(base, rows);
    (0..rows).for_each(|_| payload.push(b""));
    payload.finish()
}

/// Converts the result of a transform into messages, each with a share of the ack of `batch`. The caller
/// settles the rest of that ack.
///
/// If there is no column `payload`, the payloads stay if there is one row for each message; otherwise they
/// are empty.
///
/// # Errors
/// Why the result cannot be messages.
pub fn replaced(
    batch: &thalweg_record::Batch,
    made: &[RecordBatch],
) -> Result<Vec<thalweg_record::Batch>, String> {
    let made = made.iter().filter(|rows| rows.num_rows() > 0);
    let parted: Vec<Parts> = made.map(parts).collect::<Result<_, _>>()?;
    let is_same = matches!(&parted[..], [only] if only.fields.num_rows() == batch.rows());
    let mut messages = Vec::new();
    for Parts { payload, fields } in parted {
        let payload = match payload {
            Some(payload) => payload,
            None if is_same => batch.payload().clone(),
            None => empty_payload(&[], fields.num_rows()),
        };
        let new = thalweg_record::Batch::new(payload, batch.meta().clone(), batch.ack().split());
        let new = match batch.positions().filter(|_| is_same) {
            Some(positions) => new.with_positions(positions.clone()),
            None => Ok(new),
        };
        // The number of field rows equals the number of payloads, so this is `Ok`.
        messages.extend(new.and_then(|new| new.with_fields(fields)));
    }
    Ok(messages)
}
