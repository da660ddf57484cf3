//! The bytes of Python objects: `bytes`, `bytearray`, `memoryview`, arrays.
//!
//! The buffer protocol is part of the stable ABI only since Python 3.11. Python 3.10 has the same functions
//! and the same structure, without the promise. They are declared here, so that one build serves both.
//! Copying through `bytes` was rejected: callers read into an array to avoid a copy.
//!
//! See docs/decisions/045-the-python-package-is-part-of-the-product.md.

#![allow(unsafe_code, reason = "functions of the interpreter that its bindings leave out")]

use std::ffi::{c_char, c_int, c_void};
use std::marker::PhantomData;
use std::{ptr, slice};

use pyo3::ffi;
use pyo3::prelude::*;

/// `Py_buffer`, as declared in `Include/pybuffer.h` since Python 3.11 and in `Include/object.h` before.
#[repr(C)]
struct View {
    bytes: *mut c_void,
    object: *mut ffi::PyObject,
    length: ffi::Py_ssize_t,
    item_size: ffi::Py_ssize_t,
    readonly: c_int,
    dimensions: c_int,
    format: *mut c_char,
    shape: *mut ffi::Py_ssize_t,
    strides: *mut ffi::Py_ssize_t,
    suboffsets: *mut ffi::Py_ssize_t,
    internal: *mut c_void,
}

unsafe extern "C" {
    fn PyObject_GetBuffer(object: *mut ffi::PyObject, view: *mut View, flags: c_int) -> c_int;
    fn PyBuffer_Release(view: *mut View);
}

/// `PyBUF_SIMPLE`: contiguous bytes.
const READABLE: c_int = 0;
/// `PyBUF_WRITABLE`.
const WRITABLE: c_int = 1;

/// The bytes of an object. The object cannot resize or free them while this view exists.
pub struct Buffer<'py> {
    // The interpreter may keep the address of the structure, so it must not move.
    view: Box<View>,
    attached: PhantomData<Python<'py>>,
}

impl<'py> Buffer<'py> {
    /// Returns the bytes of an object, for reading.
    ///
    /// # Errors
    /// `TypeError` if the object has no buffer, `BufferError` if the buffer is not contiguous.
    pub fn readable(object: &Bound<'py, PyAny>) -> PyResult<Self> {
        Self::of(object, READABLE)
    }

    /// Returns the bytes of an object, for writing.
    ///
    /// # Errors
    /// `TypeError` if the object has no buffer, `BufferError` if the buffer is not contiguous or is
    /// read-only.
    pub fn writable(object: &Bound<'py, PyAny>) -> PyResult<Self> {
        Self::of(object, WRITABLE)
    }

    fn of(object: &Bound<'py, PyAny>, flags: c_int) -> PyResult<Self> {
        let mut view = Box::new(View {
            bytes: ptr::null_mut(),
            object: ptr::null_mut(),
            length: 0,
            item_size: 0,
            readonly: 0,
            dimensions: 0,
            format: ptr::null_mut(),
            shape: ptr::null_mut(),
            strides: ptr::null_mut(),
            suboffsets: ptr::null_mut(),
            internal: ptr::null_mut(),
        });
        // SAFETY: the object is alive, the interpreter is attached, and the structure has the expected
        // layout.
        match unsafe { PyObject_GetBuffer(object.as_ptr(), &raw mut *view, flags) } {
            0 => Ok(Self { view, attached: PhantomData }),
            _ => Err(PyErr::fetch(object.py())),
        }
    }

    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        usize::try_from(self.view.length).unwrap_or_default()
    }

    /// Returns the bytes. The caller must make sure that no other thread writes them meanwhile. The same
    /// holds for Python's own functions that release the interpreter lock while they read a buffer.
    pub fn bytes(&self) -> &[u8] {
        if self.len() == 0 {
            return &[];
        }
        // SAFETY: while the view is held, this number of bytes is readable.
        unsafe { slice::from_raw_parts(self.view.bytes.cast(), self.len()) }
    }

    /// Returns the bytes for writing. Empty unless the buffer is [`writable`](Self::writable).
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        if self.len() == 0 || self.view.readonly != 0 {
            return &mut [];
        }
        // SAFETY: while the view is held, this number of bytes is readable and writable.
        unsafe { slice::from_raw_parts_mut(self.view.bytes.cast(), self.len()) }
    }
}

impl Drop for Buffer<'_> {
    fn drop(&mut self) {
        // SAFETY: the view was acquired and not yet released; the lifetime proves that the interpreter is
        // attached.
        unsafe { PyBuffer_Release(&raw mut *self.view) };
    }
}
