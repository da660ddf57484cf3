//! The counters of a sparse file, for Python.

use std::time::{SystemTime, UNIX_EPOCH};

use pyo3::prelude::*;
use pyo3::types::PyDict;
use thalweg_sparse::Counters;

/// Returns the counters by name; times in seconds since 1970.
///
/// # Errors
/// `MemoryError`.
pub fn dictionary<'py>(py: Python<'py>, counters: &Counters) -> PyResult<Bound<'py, PyDict>> {
    let seconds =
        |time: Option<SystemTime>| Some(time?.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64());
    let made = PyDict::new(py);
    for (name, count) in [
        ("reads", counters.reads),
        ("writes", counters.writes),
        ("bytes_read", counters.bytes_read),
        ("bytes_written", counters.bytes_written),
        ("blocks_erased", counters.blocks_erased),
        ("bytes_erased", counters.bytes_erased),
        ("blocks_evicted", counters.blocks_evicted),
        ("bytes_evicted", counters.bytes_evicted),
    ] {
        made.set_item(name, count)?;
    }
    made.set_item("last_read", seconds(counters.last_read))?;
    made.set_item("last_write", seconds(counters.last_write))?;
    Ok(made)
}
