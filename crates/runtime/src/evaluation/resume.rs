//! Waiting for something that only other code knows of.

use std::sync::Arc;

use super::cell::Cell;
use super::error::EvaluationError;
use super::handle::Evaluation;

/// An evaluation without code of its own: it waits until its [`Resumer`] gives it a result. This is how events of
/// the outside (a callback, another thread) are awaited.
///
/// Whoever waits does so at the evaluation, with all that can be done with one. Resuming an evaluation by its own
/// handle, whatever it happens to wait for, was rejected: it can end a wait that was meant for something else.
///
/// ```
/// use std::{thread, time::Duration};
/// use thalweg_runtime::evaluation::{block_on, resumption};
///
/// let (resumer, mut resumed) = resumption();
/// let thread = thread::spawn(move || {
///     thread::sleep(Duration::from_millis(2));
///     resumer.resume("the gate is open")
/// });
/// assert_eq!(block_on(resumed.await_result()), Ok("the gate is open"));
/// assert_eq!(thread.join().unwrap(), Ok(()));
/// ```
pub fn resumption<T>() -> (Resumer<T>, Evaluation<T>) {
    let cell = Cell::new(true);
    (Resumer { cell: Arc::clone(&cell) }, Evaluation::first(cell))
}

/// Made by [`resumption`]. If it is dropped unused, those who wait get [`EvaluationError::Abandoned`].
#[must_use = "those who wait are abandoned when it is dropped"]
pub struct Resumer<T> {
    cell: Arc<Cell<T>>,
}

impl<T> Resumer<T> {
    /// Ends the wait with this result.
    ///
    /// # Errors
    /// The value, if the wait was concluded otherwise before.
    pub fn resume(self, value: T) -> Result<(), T> {
        self.cell.conclude_to(value).map(drop)
    }
}

impl<T> Drop for Resumer<T> {
    fn drop(&mut self) {
        self.cell.conclude(Err(EvaluationError::Abandoned));
    }
}

impl<T> std::fmt::Debug for Resumer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Resumer").finish_non_exhaustive()
    }
}
