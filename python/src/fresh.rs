//! Bytes objects that are filled in place, without being zeroed first.

#![allow(unsafe_code, reason = "the bindings zero a bytes object before they expose it")]

use std::slice;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// From this length on, in bytes, a copy takes longer than releasing and reacquiring the interpreter lock.
/// That takes about a microsecond if no other thread wants the lock.
pub const LONG: usize = 64 << 10;

/// Returns a new bytes object, whose bytes `fill` writes. If `fill` fails, the object is dropped.
///
/// # Errors
/// `MemoryError` or `OverflowError` if the object cannot be allocated. The error of `fill` is the inner
/// result.
pub fn bytes_with<'py, E>(
    py: Python<'py>,
    length: usize,
    fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
) -> PyResult<Result<Bound<'py, PyBytes>, E>> {
    let size = ffi::Py_ssize_t::try_from(length)?;
    // SAFETY: the interpreter is attached; the function returns a new reference, or null with an exception
    // set.
    let made =
        unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyBytes_FromStringAndSize(std::ptr::null(), size))? };
    // SAFETY: this is a bytes object to which no other reference exists yet. Its bytes are allocated but have
    // arbitrary values, which do not matter because `fill` overwrites them.
    let filled =
        unsafe { fill(slice::from_raw_parts_mut(ffi::PyBytes_AsString(made.as_ptr()).cast::<u8>(), length)) };
    // SAFETY: the object was created as `bytes` above.
    Ok(filled.map(|()| unsafe { made.cast_into_unchecked() }))
}

/// Returns the value of an `int`, modulo 2^64; `None` if the object is no `int`.
pub fn wrapped(object: &Bound<'_, PyAny>) -> Option<u64> {
    object.is_instance_of::<pyo3::types::PyInt>().then(|| {
        // SAFETY: the object is an `int`, for which this call cannot fail.
        unsafe { ffi::PyLong_AsUnsignedLongLongMask(object.as_ptr()) }
    })
}
