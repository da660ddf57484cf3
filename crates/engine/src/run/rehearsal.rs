//! The receiver of dead letters in a dry run, which keeps none.

use crate::DeadLetter;

/// Receives what a dry run would keep.
pub trait Rehearsal: Send + Sync {
    /// Receives what no component could process and no pipeline takes. A run would keep it.
    fn rejected(&self, letter: &DeadLetter);
}
