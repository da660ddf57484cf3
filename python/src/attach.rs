//! Access to the interpreter for threads that it does not own, such as the runtime's, until it ends.
//!
//! CPython terminates a foreign thread that asks for the interpreter during finalization, wherever the thread
//! is. Rust does not survive that. Therefore [`attach`] refuses access as soon as the interpreter begins to
//! end.
//!
//! See docs/decisions/046-python-runs-on-threads-that-may-block.md.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyCFunction;

/// True once the interpreter is ending.
static ENDING: AtomicBool = AtomicBool::new(false);
/// Read-locked by each thread that has the interpreter through [`attach`].
static HELD: RwLock<()> = RwLock::new(());

/// How long the end of the interpreter waits for threads in [`attach`]. A thread that is still there
/// afterwards waits in Python for something that may never come, such as a callback of an aborted run.
const PATIENCE: Duration = Duration::from_secs(1);

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
            arguments.py().detach(|| drop(HELD.try_write_for(PATIENCE)));
        })?;
        py.import("atexit")?.call_method1("register", (end,)).map(drop)
    };
    PREPARED.get_or_try_init(py, prepare).map(drop)
}

/// Calls `work` with the interpreter. Returns `None` without calling it if the interpreter is ending.
pub fn attach<T>(work: impl FnOnce(Python<'_>) -> T) -> Option<T> {
    // Recursive, because a thread that holds the lock may ask again while the exit handler waits for the
    // write lock.
    let _held = HELD.read_recursive();
    if ENDING.load(Ordering::SeqCst) { None } else { Python::try_attach(work) }
}
