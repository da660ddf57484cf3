//! Stops a job from another thread, whatever phase it is in.

use std::sync::Arc;

use parking_lot::Mutex;
use thalweg_engine::Handle;

/// Observes and ends a running job. Clones refer to the same job.
#[derive(Clone)]
pub struct Control(Arc<Mutex<State>>);

struct State {
    handle: Handle,
    is_stopping: bool,
    is_aborting: bool,
}

impl Control {
    pub(super) fn new(handle: Handle) -> Self {
        Self(Arc::new(Mutex::new(State { handle, is_stopping: false, is_aborting: false })))
    }

    /// Switches to the next phase. An earlier request to stop or abort applies to it as well.
    pub(super) fn turn_to(&self, handle: Handle) {
        let mut state = self.0.lock();
        if state.is_aborting {
            handle.abort();
        } else if state.is_stopping {
            handle.stop();
        }
        state.handle = handle;
    }

    /// Asks the sources to stop. Data in flight is delivered, and no other phase begins.
    pub fn stop(&self) {
        let mut state = self.0.lock();
        state.is_stopping = true;
        state.handle.stop();
    }

    /// True if the job was asked to stop or to end at once.
    pub(super) fn is_stopping(&self) -> bool {
        let state = self.0.lock();
        state.is_stopping || state.is_aborting
    }

    /// Ends the job at once. Data in flight is not acknowledged.
    pub fn abort(&self) {
        let mut state = self.0.lock();
        state.is_aborting = true;
        state.handle.abort();
    }

    /// The handle of the current phase.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.0.lock().handle.clone()
    }
}
