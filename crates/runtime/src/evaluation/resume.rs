//! Waiting for an event that only other code observes.

use std::sync::Arc;

use super::cell::Cell;
use super::error::EvaluationError;
use super::handle::Evaluation;

/// Creates an evaluation without code of its own: it waits until its [`Resumer`] sets a result. Use it to
/// await external events, such as a callback or an event on another thread.
///
/// Tasks wait for the evaluation like for any other. Resuming an evaluation by its own handle, whatever it
/// happens to wait for, was rejected: it can end a wait that was meant for another event.
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

/// Created by [`resumption`]. If it is dropped unused, the waiting handles get
/// [`EvaluationError::Abandoned`].
#[must_use = "those who wait are abandoned when it is dropped"]
pub struct Resumer<T> {
    cell: Arc<Cell<T>>,
}

impl<T> Resumer<T> {
    /// Ends the wait with this result.
    ///
    /// # Errors
    /// Returns the value if the wait was concluded otherwise before.
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
