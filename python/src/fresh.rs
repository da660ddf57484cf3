//! Bytes objects that are filled where they are, without being made zero before.

#![allow(unsafe_code, reason = "the bindings fill a bytes object with zeroes before they show it")]

use std::slice;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// From so many bytes on, copying them takes longer than letting go of the interpreter lock and getting it again, which is
/// about a microsecond when nobody waits for it.
pub const LONG: usize = 64 << 10;

/// A new bytes object, whose bytes `fill` writes. If it fails, the object is thrown away.
///
/// # Errors
/// `MemoryError` or `OverflowError` if there cannot be so many bytes; what `fill` says is within.
pub fn bytes_with<'py, E>(
    py: Python<'py>,
    length: usize,
    fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
) -> PyResult<Result<Bound<'py, PyBytes>, E>> {
    let size = ffi::Py_ssize_t::try_from(length)?;
    // SAFETY: the interpreter is attached; what it gives is a new reference, or none with an exception set.
    let made =
        unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyBytes_FromStringAndSize(std::ptr::null(), size))? };
    // SAFETY: it is a bytes object, which nobody else has yet. Its bytes are there, if with any values, and `fill` has no use for
    // these: it is to write them.
    let filled =
        unsafe { fill(slice::from_raw_parts_mut(ffi::PyBytes_AsString(made.as_ptr()).cast::<u8>(), length)) };
    // SAFETY: it is a bytes object.
    Ok(filled.map(|()| unsafe { made.cast_into_unchecked() }))
}

/// The number of an `int`, modulo 2^64; none if it is no `int`.
pub fn wrapped(object: &Bound<'_, PyAny>) -> Option<u64> {
    object.is_instance_of::<pyo3::types::PyInt>().then(|| {
        // SAFETY: it is an `int`, for which this cannot fail.
        unsafe { ffi::PyLong_AsUnsignedLongLongMask(object.as_ptr()) }
    })
}
