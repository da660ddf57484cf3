//! The bytes of Python objects: `bytes`, `bytearray`, `memoryview`, arrays.
//!
//! The buffer protocol is in the stable ABI from Python 3.11 on only. In 3.10 the same functions and the same structure are there, without
//! the promise; so they are declared here, where one build shall serve both. Copying through `bytes` was rejected: who reads
//! into an array does so in order not to copy.

#![allow(unsafe_code, reason = "functions of the interpreter that its bindings leave out")]

use std::ffi::{c_char, c_int, c_void};
use std::marker::PhantomData;
use std::{ptr, slice};

use pyo3::ffi;
use pyo3::prelude::*;

/// `Py_buffer`, as `Include/pybuffer.h` has it since Python 3.11 and `Include/object.h` before.
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

/// The bytes of an object, which stays as it is while they are held.
pub struct Buffer<'py> {
    // The interpreter may note the place of the structure, so it must not move.
    view: Box<View>,
    attached: PhantomData<Python<'py>>,
}

impl<'py> Buffer<'py> {
    /// The bytes of an object, to be read.
    ///
    /// # Errors
    /// `TypeError` if it has none, `BufferError` if they are not in one piece.
    pub fn readable(object: &Bound<'py, PyAny>) -> PyResult<Self> {
        Self::of(object, READABLE)
    }

    /// The bytes of an object, to be written.
    ///
    /// # Errors
    /// `TypeError` if it has none, `BufferError` if they are not in one piece, or are not to be written.
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
        // SAFETY: the object is alive, the interpreter is attached, and the structure is as it expects.
        match unsafe { PyObject_GetBuffer(object.as_ptr(), &raw mut *view, flags) } {
            0 => Ok(Self { view, attached: PhantomData }),
            _ => Err(PyErr::fetch(object.py())),
        }
    }

    /// How many bytes there are.
    pub fn len(&self) -> usize {
        usize::try_from(self.view.length).unwrap_or_default()
    }

    /// The bytes. Nobody may write them meanwhile: as with all of Python's own functions that let go of the interpreter
    /// lock while they read a buffer, that is up to the caller.
    pub fn bytes(&self) -> &[u8] {
        if self.len() == 0 {
            return &[];
        }
        // SAFETY: while the view is held, so many bytes are there.
        unsafe { slice::from_raw_parts(self.view.bytes.cast(), self.len()) }
    }

    /// The bytes, to be written; of a buffer that is [`writable`](Self::writable).
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        if self.len() == 0 || self.view.readonly != 0 {
            return &mut [];
        }
        // SAFETY: while the view is held, so many bytes are there, and they may be written.
        unsafe { slice::from_raw_parts_mut(self.view.bytes.cast(), self.len()) }
    }
}

impl Drop for Buffer<'_> {
    fn drop(&mut self) {
        // SAFETY: it was got and not given back; the lifetime says that the interpreter is attached.
        unsafe { PyBuffer_Release(&raw mut *self.view) };
    }
}
