//! The statistics of a remote file, for Python.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use thalweg_sparse::RemoteFile;

/// Returns the statistics by name; times in seconds.
///
/// # Errors
/// `MemoryError`.
pub fn dictionary<'py>(py: Python<'py>, file: &RemoteFile) -> PyResult<Bound<'py, PyDict>> {
    let done = file.statistics();
    let made = PyDict::new(py);
    for (name, count) in [
        ("requests", done.requests),
        ("retries", done.retries),
        ("fetched", done.fetched),
        ("fetched_ahead", done.fetched_ahead),
        ("cached", done.cached),
        ("restarts", done.restarts),
        ("held", file.held().bytes()),
    ] {
        made.set_item(name, count)?;
    }
    made.set_item("latency", done.latency.map(|latency| latency.as_secs_f64()))?;
    made.set_item("bandwidth", done.bandwidth)?;
    made.set_item("cache_error", file.cache_error())?;
    Ok(made)
}
