//! Conversion of arguments, exactly as strict as `svfsc`, with the same messages for wrong ones.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple};
use thalweg_sparse::Span;

use crate::fresh::wrapped;

fn wrong(number: usize, wanted: &str, given: &Bound<'_, PyAny>) -> PyErr {
    let class = given.get_type();
    let name = class.name().map_or_else(|_| "?".to_owned(), |name| name.to_string());
    PyTypeError::new_err(format!("argument {number} must be {wanted}, not {name}"))
}

/// An `int`, modulo 2^64.
#[inline]
pub fn unsigned(given: &Bound<'_, PyAny>, number: usize) -> PyResult<u64> {
    wrapped(given).ok_or_else(|| wrong(number, "int", given))
}

/// A text without NUL characters.
pub fn text<'a>(given: &'a Bound<'_, PyAny>, number: usize) -> PyResult<&'a str> {
    let text = given.cast::<PyString>().map_err(|_| wrong(number, "str", given))?.to_str()?;
    match text.contains('\0') {
        true => Err(PyValueError::new_err("embedded null character")),
        false => Ok(text),
    }
}

/// `bytes`; other objects with a buffer are rejected.
#[inline]
pub fn bytes<'a>(given: &'a Bound<'_, PyAny>, number: usize) -> PyResult<&'a [u8]> {
    given.cast::<PyBytes>().map(|bytes| bytes.as_bytes()).map_err(|_| wrong(number, "bytes", given))
}

/// A list of tuples of position and length.
pub fn seek_reads(given: &Bound<'_, PyAny>) -> PyResult<Vec<Span>> {
    const WHERE: &str = "cp_SparseVirtualFile_need_many_internal:";
    let wrong = |what: String| PyTypeError::new_err(format!("{WHERE} {what}"));
    let list = given.cast::<PyList>().map_err(|_| wrong("seek_reads is not a list.".to_owned()))?;
    let mut spans = Vec::with_capacity(list.len());
    for (at, item) in list.iter().enumerate() {
        let pair = item.cast::<PyTuple>().map_err(|_| wrong(format!("seek_reads[{at}] is not a tuple.")))?;
        if pair.len() != 2 {
            return Err(wrong(format!("seek_reads[{at}] length {} is not a tuple of length 2.", pair.len())));
        }
        let (position, length) = (pair.get_borrowed_item(0)?, pair.get_borrowed_item(1)?);
        match (wrapped(&position), wrapped(&length)) {
            (Some(position), Some(length)) => spans.push(Span::new(position, length)),
            _ => return Err(wrong(format!("can not parse list element[{at}]."))),
        }
    }
    Ok(spans)
}
