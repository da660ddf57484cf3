//! Routes answers from the sink `proxy` back to the connections of the source `proxy`.
//!
//! The two components are parts of one graph and do not know each other. A message carries its origin all the
//! way (`meta.path`). The source gives each connection a name that is unique in the process; this map finds
//! the connection by that name. The rejected alternative was a handle in each batch: all code that creates or
//! copies batches would have to handle it for one pair of components.
//!
//! See docs/decisions/043-proxies-find-connections-by-name.md.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

type Waiting = HashMap<Arc<str>, UnboundedSender<Bytes>>;

static WAITING: LazyLock<Mutex<Waiting>> = LazyLock::new(Mutex::default);
static NEXT: AtomicU64 = AtomicU64::new(1);

fn waiting() -> MutexGuard<'static, Waiting> {
    // A panic cannot leave the map half-changed.
    WAITING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A connection that can be answered until this is dropped.
#[derive(Debug)]
pub struct Answerable {
    name: Arc<str>,
}

impl Answerable {
    /// Registers a connection of this peer. Returns its registration, whose name is used as `meta.path`, and
    /// the channel of answers.
    pub fn new(peer: &str) -> (Self, UnboundedReceiver<Bytes>) {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name: Arc<str> = format!("{peer}#{number}").into();
        let (answer, answers) = unbounded_channel();
        waiting().insert(name.clone(), answer);
        (Self { name }, answers)
    }

    /// Returns the unique name of the connection.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }
}

impl Drop for Answerable {
    fn drop(&mut self) {
        waiting().remove(&self.name);
    }
}

/// Sends an answer to the connection with this name. Returns false if the connection is gone.
pub fn answer(name: &str, answer: Bytes) -> bool {
    waiting().get(name).is_some_and(|to| to.send(answer).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_finds_its_connection_as_long_as_it_is_there() {
        let (one, mut to_one) = Answerable::new("10.0.0.1:1");
        let (other, mut to_other) = Answerable::new("10.0.0.1:1");
        assert!(
            answer(one.name(), Bytes::from_static(b"a")) && answer(other.name(), Bytes::from_static(b"b"))
        );
        assert_eq!((to_one.try_recv().unwrap(), to_other.try_recv().unwrap()), ("a".into(), "b".into()));
        let name = one.name().clone();
        drop(one);
        assert!(!answer(&name, Bytes::new()) && !answer("10.0.0.1:1", Bytes::new()));
    }
}
