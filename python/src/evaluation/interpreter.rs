//! Functions of the interpreter that its bindings leave out: sending into a coroutine, and contexts.
//!
//! `PyIter_Send` is in the stable ABI since Python 3.10. The functions for contexts are public, with the same
//! signatures since 3.7, but not in the stable ABI. `PyObject_VectorcallMethod` and `PyObject_Vectorcall` are
//! public since 3.9 and in the stable ABI since 3.12. They are therefore declared here.

#![allow(unsafe_code, reason = "functions of the interpreter that its bindings leave out")]

use std::ffi::c_int;
use std::ptr;

use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple, PyType};

unsafe extern "C" {
    fn PyContext_CopyCurrent() -> *mut ffi::PyObject;
    fn PyContext_Enter(context: *mut ffi::PyObject) -> c_int;
    fn PyContext_Exit(context: *mut ffi::PyObject) -> c_int;
    fn PyObject_Vectorcall(
        callable: *mut ffi::PyObject,
        arguments: *const *mut ffi::PyObject,
        positional: usize,
        names: *mut ffi::PyObject,
    ) -> *mut ffi::PyObject;
    fn PyObject_VectorcallMethod(
        name: *mut ffi::PyObject,
        arguments: *const *mut ffi::PyObject,
        positional: usize,
        names: *mut ffi::PyObject,
    ) -> *mut ffi::PyObject;
}

/// How a coroutine responded to a send.
pub enum Sent<'py> {
    /// It ended with this result.
    Returned(Bound<'py, PyAny>),
    /// It waits for this object.
    Waits(Bound<'py, PyAny>),
    /// It failed.
    Raised(PyErr),
}

/// Runs a coroutine until it waits or ends. No `StopIteration` is created for its result.
#[inline]
pub fn send<'py>(coroutine: &Bound<'py, PyAny>) -> Sent<'py> {
    let py = coroutine.py();
    let mut result = ptr::null_mut();
    // SAFETY: all objects are alive, and the interpreter is attached. Unless there is an error, the result is
    // a new reference.
    unsafe {
        match ffi::PyIter_Send(coroutine.as_ptr(), ffi::Py_None(), &raw mut result) {
            ffi::PySendResult::PYGEN_RETURN => Sent::Returned(Bound::from_owned_ptr(py, result)),
            ffi::PySendResult::PYGEN_NEXT => Sent::Waits(Bound::from_owned_ptr(py, result)),
            ffi::PySendResult::PYGEN_ERROR => Sent::Raised(PyErr::fetch(py)),
        }
    }
}

/// Calls a method with at most two positional and one named argument, without creating a tuple or a
/// dictionary.
///
/// # Errors
/// The exception of the method.
pub fn call_method<'py>(
    object: &Bound<'py, PyAny>,
    method: &Bound<'py, PyString>,
    positional: &[&Bound<'py, PyAny>],
    names: &Bound<'py, PyTuple>,
    named: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let arguments = match *positional {
        [first, second] => [object.as_ptr(), first.as_ptr(), second.as_ptr(), named.as_ptr()],
        [first] => [object.as_ptr(), first.as_ptr(), named.as_ptr(), ptr::null_mut()],
        _ => return Err(PyTypeError::new_err("one or two positional arguments are expected")),
    };
    let count = positional.len() + 1;
    // SAFETY: all objects are alive, the count of arguments is right, and the interpreter is attached. The
    // result is a new reference, or null with an exception set.
    unsafe {
        let result = PyObject_VectorcallMethod(method.as_ptr(), arguments.as_ptr(), count, names.as_ptr());
        Bound::from_owned_ptr_or_err(object.py(), result)
    }
}

/// Calls a method without arguments. The method of the bindings would first create a bound method.
///
/// # Errors
/// The exception of the method.
pub fn ask<'py>(object: &Bound<'py, PyAny>, method: &Bound<'py, PyString>) -> PyResult<Bound<'py, PyAny>> {
    let arguments = [object.as_ptr()];
    // SAFETY: the objects are alive, the count of arguments is right, and the interpreter is attached. The
    // result is a new reference, or null with an exception set.
    unsafe {
        let result = PyObject_VectorcallMethod(method.as_ptr(), arguments.as_ptr(), 1, ptr::null_mut());
        Bound::from_owned_ptr_or_err(object.py(), result)
    }
}

/// Calls a method with one argument, as [`ask`].
///
/// # Errors
/// The exception of the method.
pub fn tell<'py>(
    object: &Bound<'py, PyAny>,
    method: &Bound<'py, PyString>,
    argument: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let arguments = [object.as_ptr(), argument.as_ptr()];
    // SAFETY: as in `ask`.
    unsafe {
        let result = PyObject_VectorcallMethod(method.as_ptr(), arguments.as_ptr(), 2, ptr::null_mut());
        Bound::from_owned_ptr_or_err(object.py(), result)
    }
}

/// Calls an object with one argument, without creating a tuple.
///
/// # Errors
/// The exception of the call.
pub fn call_with<'py>(
    object: &Bound<'py, PyAny>,
    argument: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let arguments = [argument.as_ptr()];
    // SAFETY: as in `ask`.
    unsafe {
        let result = PyObject_Vectorcall(object.as_ptr(), arguments.as_ptr(), 1, ptr::null_mut());
        Bound::from_owned_ptr_or_err(object.py(), result)
    }
}

/// Creates an instance of a class without calling its `__init__`.
///
/// # Errors
/// `MemoryError`; `TypeError` if the class has no `__new__`.
pub fn create<'py>(
    class: &Bound<'py, PyType>,
    arguments: &Bound<'py, PyTuple>,
) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: this slot of a type holds a function of this signature or null. All objects are alive, and the
    // interpreter is attached. The result is a new reference, or null with an exception set.
    unsafe {
        let found = ffi::PyType_GetSlot(class.as_type_ptr(), ffi::Py_tp_new);
        let found: Option<ffi::newfunc> = std::mem::transmute(found);
        match found {
            Some(new) => {
                let made = new(class.as_type_ptr(), arguments.as_ptr(), ptr::null_mut());
                Bound::from_owned_ptr_or_err(class.py(), made)
            }
            None => Err(PyTypeError::new_err("the class has no `__new__`")),
        }
    }
}

/// Calls the `__init__` of a built-in class on an instance of it, without an attribute lookup.
///
/// # Errors
/// The exception of `__init__`; `TypeError` if the class has none.
pub fn initialise<'py>(
    class: &Bound<'py, PyType>,
    object: &Bound<'py, PyAny>,
    arguments: &Bound<'py, PyTuple>,
    keywords: &Bound<'py, PyDict>,
) -> PyResult<()> {
    if !object.is_instance(class)? {
        return Err(PyTypeError::new_err("the object is not an instance of the class"));
    }
    // SAFETY: this slot of a type holds a function of this signature or null, and the object is an instance
    // of the type. Both are alive, and the interpreter is attached.
    let result = unsafe {
        let found = ffi::PyType_GetSlot(class.as_type_ptr(), ffi::Py_tp_init);
        let found: Option<ffi::initproc> = std::mem::transmute(found);
        found.map(|init| init(object.as_ptr(), arguments.as_ptr(), keywords.as_ptr()))
    };
    match result {
        Some(0) => Ok(()),
        Some(_) => Err(PyErr::fetch(class.py())),
        None => Err(PyTypeError::new_err("the class has no `__init__`")),
    }
}

/// True if the caller holds the only reference to an object.
pub fn is_unshared<T>(object: &Bound<'_, T>) -> bool {
    // SAFETY: the object is alive, and the interpreter is attached.
    unsafe { ffi::Py_REFCNT(object.as_ptr()) == 1 }
}

/// Returns the object that the interpreter has noted under a name for this thread.
pub fn thread_note<'py>(name: &Bound<'py, PyString>) -> Option<Bound<'py, PyAny>> {
    // SAFETY: the interpreter is attached. Both functions return borrowed references or null; a string as the
    // key raises no error.
    unsafe {
        let notes = ffi::PyThreadState_GetDict();
        if notes.is_null() {
            return None;
        }
        let note = ffi::PyDict_GetItemWithError(notes, name.as_ptr());
        Bound::from_borrowed_ptr_or_opt(name.py(), note)
    }
}

/// A context: the values of context variables for one piece of code.
pub struct Context<'py>(Bound<'py, PyAny>);

impl<'py> Context<'py> {
    /// Copies the current context. The time does not depend on the number of variables.
    ///
    /// # Errors
    /// `MemoryError`.
    pub fn copy(py: Python<'py>) -> PyResult<Self> {
        // SAFETY: the interpreter is attached; the result is a new reference, or null with an exception set.
        unsafe { Bound::from_owned_ptr_or_err(py, PyContext_CopyCurrent()).map(Self) }
    }

    /// Wraps an object that was received as a context. Entering one that is none raises `TypeError`.
    pub fn of(context: Bound<'py, PyAny>) -> Self {
        Self(context)
    }

    /// Calls `work` in this context.
    ///
    /// # Errors
    /// `RuntimeError` if the context is already entered.
    #[inline]
    pub fn within<T>(&self, work: impl FnOnce() -> T) -> PyResult<T> {
        let py = self.0.py();
        // SAFETY: the object is a context, and the interpreter is attached.
        if unsafe { PyContext_Enter(self.0.as_ptr()) } != 0 {
            return Err(PyErr::fetch(py));
        }
        let result = work();
        // SAFETY: as above; the context was entered.
        if unsafe { PyContext_Exit(self.0.as_ptr()) } != 0 {
            return Err(PyErr::fetch(py));
        }
        Ok(result)
    }

    /// Returns the Python object.
    pub fn into_inner(self) -> Bound<'py, PyAny> {
        self.0
    }
}
