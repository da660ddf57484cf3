//! The depth of values within values.
//!
//! Code that follows a value or its type calls itself at each level, in pyarrow and here, and too many levels
//! end the process. All values are therefore checked before, without such calls.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

/// The maximum depth of values within a field. Arrow's readers have the same limit for files and streams.
pub const DEEPEST: usize = 64;

/// Returns the error for values that are nested too deep.
pub fn too_deep() -> PyErr {
    PyValueError::new_err(format!(
        "values are nested more than {DEEPEST} deep, the limit of Arrow: pass them as text, for example with \
         `json.dumps`"
    ))
}

/// Checks the depth of messages.
///
/// # Errors
/// `ValueError` if a value is nested too deep, for instance because it contains itself.
#[pyfunction]
pub fn check_nesting<'py>(messages: &Bound<'py, PyList>) -> PyResult<()> {
    // The values to look into, with their depths. The messages are at 0.
    let mut open: Vec<(Bound<'py, PyAny>, usize)> = messages.iter().map(|message| (message, 0)).collect();
    while let Some((value, depth)) = open.pop() {
        if depth > DEEPEST {
            return Err(too_deep());
        }
        let mut add = |inner: Bound<'py, PyAny>| {
            let is_nested = inner.is_instance_of::<PyDict>()
                || inner.is_instance_of::<PyList>()
                || inner.is_instance_of::<PyTuple>();
            if is_nested {
                open.push((inner, depth + 1));
            }
        };
        if let Ok(fields) = value.cast::<PyDict>() {
            fields.iter().for_each(|(_, inner)| add(inner));
        } else if let Ok(items) = value.cast::<PyList>() {
            items.iter().for_each(add);
        } else if let Ok(items) = value.cast::<PyTuple>() {
            items.iter().for_each(add);
        }
    }
    Ok(())
}
