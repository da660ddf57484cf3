//! Tests of the guarantees of evaluations, by subject.

mod calling;
mod failing;
mod ordering;
mod readiness;
mod threads;
mod waiting;

use super::*;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

const NEXT_TURN: Duration = Duration::ZERO;

fn milliseconds(number: u64) -> Duration {
    Duration::from_millis(number)
}

/// A log that several evaluations write to, in order.
#[derive(Clone, Default)]
struct Log(Rc<RefCell<Vec<String>>>);

impl Log {
    fn note(&self, what: impl ToString) {
        self.0.borrow_mut().push(what.to_string());
    }

    fn take(&self) -> Vec<String> {
        self.0.take()
    }
}

/// Writes to the log when it is dropped.
struct NotesDrop(Log, &'static str);

impl Drop for NotesDrop {
    fn drop(&mut self) {
        self.0.note(self.1);
    }
}

/// Sets a hook on this thread, and returns the log of the failures it receives.
fn passed_to_hook() -> Log {
    let log = Log::default();
    let reported = log.clone();
    on_forgotten(move |failure| reported.note(failure));
    log
}

fn waiting<T>(called: Called<T>) -> Evaluation<T> {
    match called {
        Called::Waiting(evaluation) => evaluation,
        Called::Concluded(_) => panic!("it did not wait"),
    }
}
