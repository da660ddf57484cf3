//! Procs: code that can be called concurrently.

use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyType};

use super::asyncio::Asyncio;
use super::driver::Driver;
use super::first::{First, step};
use super::forgotten::Forgotten;
use super::interpreter::Context;

/// An `async def` function that can be called in four ways; only one of them makes the caller wait.
#[pyclass(frozen, weakref, module = "thalweg.evaluations")]
pub struct ConcurrentProc {
    function: Py<PyAny>,
}

impl ConcurrentProc {
    fn begin<'py>(
        &self,
        asyncio: &Asyncio,
        arguments: &Bound<'py, PyTuple>,
        keywords: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let made = self.function.bind(arguments.py()).call(arguments, keywords)?;
        coroutine_of(asyncio, made)
    }
}

/// Returns a coroutine for the result of an asynchronous function.
fn coroutine_of<'py>(asyncio: &Asyncio, made: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = made.py();
    if made.get_type().is(&asyncio.coroutine) {
        return Ok(made);
    }
    asyncio.as_coroutine.bind(py).call1((made,))
}

/// Returns the event loop of this thread.
fn event_loop<'py>(py: Python<'py>, asyncio: &Asyncio) -> PyResult<Bound<'py, PyAny>> {
    asyncio.running_loop(py)?.ok_or_else(|| {
        PyRuntimeError::new_err("no event loop runs here: call it from code that `asyncio.run` runs")
    })
}

/// Schedules code, and returns its evaluation.
fn detach<'py>(
    asyncio: &Asyncio,
    event_loop: &Bound<'py, PyAny>,
    coroutine: Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = coroutine.py();
    let evaluation = asyncio.unused(py)?;
    let context = Context::copy(py)?.into_inner();
    let driver = Driver::adopt(asyncio, coroutine, &evaluation, event_loop, context, None)?;
    Driver::schedule(&driver, asyncio, None)?;
    Ok(evaluation)
}

/// Schedules a coroutine on the running event loop, and returns its evaluation.
#[pyfunction]
#[pyo3(signature = (code, /))]
pub fn evaluate<'py>(code: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = code.py();
    let asyncio = Asyncio::get(py)?;
    let coroutine = coroutine_of(asyncio, code)?;
    match event_loop(py, asyncio) {
        Ok(event_loop) => detach(asyncio, &event_loop, coroutine),
        Err(error) => {
            // The coroutine will not be awaited, and the interpreter would warn about it.
            coroutine.call_method0(intern!(py, "close"))?;
            Err(error)
        }
    }
}

#[pymethods]
impl ConcurrentProc {
    #[new]
    #[pyo3(signature = (function, /))]
    fn new(function: Bound<'_, PyAny>) -> PyResult<Self> {
        if !function.is_callable() {
            let text = format!("a concurrent proc needs an `async def` function, not {function:?}");
            return Err(PyTypeError::new_err(text));
        }
        Ok(Self { function: function.unbind() })
    }

    /// Runs the code as a part of the caller, which awaits the result: `await proc.call(…)`.
    #[pyo3(signature = (*args, **kwargs))]
    fn call<'py>(
        &self,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.function.bind(args.py()).call(args, kwargs)
    }

    /// The same as `call`.
    #[pyo3(signature = (*args, **kwargs))]
    fn __call__<'py>(
        &self,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.call(args, kwargs)
    }

    /// Runs the code immediately, until it first has to wait. Returns its result if it never waits, and
    /// otherwise an evaluation that continues without the caller. An exception before the first wait is
    /// raised to the caller.
    #[pyo3(signature = (*args, **kwargs))]
    fn call_nonblock<'py>(
        &self,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = args.py();
        let asyncio = Asyncio::get(py)?;
        match step(asyncio, self.begin(asyncio, args, kwargs)?)? {
            First::Waits(waiting) => waiting.resume(asyncio, false),
            First::Returned(result) if result.get_type().is(&asyncio.evaluation) => {
                // The caller awaits any evaluation it receives, so a result that is an evaluation is wrapped.
                let class = asyncio.evaluation.bind(py);
                class.call_method1(intern!(py, "_concluded"), (result,))
            }
            First::Returned(result) => Ok(result),
        }
    }

    /// Schedules the code, which starts at the next turn of the event loop, and returns its evaluation.
    #[pyo3(signature = (*args, **kwargs))]
    fn call_detached<'py>(
        &self,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let asyncio = Asyncio::get(args.py())?;
        let event_loop = event_loop(args.py(), asyncio)?;
        detach(asyncio, &event_loop, self.begin(asyncio, args, kwargs)?)
    }

    /// Schedules the code and discards its result. A failure is reported to the hook that `on_forgotten`
    /// sets.
    #[pyo3(signature = (*args, **kwargs))]
    fn call_and_forget<'py>(
        &self,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<()> {
        let py = args.py();
        let asyncio = Asyncio::get(py)?;
        let event_loop = event_loop(py, asyncio)?;
        let forgotten = Forgotten::new(self.begin(asyncio, args, kwargs)?, &event_loop);
        event_loop.call_method1(intern!(py, "call_soon"), (forgotten,)).map(drop)
    }

    /// The wrapped function.
    #[getter]
    fn __wrapped__(&self, py: Python<'_>) -> Py<PyAny> {
        self.function.clone_ref(py)
    }

    /// Binds the proc as a method of a class.
    fn __get__<'py>(
        slf: Bound<'py, Self>,
        instance: Bound<'py, PyAny>,
        owner: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let function = slf.get().function.bind(py);
        let Some(bind) = function.getattr_opt(intern!(py, "__get__"))? else {
            return Ok(slf.into_any());
        };
        let bound = bind.call1((&instance, owner))?;
        if bound.is(function) {
            return Ok(slf.into_any());
        }
        Ok(Bound::new(py, Self { function: bound.unbind() })?.into_any())
    }

    /// Supports annotations: `ConcurrentProc[[int], str]`.
    #[classmethod]
    fn __class_getitem__<'py>(
        class: &Bound<'py, PyType>,
        item: Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        class.py().import("types")?.getattr("GenericAlias")?.call1((class, item))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("<ConcurrentProc of {}>", self.function.bind(py).repr()?))
    }
}
