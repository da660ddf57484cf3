//! Errors of remote files, as the exceptions that Python has for files.

use pyo3::exceptions::{PyFileNotFoundError, PyOSError, PyPermissionError};
use pyo3::prelude::*;
use thalweg_sparse::RemoteError;

/// `ENOENT` and `EACCES`, which programs check.
const ABSENT: i32 = 2;
const DENIED: i32 = 13;

/// Converts an error into its Python exception.
pub fn to_py_error(error: &RemoteError) -> PyErr {
    match error {
        RemoteError::Absent { name } => {
            PyFileNotFoundError::new_err((ABSENT, "there is no such file", name.clone()))
        }
        RemoteError::Denied { name, why } => {
            PyPermissionError::new_err((DENIED, format!("it may not be read: {why}"), name.clone()))
        }
        other => PyOSError::new_err(other.to_string()),
    }
}
