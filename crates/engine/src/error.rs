//! Errors of components, and what the engine can do about them. Their texts have no secrets.

use thalweg_redact::redacted;

/// The engine's options after an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// A retry may succeed: the engine retries with growing pauses.
    Temporary,
    /// As temporary, and the other side is overloaded: fewer requests are sent to it at once from now on.
    Overloaded,
    /// No retry succeeds: the run fails with this error.
    Permanent,
    /// As permanent, but nothing is wrong: the program that read the output has ended (`thalweg run … |
    /// head`).
    ReaderGone,
    /// As permanent, but nothing is wrong: the run takes no more of a source, and leaves the rest to a later
    /// run.
    Enough,
}

impl ErrorKind {
    /// True if a retry may succeed.
    pub fn is_temporary(self) -> bool {
        match self {
            ErrorKind::Temporary | ErrorKind::Overloaded => true,
            ErrorKind::Permanent | ErrorKind::ReaderGone | ErrorKind::Enough => false,
        }
    }
}

/// An error of a component as a whole. A message that cannot be processed is not an error: it leaves by the
/// `errors` output.
#[derive(Debug, thiserror::Error)]
#[error("{}", redacted(message))]
pub struct Error {
    kind: ErrorKind,
    message: String,
    #[source]
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// An error after which a retry may succeed. The message is a sentence: what happened to what, and what
    /// to do.
    pub fn temporary(message: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Temporary, message: message.into(), source: None }
    }

    /// An error after which a gentler retry may succeed: the other side refused because of its load (HTTP's
    /// 429 and 503), or did not answer in time. The message is a sentence: what happened to what, and what to
    /// do.
    pub fn overloaded(message: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Overloaded, message: message.into(), source: None }
    }

    /// An error after which no retry succeeds. The message is a sentence: what happened to what, and what to
    /// do.
    pub fn permanent(message: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Permanent, message: message.into(), source: None }
    }

    /// The program that read the output has ended: see [`ErrorKind::ReaderGone`].
    pub fn reader_gone(message: impl Into<String>) -> Self {
        Self { kind: ErrorKind::ReaderGone, message: message.into(), source: None }
    }

    /// The run takes no more of a source: see [`ErrorKind::Enough`].
    pub(crate) fn enough(message: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Enough, message: message.into(), source: None }
    }

    /// Adds the cause.
    pub fn caused_by(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// An error of the same kind that begins with `message` and has this one as its cause.
    pub fn context(self, message: impl Into<String>) -> Self {
        Self { kind: self.kind, message: message.into(), source: Some(self.into()) }
    }

    /// The kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The message and its causes, as one line without secrets.
    pub fn full(&self) -> String {
        let mut text = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            text.push_str(": ");
            text.push_str(&redacted(&error.to_string()));
            cause = error.source();
        }
        text
    }
}

/// Arrow rejects columns that do not fit together. That is a mistake of a component, which a retry would
/// repeat.
impl From<arrow_schema::ArrowError> for Error {
    fn from(error: arrow_schema::ArrowError) -> Self {
        Error::permanent("the columns of a batch do not fit together").caused_by(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn context_keeps_the_kind_and_puts_its_message_first() {
        let error = Error::reader_gone("nobody reads").context("the sink `out` failed");
        assert_eq!(error.kind(), ErrorKind::ReaderGone);
        assert_eq!(error.full(), "the sink `out` failed: nobody reads");
        assert!(!error.kind().is_temporary());
    }
}
