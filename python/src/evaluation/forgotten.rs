//! Code of `call_and_forget`. An evaluation is created only if it waits.

use pyo3::prelude::*;

use super::asyncio::Asyncio;
use super::first::{First, step};
use crate::event_loop::ends_program;

/// Runs the first step of a coroutine whose result no code awaits. A failure is reported to the hook that
/// `on_forgotten` sets.
///
/// # Errors
/// `KeyboardInterrupt` and `SystemExit`; the exceptions of asyncio and of the hook.
pub fn begin_forgotten<'py>(
    asyncio: &Asyncio,
    coroutine: Bound<'py, PyAny>,
    event_loop: &Bound<'py, PyAny>,
) -> PyResult<()> {
    let py = coroutine.py();
    match step(asyncio, coroutine) {
        Ok(First::Returned(_)) => Ok(()),
        Ok(First::Waits(waiting)) => waiting.resume(asyncio, true).map(drop),
        Err(error) if error.is_instance(py, asyncio.cancelled.bind(py)) => Ok(()),
        Err(error) if ends_program(py, &error) => Err(error),
        Err(error) => asyncio.forgotten.bind(py).call1((error.into_value(py), event_loop)).map(drop),
    }
}
