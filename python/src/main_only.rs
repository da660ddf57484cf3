//! The package works in the main interpreter only.
//!
//! Its threads attach to the main interpreter, and its classes belong to it. From Python 3.12 on, importing
//! the compiled part into another interpreter fails by itself. Python 3.10 and 3.11 hand out the classes of
//! the main interpreter instead, and crash later.

#![allow(unsafe_code, reason = "the bindings do not tell interpreters apart")]

use pyo3::exceptions::PyImportError;
use pyo3::ffi;
use pyo3::prelude::*;

/// Raises `ImportError` in a subinterpreter.
#[pyfunction]
pub fn main_only(py: Python<'_>) -> PyResult<()> {
    // A `Python` token proves that this thread is attached to an interpreter.
    let _ = py;
    // SAFETY: the thread is attached, so there is a current interpreter.
    let id = unsafe { ffi::PyInterpreterState_GetID(ffi::PyInterpreterState_Get()) };
    if id == 0 {
        return Ok(());
    }
    Err(PyImportError::new_err(
        "thalweg works in the main interpreter only, not in a subinterpreter; use a process or a thread",
    ))
}
