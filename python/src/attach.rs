//! The interpreter for threads that are not its own, such as the runtime's, until it ends.
//!
//! A thread that asks for the interpreter while that is ending is ended by it, in the middle of what it does, and Rust does
//! not survive that. So from the moment that the interpreter begins to end, nobody gets it here any more.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyCFunction;

/// Whether the interpreter is ending.
static ENDING: AtomicBool = AtomicBool::new(false);
/// Who has the interpreter from here holds this lock.
static HELD: RwLock<()> = RwLock::new(());

/// How long the end waits for those who have the interpreter. Who still has it then waits in Python for something that may never
/// come, such as a callback that a run was aborted in.
const PATIENCE: Duration = Duration::from_secs(1);

/// Sees to it that [`attach`] knows when the interpreter ends. To be called before a thread is made that calls that.
///
/// # Errors
/// `MemoryError`.
pub fn prepare(py: Python<'_>) -> PyResult<()> {
    static PREPARED: PyOnceLock<()> = PyOnceLock::new();
    let prepare = || {
        let end = PyCFunction::new_closure(py, None, None, |arguments, _| {
            ENDING.store(true, Ordering::SeqCst);
            // They need the interpreter to come to their end.
            arguments.py().detach(|| drop(HELD.try_write_for(PATIENCE)));
        })?;
        py.import("atexit")?.call_method1("register", (end,)).map(drop)
    };
    PREPARED.get_or_try_init(py, prepare).map(drop)
}

/// Does something with the interpreter, unless that is ending.
pub fn attach<T>(work: impl FnOnce(Python<'_>) -> T) -> Option<T> {
    // Recursively: a thread that has it may ask again while the end waits for it.
    let _held = HELD.read_recursive();
    if ENDING.load(Ordering::SeqCst) { None } else { Python::try_attach(work) }
}
