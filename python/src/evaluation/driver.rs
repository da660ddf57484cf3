//! Steps code from wait to wait on an event loop, as a task of asyncio does.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::PyTraverseError;
use pyo3::exceptions::{PyBaseException, PyRuntimeError, PyStopIteration};
use pyo3::gc::PyVisit;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::asyncio::Asyncio;
use super::interpreter::{Context, Sent, ask, is_unshared, send, tell};
use super::waiter::Waiter;
use crate::event_loop::{EventLoopCore, Job, Sleeper, Wait, ends_program, soon};

/// The code of an evaluation that waits or has not started. The awaited future calls it when done.
#[pyclass(frozen, module = "thalweg._thalweg")]
pub struct Driver {
    coroutine: Py<PyAny>,
    evaluation: Py<PyAny>,
    event_loop: Py<PyAny>,
    context: Py<PyAny>,
    /// True if failures are reported to the hook.
    forget: bool,
    // Locked only briefly, while no Python code runs.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    started: bool,
    ended: bool,
    waits_for: Option<Py<PyAny>>,
    /// True if `CancelledError` is to be thrown at the next step.
    must_cancel: bool,
    message: Option<Py<PyAny>>,
    /// Thrown at the next step.
    thrown: Option<PyErr>,
    /// How often cancellation was requested.
    cancels: usize,
    /// The entry in asyncio's list of all tasks.
    listed: Option<Py<PyAny>>,
}

impl Driver {
    /// Takes over code, and makes its evaluation a future of the event loop. With `forget` true, its failure
    /// is reported to the hook. `None` is for code that has not started.
    ///
    /// # Errors
    /// The exceptions of asyncio.
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
            // The code looked at its evaluation during the first step.
            evaluation.call_method1(intern!(py, "_become_future"), (event_loop,))?;
            evaluation.setattr(intern!(py, "_itself"), py.None())?;
            state.cancels = evaluation.getattr(intern!(py, "_cancels"))?.extract()?;
            // The code itself may have concluded it.
            let is_concluded = ask(evaluation, intern!(py, "done"))?.is_truthy()?;
            state.must_cancel = is_concluded || state.cancels > 0;
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
        driver.get().state().listed = asyncio.register(evaluation)?;
        Ok(driver)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Schedules the next step.
    ///
    /// # Errors
    /// `RuntimeError` if the loop is closed.
    pub fn schedule(slf: &Bound<'_, Self>) -> PyResult<()> {
        soon(slf.get().event_loop.bind(slf.py()), Job::Step(slf.clone().unbind()))
    }

    /// Resumes the code when `future`, which it yielded, is done.
    ///
    /// # Errors
    /// The exceptions of asyncio. An unsuitable `future` is raised in the code.
    pub fn wait_for<'py>(
        slf: &Bound<'py, Self>,
        asyncio: &Asyncio,
        future: &Bound<'py, PyAny>,
    ) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        if future.is_none() {
            return Self::schedule(slf);
        }
        if let Ok(wait) = future.cast_exact::<Wait>()
            && wait.get().is_waiting()
        {
            Wait::begin(wait, this.event_loop.bind(py), Sleeper::Driver(slf.clone().unbind()))?;
            return this.note_wait(future);
        }
        if let Err(wrong) = this.check(future) {
            this.state().thrown = Some(wrong);
            return Self::schedule(slf);
        }
        future.setattr(intern!(py, "_asyncio_future_blocking"), false)?;
        asyncio.later(future, intern!(py, "add_done_callback"), slf, this.context.bind(py))?;
        this.note_wait(future)
    }

    /// Notes what the code waits for. A cancellation that was requested before ends that wait.
    fn note_wait(&self, future: &Bound<'_, PyAny>) -> PyResult<()> {
        let must_cancel = {
            let mut state = self.state();
            state.waits_for = Some(future.clone().unbind());
            state.must_cancel
        };
        if must_cancel && self.cancel_wait(future)? {
            self.state().must_cancel = false;
        }
        Ok(())
    }

    /// Fails unless `future` is something that an evaluation can wait for.
    fn check(&self, future: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = future.py();
        let blocking = future.getattr_opt(intern!(py, "_asyncio_future_blocking"))?;
        let Some(blocking) = blocking.filter(|blocking| !blocking.is_none()) else {
            let text = format!("an evaluation can only await futures of asyncio, not {future:?}");
            return Err(PyRuntimeError::new_err(text));
        };
        if !blocking.is_truthy()? {
            let text = format!("{future:?} was yielded by `yield`; use `await` or `yield from`");
            return Err(PyRuntimeError::new_err(text));
        }
        if !ask(future, intern!(py, "get_loop"))?.is(&self.event_loop) {
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

    /// Cancels the awaited future. Returns whether that is possible.
    fn cancel_wait(&self, future: &Bound<'_, PyAny>) -> PyResult<bool> {
        let py = future.py();
        let message = self.state().message.as_ref().map(|message| message.clone_ref(py));
        let with = PyDict::new(py);
        with.set_item(intern!(py, "msg"), message)?;
        future.call_method(intern!(py, "cancel"), (), Some(&with))?.is_truthy()
    }

    /// Returns the `CancelledError` to throw into the code.
    fn cancelled(&self, py: Python<'_>, asyncio: &Asyncio) -> PyErr {
        let message = self.state().message.as_ref().map(|message| message.clone_ref(py));
        asyncio.cancelled_error(py, message).map_or_else(|error| error, PyErr::from_value)
    }

    /// Runs the code in its context until it waits again or ends.
    ///
    /// # Errors
    /// `KeyboardInterrupt` and `SystemExit`; the exceptions of asyncio.
    pub fn step(slf: &Bound<'_, Self>, thrown: Option<PyErr>, turn: Option<&EventLoopCore>) -> PyResult<()> {
        let context = Context::of(slf.get().context.bind(slf.py()).clone());
        context.within(|| Self::step_within(slf, thrown, turn))?
    }

    /// Runs the code until it waits again or ends.
    fn step_within(
        slf: &Bound<'_, Self>,
        thrown: Option<PyErr>,
        turn: Option<&EventLoopCore>,
    ) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        let asyncio = Asyncio::get(py)?;
        let (must_cancel, thrown, waited_for) = {
            let mut state = this.state();
            if state.ended {
                return Ok(());
            }
            state.started = true;
            let thrown = thrown.or_else(|| state.thrown.take());
            (std::mem::take(&mut state.must_cancel), thrown, state.waits_for.take())
        };
        drop(waited_for);
        let is_cancelled = |thrown: &PyErr| thrown.is_instance(py, asyncio.cancelled.bind(py));
        let thrown = match thrown {
            Some(thrown) if !must_cancel || is_cancelled(&thrown) => Some(thrown),
            _ if must_cancel => Some(this.cancelled(py, asyncio)),
            thrown => thrown,
        };
        let event_loop = this.event_loop.bind(py);
        let evaluation = this.evaluation.bind(py);
        let before = match turn {
            Some(core) => core.enter_evaluation(asyncio, event_loop, evaluation).map(|()| None)?,
            None => asyncio.enter(event_loop, evaluation)?,
        };
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
        if turn.is_none() {
            asyncio.leave(event_loop, before.as_ref())?;
        }
        match sent {
            Sent::Waits(future) => Self::wait_for(slf, asyncio, &future),
            Sent::Returned(result) => this.end(py, asyncio, Ok(result)),
            Sent::Raised(error) => this.end(py, asyncio, Err(error)),
        }
    }

    /// Concludes the evaluation with the result of the code.
    fn end(&self, py: Python<'_>, asyncio: &Asyncio, result: PyResult<Bound<'_, PyAny>>) -> PyResult<()> {
        let evaluation = self.evaluation.bind(py);
        let (must_cancel, listed) = {
            let mut state = self.state();
            state.ended = true;
            (state.must_cancel, state.listed.take())
        };
        if let Some(listed) = listed {
            asyncio.unregister(listed.bind(py));
        }
        evaluation.setattr(intern!(py, "_driver"), py.None())?;
        // If other code concluded the evaluation meanwhile, that result stays; but no failure is lost.
        let is_concluded = ask(evaluation, intern!(py, "done"))?.is_truthy()?;
        match result {
            Ok(_) if is_concluded => {}
            Ok(_) if must_cancel => self.end_cancelled(py)?,
            Ok(result) => drop(tell(evaluation, intern!(py, "set_result"), &result)?),
            Err(error) if error.is_instance(py, asyncio.cancelled.bind(py)) => {
                if !is_concluded {
                    self.end_cancelled(py)?;
                }
            }
            Err(error) => {
                let ends_program = ends_program(py, &error);
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

    /// Concludes the evaluation as cancelled.
    fn end_cancelled(&self, py: Python<'_>) -> PyResult<()> {
        let message = self.state().message.as_ref().map(|message| message.clone_ref(py));
        self.evaluation.bind(py).call_method1(intern!(py, "_end_cancelled"), (message,)).map(drop)
    }
}

#[pymethods]
impl Driver {
    /// Runs the next step. The argument is absent, the awaited future, which is done, or an exception to
    /// throw.
    #[pyo3(signature = (what = None))]
    fn __call__(slf: &Bound<'_, Self>, what: Option<Bound<'_, PyAny>>) -> PyResult<()> {
        let thrown = match what {
            None => None,
            Some(what) if what.is_instance_of::<PyBaseException>() => Some(PyErr::from_value(what)),
            Some(future) => ask(&future, intern!(slf.py(), "result")).err(),
        };
        Self::step_within(slf, thrown, None)
    }

    /// Requests cancellation: `CancelledError` is raised where the code waits.
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

    /// Ends the code, because other code concluded its evaluation. Code that has not started never starts.
    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        let started = {
            let mut state = self.state();
            state.ended |= !state.started;
            state.started
        };
        if started {
            return self.cancel(py, None);
        }
        self.coroutine.bind(py).call_method0(intern!(py, "close")).map(drop)
    }

    /// True once the code has started.
    fn is_started(&self) -> bool {
        self.state().started
    }

    /// Returns how often cancellation was requested.
    fn cancelling(&self) -> usize {
        self.state().cancels
    }

    /// Withdraws one request for cancellation.
    fn uncancel(&self) -> usize {
        let mut state = self.state();
        state.cancels = state.cancels.saturating_sub(1);
        // The request was withdrawn before it was thrown.
        state.must_cancel &= state.cancels > 0;
        state.cancels
    }

    /// The code.
    #[getter]
    fn coroutine(&self, py: Python<'_>) -> Py<PyAny> {
        self.coroutine.clone_ref(py)
    }

    /// The future that the code waits for.
    #[getter]
    fn waits_for(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.state().waits_for.as_ref().map(|future| future.clone_ref(py))
    }

    /// True if cancellation was requested and not yet thrown.
    #[getter]
    fn must_cancel(&self) -> bool {
        self.state().must_cancel
    }

    /// The context in which the code runs.
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
