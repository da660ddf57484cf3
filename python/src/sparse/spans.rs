//! Ranges of files: in Python a tuple of position and length.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use thalweg_sparse::Span;

use crate::natural::Natural;

/// Converts a tuple of position and length into a range.
///
/// # Errors
/// `TypeError` if the object is no such tuple, `ValueError` if a number is negative or beyond 64 bits.
pub fn span(given: &Bound<'_, PyAny>) -> PyResult<Span> {
    let wrong = || PyTypeError::new_err("a range is a tuple of two ints, the position and the length");
    let pair = given.cast::<PyTuple>().map_err(|_| wrong())?;
    if pair.len() != 2 {
        return Err(wrong());
    }
    let position: Natural = pair.get_borrowed_item(0)?.extract()?;
    let length: Natural = pair.get_borrowed_item(1)?.extract()?;
    Ok(Span::new(position.get("position")?, length.get("length")?))
}

/// Converts an iterable of such tuples into ranges.
///
/// # Errors
/// As for [`span`].
pub fn spans(given: &Bound<'_, PyAny>) -> PyResult<Vec<Span>> {
    match given.cast::<PyList>() {
        Ok(list) => list.iter().map(|item| span(&item)).collect(),
        Err(_) => given.try_iter()?.map(|item| span(&item?)).collect(),
    }
}

/// Returns a range as a tuple.
pub fn pair(span: &Span) -> (u64, u64) {
    (span.position, span.length)
}
