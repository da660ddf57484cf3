//! The exceptions of the package.

use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyValueError};
use pyo3::prelude::*;

create_exception!(
    thalweg,
    Error,
    PyException,
    "An operation failed; the text says which, and what may help."
);

/// Returns the exception for an error in a configuration or in options.
///
/// The class is defined in Python because it has two bases: [`Error`], and `ValueError`, which callers of
/// functions expect.
pub fn configuration_error(py: Python<'_>, text: &str) -> PyErr {
    mistaken(py, text, "[]")
}

/// Returns the same exception with the list of mistakes, in JSON.
pub fn mistaken(py: Python<'_>, text: &str, mistakes: &str) -> PyErr {
    let made = || {
        let class = py.import("thalweg._errors")?.getattr("ConfigurationError")?;
        class.call1((text, mistakes))
    };
    made().map_or_else(|_: PyErr| PyValueError::new_err(text.to_owned()), PyErr::from_value)
}
