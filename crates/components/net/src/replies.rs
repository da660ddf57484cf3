//! Connections that wait for answers from elsewhere: from the sink of a proxy to its source.
//!
//! The two are parts of one graph that know nothing of each other. What a message has with it on its whole way is where
//! it came from (`meta.path`); the source gives each connection a name that is used once in a process, and the
//! connections are found here by it. A handle in each batch was rejected: everything that makes or copies batches
//! would have to know of it, for the sake of one pair of components.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

type Waiting = HashMap<Arc<str>, UnboundedSender<Bytes>>;

static WAITING: LazyLock<Mutex<Waiting>> = LazyLock::new(Mutex::default);
static NEXT: AtomicU64 = AtomicU64::new(1);

fn waiting() -> MutexGuard<'static, Waiting> {
    // A map is whole whoever panicked.
    WAITING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A connection that can be answered as long as this is held.
#[derive(Debug)]
pub struct Answerable {
    name: Arc<str>,
}

impl Answerable {
    /// For a connection of this peer: its name for `meta.path`, and what comes as answers.
    pub fn new(peer: &str) -> (Self, UnboundedReceiver<Bytes>) {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name: Arc<str> = format!("{peer}#{number}").into();
        let (answer, answers) = unbounded_channel();
        waiting().insert(name.clone(), answer);
        (Self { name }, answers)
    }

    /// Its name.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }
}

impl Drop for Answerable {
    fn drop(&mut self) {
        waiting().remove(&self.name);
    }
}

/// Gives an answer to the connection of this name; says whether it is still there.
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
