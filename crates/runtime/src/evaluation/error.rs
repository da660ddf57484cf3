//! The ways in which an evaluation ends without a result.

use std::sync::Arc;
use std::time::Duration;

/// Why there is no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EvaluationError {
    /// The code panicked with this message. The panic ended only this evaluation.
    #[error("the evaluation panicked: {0}")]
    Panicked(Arc<str>),
    /// No result can come any more: the thread or the runtime has ended, or the [`Resumer`](super::Resumer)
    /// was dropped.
    #[error("the evaluation was abandoned: nothing is left that could conclude it")]
    Abandoned,
    /// This handle has returned the result already. Either the type cannot be cloned, or there was no other
    /// handle to clone the result for.
    #[error(
        "the result of the evaluation was taken already: keep it, or await it through a clone of the handle"
    )]
    Taken,
    /// The wait took too long. The evaluation continues.
    #[error(transparent)]
    TimedOut(#[from] TimedOut),
}

/// The result did not arrive within the time limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("nothing came within {after:?}")]
pub struct TimedOut {
    /// The time limit.
    pub after: Duration,
}

/// Returns the message of a panic, if it is text.
pub(super) fn message_of(panic: &(dyn std::any::Any + Send)) -> Arc<str> {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("it gave no message").into()
}
