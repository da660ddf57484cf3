//! The parts of asyncio that this module needs, looked up once.
//!
//! asyncio's guide "Extending" names the functions by which foreign tasks become visible as the current task
//! and among all tasks.

use std::cell::RefCell;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList, PySet, PyString, PyTuple, PyType, PyWeakrefReference};

use super::interpreter::{call_method, create, initialise, is_unshared, thread_note};

static ASYNCIO: PyOnceLock<Asyncio> = PyOnceLock::new();

/// Functions and classes of asyncio, and the class `Evaluation`.
pub struct Asyncio {
    running_loop: Py<PyAny>,
    current: Current,
    register: Py<PyAny>,
    /// The set within asyncio's list of all tasks, and the callback of the entries in it.
    all_tasks: Option<(Py<PySet>, Py<PyAny>)>,
    timed_out: Py<PyAny>,
    /// Hooks for the failures of all procs.
    pub error_hooks: Py<PyList>,
    /// Wraps a coroutine whose failure has hooks.
    pub watched: Py<PyAny>,
    /// `asyncio.CancelledError`.
    pub cancelled: Py<PyType>,
    /// `thalweg.evaluations.Evaluation`, a subclass of `asyncio.Future`.
    pub evaluation: Py<PyType>,
    /// `types.CoroutineType`.
    pub coroutine: Py<PyType>,
    /// Wraps anything awaitable in a coroutine.
    pub as_coroutine: Py<PyAny>,
    /// Reports a failure that no code awaits.
    pub forgotten: Py<PyAny>,
    /// `asyncio.Future`.
    future: Py<PyType>,
    /// `asyncio.Task`.
    task: Py<PyType>,
    /// `("context",)`.
    context: Py<PyTuple>,
    /// `()`.
    nothing: Py<PyTuple>,
}

thread_local! {
    static HERE: RefCell<Here> = const { RefCell::new(Here { running: None, spare: None }) };
}

/// Cached for the next call on a thread.
struct Here {
    running: Option<Running>,
    /// An evaluation for the next call. It was the current task, and no reference to it was kept.
    spare: Option<Py<PyAny>>,
}

/// A running event loop.
struct Running {
    /// The object that the interpreter has noted for the loop. The loop runs as long as the interpreter notes
    /// the same object.
    note: Py<PyAny>,
    event_loop: Py<PyAny>,
    /// `{"loop": event_loop}`.
    of_loop: Py<PyDict>,
}

/// Clears the cached loop of a thread. After a fork, no event loop runs in the new process.
#[pyfunction]
pub fn forget_loop() {
    let forgotten = HERE.with(|here| here.try_borrow_mut().ok().and_then(|mut here| here.running.take()));
    drop(forgotten);
}

fn of_loop<'py>(event_loop: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
    let keywords = PyDict::new(event_loop.py());
    keywords.set_item(intern!(event_loop.py(), "loop"), event_loop)?;
    Ok(keywords)
}

/// Returns the set within asyncio's list of all tasks, and the callback of the entries in it.
fn all_tasks(tasks: &Bound<'_, PyAny>) -> PyResult<Option<(Py<PySet>, Py<PyAny>)>> {
    // The first is its name from Python 3.12 on.
    for name in ["_scheduled_tasks", "_all_tasks"] {
        if let Some(list) = tasks.getattr_opt(name)?
            && let (Some(entries), Some(removed)) = (list.getattr_opt("data")?, list.getattr_opt("_remove")?)
            && let Ok(entries) = entries.cast_into_exact::<PySet>()
        {
            return Ok(Some((entries.unbind(), removed.unbind())));
        }
    }
    Ok(None)
}

/// How the current task of an event loop is set.
enum Current {
    /// Up to Python 3.13: the table of current tasks by loop. The functions for it would need two to four
    /// calls for a swap and back, which take half as long as all the rest.
    Table(Py<PyDict>),
    /// From then on: a function that sets the task and returns the previous one, and one that returns it.
    Function(Py<PyAny>, Py<PyAny>),
}

impl Asyncio {
    /// Returns the instance; the first call looks everything up.
    ///
    /// # Errors
    /// The exception of an import.
    pub fn get(py: Python<'_>) -> PyResult<&Self> {
        ASYNCIO.get_or_try_init(py, || {
            let asyncio = py.import("asyncio")?;
            let tasks = py.import("asyncio.tasks")?;
            let ours = py.import("thalweg.evaluations")?;
            let with = PyDict::new(py);
            with.set_item("after_in_child", wrap_pyfunction!(forget_loop, py)?)?;
            py.import("os")?.call_method("register_at_fork", (), Some(&with))?;
            // asyncio's own tasks are in the table of this module.
            let current = match py.import("_asyncio")?.getattr_opt("_current_tasks")? {
                Some(table) => Current::Table(table.cast_into::<PyDict>()?.unbind()),
                None => Current::Function(
                    tasks.getattr("_swap_current_task")?.unbind(),
                    tasks.getattr("current_task")?.unbind(),
                ),
            };
            let class = |of: &Bound<'_, PyAny>, name: &str| -> PyResult<Py<PyType>> {
                Ok(of.getattr(name)?.cast_into::<PyType>()?.unbind())
            };
            Ok(Self {
                running_loop: asyncio.getattr("_get_running_loop")?.unbind(),
                current,
                register: asyncio.getattr("_register_task")?.unbind(),
                all_tasks: all_tasks(tasks.as_any())?,
                timed_out: ours.getattr("_timed_out")?.unbind(),
                error_hooks: ours.getattr("_error_hooks")?.cast_into::<PyList>()?.unbind(),
                watched: ours.getattr("_watched")?.unbind(),
                cancelled: class(asyncio.as_any(), "CancelledError")?,
                evaluation: class(ours.as_any(), "Evaluation")?,
                coroutine: class(py.import("types")?.as_any(), "CoroutineType")?,
                as_coroutine: ours.getattr("_as_coroutine")?.unbind(),
                forgotten: ours.getattr("_tell_of_forgotten")?.unbind(),
                future: class(asyncio.as_any(), "Future")?,
                task: class(asyncio.as_any(), "Task")?,
                nothing: PyTuple::empty(py).unbind(),
                context: PyTuple::new(py, [intern!(py, "context")])?.unbind(),
            })
        })
    }

    /// Returns the event loop that runs on this thread.
    ///
    /// # Errors
    /// None that asyncio documents.
    pub fn running_loop<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let found = self.running_loop.bind(py).call0()?;
        Ok((!found.is_none()).then_some(found))
    }

    /// Returns the event loop that runs on this thread, and an evaluation that is not yet a future of it.
    ///
    /// Up to Python 3.12, asyncio's own function asks the system for the process id at each call. That takes
    /// as long as the rest of a call that does not wait. Therefore its result is cached together with the
    /// object that asyncio notes for this thread, and is valid while that object is the same.
    ///
    /// # Errors
    /// `MemoryError`.
    #[inline]
    pub fn ready<'py>(&self, py: Python<'py>) -> PyResult<Option<(Bound<'py, PyAny>, Bound<'py, PyAny>)>> {
        let note = thread_note(intern!(py, "__asyncio_running_event_loop__"));
        let known = HERE.with_borrow_mut(|here| {
            let running = here.running.as_ref()?;
            if !note.as_ref().is_some_and(|note| running.note.is(note)) {
                return None;
            }
            Some((running.event_loop.bind(py).clone(), here.spare.take()))
        });
        match known {
            Some((event_loop, Some(spare))) => Ok(Some((event_loop, spare.into_bound(py)))),
            Some((event_loop, None)) => Ok(Some((event_loop, self.unused(py)?))),
            None => self.make_ready(py, note),
        }
    }

    /// [`ready`](Self::ready) for a thread without a cached loop: asyncio notes no object (from Python 3.13
    /// on), or a different one.
    fn make_ready<'py>(
        &self,
        py: Python<'py>,
        note: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<(Bound<'py, PyAny>, Bound<'py, PyAny>)>> {
        let Some(event_loop) = self.remember(py, note)? else {
            return Ok(None);
        };
        match HERE.with_borrow_mut(|here| here.spare.take()) {
            Some(spare) => Ok(Some((event_loop, spare.into_bound(py)))),
            None => Ok(Some((event_loop, self.unused(py)?))),
        }
    }

    /// Asks asyncio for the event loop of this thread, and caches it.
    fn remember<'py>(
        &self,
        py: Python<'py>,
        note: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(event_loop) = self.running_loop(py)? else {
            return Ok(None);
        };
        if let Some(note) = note {
            let running = Running {
                note: note.unbind(),
                event_loop: event_loop.clone().unbind(),
                of_loop: of_loop(&event_loop)?.unbind(),
            };
            let before = HERE.with_borrow_mut(|here| here.running.replace(running));
            // Dropping may run Python code, so nothing is borrowed here.
            drop(before);
        }
        Ok(Some(event_loop))
    }

    /// Returns the event loop that runs on this thread, which is usually known.
    ///
    /// # Errors
    /// None that asyncio documents.
    pub fn here<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let note = thread_note(intern!(py, "__asyncio_running_event_loop__"));
        let known = HERE.with_borrow(|here| {
            let running = here.running.as_ref()?;
            let note = note.as_ref()?;
            running.note.is(note).then(|| running.event_loop.bind(py).clone())
        });
        match known {
            Some(event_loop) => Ok(Some(event_loop)),
            None => self.remember(py, note),
        }
    }

    /// Calls `call_soon` of an event loop with a callback, its argument and its context.
    ///
    /// # Errors
    /// `RuntimeError` if the loop is closed.
    pub fn call_soon<'py>(
        &self,
        event_loop: &Bound<'py, PyAny>,
        callback: &Bound<'py, PyAny>,
        argument: &Bound<'py, PyAny>,
        context: &Bound<'py, PyAny>,
    ) -> PyResult<()> {
        let py = event_loop.py();
        let name = intern!(py, "call_soon");
        call_method(event_loop, name, &[callback, argument], self.context.bind(py), context).map(drop)
    }

    /// Returns an evaluation that is not yet a future.
    ///
    /// # Errors
    /// `MemoryError`.
    pub fn unused<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        create(self.evaluation.bind(py), self.nothing.bind(py))
    }

    /// True if the current task of a loop is a task of asyncio, and no evaluation.
    ///
    /// # Errors
    /// The exceptions of asyncio.
    pub fn is_in_task(&self, event_loop: &Bound<'_, PyAny>) -> PyResult<bool> {
        let py = event_loop.py();
        let current = match &self.current {
            Current::Function(_, current) => Some(current.bind(py).call1((event_loop,))?),
            Current::Table(table) => table.bind(py).get_item(event_loop)?,
        };
        Ok(current.is_some_and(|current| current.get_type().is(&self.task)))
    }

    /// Makes an evaluation the current task of a loop, and returns the previous one.
    ///
    /// # Errors
    /// The exceptions of asyncio.
    #[inline]
    pub fn enter<'py>(
        &self,
        event_loop: &Bound<'py, PyAny>,
        evaluation: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = event_loop.py();
        match &self.current {
            Current::Function(exchange, _) => {
                let before = exchange.bind(py).call1((event_loop, evaluation))?;
                Ok((!before.is_none()).then_some(before))
            }
            Current::Table(table) => {
                let table = table.bind(py);
                let before = table.get_item(event_loop)?;
                table.set_item(event_loop, evaluation)?;
                Ok(before)
            }
        }
    }

    /// Makes an evaluation the current task of a loop that has no task to return to.
    ///
    /// # Errors
    /// The exceptions of asyncio.
    #[inline]
    pub fn set_current(&self, event_loop: &Bound<'_, PyAny>, evaluation: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = event_loop.py();
        match &self.current {
            Current::Function(exchange, _) => exchange.bind(py).call1((event_loop, evaluation)).map(drop),
            Current::Table(table) => table.bind(py).set_item(event_loop, evaluation),
        }
    }

    /// Undoes [`enter`](Self::enter): restores the previous current task.
    ///
    /// # Errors
    /// The exceptions of asyncio.
    #[inline]
    pub fn leave<'py>(
        &self,
        event_loop: &Bound<'py, PyAny>,
        before: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<()> {
        let py = event_loop.py();
        match (&self.current, before) {
            (Current::Function(exchange, _), before) => {
                let none = py.None();
                exchange.bind(py).call1((event_loop, before.unwrap_or(none.bind(py)))).map(drop)
            }
            (Current::Table(table), Some(before)) => table.bind(py).set_item(event_loop, before),
            (Current::Table(table), None) => table.bind(py).del_item(event_loop),
        }
    }

    /// Calls a method that schedules a callback in a context: `call_soon`, `add_done_callback`.
    ///
    /// # Errors
    /// The exceptions of that method.
    pub fn later<'py>(
        &self,
        object: &Bound<'py, PyAny>,
        method: &Bound<'py, PyString>,
        callback: &Bound<'py, PyAny>,
        context: &Bound<'py, PyAny>,
    ) -> PyResult<()> {
        call_method(object, method, &[callback], self.context.bind(object.py()), context).map(drop)
    }

    /// Makes an evaluation a future of a loop.
    ///
    /// # Errors
    /// The exceptions of asyncio.
    pub fn make_future<'py>(
        &self,
        evaluation: &Bound<'py, PyAny>,
        event_loop: &Bound<'py, PyAny>,
    ) -> PyResult<()> {
        let py = evaluation.py();
        let of_loop = self.known_of_loop(event_loop)?;
        initialise(self.future.bind(py), evaluation, self.nothing.bind(py), &of_loop)
    }

    /// Makes an evaluation visible in `asyncio.all_tasks()`, so that `asyncio.run` cancels it. Returns its
    /// entry, if it has to be taken out at the end.
    ///
    /// asyncio's list is a `WeakSet`. Its methods are written in Python and take longer than a step, so the
    /// entry, a weak reference, is put into the set within it.
    ///
    /// # Errors
    /// The exceptions of asyncio.
    pub fn register(&self, evaluation: &Bound<'_, PyAny>) -> PyResult<Option<Py<PyAny>>> {
        let py = evaluation.py();
        let Some((entries, removed)) = &self.all_tasks else {
            return self.register.bind(py).call1((evaluation,)).map(|_| None);
        };
        let entry = PyWeakrefReference::new_with(evaluation, removed.bind(py))?;
        entries.bind(py).add(&entry)?;
        Ok(Some(entry.into_any().unbind()))
    }

    /// Takes the entry of an evaluation that ended out of asyncio's list.
    pub fn unregister(&self, entry: &Bound<'_, PyAny>) {
        if let Some((entries, _)) = &self.all_tasks {
            // The entry may be gone: the list belongs to asyncio.
            let _ = entries.bind(entry.py()).discard(entry);
        }
    }

    /// Returns a future of an event loop.
    ///
    /// # Errors
    /// The exceptions of asyncio.
    pub fn create_future<'py>(&self, event_loop: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = event_loop.py();
        let of_loop = self.known_of_loop(event_loop)?;
        self.future.bind(py).call((), Some(&of_loop))
    }

    /// Returns `{"loop": event_loop}`.
    fn known_of_loop<'py>(&self, event_loop: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
        let known = HERE.with_borrow(|here| {
            let running = here.running.as_ref().filter(|running| running.event_loop.is(event_loop))?;
            Some(running.of_loop.bind(event_loop.py()).clone())
        });
        known.map_or_else(|| of_loop(event_loop), Ok)
    }

    /// Returns the exception for a wait whose time limit is reached.
    pub fn timed_out(&self, py: Python<'_>, seconds: Option<f64>) -> PyErr {
        match self.timed_out.bind(py).call1((seconds,)) {
            Ok(error) => PyErr::from_value(error),
            Err(error) => error,
        }
    }

    /// Returns a `CancelledError` with the message of a cancellation.
    ///
    /// # Errors
    /// `MemoryError`.
    pub fn cancelled_error<'py>(
        &self,
        py: Python<'py>,
        message: Option<Py<PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let class = self.cancelled.bind(py);
        message.map_or_else(|| class.call0(), |message| class.call1((message,)))
    }

    /// Takes back an evaluation that was not used. Returns it instead if another reference to it exists.
    #[inline]
    pub fn give_back<'py>(&self, evaluation: Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
        if is_unshared(&evaluation) {
            let before = HERE.with_borrow_mut(|here| here.spare.replace(evaluation.unbind()));
            drop(before);
            return None;
        }
        Some(evaluation)
    }
}
