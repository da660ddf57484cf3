//! The function `copy`, which does what the command `thalweg copy` does.
//!
//! Python turns each option into an argument of the command. The command alone defines what options mean and
//! reports wrong ones.

use std::ffi::OsString;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use thalweg::{Copied, CopyProgress, NotCopied, Wish};

use crate::errors::{Error, configuration_error};

/// Copies, and returns the result as a dictionary with the names of the fields of `CopySummary`.
///
/// `progress` is called a few times a second with: bytes read, bytes expected, number copied, number of
/// errors, and seconds. An exception from `progress` or from a signal handler stops the copy. It is raised
/// once the transfers in flight are delivered.
#[pyfunction]
#[pyo3(signature = (arguments, progress, /))]
pub fn copy<'py>(
    py: Python<'py>,
    arguments: Vec<OsString>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let mut raised: Option<PyErr> = None;
    let copied = py.detach(|| {
        thalweg::copy(arguments, &mut |how_far| {
            let asked = Python::attach(|py| ask(py, progress.as_ref().filter(|_| raised.is_none()), how_far));
            match (asked, &raised) {
                (Ok(()), None) => Wish::GoOn,
                (Ok(()), Some(_)) => Wish::Stop,
                (Err(error), None) => {
                    raised = Some(error);
                    Wish::Stop
                }
                // The second interrupt: the user does not want to wait for transfers in flight.
                (Err(_), Some(_)) => Wish::Abort,
            }
        })
    });
    if let Some(raised) = raised {
        return Err(raised);
    }
    // Raises a signal that arrived just as the copy ended.
    py.check_signals()?;
    match copied {
        Ok(copied) => summary(py, &copied),
        Err(NotCopied::Invalid(text)) => Err(configuration_error(py, &text)),
        Err(NotCopied::Failed(text)) => Err(Error::new_err(text)),
    }
}

/// Returns the long names of the options of `thalweg copy`.
#[pyfunction]
pub fn copy_options() -> Vec<String> {
    thalweg::copy_options()
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
    summary.set_item("went_on", copied.went_on)?;
    summary.set_item("planned", &copied.planned)?;
    summary.set_item("failure", &copied.failure)?;
    Ok(summary)
}
