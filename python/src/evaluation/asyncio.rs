//! What is needed of asyncio, looked up once.
//!
//! asyncio's guide on extending it names the functions by which tasks that are not its own become visible as the current one
//! and among all.

use std::sync::Mutex;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyType};

use super::interpreter::is_unshared;

static ASYNCIO: PyOnceLock<Asyncio> = PyOnceLock::new();

/// Functions and classes of asyncio, and the class `Evaluation`.
pub struct Asyncio {
    running_loop: Py<PyAny>,
    current: Current,
    register: Py<PyAny>,
    /// `asyncio.CancelledError`.
    pub cancelled: Py<PyType>,
    /// `thalweg.evaluations.Evaluation`, a subclass of `asyncio.Future`.
    pub evaluation: Py<PyType>,
    /// `types.CoroutineType`.
    pub coroutine: Py<PyType>,
    /// Makes a coroutine of anything that can be awaited.
    pub as_coroutine: Py<PyAny>,
    /// Tells of a failure that nobody awaits.
    pub forgotten: Py<PyAny>,
    /// An evaluation that was shown as the current task and that nobody kept.
    spare: Mutex<Option<Py<PyAny>>>,
}

/// How the current task of an event loop is set.
enum Current {
    /// From Python 3.12 on: a function that gives the one before.
    Function(Py<PyAny>),
    /// Before: the tasks by their loops. The functions for it would be four calls for an exchange and back.
    Table(Py<PyDict>),
}

impl Asyncio {
    /// Looks it up the first time.
    ///
    /// # Errors
    /// What importing raises.
    pub fn get(py: Python<'_>) -> PyResult<&Self> {
        ASYNCIO.get_or_try_init(py, || {
            let asyncio = py.import("asyncio")?;
            let tasks = py.import("asyncio.tasks")?;
            let ours = py.import("thalweg.evaluations")?;
            let current = match tasks.getattr_opt("_swap_current_task")? {
                Some(swap) => Current::Function(swap.unbind()),
                None => Current::Table(tasks.getattr("_current_tasks")?.cast_into::<PyDict>()?.unbind()),
            };
            let class = |of: &Bound<'_, PyAny>, name: &str| -> PyResult<Py<PyType>> {
                Ok(of.getattr(name)?.cast_into::<PyType>()?.unbind())
            };
            Ok(Self {
                running_loop: asyncio.getattr("_get_running_loop")?.unbind(),
                current,
                register: asyncio.getattr("_register_task")?.unbind(),
                cancelled: class(asyncio.as_any(), "CancelledError")?,
                evaluation: class(ours.as_any(), "Evaluation")?,
                coroutine: class(py.import("types")?.as_any(), "CoroutineType")?,
                as_coroutine: ours.getattr("_as_coroutine")?.unbind(),
                forgotten: ours.getattr("_tell_of_forgotten")?.unbind(),
                spare: Mutex::new(None),
            })
        })
    }

    /// The event loop that runs on this thread.
    ///
    /// # Errors
    /// None that asyncio documents.
    pub fn running_loop<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let found = self.running_loop.bind(py).call0()?;
        Ok((!found.is_none()).then_some(found))
    }

    /// Makes something the current task of a loop (`None` for no task), and gives what was it before.
    ///
    /// # Errors
    /// What asyncio raises.
    pub fn exchange_current<'py>(
        &self,
        event_loop: &Bound<'py, PyAny>,
        task: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = event_loop.py();
        match &self.current {
            Current::Function(exchange) => {
                let none = py.None();
                let before = exchange.bind(py).call1((event_loop, task.unwrap_or(none.bind(py))))?;
                Ok((!before.is_none()).then_some(before))
            }
            Current::Table(table) => {
                let table = table.bind(py);
                let before = table.get_item(event_loop)?;
                match task {
                    Some(task) => table.set_item(event_loop, task)?,
                    None if before.is_some() => table.del_item(event_loop)?,
                    None => {}
                }
                Ok(before)
            }
        }
    }

    /// Makes an evaluation visible in `asyncio.all_tasks()`, so that `asyncio.run` ends it. It is seen only while it is not done.
    ///
    /// # Errors
    /// What asyncio raises.
    pub fn register(&self, evaluation: &Bound<'_, PyAny>) -> PyResult<()> {
        self.register.bind(evaluation.py()).call1((evaluation,)).map(drop)
    }

    /// An evaluation that has no loop yet.
    ///
    /// # Errors
    /// `MemoryError`.
    pub fn unused<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let spare = self.spare.lock().ok().and_then(|mut spare| spare.take());
        if let Some(spare) = spare {
            return Ok(spare.into_bound(py));
        }
        let class = self.evaluation.bind(py);
        class.call_method1(intern!(py, "__new__"), (class,))
    }

    /// Takes an evaluation back that was not used, unless somebody kept it.
    pub fn give_back(&self, evaluation: Bound<'_, PyAny>) {
        if is_unshared(&evaluation)
            && let Ok(mut spare) = self.spare.lock()
        {
            *spare = Some(evaluation.unbind());
        }
    }
}
