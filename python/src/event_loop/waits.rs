//! A wait for a turn, a time or a descriptor.
//!
//! It is what `wait` and `await_readable` return: at once the coroutine to await, the iterator that awaits
//! it, and the future that it yields. An evaluation knows it and hands itself to the event loop. A task of
//! asyncio treats it as a future. A coroutine around a future, as `asyncio.sleep` has it, takes three objects
//! and a handle more.

use std::os::fd::RawFd;

use parking_lot::Mutex;
use pyo3::PyTraverseError;
use pyo3::exceptions::{PyBaseException, PyRuntimeError, PyRuntimeWarning, PyStopIteration};
use pyo3::gc::PyVisit;
use pyo3::prelude::*;

use super::core::EventLoopCore;
use super::system::{WRITE, os_error, possible};
use super::timers::Key;
use super::{Job, arm, disarm, is_alone, soon};
use crate::evaluation::{Asyncio, Context, Driver, call_with};

/// Waits for `seconds`. With 0 or less, waits until the next turn of the event loop, so that other code can
/// run.
///
/// In a turn, code that starts comes before code that waited, which continues in the order of time.
#[pyfunction]
#[pyo3(signature = (seconds))]
pub fn wait(seconds: f64) -> Wait {
    Wait::timed(seconds)
}

/// A wait. It ends once.
#[pyclass(frozen, weakref, module = "thalweg._thalweg")]
pub struct Wait {
    /// The descriptor and the bits of epoll that it waits for; without, it waits for its time.
    pub descriptor: Option<(RawFd, u32)>,
    /// The seconds to wait, or the time limit.
    pub seconds: Option<f64>,
    /// The result if the time limit is reached, instead of an exception.
    timeout_result: Option<Py<PyAny>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    phase: Phase,
    /// True once asyncio has cleared its flag that `await` yielded this future.
    is_heard: bool,
    sleeper: Option<Sleeper>,
    event_loop: Option<Py<PyAny>>,
    timer: Option<Key>,
}

#[derive(Default)]
enum Phase {
    #[default]
    New,
    Waits,
    Ended,
    TimedOut,
    Failed(Py<PyBaseException>),
    Cancelled(Option<Py<PyAny>>),
    /// The result was fetched.
    Over,
}

/// The code that continues when a wait ends.
pub enum Sleeper {
    /// An evaluation.
    Driver(Py<Driver>),
    /// A callback of asyncio, and its context.
    Callback(Py<PyAny>, Py<PyAny>),
}

impl Wait {
    fn timed(seconds: f64) -> Self {
        // Also for a number that is none.
        let seconds = if seconds > 0.0 { seconds } else { 0.0 };
        Self { descriptor: None, seconds: Some(seconds), timeout_result: None, state: Mutex::default() }
    }

    /// Makes the wait of an evaluation or a callback take place on an event loop.
    ///
    /// # Errors
    /// The exceptions of that loop.
    pub fn begin(slf: &Bound<'_, Self>, event_loop: &Bound<'_, PyAny>, sleeper: Sleeper) -> PyResult<()> {
        {
            let mut state = slf.get().state.lock();
            state.sleeper = Some(sleeper);
            state.event_loop = Some(event_loop.clone().unbind());
        }
        arm(slf, event_loop)
    }

    /// True if the wait is only for a turn.
    fn is_for_a_turn(&self) -> bool {
        self.descriptor.is_none() && self.seconds == Some(0.0)
    }

    /// True if the wait is only for a turn, or for a descriptor that is ready.
    fn ends_at_once(&self) -> bool {
        match self.descriptor {
            None => self.is_for_a_turn(),
            Some(wanted) => possible(&[wanted]).is_ok_and(|answers| matches!(answers.as_slice(), [Ok(true)])),
        }
    }

    /// True while the wait has not ended.
    pub fn is_waiting(&self) -> bool {
        matches!(self.state.lock().phase, Phase::Waits)
    }

    /// Notes its timer.
    pub fn set_timer(&self, timer: Key) {
        self.state.lock().timer = Some(timer);
    }

    /// Takes its timer.
    pub fn take_timer(&self) -> Option<Key> {
        self.state.lock().timer.take()
    }

    /// Marks a wait for a descriptor as ended, before [`wake`](Self::wake).
    pub fn end(&self, py: Python<'_>, error: Option<std::io::Error>) {
        let phase = match error {
            None => Phase::Ended,
            Some(error) => Phase::Failed(os_error(&error).into_value(py)),
        };
        let mut state = self.state.lock();
        if matches!(state.phase, Phase::Waits) {
            state.phase = phase;
        }
    }

    /// Ends the wait, unless it ended otherwise, and continues the code that waits.
    ///
    /// # Errors
    /// The exceptions that end the program, and those of the event loop.
    pub fn wake(slf: &Bound<'_, Self>, turn: Option<&EventLoopCore>) -> PyResult<()> {
        let py = slf.py();
        let (sleeper, is_cancelled) = {
            let mut state = slf.get().state.lock();
            state.timer = None;
            if matches!(state.phase, Phase::Waits) {
                state.phase = Phase::Ended;
            }
            (state.sleeper.take(), matches!(state.phase, Phase::Cancelled(_)))
        };
        match sleeper {
            None => Ok(()),
            Some(Sleeper::Driver(driver)) => {
                let thrown = is_cancelled.then(|| slf.get().outcome(py)).and_then(Result::err);
                Driver::step(driver.bind(py), thrown, turn)
            }
            Some(Sleeper::Callback(callback, context)) => {
                if let Some(core) = turn.filter(|core| core.is_in_evaluation()) {
                    core.leave_evaluation(&slf.get().get_loop(py)?)?;
                }
                Context::of(context.into_bound(py))
                    .within(|| call_with(callback.bind(py), slf.as_any()).map(drop))?
            }
        }
    }

    /// Ends the wait because its time limit is reached, unless it ended otherwise.
    ///
    /// # Errors
    /// As [`wake`](Self::wake).
    pub fn expire(slf: &Bound<'_, Self>, event_loop: &Bound<'_, PyAny>) -> PyResult<()> {
        {
            let mut state = slf.get().state.lock();
            state.timer = None;
            if !matches!(state.phase, Phase::Waits) {
                return Ok(());
            }
            state.phase = Phase::TimedOut;
        }
        disarm(slf, event_loop);
        Self::wake(slf, None)
    }

    /// The result of a wait that ended.
    fn outcome(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let phase = {
            let mut state = self.state.lock();
            std::mem::replace(&mut state.phase, Phase::Over)
        };
        match phase {
            Phase::Ended if self.descriptor.is_some() => {
                Ok(Some(true.into_pyobject(py)?.to_owned().into_any().unbind()))
            }
            Phase::Ended | Phase::Over => Ok(None),
            Phase::TimedOut => match &self.timeout_result {
                Some(result) => Ok(Some(result.clone_ref(py))),
                None => Err(Asyncio::get(py)?.timed_out(py, self.seconds)),
            },
            Phase::Failed(error) => Err(PyErr::from_value(error.into_bound(py).into_any())),
            Phase::Cancelled(message) => {
                Err(PyErr::from_value(Asyncio::get(py)?.cancelled_error(py, message)?))
            }
            Phase::New | Phase::Waits => {
                self.state.lock().phase = phase;
                Err(PyRuntimeError::new_err(
                    "this wait is not over; it was resumed by other code than its event loop",
                ))
            }
        }
    }

    /// Gives the wait up: the code that waits was ended otherwise.
    fn abandon(slf: &Bound<'_, Self>) {
        let (event_loop, sleeper, phase) = {
            let mut state = slf.get().state.lock();
            let phase = std::mem::replace(&mut state.phase, Phase::Over);
            (state.event_loop.take(), state.sleeper.take(), phase)
        };
        if let (Phase::Waits, Some(event_loop)) = (&phase, &event_loop) {
            disarm(slf, event_loop.bind(slf.py()));
        }
        drop((sleeper, phase));
    }
}

/// True if a task of asyncio runs, on a loop on which nothing of ours is scheduled. It then yields `None`, as
/// `asyncio.sleep(0)` does: a future costs the task as much as half a turn of the loop.
fn is_task_alone(py: Python<'_>) -> PyResult<bool> {
    let asyncio = Asyncio::get(py)?;
    let Some(event_loop) = asyncio.here(py)? else { return Ok(false) };
    Ok(asyncio.is_in_task(&event_loop)? && is_alone(&event_loop)?)
}

#[pymethods]
impl Wait {
    #[new]
    #[pyo3(signature = (seconds = None, descriptor = None, mask = 0, *timeout_result))]
    fn new(
        seconds: Option<f64>,
        descriptor: Option<RawFd>,
        mask: u32,
        timeout_result: &Bound<'_, pyo3::types::PyTuple>,
    ) -> Self {
        Self {
            descriptor: descriptor.map(|descriptor| (descriptor, mask)),
            seconds: seconds.map(|seconds| if seconds > 0.0 { seconds } else { 0.0 }),
            timeout_result: timeout_result.get_item(0).ok().map(Bound::unbind),
            state: Mutex::default(),
        }
    }

    fn __await__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__<'py>(slf: &Bound<'py, Self>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (py, this) = (slf.py(), slf.get());
        let begins = {
            let mut state = this.state.lock();
            let begins = matches!(state.phase, Phase::New);
            match state.phase {
                Phase::New => state.phase = Phase::Waits,
                Phase::Over => return Err(PyRuntimeError::new_err("cannot reuse already awaited coroutine")),
                // The loop called the task back itself.
                Phase::Waits if state.sleeper.is_none() && state.event_loop.is_some() => {
                    state.phase = Phase::Ended;
                }
                _ => {}
            }
            begins
        };
        if begins {
            if this.is_for_a_turn() && is_task_alone(py)? {
                this.state.lock().phase = Phase::Ended;
                return Ok(Some(py.None().into_bound(py)));
            }
            return Ok(Some(slf.clone().into_any()));
        }
        match this.outcome(py)? {
            None => Ok(None),
            Some(result) => Err(PyStopIteration::new_err((result,))),
        }
    }

    fn send<'py>(slf: &Bound<'py, Self>, _value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        Self::__next__(slf)?.ok_or_else(|| PyStopIteration::new_err(()))
    }

    #[pyo3(signature = (kind, value = None, _traceback = None))]
    fn throw(
        slf: &Bound<'_, Self>,
        kind: Bound<'_, PyAny>,
        value: Option<Bound<'_, PyAny>>,
        _traceback: Option<Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        Self::abandon(slf);
        if kind.is_instance_of::<PyBaseException>() {
            return Err(PyErr::from_value(kind));
        }
        let error = match value {
            None => kind.call0()?,
            Some(value) if value.is_instance_of::<PyBaseException>() => value,
            Some(value) => kind.call1((value,))?,
        };
        Err(PyErr::from_value(error))
    }

    fn close(slf: &Bound<'_, Self>) {
        Self::abandon(slf);
    }

    // From here on the methods of a future, for tasks of asyncio.

    /// `None` until the wait begins: by that, asyncio tells a coroutine from a future.
    #[getter(_asyncio_future_blocking)]
    fn is_blocking(&self) -> Option<bool> {
        let state = self.state.lock();
        (!matches!(state.phase, Phase::New)).then_some(!state.is_heard)
    }

    #[setter(_asyncio_future_blocking)]
    fn set_blocking(&self, blocking: bool) {
        self.state.lock().is_heard = !blocking;
    }

    fn get_loop<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let known = self.state.lock().event_loop.as_ref().map(|event_loop| event_loop.clone_ref(py));
        match known {
            Some(event_loop) => Ok(event_loop.into_bound(py)),
            None => {
                Asyncio::get(py)?.here(py)?.ok_or_else(|| PyRuntimeError::new_err("no running event loop"))
            }
        }
    }

    #[pyo3(signature = (callback, *, context = None))]
    fn add_done_callback(
        slf: &Bound<'_, Self>,
        callback: Py<PyAny>,
        context: Option<Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let py = slf.py();
        let context = match context {
            Some(context) => context,
            None => Context::copy(py)?.into_inner(),
        };
        let event_loop = slf.get().get_loop(py)?;
        if is_alone(&event_loop)? && slf.get().ends_at_once() {
            slf.get().state.lock().event_loop = Some(event_loop.clone().unbind());
            let names = Asyncio::get(py)?;
            return names.call_soon(&event_loop, callback.bind(py), slf.as_any(), &context);
        }
        Self::begin(slf, &event_loop, Sleeper::Callback(callback, context.unbind()))
    }

    /// Removes a callback. Returns how many were removed.
    fn remove_done_callback(slf: &Bound<'_, Self>, callback: Bound<'_, PyAny>) -> PyResult<usize> {
        let known = match &slf.get().state.lock().sleeper {
            Some(Sleeper::Callback(known, _)) => known.clone_ref(slf.py()),
            _ => return Ok(0),
        };
        if !callback.eq(known)? {
            return Ok(0);
        }
        let sleeper = slf.get().state.lock().sleeper.take();
        drop(sleeper);
        Ok(1)
    }

    /// Cancels the wait: the code that waits continues with `CancelledError`.
    #[pyo3(signature = (msg = None))]
    fn cancel(slf: &Bound<'_, Self>, msg: Option<Py<PyAny>>) -> PyResult<bool> {
        let event_loop = {
            let mut state = slf.get().state.lock();
            if !matches!(state.phase, Phase::Waits) {
                return Ok(false);
            }
            state.phase = Phase::Cancelled(msg);
            state.event_loop.as_ref().map(|event_loop| event_loop.clone_ref(slf.py()))
        };
        if let Some(event_loop) = event_loop {
            let event_loop = event_loop.into_bound(slf.py());
            disarm(slf, &event_loop);
            soon(&event_loop, Job::Wake(slf.clone().unbind()))?;
        }
        Ok(true)
    }

    fn done(&self) -> bool {
        !matches!(self.state.lock().phase, Phase::New | Phase::Waits)
    }

    fn cancelled(&self) -> bool {
        matches!(self.state.lock().phase, Phase::Cancelled(_))
    }

    /// Raises the error if the wait failed. Otherwise the result comes from the iterator.
    fn result(&self, py: Python<'_>) -> PyResult<()> {
        let is_failed = matches!(self.state.lock().phase, Phase::Cancelled(_) | Phase::Failed(_));
        if is_failed { self.outcome(py).map(drop) } else { Ok(()) }
    }

    fn __repr__(&self) -> String {
        match (self.descriptor, self.seconds) {
            (Some((descriptor, mask)), _) if mask == WRITE => {
                format!("<wait until descriptor {descriptor} is writable>")
            }
            (Some((descriptor, _)), _) => format!("<wait until descriptor {descriptor} is readable>"),
            (None, seconds) => format!("<wait of {} s>", seconds.unwrap_or_default()),
        }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.timeout_result)?;
        let Some(state) = self.state.try_lock() else {
            return Ok(());
        };
        visit.call(&state.event_loop)?;
        match &state.sleeper {
            Some(Sleeper::Driver(driver)) => visit.call(driver)?,
            Some(Sleeper::Callback(callback, context)) => {
                visit.call(callback)?;
                visit.call(context)?;
            }
            None => {}
        }
        match &state.phase {
            Phase::Failed(error) => visit.call(error),
            Phase::Cancelled(message) => visit.call(message),
            _ => Ok(()),
        }
    }

    /// Breaks cycles through evaluations that can never be resumed.
    fn __clear__(&self) {
        let state = std::mem::take(&mut *self.state.lock());
        self.state.lock().phase = Phase::Over;
        drop(state);
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        // As for a coroutine that was made and not awaited.
        if matches!(self.state.get_mut().phase, Phase::New) {
            // Not while the interpreter ends.
            let _ = Python::try_attach(|py| {
                let before = PyErr::take(py);
                let category = py.get_type::<PyRuntimeWarning>();
                if let Err(error) = PyErr::warn(py, &category, c"a wait was never awaited", 1) {
                    error.write_unraisable(py, None);
                }
                if let Some(before) = before {
                    before.restore(py);
                }
            });
        }
    }
}
