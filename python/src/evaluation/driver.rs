//! What takes code from wait to wait on an event loop, as a task of asyncio does.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::PyTraverseError;
use pyo3::exceptions::{PyBaseException, PyKeyboardInterrupt, PyRuntimeError, PyStopIteration, PySystemExit};
use pyo3::gc::PyVisit;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::asyncio::Asyncio;
use super::interpreter::{Sent, is_unshared, send};
use super::waiter::Waiter;

/// The code of an evaluation that waits, or that was not started. What it waits for calls it.
#[pyclass(frozen, module = "thalweg._thalweg")]
pub struct Driver {
    coroutine: Py<PyAny>,
    evaluation: Py<PyAny>,
    event_loop: Py<PyAny>,
    context: Py<PyAny>,
    /// Failures are told to the hook.
    forget: bool,
    // Locked only for moments in which no code of Python runs.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    started: bool,
    ended: bool,
    /// The evaluation was concluded by somebody else.
    given_up: bool,
    waits_for: Option<Py<PyAny>>,
    /// To be thrown at the next step.
    must_cancel: bool,
    message: Option<Py<PyAny>>,
    /// How often the end was asked for.
    cancels: usize,
}

impl Driver {
    /// Takes over code, and makes its evaluation a future of the event loop. `forget` is whether its failure is told to the hook;
    /// none is for code that was not started.
    ///
    /// # Errors
    /// What asyncio raises.
    pub fn adopt<'py>(
        asyncio: &Asyncio,
        coroutine: Bound<'py, PyAny>,
        evaluation: &Bound<'py, PyAny>,
        event_loop: &Bound<'py, PyAny>,
        context: Bound<'py, PyAny>,
        forget: Option<bool>,
    ) -> PyResult<Bound<'py, Self>> {
        let py = coroutine.py();
        let mut state = State { started: forget.is_some(), ..State::default() };
        if is_unshared(evaluation) {
            asyncio.make_future(evaluation, event_loop)?;
        } else {
            // Its code looked at it in the first step.
            evaluation.call_method1(intern!(py, "_become_future"), (event_loop,))?;
            evaluation.setattr(intern!(py, "_itself"), py.None())?;
            state.cancels = evaluation.getattr(intern!(py, "_cancels"))?.extract()?;
            // Its own code may have concluded it.
            state.given_up = evaluation.call_method0(intern!(py, "done"))?.is_truthy()?;
            state.must_cancel = state.given_up || state.cancels > 0;
        }
        let driver = Self {
            coroutine: coroutine.unbind(),
            evaluation: evaluation.clone().unbind(),
            event_loop: event_loop.clone().unbind(),
            context: context.unbind(),
            forget: forget.unwrap_or_default(),
            state: Mutex::new(state),
        };
        let driver = Bound::new(py, driver)?;
        evaluation.setattr(intern!(py, "_driver"), &driver)?;
        asyncio.register(evaluation)?;
        Ok(driver)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Schedules the next step, which throws this if there is something to throw.
    ///
    /// # Errors
    /// `RuntimeError` if the loop is closed.
    pub fn schedule(slf: &Bound<'_, Self>, asyncio: &Asyncio, thrown: Option<PyErr>) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        let (event_loop, context) = (this.event_loop.bind(py), this.context.bind(py));
        let call_soon = intern!(py, "call_soon");
        let Some(thrown) = thrown else {
            return asyncio.later(event_loop, call_soon, slf, context);
        };
        let with = PyDict::new(py);
        with.set_item(intern!(py, "context"), context)?;
        event_loop.call_method(call_soon, (slf, thrown.into_value(py)), Some(&with)).map(drop)
    }

    /// Goes on when this is done, which the code gave to wait for.
    ///
    /// # Errors
    /// What asyncio raises. What is wrong with that which the code gave is raised there.
    pub fn wait_for<'py>(
        slf: &Bound<'py, Self>,
        asyncio: &Asyncio,
        future: &Bound<'py, PyAny>,
    ) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        if future.is_none() {
            return Self::schedule(slf, asyncio, None);
        }
        if let Err(wrong) = this.check(future) {
            return Self::schedule(slf, asyncio, Some(wrong));
        }
        future.setattr(intern!(py, "_asyncio_future_blocking"), false)?;
        asyncio.later(future, intern!(py, "add_done_callback"), slf, this.context.bind(py))?;
        let must_cancel = {
            let mut state = this.state();
            state.waits_for = Some(future.clone().unbind());
            state.must_cancel
        };
        if must_cancel && this.cancel_wait(future)? {
            this.state().must_cancel = false;
        }
        Ok(())
    }

    /// Whether this is what code may give to wait for.
    fn check(&self, future: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = future.py();
        let blocking = future.getattr_opt(intern!(py, "_asyncio_future_blocking"))?;
        let Some(blocking) = blocking.filter(|blocking| !blocking.is_none()) else {
            let text =
                format!("an evaluation can wait for what asyncio can wait for, and not for {future:?}");
            return Err(PyRuntimeError::new_err(text));
        };
        if !blocking.is_truthy()? {
            let text = format!("{future:?} was given by `yield`, where `yield from` or `await` is meant");
            return Err(PyRuntimeError::new_err(text));
        }
        if !future.call_method0(intern!(py, "get_loop"))?.is(&self.event_loop) {
            let text = format!("{future:?} belongs to another event loop than the evaluation that awaits it");
            return Err(PyRuntimeError::new_err(text));
        }
        if let Ok(waiter) = future.cast_exact::<Waiter>()
            && waiter.get().is_for(&self.evaluation)
        {
            return Err(PyRuntimeError::new_err("this evaluation awaits itself, which would never end"));
        }
        Ok(())
    }

    /// Gives up what is waited for. Says whether that is possible.
    fn cancel_wait(&self, future: &Bound<'_, PyAny>) -> PyResult<bool> {
        let py = future.py();
        let message = self.state().message.as_ref().map(|message| message.clone_ref(py));
        let with = PyDict::new(py);
        with.set_item(intern!(py, "msg"), message)?;
        future.call_method(intern!(py, "cancel"), (), Some(&with))?.is_truthy()
    }

    /// What is thrown into code that is to end.
    fn cancelled(&self, py: Python<'_>, asyncio: &Asyncio) -> PyErr {
        let message = self.state().message.as_ref().map(|message| message.clone_ref(py));
        let class = asyncio.cancelled.bind(py);
        match message.map_or_else(|| class.call0(), |message| class.call1((message,))) {
            Ok(made) => PyErr::from_value(made),
            Err(error) => error,
        }
    }

    /// Lets the code go on until it waits again, or ends.
    fn step(slf: &Bound<'_, Self>, thrown: Option<PyErr>) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        let asyncio = Asyncio::get(py)?;
        let must_cancel = {
            let mut state = this.state();
            if state.ended {
                return Ok(());
            }
            state.started = true;
            state.waits_for = None;
            std::mem::take(&mut state.must_cancel)
        };
        let is_cancelled = |thrown: &PyErr| thrown.is_instance(py, asyncio.cancelled.bind(py));
        let thrown = match thrown {
            Some(thrown) if !must_cancel || is_cancelled(&thrown) => Some(thrown),
            _ if must_cancel => Some(this.cancelled(py, asyncio)),
            thrown => thrown,
        };
        let event_loop = this.event_loop.bind(py);
        let before = asyncio.enter(event_loop, this.evaluation.bind(py))?;
        let coroutine = this.coroutine.bind(py);
        let sent = match thrown {
            None => send(coroutine),
            Some(thrown) => match coroutine.call_method1(intern!(py, "throw"), (thrown.into_value(py),)) {
                Ok(waits_for) => Sent::Waits(waits_for),
                Err(end) if end.is_instance_of::<PyStopIteration>(py) => {
                    Sent::Returned(end.value(py).getattr(intern!(py, "value"))?)
                }
                Err(error) => Sent::Raised(error),
            },
        };
        asyncio.leave(event_loop, before.as_ref())?;
        match sent {
            Sent::Waits(future) => Self::wait_for(slf, asyncio, &future),
            Sent::Returned(result) => this.end(py, asyncio, Ok(result)),
            Sent::Raised(error) => this.end(py, asyncio, Err(error)),
        }
    }

    /// The code is at its end.
    fn end(&self, py: Python<'_>, asyncio: &Asyncio, result: PyResult<Bound<'_, PyAny>>) -> PyResult<()> {
        let evaluation = self.evaluation.bind(py);
        let must_cancel = {
            let mut state = self.state();
            state.ended = true;
            state.must_cancel
        };
        evaluation.setattr(intern!(py, "_driver"), py.None())?;
        // Who concluded it meanwhile was first; but no failure is lost.
        let is_concluded = evaluation.call_method0(intern!(py, "done"))?.is_truthy()?;
        match result {
            Ok(_) if is_concluded => {}
            Ok(_) if must_cancel => self.end_cancelled(py)?,
            Ok(result) => drop(evaluation.call_method1(intern!(py, "set_result"), (result,))?),
            Err(error) if error.is_instance(py, asyncio.cancelled.bind(py)) => {
                if !is_concluded {
                    self.end_cancelled(py)?;
                }
            }
            Err(error) => {
                let ends_program = error.is_instance_of::<PyKeyboardInterrupt>(py)
                    || error.is_instance_of::<PySystemExit>(py);
                let value = error.clone_ref(py).into_value(py);
                if is_concluded || self.forget {
                    if !ends_program {
                        asyncio.forgotten.bind(py).call1((value, &self.event_loop))?;
                    }
                    if !is_concluded {
                        self.end_cancelled(py)?;
                    }
                } else {
                    evaluation.call_method1(intern!(py, "set_exception"), (value,))?;
                }
                if ends_program {
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Those who await it get that it was cancelled.
    fn end_cancelled(&self, py: Python<'_>) -> PyResult<()> {
        let message = self.state().message.as_ref().map(|message| message.clone_ref(py));
        self.evaluation.bind(py).call_method1(intern!(py, "_end_cancelled"), (message,)).map(drop)
    }
}

#[pymethods]
impl Driver {
    /// The next step. What it is called with: nothing; what was waited for, which is done; or what is to be thrown.
    #[pyo3(signature = (what = None))]
    fn __call__(slf: &Bound<'_, Self>, what: Option<Bound<'_, PyAny>>) -> PyResult<()> {
        let thrown = match what {
            None => None,
            Some(what) if what.is_instance_of::<PyBaseException>() => Some(PyErr::from_value(what)),
            Some(future) => future.call_method0(intern!(slf.py(), "result")).err(),
        };
        Self::step(slf, thrown)
    }

    /// Asks the code to end: `CancelledError` is raised where it waits.
    fn cancel(&self, py: Python<'_>, message: Option<Py<PyAny>>) -> PyResult<()> {
        let waits_for = {
            let mut state = self.state();
            state.cancels += 1;
            state.message = message;
            state.waits_for.as_ref().map(|future| future.clone_ref(py))
        };
        if let Some(future) = waits_for
            && self.cancel_wait(future.bind(py))?
        {
            return Ok(());
        }
        self.state().must_cancel = true;
        Ok(())
    }

    /// Ends the code, whose evaluation was concluded by somebody. What was not started does not start.
    fn give_up(&self, py: Python<'_>) -> PyResult<()> {
        let started = {
            let mut state = self.state();
            state.given_up = true;
            state.ended |= !state.started;
            state.started
        };
        if started {
            return self.cancel(py, None);
        }
        self.coroutine.bind(py).call_method0(intern!(py, "close")).map(drop)
    }

    /// Whether the code has begun.
    fn is_started(&self) -> bool {
        self.state().started
    }

    /// How often the end was asked for.
    fn cancelling(&self) -> usize {
        self.state().cancels
    }

    /// Takes one of these back.
    fn uncancel(&self) -> usize {
        let mut state = self.state();
        state.cancels = state.cancels.saturating_sub(1);
        // It was answered before it was thrown.
        state.must_cancel &= state.cancels > 0;
        state.cancels
    }

    /// The code.
    #[getter]
    fn coroutine(&self, py: Python<'_>) -> Py<PyAny> {
        self.coroutine.clone_ref(py)
    }

    /// What is waited for.
    #[getter]
    fn waits_for(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.state().waits_for.as_ref().map(|future| future.clone_ref(py))
    }

    /// Whether the code is to end, and was not told.
    #[getter]
    fn must_cancel(&self) -> bool {
        self.state().must_cancel
    }

    /// The variables that the code sees.
    #[getter]
    fn context(&self, py: Python<'_>) -> Py<PyAny> {
        self.context.clone_ref(py)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.coroutine)?;
        visit.call(&self.evaluation)?;
        visit.call(&self.event_loop)?;
        visit.call(&self.context)?;
        if let Ok(state) = self.state.try_lock() {
            visit.call(&state.waits_for)?;
            visit.call(&state.message)?;
        }
        Ok(())
    }
}
