//! The first step of code, on the stack of its caller.

use pyo3::exceptions::PyRuntimeError;
use pyo3::intern;
use pyo3::prelude::*;

use super::asyncio::Asyncio;
use super::driver::Driver;
use super::interpreter::{Context, Sent, send};

/// The result of the first step.
pub enum First<'py> {
    /// The code ended with this result.
    Returned(Bound<'py, PyAny>),
    /// The code waits.
    Waits(Waiting<'py>),
}

/// Code that waits for the first time.
pub struct Waiting<'py> {
    coroutine: Bound<'py, PyAny>,
    evaluation: Bound<'py, PyAny>,
    event_loop: Bound<'py, PyAny>,
    context: Context<'py>,
    waits_for: Bound<'py, PyAny>,
}

/// Runs the code until it waits or ends.
///
/// # Errors
/// The exception of the code; `RuntimeError` if the code waits and no event loop could wake it.
pub fn step<'py>(asyncio: &Asyncio, coroutine: Bound<'py, PyAny>) -> PyResult<First<'py>> {
    let py = coroutine.py();
    let context = Context::copy(py)?;
    let Some((event_loop, evaluation)) = asyncio.ready(py)? else {
        return match context.within(|| send(&coroutine))? {
            Sent::Returned(result) => Ok(First::Returned(result)),
            Sent::Raised(error) => Err(error),
            Sent::Waits(_) => {
                coroutine.call_method0(intern!(py, "close"))?;
                Err(PyRuntimeError::new_err(
                    "this code has to wait, and no event loop runs here: call it from code that `asyncio.run` runs",
                ))
            }
        };
    };
    let before = asyncio.enter(&event_loop, &evaluation)?;
    let sent = context.within(|| send(&coroutine));
    asyncio.leave(&event_loop, before.as_ref())?;
    match sent? {
        Sent::Returned(result) => {
            if let Some(kept) = asyncio.give_back(evaluation) {
                kept.call_method1(intern!(py, "_settle"), (event_loop, &result, py.None()))?;
            }
            Ok(First::Returned(result))
        }
        Sent::Raised(error) => {
            if let Some(kept) = asyncio.give_back(evaluation) {
                kept.call_method1(intern!(py, "_settle"), (event_loop, py.None(), error.value(py)))?;
            }
            Err(error)
        }
        Sent::Waits(waits_for) => {
            Ok(First::Waits(Waiting { coroutine, evaluation, event_loop, context, waits_for }))
        }
    }
}

impl<'py> Waiting<'py> {
    /// Makes an evaluation of the rest of the code. With `forget`, no caller awaits it, and its failure is
    /// reported to the hook.
    ///
    /// # Errors
    /// The exceptions of asyncio.
    pub fn resume(self, asyncio: &Asyncio, forget: bool) -> PyResult<Bound<'py, PyAny>> {
        let Self { coroutine, evaluation, event_loop, context, waits_for } = self;
        let driver =
            Driver::adopt(asyncio, coroutine, &evaluation, &event_loop, context.into_inner(), Some(forget))?;
        Driver::wait_for(&driver, asyncio, &waits_for)?;
        Ok(evaluation)
    }
}
