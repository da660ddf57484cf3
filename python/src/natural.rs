//! Numbers that cannot be negative, with errors that name the argument.

use pyo3::exceptions::{PyOverflowError, PyValueError};
use pyo3::prelude::*;

use crate::errors::configuration_error;

/// An argument that must be a whole number from 0 on. It is checked when it is used, because only then its
/// name is known.
pub struct Natural(Result<u64, String>);

impl<'py> FromPyObject<'_, 'py> for Natural {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        match object.extract::<u64>() {
            Ok(number) => Ok(Self(Ok(number))),
            Err(error) if error.is_instance_of::<PyOverflowError>(object.py()) => {
                Ok(Self(Err(object.str()?.to_string())))
            }
            Err(error) => Err(error),
        }
    }
}

impl From<u64> for Natural {
    fn from(number: u64) -> Self {
        Self(Ok(number))
    }
}

impl Natural {
    /// Returns the number, which is an option.
    ///
    /// # Errors
    /// `ConfigurationError`, a `ValueError`, if the number is negative or too large.
    pub fn option<T: TryFrom<u64>>(self, py: Python<'_>, name: &str) -> PyResult<T> {
        self.checked(name).map_err(|why| configuration_error(py, &why))
    }

    /// Returns the number, which is an argument of a call.
    ///
    /// # Errors
    /// `ValueError` if the number is negative or too large.
    pub fn get<T: TryFrom<u64>>(self, name: &str) -> PyResult<T> {
        self.checked(name).map_err(PyValueError::new_err)
    }

    fn checked<T: TryFrom<u64>>(self, name: &str) -> Result<T, String> {
        let text = match self.0 {
            Ok(number) => match T::try_from(number) {
                Ok(number) => return Ok(number),
                Err(_) => number.to_string(),
            },
            Err(text) => text,
        };
        let why = if text.starts_with('-') { "it must be 0 or more" } else { "it is too large" };
        Err(format!("`{name}` is {text}: {why}"))
    }
}
