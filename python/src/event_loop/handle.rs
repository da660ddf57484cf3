//! The handles of callbacks, as those of asyncio.

use parking_lot::Mutex;
use pyo3::PyTraverseError;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::pyclass::CompareOp;
use pyo3::types::PyTuple;

use super::core::EventLoopCore;
use super::job::{ends_program, report};
use super::timers::Key;
use crate::evaluation::Context;

/// A callback in its context.
pub struct Callback {
    function: Py<PyAny>,
    arguments: Py<PyTuple>,
    context: Py<PyAny>,
}

impl Callback {
    /// Binds a callback to a context, or to the current one.
    ///
    /// # Errors
    /// `MemoryError`.
    pub fn new(
        function: Bound<'_, PyAny>,
        arguments: Bound<'_, PyTuple>,
        context: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let context = match context {
            Some(context) => context,
            None => Context::copy(function.py())?.into_inner(),
        };
        Ok(Self { function: function.unbind(), arguments: arguments.unbind(), context: context.unbind() })
    }

    fn call(&self, py: Python<'_>) -> PyResult<()> {
        let context = Context::of(self.context.bind(py).clone());
        context.within(|| self.function.bind(py).call1(self.arguments.bind(py)).map(drop))?
    }

    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.function)?;
        visit.call(&self.arguments)?;
        visit.call(&self.context)
    }

    fn clone_ref(&self, py: Python<'_>) -> Self {
        Self {
            function: self.function.clone_ref(py),
            arguments: self.arguments.clone_ref(py),
            context: self.context.clone_ref(py),
        }
    }
}

/// Reports the failure of a callback to the event loop.
fn reported(
    result: PyResult<()>,
    callback: &Callback,
    handle: &Bound<'_, PyAny>,
    event_loop: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let py = handle.py();
    match result {
        Err(error) if !ends_program(py, &error) => {
            let source = py.import("asyncio.format_helpers")?;
            let text =
                source.call_method1("_format_callback_source", (&callback.function, &callback.arguments))?;
            report(event_loop, &format!("Exception in callback {text}"), error, Some(handle))
        }
        result => result,
    }
}

fn describe(py: Python<'_>, kind: &str, callback: Option<&Callback>, when: Option<f64>) -> PyResult<String> {
    let mut text = format!("<{kind}");
    if callback.is_none() {
        text.push_str(" cancelled");
    }
    if let Some(when) = when {
        text.push_str(&format!(" when={when}"));
    }
    if let Some(callback) = callback {
        let source = py.import("asyncio.format_helpers")?;
        let source =
            source.call_method1("_format_callback_source", (&callback.function, &callback.arguments))?;
        text.push_str(&format!(" {source}"));
    }
    text.push('>');
    Ok(text)
}

/// A callback of `call_soon`. It is cancelled by `cancel`.
#[pyclass(frozen, weakref, module = "thalweg._thalweg")]
pub struct Handle {
    /// Absent once cancelled.
    callback: Mutex<Option<Callback>>,
}

impl Handle {
    /// Makes a handle.
    pub fn new(callback: Callback) -> Self {
        Self { callback: Mutex::new(Some(callback)) }
    }

    /// Runs the callback, unless it was cancelled.
    ///
    /// # Errors
    /// `KeyboardInterrupt` and `SystemExit`.
    pub fn run(slf: &Bound<'_, Self>, event_loop: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = slf.py();
        // Code that still has the handle, such as a reader of a descriptor, may run it again.
        let is_unshared = crate::evaluation::is_unshared(slf);
        let callback = if is_unshared {
            slf.get().callback.lock().take()
        } else {
            slf.get().callback.lock().as_ref().map(|callback| callback.clone_ref(py))
        };
        let Some(callback) = callback else { return Ok(()) };
        let result = callback.call(py);
        if is_unshared && result.is_err() {
            // The report shows the handle.
            *slf.get().callback.lock() = Some(callback.clone_ref(py));
        }
        reported(result, &callback, slf, event_loop)
    }
}

#[pymethods]
impl Handle {
    /// Cancels the callback.
    fn cancel(&self) {
        let callback = self.callback.lock().take();
        drop(callback);
    }

    /// True if `cancel` was called.
    fn cancelled(&self) -> bool {
        self.callback.lock().is_none()
    }

    /// The context in which the callback runs.
    fn get_context(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.callback.lock().as_ref().map(|callback| callback.context.clone_ref(py))
    }

    // The names that code over asyncio's own handles uses.
    #[getter]
    fn _cancelled(&self) -> bool {
        self.cancelled()
    }

    #[getter]
    fn _callback(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.callback.lock().as_ref().map(|callback| callback.function.clone_ref(py))
    }

    #[getter]
    fn _args(&self, py: Python<'_>) -> Option<Py<PyTuple>> {
        self.callback.lock().as_ref().map(|callback| callback.arguments.clone_ref(py))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let callback = self.callback.lock().as_ref().map(|callback| callback.clone_ref(py));
        describe(py, "Handle", callback.as_ref(), None)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        match self.callback.try_lock() {
            Some(callback) => callback.as_ref().map_or(Ok(()), |callback| callback.traverse(&visit)),
            None => Ok(()),
        }
    }
}

/// A callback of `call_later` or `call_at`. It is cancelled by `cancel`, which removes its timer.
#[pyclass(frozen, weakref, module = "thalweg._thalweg")]
pub struct TimerHandle {
    when: f64,
    event_loop: Py<EventLoopCore>,
    state: Mutex<Timed>,
}

struct Timed {
    /// Absent once cancelled.
    callback: Option<Callback>,
    /// The timer, until it fires.
    key: Option<Key>,
}

impl TimerHandle {
    /// Makes a handle, whose timer is not set yet.
    pub fn new(callback: Callback, when: f64, event_loop: Py<EventLoopCore>) -> Self {
        Self { when, event_loop, state: Mutex::new(Timed { callback: Some(callback), key: None }) }
    }

    /// Notes its timer.
    pub fn set(&self, key: Key) {
        self.state.lock().key = Some(key);
    }

    /// Runs the callback, unless it was cancelled.
    ///
    /// # Errors
    /// `KeyboardInterrupt` and `SystemExit`.
    pub fn run(slf: &Bound<'_, Self>, event_loop: &Bound<'_, PyAny>) -> PyResult<()> {
        let callback = {
            let mut state = slf.get().state.lock();
            state.key = None;
            state.callback.as_ref().map(|callback| callback.clone_ref(slf.py()))
        };
        let Some(callback) = callback else { return Ok(()) };
        reported(callback.call(slf.py()), &callback, slf, event_loop)
    }
}

#[pymethods]
impl TimerHandle {
    /// Cancels the callback.
    fn cancel(&self) {
        let (callback, key) = {
            let mut state = self.state.lock();
            (state.callback.take(), state.key.take())
        };
        let timer = key.and_then(|key| self.event_loop.get().queues().timers.remove(key));
        drop((callback, timer));
    }

    /// True if `cancel` was called.
    fn cancelled(&self) -> bool {
        self.state.lock().callback.is_none()
    }

    /// The time at which the callback is due, as `loop.time()` counts it.
    fn when(&self) -> f64 {
        self.when
    }

    /// The context in which the callback runs.
    fn get_context(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.state.lock().callback.as_ref().map(|callback| callback.context.clone_ref(py))
    }

    #[getter]
    fn _when(&self) -> f64 {
        self.when
    }

    #[getter]
    fn _cancelled(&self) -> bool {
        self.cancelled()
    }

    #[getter]
    fn _callback(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.state.lock().callback.as_ref().map(|callback| callback.function.clone_ref(py))
    }

    #[getter]
    fn _args(&self, py: Python<'_>) -> Option<Py<PyTuple>> {
        self.state.lock().callback.as_ref().map(|callback| callback.arguments.clone_ref(py))
    }

    #[getter]
    fn _scheduled(&self) -> bool {
        self.state.lock().key.is_some()
    }

    fn __hash__(&self) -> u64 {
        self.when.to_bits()
    }

    fn __richcmp__(slf: &Bound<'_, Self>, other: &Bound<'_, Self>, how: CompareOp) -> bool {
        match how {
            CompareOp::Eq => slf.is(other),
            CompareOp::Ne => !slf.is(other),
            how => how.matches(slf.get().when.total_cmp(&other.get().when)),
        }
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let callback = self.state.lock().callback.as_ref().map(|callback| callback.clone_ref(py));
        describe(py, "TimerHandle", callback.as_ref(), Some(self.when))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.event_loop)?;
        match self.state.try_lock() {
            Some(state) => state.callback.as_ref().map_or(Ok(()), |callback| callback.traverse(&visit)),
            None => Ok(()),
        }
    }
}
