//! How an evaluation ends without the value it was to give.

use std::sync::Arc;
use std::time::Duration;

/// Why there is no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EvaluationError {
    /// The code panicked, with this message. The panic ended this evaluation only.
    #[error("the evaluation panicked: {0}")]
    Panicked(Arc<str>),
    /// Nothing can come any more: its thread or its runtime has ended, or its [`Resumer`](super::Resumer)
    /// was dropped.
    #[error("the evaluation was abandoned: nothing is left that could conclude it")]
    Abandoned,
    /// This handle has given the result away already, and the type cannot be cloned or no other handle was left
    /// to clone it for.
    #[error(
        "the result of the evaluation was taken already: keep it, or await it through a clone of the handle"
    )]
    Taken,
    /// It took too long. The evaluation goes on.
    #[error(transparent)]
    TimedOut(#[from] TimedOut),
}

/// Something did not come in the time that was given to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("nothing came within {after:?}")]
pub struct TimedOut {
    /// The time that was given.
    pub after: Duration,
}

/// What a panic said, as far as it was text.
pub(super) fn message_of(panic: &(dyn std::any::Any + Send)) -> Arc<str> {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("it gave no message").into()
}
