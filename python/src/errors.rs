//! The exceptions of the package.

use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyValueError};
use pyo3::prelude::*;

create_exception!(
    thalweg,
    Error,
    PyException,
    "What was asked for was tried and failed; the text says what, and what may help."
);

/// The exception for what is wrong in a configuration or in options.
///
/// It is made in Python, since it has two bases: [`Error`], and `ValueError`, which is what callers of functions expect.
pub fn configuration_error(py: Python<'_>, text: &str) -> PyErr {
    mistaken(py, text, "[]")
}

/// The same with the list of the mistakes, in JSON.
pub fn mistaken(py: Python<'_>, text: &str, mistakes: &str) -> PyErr {
    let made = || {
        let class = py.import("thalweg._errors")?.getattr("ConfigurationError")?;
        class.call1((text, mistakes))
    };
    made().map_or_else(|_: PyErr| PyValueError::new_err(text.to_owned()), PyErr::from_value)
}
