//! A single await of an evaluation.
//!
//! asyncio cancels an awaited future together with the code that awaits it. An evaluation must continue in
//! that case. Therefore `await` waits for this object, a future of its own. It is done when the evaluation
//! is, and can be cancelled without it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::PyTraverseError;
use pyo3::exceptions::PyStopIteration;
use pyo3::gc::PyVisit;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::asyncio::Asyncio;
use super::interpreter::{Context, ask};

/// The future that `await` of an evaluation yields.
#[pyclass(frozen, module = "thalweg._thalweg")]
pub struct Waiter {
    evaluation: Py<PyAny>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// True once `await` has yielded this future.
    is_awaited: bool,
    /// True once asyncio has cleared its flag that `await` yielded this future.
    is_heard: bool,
    /// The callback to call when done, and its context.
    callback: Option<(Py<PyAny>, Py<PyAny>)>,
    /// Set if the wait was cancelled, with the message.
    cancelled: Option<Option<Py<PyAny>>>,
}

impl Waiter {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if this waits for `evaluation`.
    pub fn is_for(&self, evaluation: &Py<PyAny>) -> bool {
        self.evaluation.is(evaluation)
    }
}

#[pymethods]
impl Waiter {
    #[new]
    fn new(evaluation: Py<PyAny>) -> Self {
        Self { evaluation, state: Mutex::default() }
    }

    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    /// Yields itself once, and then returns the result of the evaluation.
    fn __next__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, Self>> {
        if !std::mem::replace(&mut slf.get().state().is_awaited, true) {
            return Ok(slf.clone());
        }
        let result = ask(slf.get().evaluation.bind(slf.py()), intern!(slf.py(), "result"))?;
        Err(PyStopIteration::new_err((result.unbind(),)))
    }

    #[getter(_asyncio_future_blocking)]
    fn is_blocking(&self) -> bool {
        !self.state().is_heard
    }

    #[setter(_asyncio_future_blocking)]
    fn set_blocking(&self, blocking: bool) {
        self.state().is_heard = !blocking;
    }

    fn get_loop<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        ask(self.evaluation.bind(py), intern!(py, "_get_loop"))
    }

    #[pyo3(signature = (callback, *, context = None))]
    fn add_done_callback(
        &self,
        py: Python<'_>,
        callback: Py<PyAny>,
        context: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        let evaluation = self.evaluation.bind(py);
        let around = match context {
            Some(context) => context,
            None => Context::copy(py)?.into_inner().unbind(),
        };
        Asyncio::get(py)?.later(
            evaluation,
            intern!(py, "_add_done_callback"),
            callback.bind(py),
            around.bind(py),
        )?;
        self.state().callback = Some((callback, around));
        Ok(())
    }

    /// Cancels the wait: the awaiting code wakes, and the evaluation continues.
    #[pyo3(signature = (msg = None))]
    fn cancel(&self, py: Python<'_>, msg: Option<Py<PyAny>>) -> PyResult<bool> {
        let evaluation = self.evaluation.bind(py);
        if ask(evaluation, intern!(py, "done"))?.is_truthy()? {
            return Ok(false);
        }
        let callback = {
            let mut state = self.state();
            if state.cancelled.is_some() {
                return Ok(false);
            }
            state.cancelled = Some(msg);
            state.callback.take()
        };
        if let Some((callback, context)) = callback {
            evaluation.call_method1(intern!(py, "remove_done_callback"), (&callback,))?;
            let with = PyDict::new(py);
            with.set_item(intern!(py, "context"), context)?;
            let woken = CancelledWait { error: self.cancelled(py)? };
            self.get_loop(py)?.call_method(intern!(py, "call_soon"), (callback, woken), Some(&with))?;
        }
        Ok(true)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.evaluation)?;
        if let Ok(state) = self.state.try_lock() {
            if let Some((callback, context)) = &state.callback {
                visit.call(callback)?;
                visit.call(context)?;
            }
            if let Some(message) = &state.cancelled {
                visit.call(message)?;
            }
        }
        Ok(())
    }
}

impl Waiter {
    /// Returns `CancelledError`, with the message of the cancellation.
    fn cancelled(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let message = self.state().cancelled.as_ref().and_then(Option::as_ref).map(|text| text.clone_ref(py));
        Ok(Asyncio::get(py)?.cancelled_error(py, message)?.unbind())
    }
}

/// Passed to the callback of a cancelled wait, in place of a future.
#[pyclass(frozen, module = "thalweg._thalweg")]
struct CancelledWait {
    error: Py<PyAny>,
}

#[pymethods]
impl CancelledWait {
    fn result(&self, py: Python<'_>) -> PyResult<()> {
        Err(PyErr::from_value(self.error.bind(py).clone()))
    }
}
