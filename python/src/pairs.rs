//! Ranges as Python objects, many at once: tuples of position and length.
//!
//! Most of the time of `need` and `blocks` is spent here. The bindings build each tuple by way of general
//! conversions. Neighbouring ranges often have the same length, which is then one object. The garbage
//! collector, which otherwise runs for every 700 new tuples, is paused: tuples of numbers are never garbage
//! in a cycle.

#![allow(unsafe_code, reason = "the bindings build tuples by way of general conversions")]

use pyo3::ffi::{self, Py_ssize_t, PyObject};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use thalweg_sparse::Span;

/// The number of ranges from which on the collector is paused.
const MANY: usize = 500;

/// Returns ranges as a list of tuples.
///
/// # Errors
/// `MemoryError`.
pub fn list<'py>(py: Python<'py>, spans: &[Span]) -> PyResult<Bound<'py, PyList>> {
    // SAFETY: the functions create a list and set an item of one.
    let made = unsafe { filled(py, spans, ffi::PyList_New, ffi::PyList_SetItem)? };
    Ok(made.cast_into()?)
}

/// Returns ranges as a tuple of tuples.
///
/// # Errors
/// `MemoryError`.
pub fn tuple<'py>(py: Python<'py>, spans: &[Span]) -> PyResult<Bound<'py, PyTuple>> {
    // SAFETY: the functions create a tuple and set an item of one.
    let made = unsafe { filled(py, spans, ffi::PyTuple_New, ffi::PyTuple_SetItem)? };
    Ok(made.cast_into()?)
}

/// Fills a new sequence with tuples.
///
/// # Safety
/// `create` returns a new sequence of a length. `set` sets an item of it, and takes over the reference.
unsafe fn filled<'py>(
    py: Python<'py>,
    spans: &[Span],
    create: unsafe extern "C" fn(Py_ssize_t) -> *mut PyObject,
    set: unsafe extern "C" fn(*mut PyObject, Py_ssize_t, *mut PyObject) -> i32,
) -> PyResult<Bound<'py, PyAny>> {
    let _paused = (spans.len() >= MANY).then(Paused::new);
    let mut length: Option<(u64, Bound<'py, PyAny>)> = None;
    // SAFETY: the interpreter is attached. Each reference has one owner: the sequence has those to the
    // tuples, and each tuple those to its numbers. `from_owned_ptr_or_err` checks for null.
    unsafe {
        let made = Bound::from_owned_ptr_or_err(py, create(spans.len() as Py_ssize_t))?;
        for (at, span) in spans.iter().enumerate() {
            let number = match &length {
                Some((value, number)) if *value == span.length => number,
                _ => {
                    let number = ffi::PyLong_FromUnsignedLongLong(span.length);
                    &length.insert((span.length, Bound::from_owned_ptr_or_err(py, number)?)).1
                }
            };
            let position = ffi::PyLong_FromUnsignedLongLong(span.position);
            let position = Bound::from_owned_ptr_or_err(py, position)?;
            let pair = Bound::from_owned_ptr_or_err(py, ffi::PyTuple_New(2))?;
            ffi::PyTuple_SetItem(pair.as_ptr(), 0, position.into_ptr());
            ffi::PyTuple_SetItem(pair.as_ptr(), 1, number.clone().into_ptr());
            set(made.as_ptr(), at as Py_ssize_t, pair.into_ptr());
        }
        Ok(made)
    }
}

/// Pauses the garbage collector while it lives, if it was running. The interpreter stays attached meanwhile.
struct Paused(bool);

impl Paused {
    fn new() -> Self {
        // SAFETY: the interpreter is attached.
        Self(unsafe { ffi::PyGC_Disable() } == 1)
    }
}

impl Drop for Paused {
    fn drop(&mut self) {
        if self.0 {
            // SAFETY: as in `new`.
            unsafe { ffi::PyGC_Enable() };
        }
    }
}
