//! Tells when the position of a source has moved past a file.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

type Calls = Vec<Box<dyn FnOnce() + Send>>;

/// The moment at which the position of a source moves past what it sent with one checkpoint. That is later
/// than the moment at which it is settled, if something before it is not: until then, a later run gets it
/// again.
#[derive(Clone, Default)]
pub struct Passage(Arc<Mutex<Calls>>);

impl fmt::Debug for Passage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Passage")
    }
}

impl Passage {
    /// Calls `call` when the position moves past.
    pub fn then(&self, call: impl FnOnce() + Send + 'static) {
        self.0.lock().push(Box::new(call));
    }

    /// The position has moved past. `then` must not be called any more.
    pub fn complete(&self) {
        let calls = std::mem::take(&mut *self.0.lock());
        calls.into_iter().for_each(|call| call());
    }
}
