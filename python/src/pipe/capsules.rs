//! Arrow's C interface: batches and streams of them, in capsules.

#![allow(unsafe_code, reason = "structures are exchanged by address with other libraries")]

use std::ffi::CStr;

use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi};
use arrow_array::ffi_stream::{ArrowArrayStreamReader, FFI_ArrowArrayStream};
use arrow_array::{Array, RecordBatch, RecordBatchReader, StructArray};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use super::nesting::{DEEPEST, too_deep};

const SCHEMA: &CStr = c"arrow_schema";
const ARRAY: &CStr = c"arrow_array";
const STREAM: &CStr = c"arrow_array_stream";

/// Converts an Arrow error into an exception.
pub fn refused(error: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// Checks the depth of a schema before code that calls itself sees it.
///
/// # Errors
/// `ValueError` if it is too deep.
fn check_depth(schema: &FFI_ArrowSchema) -> PyResult<()> {
    let mut level = vec![schema];
    for _ in 0..=DEEPEST {
        let inner = level.iter().flat_map(|schema| schema.children().chain(schema.dictionary()));
        level = inner.collect();
        if level.is_empty() {
            return Ok(());
        }
    }
    Err(too_deep())
}

/// Returns the capsule of a batch's schema.
pub fn schema<'py>(py: Python<'py>, batch: &RecordBatch) -> PyResult<Bound<'py, PyCapsule>> {
    let schema = FFI_ArrowSchema::try_from(batch.schema().as_ref()).map_err(refused)?;
    PyCapsule::new_with_value(py, schema, SCHEMA)
}

/// Returns the capsule of a batch's columns.
pub fn array<'py>(py: Python<'py>, batch: &RecordBatch) -> PyResult<Bound<'py, PyCapsule>> {
    let columns = FFI_ArrowArray::new(&StructArray::from(batch.clone()).to_data());
    PyCapsule::new_with_value(py, columns, ARRAY)
}

/// Returns the capsule of a stream.
pub fn stream<'py>(
    py: Python<'py>,
    batches: Box<dyn RecordBatchReader + Send>,
) -> PyResult<Bound<'py, PyCapsule>> {
    PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(batches), STREAM)
}

/// Imports a batch from an object with `__arrow_c_array__`.
///
/// # Errors
/// `TypeError` if the object is not a batch.
pub fn batch(object: &Bound<'_, PyAny>) -> PyResult<RecordBatch> {
    let (schema, array): (Bound<'_, PyCapsule>, Bound<'_, PyCapsule>) =
        object.call_method0("__arrow_c_array__")?.extract()?;
    let schema = schema.pointer_checked(Some(SCHEMA))?.cast::<FFI_ArrowSchema>();
    let array = array.pointer_checked(Some(ARRAY))?.cast::<FFI_ArrowArray>();
    // SAFETY: capsules of these names hold these structures. `from_raw` moves them out and marks the
    // originals as released.
    let data = unsafe {
        let (schema, array) =
            (FFI_ArrowSchema::from_raw(schema.as_ptr()), FFI_ArrowArray::from_raw(array.as_ptr()));
        check_depth(&schema)?;
        from_ffi(array, &schema).map_err(refused)?
    };
    if !matches!(data.data_type(), arrow_schema::DataType::Struct(_)) || data.null_count() > 0 {
        return Err(PyTypeError::new_err("this is an array, not a record batch"));
    }
    Ok(RecordBatch::from(StructArray::from(data)))
}

/// Imports a stream from an object with `__arrow_c_stream__`.
///
/// # Errors
/// `TypeError` if the object is not a stream of record batches.
pub fn read_stream(object: &Bound<'_, PyAny>) -> PyResult<ArrowArrayStreamReader> {
    let capsule: Bound<'_, PyCapsule> = object.call_method0("__arrow_c_stream__")?.extract()?;
    let stream = capsule.pointer_checked(Some(STREAM))?.cast::<FFI_ArrowArrayStream>();
    let mut schema = FFI_ArrowSchema::empty();
    // SAFETY: a capsule of this name holds this structure. A stream may be asked for its schema several
    // times. `from_raw` moves the stream out and marks the original as released.
    unsafe {
        let asked = (*stream.as_ptr()).get_schema;
        // If there is no schema, the reader says why.
        if asked.is_some_and(|schema_of| schema_of(stream.as_ptr(), &raw mut schema) == 0) {
            check_depth(&schema)?;
        }
        ArrowArrayStreamReader::from_raw(stream.as_ptr())
    }
    .map_err(refused)
}
