//! The jobs that an event loop runs in its turns.

use pyo3::PyTraverseError;
use pyo3::exceptions::{PyKeyboardInterrupt, PySystemExit};
use pyo3::gc::PyVisit;
use pyo3::intern;
use pyo3::prelude::*;

use super::core::EventLoopCore;
use super::handle::{Handle, TimerHandle};
use super::waits::Wait;
use crate::evaluation::{Asyncio, Driver, begin_forgotten};

/// One thing to run. Only callbacks of programs need a handle that can cancel them.
pub enum Job {
    /// A callback of `call_soon`.
    Handle(Py<Handle>),
    /// A callback of `call_later` or `call_at`.
    Timer(Py<TimerHandle>),
    /// A handle of asyncio's own classes.
    Foreign(Py<PyAny>),
    /// The next step of an evaluation.
    Step(Py<Driver>),
    /// Code of `call_and_forget` that has not started: a coroutine.
    Begin(Py<PyAny>),
    /// The end of a wait.
    Wake(Py<Wait>),
    /// The end of the time limit of a wait.
    Expire(Py<Wait>),
}

impl Job {
    /// Runs it, in a turn of our loop if `turn` is given.
    ///
    /// # Errors
    /// `KeyboardInterrupt` and `SystemExit`, which end the loop. The event loop's exception handler receives
    /// all others.
    pub fn run(self, event_loop: &Bound<'_, PyAny>, turn: Option<&EventLoopCore>) -> PyResult<()> {
        let py = event_loop.py();
        if let Some(core) = turn.filter(|_| !matches!(self, Self::Step(_) | Self::Wake(_))) {
            core.leave_evaluation(event_loop)?;
        }
        let result = match self {
            Self::Handle(handle) => return Handle::run(handle.bind(py), event_loop),
            Self::Timer(handle) => return TimerHandle::run(handle.bind(py), event_loop),
            Self::Foreign(handle) => run_foreign(handle.bind(py)),
            Self::Step(driver) => Driver::step(driver.bind(py), None, turn),
            Self::Begin(coroutine) => Asyncio::get(py)
                .and_then(|asyncio| begin_forgotten(asyncio, coroutine.into_bound(py), event_loop)),
            Self::Wake(wait) => Wait::wake(wait.bind(py), turn),
            Self::Expire(wait) => Wait::expire(wait.bind(py), event_loop),
        };
        match result {
            Err(error) if !ends_program(py, &error) => {
                report(event_loop, "an evaluation failed in its event loop", error, None)
            }
            result => result,
        }
    }

    /// The Python object that it runs.
    pub fn object(&self, py: Python<'_>) -> Py<PyAny> {
        match self {
            Self::Handle(handle) => handle.clone_ref(py).into_any(),
            Self::Timer(handle) => handle.clone_ref(py).into_any(),
            Self::Foreign(object) | Self::Begin(object) => object.clone_ref(py),
            Self::Step(driver) => driver.clone_ref(py).into_any(),
            Self::Wake(wait) | Self::Expire(wait) => wait.clone_ref(py).into_any(),
        }
    }

    /// Visits the objects that it holds.
    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        match self {
            Self::Handle(handle) => visit.call(handle),
            Self::Timer(handle) => visit.call(handle),
            Self::Foreign(object) | Self::Begin(object) => visit.call(object),
            Self::Step(driver) => visit.call(driver),
            Self::Wake(wait) | Self::Expire(wait) => visit.call(wait),
        }
    }
}

/// True for the exceptions that end the program, whatever code raises them.
pub fn ends_program(py: Python<'_>, error: &PyErr) -> bool {
    error.is_instance_of::<PyKeyboardInterrupt>(py) || error.is_instance_of::<PySystemExit>(py)
}

/// Passes a failure to the exception handler of an event loop.
///
/// # Errors
/// The exceptions of that handler.
pub fn report(
    event_loop: &Bound<'_, PyAny>,
    message: &str,
    error: PyErr,
    handle: Option<&Bound<'_, PyAny>>,
) -> PyResult<()> {
    let py = event_loop.py();
    let context = pyo3::types::PyDict::new(py);
    context.set_item(intern!(py, "message"), message)?;
    context.set_item(intern!(py, "exception"), error.into_value(py))?;
    if let Some(handle) = handle {
        context.set_item(intern!(py, "handle"), handle)?;
    }
    event_loop.call_method1(intern!(py, "call_exception_handler"), (context,)).map(drop)
}

fn run_foreign(handle: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = handle.py();
    if handle.getattr(intern!(py, "_cancelled"))?.is_truthy()? {
        return Ok(());
    }
    handle.call_method0(intern!(py, "_run")).map(drop)
}
