//! Sparse files: `thalweg.SparseFile`, `SparseFileSystem` and `Pool`.

mod counters;
mod file;
mod missing;
mod options;
mod pin;
mod pool;
pub mod spans;
mod system;

pub use file::{SparseFile, quicken};
pub use missing::Missing;
pub use pin::Pin;
pub use pool::Pool;
pub use system::SparseFileSystem;

use pyo3::create_exception;
use pyo3::exceptions::{PyKeyError, PyOverflowError, PyValueError};
use pyo3::prelude::*;

use crate::errors;

create_exception!(thalweg, MissingError, errors::Error, "Not all bytes of a read are held.");
create_exception!(
    thalweg,
    DiffersError,
    errors::Error,
    "A write disagrees with bytes that are held, with `overlap=\"agree\"`."
);

/// Converts an error into its Python exception.
pub fn to_py_error(error: &thalweg_sparse::Error) -> PyErr {
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
