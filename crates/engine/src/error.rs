//! What went wrong in a component, and what the engine can do about it.

/// Whether trying again can help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// It may pass by itself: the engine tries again, later and later.
    Temporary,
    /// As temporary, and it came of too much at once: fewer requests are sent to the other side from now on.
    Overloaded,
    /// It will not pass: the run stops with this error.
    Permanent,
}

/// An error of a component: it concerns the component as a whole. A message that cannot be processed is no
/// error but leaves by the `errors` output.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    kind: ErrorKind,
    message: String,
    #[source]
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// One that trying again can mend. The message is a sentence: what happened to what, and what to do.
    pub fn temporary(message: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Temporary, message: message.into(), source: None }
    }

    /// One that trying again more gently can mend: the other side refused for want of room (HTTP's 429 and 503), or
    /// did not answer in time. The message is a sentence: what happened to what, and what to do.
    pub fn overloaded(message: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Overloaded, message: message.into(), source: None }
    }

    /// One that trying again cannot mend. The message is a sentence: what happened to what, and what to do.
    pub fn permanent(message: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Permanent, message: message.into(), source: None }
    }

    /// Adds what caused it.
    pub fn caused_by(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Whether trying again can help.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The message and its causes, as one line.
    pub fn full(&self) -> String {
        let mut text = self.message.clone();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            text.push_str(": ");
            text.push_str(&error.to_string());
            cause = error.source();
        }
        text
    }
}

/// Arrow refuses what does not fit together: a mistake of a component, which trying again repeats.
impl From<arrow_schema::ArrowError> for Error {
    fn from(error: arrow_schema::ArrowError) -> Self {
        Error::permanent("the columns of a batch do not fit together").caused_by(error)
    }
}
