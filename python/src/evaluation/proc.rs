//! Procs: code that can be called concurrently.

use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple, PyType};

use super::asyncio::Asyncio;
use super::driver::Driver;
use super::first::{First, step};
use super::interpreter::Context;
use crate::event_loop::{Job, soon};

/// An `async def` function that can be called in four ways; only one of them makes the caller wait.
#[pyclass(frozen, weakref, module = "thalweg.evaluations")]
pub struct ConcurrentProc {
    function: Py<PyAny>,
    /// Hooks for failures of the code. A method shares them with the proc in its class.
    error_hooks: Py<PyList>,
}

impl ConcurrentProc {
    fn begin<'py>(
        &self,
        asyncio: &Asyncio,
        arguments: &Bound<'py, PyTuple>,
        keywords: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = arguments.py();
        let made = self.function.bind(py).call(arguments, keywords)?;
        let coroutine = coroutine_of(asyncio, made)?;
        let (all, own) = (asyncio.error_hooks.bind(py), self.error_hooks.bind(py));
        if all.is_empty() && own.is_empty() {
            return Ok(coroutine);
        }
        asyncio.watched.bind(py).call1((coroutine, own, &self.function))
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
    asyncio.here(py)?.ok_or_else(|| {
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
    Driver::schedule(&driver)?;
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
        let error_hooks = PyList::empty(function.py()).unbind();
        Ok(Self { function: function.unbind(), error_hooks })
    }

    /// Runs the code as a part of the caller, which awaits the result: `await proc.call(…)`.
    #[pyo3(signature = (*args, **kwargs))]
    fn call<'py>(
        &self,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let asyncio = Asyncio::get(args.py())?;
        if asyncio.error_hooks.bind(args.py()).is_empty() && self.error_hooks.bind(args.py()).is_empty() {
            return self.function.bind(args.py()).call(args, kwargs);
        }
        self.begin(asyncio, args, kwargs)
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
        soon(&event_loop, Job::Begin(self.begin(asyncio, args, kwargs)?.unbind()))
    }

    /// Calls `hook` with each exception of the code, however the code is called. Hooks of all procs come
    /// first.
    ///
    /// Returns the hook, to be passed to `remove_error_hook`.
    fn on_error<'py>(&self, hook: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.error_hooks.bind(hook.py()).append(&hook)?;
        Ok(hook)
    }

    /// Removes a hook. `ValueError` if it was not added.
    fn remove_error_hook(&self, hook: &Bound<'_, PyAny>) -> PyResult<()> {
        let hooks = self.error_hooks.bind(hook.py());
        match hooks.index(hook) {
            Ok(at) => hooks.del_item(at),
            Err(_) => Err(PyValueError::new_err(format!("{hook:?} is not a hook of this proc"))),
        }
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
        let error_hooks = slf.get().error_hooks.clone_ref(py);
        Ok(Bound::new(py, Self { function: bound.unbind(), error_hooks })?.into_any())
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
