//! Code of `call_and_forget`, before its first step.

use pyo3::exceptions::{PyKeyboardInterrupt, PySystemExit};
use pyo3::prelude::*;

use super::asyncio::Asyncio;
use super::first::{First, step};

/// The callback that the event loop calls to start the code. An evaluation is created only if the code waits.
#[pyclass(frozen, module = "thalweg._thalweg")]
pub struct Forgotten {
    coroutine: Py<PyAny>,
    event_loop: Py<PyAny>,
}

impl Forgotten {
    /// Wraps code that has not started.
    pub fn new(coroutine: Bound<'_, PyAny>, event_loop: &Bound<'_, PyAny>) -> Self {
        Self { coroutine: coroutine.unbind(), event_loop: event_loop.clone().unbind() }
    }
}

#[pymethods]
impl Forgotten {
    fn __call__(&self, py: Python<'_>) -> PyResult<()> {
        let asyncio = Asyncio::get(py)?;
        match step(asyncio, self.coroutine.bind(py).clone()) {
            Ok(First::Returned(_)) => Ok(()),
            Ok(First::Waits(waiting)) => waiting.resume(asyncio, true).map(drop),
            Err(error) if error.is_instance(py, asyncio.cancelled.bind(py)) => Ok(()),
            Err(error)
                if error.is_instance_of::<PyKeyboardInterrupt>(py)
                    || error.is_instance_of::<PySystemExit>(py) =>
            {
                Err(error)
            }
            Err(error) => {
                asyncio.forgotten.bind(py).call1((error.into_value(py), &self.event_loop)).map(drop)
            }
        }
    }
}
