//! The fate of a message after a request.

use std::time::Duration;

use thalweg_engine::{Error, ErrorKind};

/// Why a request, or a message of it, should be sent again. One failure may concern the messages of several
/// batches, so it can be cloned.
#[derive(Debug, Clone)]
pub struct Failure {
    kind: ErrorKind,
    text: String,
    /// How long the server wants no request (`Retry-After`).
    delay: Option<Duration>,
}

/// The fate of a message after a request.
#[derive(Debug, Clone)]
pub enum Verdict {
    /// The server has it.
    Delivered,
    /// The server can never take it, for this reason.
    Rejected(String),
    /// It should be sent again.
    Again(Failure),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { kind: error.kind(), text: error.full(), delay: None }
    }
}

impl Failure {
    /// A failure after which a retry may succeed.
    pub fn temporary(text: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Temporary, text: text.into(), delay: None }
    }

    /// A failure that was caused by too much work for the server.
    pub fn overloaded(text: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Overloaded, text: text.into(), delay: None }
    }

    /// Adds how long the server wants no request.
    #[must_use]
    pub fn after(self, delay: Option<Duration>) -> Self {
        Self { delay, ..self }
    }

    /// How long the server wants no request.
    pub(crate) fn delay(&self) -> Option<Duration> {
        self.delay
    }

    /// True if the failure was caused by too many requests at once.
    pub(crate) fn is_overload(&self) -> bool {
        self.kind == ErrorKind::Overloaded
    }

    /// True if a retry may succeed.
    pub fn is_temporary(&self) -> bool {
        self.kind.is_temporary()
    }

    /// The text of the failure.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the failure of the two that tells the engine more.
    pub(crate) fn worse(one: Option<Self>, other: Self) -> Self {
        match one {
            Some(one) if !one.is_temporary() || one.is_overload() => one,
            _ => other,
        }
    }

    /// Returns the failure as an error of the sink.
    pub fn error(self) -> Error {
        match self.kind {
            ErrorKind::Temporary => Error::temporary(self.text),
            ErrorKind::Overloaded => Error::overloaded(self.text),
            ErrorKind::Permanent | ErrorKind::ReaderGone | ErrorKind::Enough => Error::permanent(self.text),
        }
    }
}
