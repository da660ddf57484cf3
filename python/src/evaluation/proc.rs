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

/// An `async def` function that can be called in four ways, of which one makes the caller wait.
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

/// A coroutine of what an asynchronous function gave.
fn coroutine_of<'py>(asyncio: &Asyncio, made: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = made.py();
    if made.get_type().is(&asyncio.coroutine) {
        return Ok(made);
    }
    asyncio.as_coroutine.bind(py).call1((made,))
}

/// The event loop of this thread, for what needs one.
fn event_loop<'py>(py: Python<'py>, asyncio: &Asyncio) -> PyResult<Bound<'py, PyAny>> {
    asyncio.running_loop(py)?.ok_or_else(|| {
        PyRuntimeError::new_err("no event loop runs here: call it from code that `asyncio.run` runs")
    })
}

/// Schedules code, and gives its evaluation.
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

/// Schedules a coroutine on the event loop that runs, and gives its evaluation.
#[pyfunction]
#[pyo3(signature = (code, /))]
pub fn evaluate<'py>(code: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = code.py();
    let asyncio = Asyncio::get(py)?;
    let coroutine = coroutine_of(asyncio, code)?;
    match event_loop(py, asyncio) {
        Ok(event_loop) => detach(asyncio, &event_loop, coroutine),
        Err(error) => {
            // Nobody will await it, of which the interpreter would warn.
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
            let text =
                format!("a concurrent proc is made of an `async def` function, and not of {function:?}");
            return Err(PyTypeError::new_err(text));
        }
        Ok(Self { function: function.unbind() })
    }

    /// Runs the code as a part of the caller, which awaits what this gives: `await proc.call(…)`.
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

    /// Runs the code at once, until it first has to wait. Gives its result if it never has to, and else the evaluation that goes
    /// on without the caller. What it raises before it waits is the caller's.
    #[pyo3(signature = (*args, **kwargs))]
    fn call_nonblock<'py>(
        &self,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = args.py();
        let asyncio = Asyncio::get(py)?;
        match step(asyncio, self.begin(asyncio, args, kwargs)?)? {
            First::Waits(waiting) => waiting.go_on(asyncio, false),
            First::Returned(result) if result.get_type().is(&asyncio.evaluation) => {
                // What is given stands for waiting only if it can be awaited for the result.
                let class = asyncio.evaluation.bind(py);
                class.call_method1(intern!(py, "_concluded"), (result,))
            }
            First::Returned(result) => Ok(result),
        }
    }

    /// Schedules the code, which starts at the next turn of the event loop, and gives its evaluation.
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

    /// Schedules the code, and wants no result. Its failure is told to the hook that `on_forgotten` sets.
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

    /// The function.
    #[getter]
    fn __wrapped__(&self, py: Python<'_>) -> Py<PyAny> {
        self.function.clone_ref(py)
    }

    /// In a class, a proc is a method.
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

    /// As annotations have it: `ConcurrentProc[[int], str]`.
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
