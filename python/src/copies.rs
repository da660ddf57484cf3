//! Copies of objects: the same options as `thalweg copy`, checked by the same code.

use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use thalweg_job::RunError;
use thalweg_job::copy::{Copied, CopyControl, CopyOptions, CopyProgress, copy as copy_objects};

use super::pipe::raised as load_error;
use crate::errors::Error;
use crate::logs;

/// Copies objects, and returns the fields of `CopySummary`. `options` are in JSON. `state` is a path, which
/// need not be Unicode.
///
/// `report` is called ten times a second with: bytes read, bytes expected, files or rows copied, files or
/// rows that failed, and seconds. An exception from it or from a signal handler stops the copy. It is raised
/// once data in flight is delivered.
#[pyfunction]
#[pyo3(signature = (options, state, report, /))]
pub fn copy<'py>(
    py: Python<'py>,
    options: &str,
    state: Option<PathBuf>,
    report: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let mut options = CopyOptions::from_json(options).map_err(|error| load_error(py, error))?;
    options.state.state = state;
    logs::begin(py)?;
    logs::show().map_err(|error| load_error(py, error))?;
    let mut raised: Option<PyErr> = None;
    let copied = py.detach(|| {
        copy_objects(&options, &mut |progress| {
            let asked = Python::attach(|py| ask(py, report.as_ref().filter(|_| raised.is_none()), progress));
            match (asked, &raised) {
                (Ok(()), None) => CopyControl::Continue,
                (Ok(()), Some(_)) => CopyControl::Stop,
                (Err(error), None) => {
                    raised = Some(error);
                    CopyControl::Stop
                }
                // The second interrupt does not wait for data in flight.
                (Err(_), Some(_)) => CopyControl::Abort,
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

fn ask(py: Python<'_>, report: Option<&Py<PyAny>>, progress: CopyProgress) -> PyResult<()> {
    py.check_signals()?;
    let Some(report) = report else { return Ok(()) };
    let CopyProgress { read_bytes, expected_bytes, copied, errors, elapsed } = progress;
    report.bind(py).call1((read_bytes, expected_bytes, copied, errors, elapsed.as_secs_f64())).map(drop)
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
    summary.set_item("resumed", copied.resumed)?;
    summary.set_item("planned", &copied.planned)?;
    summary.set_item("failure", &copied.failure)?;
    Ok(summary)
}
