//! The handle of an evaluation.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::cell::Cell;
use super::error::EvaluationError;
use super::event_loop;
use super::hook::{self, Forgettable};
use super::wait::within;

/// A handle to code that is evaluated concurrently: it awaits the result, asks about the state, or ends the
/// code.
///
/// The handle is a future of the result itself; [`await_result`](Self::await_result) is the explicit form. If
/// the result can be cloned, so can the handle, and each handle gets the result. Handles can be sent to other
/// threads if the result can. Dropping the handles does not end the code: it continues, and a panic in it
/// goes to the [hook](super::on_forgotten). To pass its errors to the hook as well, [`forget`](Self::forget)
/// the last handle.
#[must_use = "an error in it is lost unless it is awaited, or given to the hook by `forget`"]
pub struct Evaluation<T> {
    cell: Arc<Cell<T>>,
    number: u32,
}

impl<T> Evaluation<T> {
    /// Creates the first handle of a cell.
    pub(super) fn first(cell: Arc<Cell<T>>) -> Self {
        Self { cell, number: 0 }
    }

    /// Waits for the result.
    ///
    /// # Errors
    /// [`Panicked`](EvaluationError::Panicked) if the code panicked,
    /// [`Abandoned`](EvaluationError::Abandoned) if no result can come any more, and
    /// [`Taken`](EvaluationError::Taken) if this handle returned the result already and no clone of it needed
    /// the result too.
    ///
    /// ```
    /// use std::time::Duration;
    /// use thalweg_runtime::evaluation::{EvaluationError, block_on, concurrently, wait};
    ///
    /// let mut level = concurrently(async {
    ///     wait(Duration::from_millis(1)).await;
    ///     17
    /// });
    /// let mut broken = concurrently(async { panic!("the gauge is broken") });
    /// block_on(async {
    ///     assert_eq!(level.await_result().await, Ok(17));
    ///     let result: Result<(), _> = broken.await_result().await;
    ///     assert_eq!(result, Err(EvaluationError::Panicked("the gauge is broken".into())));
    /// });
    /// ```
    pub async fn await_result(&mut self) -> Result<T, EvaluationError> {
        self.await
    }

    /// Waits for the result, up to a time limit. The evaluation continues after the limit: end it with
    /// [`conclude_to`](Self::conclude_to), or await it again.
    ///
    /// # Errors
    /// [`TimedOut`](EvaluationError::TimedOut) after the time limit, and the errors of
    /// [`await_result`](Self::await_result).
    pub async fn await_result_within(&mut self, duration: Duration) -> Result<T, EvaluationError> {
        within(duration, &mut *self).await?
    }

    /// Waits for the result, up to a time limit, and returns `value` after the limit.
    ///
    /// # Errors
    /// The errors of [`await_result`](Self::await_result).
    ///
    /// ```
    /// use std::time::Duration;
    /// use thalweg_runtime::evaluation::{block_on, concurrently, wait};
    ///
    /// let mut slow = concurrently(async {
    ///     wait(Duration::from_secs(60)).await;
    ///     "fresh"
    /// });
    /// let answer = block_on(slow.await_result_within_or(Duration::from_millis(1), "from the cache"));
    /// assert_eq!(answer, Ok("from the cache"));
    /// ```
    pub async fn await_result_within_or(
        &mut self,
        duration: Duration,
        value: T,
    ) -> Result<T, EvaluationError> {
        within(duration, &mut *self).await.unwrap_or(Ok(value))
    }

    /// Ends the evaluation with this value, which all handles receive. Waiting code is dropped (at once if it
    /// waits on this thread), and code that has not started does not start. Only its destructors run.
    ///
    /// # Errors
    /// Returns the value if the evaluation was concluded already.
    ///
    /// ```
    /// use std::time::Duration;
    /// use thalweg_runtime::evaluation::{block_on, concurrently, wait};
    ///
    /// let mut forecast = concurrently(async {
    ///     wait(Duration::from_secs(3600)).await;
    ///     "sun"
    /// });
    /// assert_eq!(forecast.conclude_to("rain"), Ok(()));
    /// assert_eq!(forecast.conclude_to("snow"), Err("snow"));
    /// assert_eq!(block_on(forecast.await_result()), Ok("rain"));
    /// ```
    pub fn conclude_to(&self, value: T) -> Result<(), T> {
        let code = self.cell.conclude_to(value)?;
        if let Some(code) = code {
            event_loop::cancel(code);
        }
        Ok(())
    }

    /// True if there is a result or an error.
    #[must_use]
    pub fn is_concluded(&self) -> bool {
        self.cell.is_concluded()
    }

    /// True if the code has started and is waiting.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.cell.is_waiting()
    }

    /// Drops the handle. If it was the last one and the evaluation fails, the [hook](super::on_forgotten)
    /// receives the failure.
    pub fn forget(self)
    where
        T: Forgettable,
    {
        self.cell.forget_to(hook::forget::<T>);
    }

    /// Ready when concluded. The result stays for the handle that awaits it.
    pub(super) fn poll_concluded(&self, context: &mut Context<'_>) -> Poll<()> {
        self.cell.poll_concluded(self.number, context)
    }
}

impl<T> Future for Evaluation<T> {
    type Output = Result<T, EvaluationError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.cell.poll_result(self.number, context)
    }
}

impl<T: Clone> Clone for Evaluation<T> {
    fn clone(&self) -> Self {
        Self { cell: Arc::clone(&self.cell), number: self.cell.add_handle() }
    }
}

impl<T> Drop for Evaluation<T> {
    fn drop(&mut self) {
        self.cell.remove_handle(self.number);
    }
}

impl<T> fmt::Debug for Evaluation<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match (self.is_concluded(), self.is_waiting()) {
            (true, _) => "concluded",
            (false, true) => "waiting",
            (false, false) => "scheduled or running",
        };
        f.debug_struct("Evaluation").field("state", &state).finish_non_exhaustive()
    }
}
