//! Sparse files: `thalweg.SparseFile`, `SparseFileSystem` and `Pool`.

mod counters;
mod file;
mod options;
mod pin;
mod pool;
pub mod spans;
mod system;

pub use file::SparseFile;
pub use pin::Pin;
pub use pool::Pool;
pub use system::SparseFileSystem;

use pyo3::create_exception;
use pyo3::exceptions::{PyKeyError, PyOverflowError, PyValueError};
use pyo3::prelude::*;

use crate::errors;

create_exception!(thalweg, MissingError, errors::Error, "Bytes were to be read that are not all held.");
create_exception!(
    thalweg,
    DiffersError,
    errors::Error,
    "Bytes were to be written that are not those that are held, where they had to be."
);

/// What went wrong, for Python.
pub fn trouble(error: &thalweg_sparse::Error) -> PyErr {
    use thalweg_sparse::Error;
    let text = error.to_string();
    match error {
        Error::Missing { .. } => MissingError::new_err(text),
        Error::Differs { .. } => DiffersError::new_err(text),
        Error::TooFar { .. } => PyOverflowError::new_err(text),
        Error::Unknown { .. } => PyKeyError::new_err(text),
        Error::NotABlock { .. } | Error::Exists { .. } => PyValueError::new_err(text),
        _ => errors::Error::new_err(text),
    }
}
