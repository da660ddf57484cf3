//! Running code, and the destination of its result.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

use super::cell::Cell;
use super::error::{EvaluationError, message_of};
use super::hook::{self, Forgotten};

/// The destination of a result.
pub enum Destination<T> {
    /// The caller that polls the code: it is in the foreground.
    Caller,
    /// This function.
    Forget(fn(T)),
    /// The evaluation's handles.
    Cell(Arc<Cell<T>>),
}

pin_project! {
    /// Code with its destination, as the future that executors see: it never fails and never panics. It ends
    /// early if another caller concluded the evaluation.
    pub struct Running<Fut: Future> {
        destination: Destination<Fut::Output>,
        #[pin]
        code: Fut,
    }

    impl<Fut: Future> PinnedDrop for Running<Fut> {
        fn drop(this: Pin<&mut Self>) {
            if let Destination::Cell(cell) = this.project().destination {
                abandon(cell);
            }
        }
    }
}

/// Out of line, since most code that is dropped has been run in the foreground.
#[cold]
fn abandon<T>(cell: &Cell<T>) {
    cell.conclude(Err(EvaluationError::Abandoned));
}

impl<Fut: Future> Running<Fut> {
    #[inline]
    pub(super) fn new(code: Fut, destination: Destination<Fut::Output>) -> Self {
        Self { destination, code }
    }

    /// Runs the code in the foreground. The caller receives its result and its panics.
    #[inline]
    pub(super) fn poll_code(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Fut::Output> {
        self.project().code.poll(context)
    }

    /// Sends the result to another destination from now on.
    pub(super) fn redirect(self: Pin<&mut Self>, destination: Destination<Fut::Output>) {
        *self.project().destination = destination;
    }
}

impl<Fut: Future> Future for Running<Fut> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        if let Destination::Cell(cell) = &this.destination
            && !cell.resumes()
        {
            return Poll::Ready(());
        }
        let result = match catch_unwind(AssertUnwindSafe(|| this.code.poll(context))) {
            Ok(Poll::Ready(value)) => Ok(value),
            Ok(Poll::Pending) => match &this.destination {
                Destination::Cell(cell) if !cell.suspends(context.waker()) => return Poll::Ready(()),
                _ => return Poll::Pending,
            },
            Err(panic) => Err(message_of(&*panic)),
        };
        match (std::mem::replace(this.destination, Destination::Caller), result) {
            (Destination::Cell(cell), result) => {
                cell.conclude(result.map_err(EvaluationError::Panicked));
            }
            (Destination::Forget(forget), Ok(value)) => forget(value),
            (Destination::Forget(_), Err(message)) => hook::tell(Forgotten::Panicked(message)),
            // The foreground uses only `poll_code`.
            (Destination::Caller, _) => {}
        }
        Poll::Ready(())
    }
}
