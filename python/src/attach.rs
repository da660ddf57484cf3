//! The interpreter for threads that are not its own, such as the runtime's, until it ends.
//!
//! A thread that asks for the interpreter while that is ending is ended by it, in the middle of what it does, and Rust does
//! not survive that. So from the moment that the interpreter begins to end, nobody gets it here any more.

use parking_lot::RwLock;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyCFunction;

/// Whether the interpreter is ending. Who has it from here holds this lock.
static ENDING: RwLock<bool> = RwLock::new(false);

/// Sees to it that [`attach`] knows when the interpreter ends. To be called before a thread is made that calls that.
///
/// # Errors
/// `MemoryError`.
pub fn prepare(py: Python<'_>) -> PyResult<()> {
    static PREPARED: PyOnceLock<()> = PyOnceLock::new();
    let prepare = || {
        let end = PyCFunction::new_closure(py, None, None, |arguments, _| {
            // Those who have the interpreter need it to come to their end.
            arguments.py().detach(|| *ENDING.write() = true);
        })?;
        py.import("atexit")?.call_method1("register", (end,)).map(drop)
    };
    PREPARED.get_or_try_init(py, prepare).map(drop)
}

/// Does something with the interpreter, unless that is ending.
pub fn attach<T>(work: impl FnOnce(Python<'_>) -> T) -> Option<T> {
    // Recursively: a thread that has it may ask again while another waits to write.
    let ending = ENDING.read_recursive();
    if *ending { None } else { Python::try_attach(work) }
}
