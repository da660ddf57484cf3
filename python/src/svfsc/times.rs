//! Times in the form of `svfsc`.

use std::time::{SystemTime, UNIX_EPOCH};

use pyo3::prelude::*;
use pyo3::types::PyDateTime;

/// Returns a `datetime` in UTC without a time zone.
pub fn naive<'py>(py: Python<'py>, time: Option<SystemTime>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let Some(time) = time else { return Ok(None) };
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let first = PyDateTime::new(py, 1970, 1, 1, 0, 0, 0, 0, None)?;
    let passed =
        py.import("datetime")?.call_method1("timedelta", (0, since.as_secs(), since.subsec_micros()))?;
    first.call_method1("__add__", (passed,)).map(Some)
}
