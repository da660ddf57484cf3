//! Why a message cannot be read, and in which field.

use std::fmt;

use super::DEEPEST;
use crate::columns::shortened;

/// A reason, and the path of the field that it concerns.
#[derive(Debug)]
pub(crate) struct Fault {
    /// The names of the fields from the message to the one concerned, with dots. Empty for the message.
    path: String,
    /// The predicate of a sentence whose subject is the field.
    reason: String,
}

impl Fault {
    /// Creates the fault of a whole message.
    #[cold]
    pub(crate) fn new(reason: impl Into<String>) -> Self {
        Self { path: String::new(), reason: reason.into() }
    }

    /// Creates the fault of nesting that has no end.
    #[cold]
    pub(crate) fn too_deep() -> Self {
        Self::new(format!("is nested deeper than {DEEPEST} levels"))
    }

    /// Returns the fault of the message in which the field `name` has this fault.
    #[cold]
    #[must_use]
    pub(crate) fn within(mut self, name: &str) -> Self {
        self.path = if self.path.is_empty() { name.to_owned() } else { format!("{name}.{}", self.path) };
        self
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path.as_str() {
            "" => write!(f, "it {}", self.reason),
            path => write!(f, "the field `{}` {}", shortened(path), self.reason),
        }
    }
}
