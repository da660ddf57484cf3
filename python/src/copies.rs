//! Copies of objects: the same options as `thalweg copy`, checked by the same code.

use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use thalweg_job::RunError;
use thalweg_job::copy::{Copied, CopyOptions, CopyProgress, Wish, copy as copy_objects};

use super::pipe::raised as load_error;
use crate::errors::{Error, configuration_error};

/// Copies objects, and returns the fields of `CopySummary`. `options` are in JSON. `state` is a path, which
/// need not be Unicode.
///
/// `progress` is called ten times a second with: bytes read, bytes expected, files or rows copied, files or
/// rows that failed, and seconds. An exception from it or from a signal handler stops the copy. It is raised
/// once data in flight is delivered.
#[pyfunction]
#[pyo3(signature = (options, state, progress, /))]
pub fn copy<'py>(
    py: Python<'py>,
    options: &str,
    state: Option<PathBuf>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let mut options: CopyOptions =
        serde_json::from_str(options).map_err(|error| configuration_error(py, &error.to_string()))?;
    options.state.state = state;
    let mut raised: Option<PyErr> = None;
    let copied = py.detach(|| {
        copy_objects(&options, &mut |how_far| {
            let asked = Python::attach(|py| ask(py, progress.as_ref().filter(|_| raised.is_none()), how_far));
            match (asked, &raised) {
                (Ok(()), None) => Wish::Continue,
                (Ok(()), Some(_)) => Wish::Stop,
                (Err(error), None) => {
                    raised = Some(error);
                    Wish::Stop
                }
                // The second interrupt does not wait for data in flight.
                (Err(_), Some(_)) => Wish::Abort,
            }
        })
    });
    if let Some(raised) = raised {
        return Err(raised);
    }
    // A signal may have arrived when the copy ended.
    py.check_signals()?;
    match copied {
        Ok(copied) => summary(py, &copied),
        Err(RunError::Load(error)) => Err(load_error(py, error)),
        Err(RunError::Abandoned) => Err(Error::new_err(RunError::Abandoned.to_string())),
    }
}

/// The names of the options of a copy.
#[pyfunction]
pub fn copy_options() -> Vec<String> {
    CopyOptions::names()
}

fn ask(py: Python<'_>, progress: Option<&Py<PyAny>>, how_far: CopyProgress) -> PyResult<()> {
    py.check_signals()?;
    let Some(progress) = progress else { return Ok(()) };
    let CopyProgress { read_bytes, expected_bytes, copied, errors, elapsed } = how_far;
    progress.bind(py).call1((read_bytes, expected_bytes, copied, errors, elapsed.as_secs_f64())).map(drop)
}

fn summary<'py>(py: Python<'py>, copied: &Copied) -> PyResult<Bound<'py, PyDict>> {
    let figures = &copied.figures;
    let summary = PyDict::new(py);
    summary.set_item("objects", figures.read_objects)?;
    summary.set_item("files", (!figures.is_rows).then_some(figures.copied))?;
    summary.set_item("rows", figures.is_rows.then_some(figures.copied))?;
    summary.set_item("skipped", figures.skipped)?;
    summary.set_item("errors", figures.failed)?;
    summary.set_item("read_bytes", figures.read_bytes)?;
    summary.set_item("written_bytes", figures.written_bytes)?;
    summary.set_item("verified_bytes", figures.verified_bytes)?;
    summary.set_item("kept_bytes", figures.kept_bytes)?;
    summary.set_item("requests", figures.requests)?;
    summary.set_item("retries", figures.retries)?;
    summary.set_item("crc32c", figures.crc32c)?;
    summary.set_item("seconds", copied.elapsed.as_secs_f64())?;
    summary.set_item("went_on", copied.resumed)?;
    summary.set_item("planned", &copied.planned)?;
    summary.set_item("failure", &copied.failure)?;
    Ok(summary)
}
