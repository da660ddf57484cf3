//! Why a run failed, as a value.
//!
//! A failure was a text once, and callers searched it for names of components and for "the reader of the
//! output has gone away". A text that quoted another component's name was then blamed on that component.
//!
//! See docs/decisions/060-a-failed-run-is-a-value.md.

use std::fmt;
use std::sync::Arc;

use crate::metrics::ComponentMetrics;
use crate::{Error, Role};

/// Why a run failed.
#[derive(Debug)]
pub struct RunFailure {
    /// The component that failed. None where the engine itself did: it could not save a checkpoint, for
    /// example.
    pub component: Option<Arc<str>>,
    /// The role of that component.
    pub role: Option<Role>,
    /// The error. Its message says all that there is to say to a person.
    pub error: Error,
}

impl RunFailure {
    /// The failure of a component.
    pub(crate) fn new(component: Arc<str>, role: Role, error: Error) -> Self {
        Self { component: Some(component), role: Some(role), error }
    }

    /// The failure of the component that these are the counters of.
    pub(super) fn of(metrics: &ComponentMetrics, error: Error) -> Self {
        Self::new(metrics.name.clone(), metrics.role, error)
    }
}

/// A failure of the engine itself.
impl From<Error> for RunFailure {
    fn from(error: Error) -> Self {
        Self { component: None, role: None, error }
    }
}

/// The error's message and its causes, as one line.
impl fmt::Display for RunFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.error.full())
    }
}

impl std::error::Error for RunFailure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_reads_as_its_error_and_names_its_component_apart_from_the_text() {
        let error = Error::permanent("`main.other` said no").context("the sink `out` failed");
        let failure = RunFailure::new("out".into(), Role::Sink, error);
        assert_eq!(failure.to_string(), "the sink `out` failed: `main.other` said no");
        assert_eq!(failure.component.as_deref(), Some("out"));
    }
}
