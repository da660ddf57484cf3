//! Short methods without the general conversion of arguments, for calls that take a fraction of a
//! microsecond.
//!
//! The bindings convert arguments for any signature, count nested calls, and build results in two steps. For
//! a read of a few bytes that is a third of its time. A quick method handles only the frequent call:
//! positional arguments of exactly the types `int` and `bytes`, and success. For any other call it returns
//! nothing, and the method of the bindings, which it replaces in its class, runs instead. So both have the
//! same results and errors, and only one place knows them.
//!
//! Removing the bindings from these classes was rejected: every method would have to be written by hand.

#![allow(unsafe_code, reason = "functions of C without the bindings around them")]

use std::ffi::{CStr, CString};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicPtr, Ordering};

use pyo3::PyClass;
use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;
use pyo3::pyclass::boolean_struct::True;
use pyo3::types::{PyDict, PyString, PyTuple, PyType};
use thalweg_sparse::Span;

use crate::pairs;

/// A method in C, with positional arguments, and the names of those given by name behind them.
pub type Function = unsafe extern "C" fn(
    *mut PyObject,
    *const *mut PyObject,
    ffi::Py_ssize_t,
    *mut PyObject,
) -> *mut PyObject;

/// The method of the bindings that a quick method replaces.
pub struct Replaced(AtomicPtr<PyObject>);

impl Replaced {
    pub const fn none() -> Self {
        Self(AtomicPtr::new(std::ptr::null_mut()))
    }
}

/// The arguments of a call, all positional.
pub struct Arguments<'a, 'py>(Python<'py>, &'a [*mut PyObject]);

impl Arguments<'_, '_> {
    /// Returns these arguments if there are as many of them.
    #[inline]
    pub fn exactly(&self, count: usize) -> Option<&Self> {
        (self.1.len() == count).then_some(self)
    }

    /// Returns an argument if it is exactly an `int`, modulo 2^64.
    #[inline]
    pub fn wrapped(&self, at: usize) -> Option<u64> {
        let given = *self.1.get(at)?;
        // SAFETY: arguments are alive during the call. For an `int`, the conversion cannot fail.
        unsafe {
            let is_int = ffi::Py_TYPE(given) == &raw mut ffi::PyLong_Type;
            is_int.then(|| ffi::PyLong_AsUnsignedLongLongMask(given))
        }
    }

    /// Returns an argument if it is exactly an `int`, and from 0 to 2^63 - 1.
    #[inline]
    pub fn unsigned(&self, at: usize) -> Option<u64> {
        let given = *self.1.get(at)?;
        let mut overflow = 0;
        // SAFETY: as for `wrapped`; a number that is too large sets `overflow`, and no exception.
        let number = unsafe {
            if ffi::Py_TYPE(given) != &raw mut ffi::PyLong_Type {
                return None;
            }
            ffi::PyLong_AsLongLongAndOverflow(given, &raw mut overflow)
        };
        if overflow == 0 { u64::try_from(number).ok() } else { None }
    }

    /// Returns the bytes of an argument if it is exactly a `bytes`.
    #[inline]
    pub fn bytes(&self, at: usize) -> Option<&[u8]> {
        let given = *self.1.get(at)?;
        // SAFETY: as for `wrapped`; the bytes of the object do not change and live as long as it does.
        unsafe {
            if ffi::Py_TYPE(given) != &raw mut ffi::PyBytes_Type {
                return None;
            }
            let length = usize::try_from(ffi::PyBytes_Size(given)).ok()?;
            Some(std::slice::from_raw_parts(ffi::PyBytes_AsString(given).cast::<u8>(), length))
        }
    }
}

/// The result of a quick method.
pub struct Made(*mut PyObject);

impl Arguments<'_, '_> {
    /// Returns a `bytes` with a copy of these bytes, if there is memory for it.
    #[inline]
    pub fn made(&self, bytes: &[u8]) -> Option<Made> {
        let length = ffi::Py_ssize_t::try_from(bytes.len()).ok()?;
        // SAFETY: the interpreter is attached, and the bytes are readable. No Python code runs here.
        let made = unsafe { ffi::PyBytes_FromStringAndSize(bytes.as_ptr().cast(), length) };
        if made.is_null() {
            drop(PyErr::take(self.0));
            return None;
        }
        Some(Made(made))
    }

    /// Returns ranges as a list of tuples, if there is memory for it.
    #[inline]
    pub fn list(&self, spans: &[Span]) -> Option<Made> {
        pairs::list(self.0, spans).ok().map(|list| Made(list.into_ptr()))
    }

    /// Returns `True` or `False` of Python.
    #[inline]
    pub fn truth(&self, value: bool) -> Made {
        // SAFETY: the interpreter is attached.
        Made(unsafe { ffi::PyBool_FromLong(value.into()) })
    }

    /// Returns `None` of Python.
    #[inline]
    pub fn none(&self) -> Made {
        // SAFETY: the interpreter is attached.
        Made(unsafe { ffi::Py_NewRef(ffi::Py_None()) })
    }
}

/// Calls a quick method with the object, or the replaced method with the same arguments.
///
/// # Safety
/// The interpreter calls a [`Function`] of the class `C` with these arguments.
#[inline]
pub unsafe fn call<C: PyClass<Frozen = True> + Sync>(
    replaced: &Replaced,
    (object, given, count, names): (*mut PyObject, *const *mut PyObject, ffi::Py_ssize_t, *mut PyObject),
    quick: impl FnOnce(&C, &Arguments<'_, '_>) -> Option<Made>,
) -> *mut PyObject {
    // SAFETY: the interpreter is attached while it calls.
    let py = unsafe { Python::assume_attached() };
    let count = usize::try_from(count).unwrap_or_default();
    let called = catch_unwind(AssertUnwindSafe(|| {
        if !names.is_null() {
            return None;
        }
        // SAFETY: the interpreter passes this many arguments; none at all may be a null pointer.
        let given = if count == 0 { &[][..] } else { unsafe { std::slice::from_raw_parts(given, count) } };
        // SAFETY: the descriptor of a method checks that the object is of its class.
        let object = unsafe { Borrowed::from_ptr(py, object).cast_unchecked::<C>() };
        quick(object.get(), &Arguments(py, given))
    }));
    match called {
        Ok(Some(Made(made))) => made,
        // SAFETY: as for this function.
        _ => unsafe { slowly(py, replaced, (object, given, count, names)) },
    }
}

/// Calls the replaced method.
///
/// # Safety
/// As for [`call`].
#[cold]
unsafe fn slowly(
    py: Python<'_>,
    replaced: &Replaced,
    (object, given, count, names): (*mut PyObject, *const *mut PyObject, usize, *mut PyObject),
) -> *mut PyObject {
    let made = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: the pointers are to objects that are alive during the call, or null.
        let (method, object, names) = unsafe {
            let method = Bound::from_borrowed_ptr(py, replaced.0.load(Ordering::Acquire));
            (method, Bound::from_borrowed_ptr(py, object), Bound::from_borrowed_ptr_or_opt(py, names))
        };
        let names = names.map(|names| names.cast_into::<PyTuple>()).transpose()?;
        let named = names.as_ref().map_or(0, |names| names.len());
        let argument = |at: usize| {
            // SAFETY: there are `count` positional arguments, and behind them one for each name.
            unsafe { Bound::from_borrowed_ptr(py, *given.add(at)) }
        };
        let positional = std::iter::once(object).chain((0..count).map(argument));
        let positional = PyTuple::new(py, positional.collect::<Vec<_>>())?;
        let keywords = PyDict::new(py);
        for at in 0..named {
            let name = names.as_ref().map(|names| names.get_item(at)).transpose()?;
            keywords.set_item(name, argument(count + at))?;
        }
        method.call(positional, Some(&keywords))
    }));
    match made {
        Ok(Ok(made)) => made.into_ptr(),
        Ok(Err(raised)) => {
            raised.restore(py);
            std::ptr::null_mut()
        }
        Err(_) => {
            pyo3::exceptions::PySystemError::new_err("a method panicked").restore(py);
            std::ptr::null_mut()
        }
    }
}

/// Replaces a method of a class by a quick one with the same name, signature and text, once in a process.
///
/// # Errors
/// If the class has no such method.
pub fn install(
    class: &Bound<'_, PyType>,
    name: &CStr,
    function: Function,
    replaced: &'static Replaced,
) -> PyResult<()> {
    if !replaced.0.load(Ordering::Acquire).is_null() {
        return Ok(());
    }
    let py = class.py();
    let attribute = PyString::new(py, &name.to_string_lossy());
    let method = class.getattr(&attribute)?;
    let text = |name: &str| method.getattr(name)?.extract::<Option<String>>();
    let (signature, about) = (text("__text_signature__")?, text("__doc__")?);
    let name_text = attribute.to_str()?;
    let about = format!("{name_text}{}\n--\n\n{}", signature.unwrap_or_default(), about.unwrap_or_default());
    // A method lives as long as its class, which is as long as the process.
    let definition = Box::leak(Box::new(ffi::PyMethodDef {
        ml_name: name.as_ptr(),
        ml_meth: ffi::PyMethodDefPointer { PyCFunctionFastWithKeywords: function },
        ml_flags: ffi::METH_FASTCALL | ffi::METH_KEYWORDS,
        ml_doc: CString::new(about)?.into_raw(),
    }));
    // SAFETY: the definition has the form that its flags name, and lives for ever.
    let made =
        unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyDescr_NewMethod(class.as_type_ptr(), definition))? };
    replaced.0.store(method.into_ptr(), Ordering::Release);
    class.setattr(&attribute, made)
}

/// Replaces a method of a class by a quick one: a function of the class with a call's arguments.
macro_rules! method {
    ($py:expr, $class:ty, $name:expr, $quick:ident) => {{
        static REPLACED: $crate::quick::Replaced = $crate::quick::Replaced::none();
        #[allow(unsafe_code, reason = "the interpreter calls it")]
        unsafe extern "C" fn function(
            object: *mut pyo3::ffi::PyObject,
            given: *const *mut pyo3::ffi::PyObject,
            count: pyo3::ffi::Py_ssize_t,
            names: *mut pyo3::ffi::PyObject,
        ) -> *mut pyo3::ffi::PyObject {
            // SAFETY: `install` makes it a method of this class, and only the interpreter calls it.
            unsafe {
                $crate::quick::call::<$class>(&REPLACED, (object, given, count, names), |object, given| {
                    object.$quick(given)
                })
            }
        }
        $crate::quick::install(&$py.get_type::<$class>(), $name, function, &REPLACED)
    }};
}
pub(crate) use method;
