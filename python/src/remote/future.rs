//! Futures of asyncio that the runtime's threads conclude.

use std::future::Future;

use pyo3::prelude::*;

use crate::attach::{attach, prepare};
use crate::runtime::runtime;

/// Returns a future of the running event loop. Its result is that of `work`, converted by `show`.
///
/// # Errors
/// `RuntimeError` if no event loop runs.
pub fn future<'py, T: Send + 'static>(
    py: Python<'py>,
    work: impl Future<Output = T> + Send + 'static,
    show: impl FnOnce(Python<'_>, T) -> PyResult<Py<PyAny>> + Send + 'static,
) -> PyResult<Bound<'py, PyAny>> {
    prepare(py)?;
    let event_loop = event_loop(py)?;
    let future = event_loop.call_method0("create_future")?;
    let (event_loop, awaiting) = (event_loop.unbind(), future.clone().unbind());
    runtime()?.spawn(async move {
        let done = work.await;
        attach(|py| {
            // This fails if the event loop has ended; then no task waits for the result.
            let _ = conclude(py, &event_loop, awaiting, show(py, done));
        });
    });
    Ok(future)
}

/// Returns a future that already has its result.
///
/// # Errors
/// `RuntimeError` if no event loop runs.
pub fn done<'py>(py: Python<'py>, result: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let future = event_loop(py)?.call_method0("create_future")?;
    future.call_method1("set_result", (result,))?;
    Ok(future)
}

fn event_loop(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    py.import("asyncio")?.call_method0("get_running_loop")
}

fn conclude(
    py: Python<'_>,
    event_loop: &Py<PyAny>,
    future: Py<PyAny>,
    result: PyResult<Py<PyAny>>,
) -> PyResult<()> {
    let function = py.import("thalweg._future")?.getattr("conclude")?;
    let (result, error) = match result {
        Ok(result) => (Some(result), None),
        Err(error) => (None, Some(error.into_value(py))),
    };
    event_loop.call_method1(py, "call_soon_threadsafe", (function, future, result, error)).map(drop)
}
