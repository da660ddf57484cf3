//! Access to the interpreter for threads that it does not own, such as the runtime's, until it ends.
//!
//! CPython terminates a foreign thread that asks for the interpreter during finalization, wherever the thread
//! is. Rust does not survive that. Therefore [`attach`] refuses access as soon as the interpreter begins to
//! end.
//!
//! Threads do not survive a fork, but the count of those that have the interpreter does. A forked child
//! therefore begins a new generation with a count of zero. A lock was rejected: the child cannot release it
//! for threads that it does not have, and would wait for them at its end.
//!
//! See docs/decisions/046-python-runs-on-threads-that-may-block.md.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyCFunction, PyDict};

/// True once the interpreter is ending.
static ENDING: AtomicBool = AtomicBool::new(false);
/// The number of forks between the first process and this one.
static GENERATION: AtomicUsize = AtomicUsize::new(0);
/// The number of threads of this generation that have the interpreter through [`attach`].
static HOLDERS: AtomicUsize = AtomicUsize::new(0);

/// How long the end of the interpreter waits for threads in [`attach`]. A thread that is still there
/// afterwards waits in Python for something that may never come, such as a callback of an aborted run.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often the end of the interpreter looks for such threads.
const LOOK: Duration = Duration::from_millis(1);

/// Registers an exit handler that makes [`attach`] refuse access. Call this before creating a thread that
/// calls [`attach`].
///
/// # Errors
/// `MemoryError`.
pub fn prepare(py: Python<'_>) -> PyResult<()> {
    static PREPARED: PyOnceLock<()> = PyOnceLock::new();
    let prepare = || {
        let end = PyCFunction::new_closure(py, None, None, |arguments, _| {
            ENDING.store(true, Ordering::SeqCst);
            // These threads need the interpreter to finish.
            arguments.py().detach(await_holders);
        })?;
        py.import("atexit")?.call_method1("register", (end,))?;
        let forked = PyCFunction::new_closure(py, None, None, |_, _| {
            GENERATION.fetch_add(1, Ordering::SeqCst);
            HOLDERS.store(0, Ordering::SeqCst);
        })?;
        let options = PyDict::new(py);
        options.set_item("after_in_child", forked)?;
        py.import("os")?.call_method("register_at_fork", (), Some(&options)).map(drop)
    };
    PREPARED.get_or_try_init(py, prepare).map(drop)
}

fn await_holders() {
    let until = Instant::now() + PATIENCE;
    while HOLDERS.load(Ordering::SeqCst) > 0 && Instant::now() < until {
        std::thread::sleep(LOOK);
    }
}

/// Calls `work` with the interpreter. Returns `None` without calling it if the interpreter is ending.
pub fn attach<T>(work: impl FnOnce(Python<'_>) -> T) -> Option<T> {
    // Counted before the check, so that the exit handler either waits for this thread or is seen by it.
    let _held = Held::new();
    if ENDING.load(Ordering::SeqCst) { None } else { Python::try_attach(work) }
}

/// One of [`HOLDERS`], until it is dropped.
struct Held {
    generation: usize,
}

impl Held {
    fn new() -> Self {
        let generation = GENERATION.load(Ordering::SeqCst);
        HOLDERS.fetch_add(1, Ordering::SeqCst);
        Self { generation }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // The thread that forked inside `attach` is not counted in the child.
        if self.generation == GENERATION.load(Ordering::SeqCst) {
            HOLDERS.fetch_sub(1, Ordering::SeqCst);
        }
    }
}
