//! The messages of a queue that the source has received and that are not deleted, as its two tasks know them.
//!
//! A message is known by its id. Each delivery has a handle of its own, and only the last one deletes the
//! message for sure.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use thalweg_engine::Error;

/// The number of messages that are known after they were deleted. A queue may deliver one again.
const RECENT: usize = 10_000;

/// The state of an arriving message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arrival {
    New,
    /// It was delivered again while it is on its way.
    OnItsWay,
    /// It is settled already, and to be deleted again.
    Settled,
}

/// A message that is not deleted.
#[derive(Debug)]
struct Held {
    handle: String,
    /// When the service is to hear of it again.
    due: Instant,
}

/// The messages of a source.
pub(super) struct Deliveries {
    held: HashMap<Arc<str>, Held>,
    /// Those that are deleted, the oldest first.
    recent: VecDeque<Arc<str>>,
    is_recent: HashSet<Arc<str>>,
    /// The time between two signs of life.
    beat: Duration,
    /// The number of new messages in answers that wait for their turn.
    pub(super) waiting: usize,
    /// The number of messages that are settled and not deleted. The queue may have deleted some, whose answer
    /// was lost, so it tells nothing of them.
    pub(super) deleting: usize,
    /// Why the source cannot go on.
    pub(super) failed: Option<Error>,
}

impl Deliveries {
    pub(super) fn new(beat: Duration) -> Self {
        let (held, recent, is_recent) = (HashMap::new(), VecDeque::new(), HashSet::new());
        Self { held, recent, is_recent, beat, waiting: 0, deleting: 0, failed: None }
    }

    /// The number of messages that are not deleted.
    pub(super) fn count(&self) -> usize {
        self.held.len()
    }

    /// Returns why the source cannot go on, once.
    pub(super) fn failure(&mut self) -> Result<(), Error> {
        self.failed.take().map_or(Ok(()), Err)
    }

    /// Notes that a message was delivered with this handle.
    pub(super) fn arrive(&mut self, id: &Arc<str>, handle: &str) -> Arrival {
        let due = Instant::now() + self.beat;
        if let Some(held) = self.held.get_mut(id) {
            *held = Held { handle: handle.to_owned(), due };
            return Arrival::OnItsWay;
        }
        self.held.insert(id.clone(), Held { handle: handle.to_owned(), due });
        if self.is_recent.contains(id) { Arrival::Settled } else { Arrival::New }
    }

    /// Returns the handle of a message.
    pub(super) fn handle(&self, id: &str) -> Option<String> {
        self.held.get(id).map(|held| held.handle.clone())
    }

    /// Notes that a message is deleted, or cannot be deleted by its handle: if it comes again, it is settled.
    pub(super) fn delete(&mut self, id: &Arc<str>) {
        self.held.remove(id);
        self.deleting = self.deleting.saturating_sub(1);
        if self.is_recent.insert(id.clone()) {
            self.recent.push_back(id.clone());
        }
        if self.recent.len() > RECENT
            && let Some(oldest) = self.recent.pop_front()
        {
            self.is_recent.remove(&oldest);
        }
    }

    /// Forgets a message that is to be delivered again. Returns its handle.
    pub(super) fn give_back(&mut self, id: &str) -> Option<String> {
        self.held.remove(id).map(|held| held.handle)
    }

    /// Returns all messages that are held.
    pub(super) fn all(&self) -> Vec<Arc<str>> {
        self.held.keys().cloned().collect()
    }

    /// Returns the handles of messages that the service is to hear of now, and notes that it does.
    pub(super) fn due(&mut self) -> Vec<String> {
        let now = Instant::now();
        let due = self.held.values_mut().filter(|held| held.due <= now);
        due.map(|held| {
            held.due = now + self.beat;
            held.handle.clone()
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> Arc<str> {
        text.into()
    }

    #[test]
    fn a_message_is_sent_on_once_however_often_it_is_delivered() {
        let mut deliveries = Deliveries::new(Duration::from_secs(1000));
        assert_eq!(deliveries.arrive(&id("a"), "h1"), Arrival::New);
        assert_eq!(deliveries.arrive(&id("a"), "h2"), Arrival::OnItsWay);
        assert_eq!(deliveries.handle("a").as_deref(), Some("h2"));
        deliveries.delete(&id("a"));
        assert_eq!((deliveries.count(), deliveries.handle("a")), (0, None));
        assert_eq!(deliveries.arrive(&id("a"), "h3"), Arrival::Settled);
        assert_eq!(deliveries.arrive(&id("b"), "h4"), Arrival::New);
        assert_eq!(deliveries.give_back("b").as_deref(), Some("h4"));
        assert_eq!(deliveries.arrive(&id("b"), "h5"), Arrival::New);
        assert!(deliveries.due().is_empty());
    }

    #[test]
    fn signs_of_life_are_due_after_their_time() {
        let mut deliveries = Deliveries::new(Duration::ZERO);
        deliveries.arrive(&id("a"), "h");
        assert_eq!(deliveries.due(), ["h"]);
        assert_eq!(deliveries.all(), [id("a")]);
    }

    #[test]
    fn what_is_known_of_deleted_messages_has_an_end() {
        let mut deliveries = Deliveries::new(Duration::ZERO);
        for number in 0..RECENT + 10 {
            deliveries.delete(&number.to_string().into());
        }
        assert_eq!((deliveries.recent.len(), deliveries.is_recent.len()), (RECENT, RECENT));
        assert_eq!(deliveries.arrive(&id("0"), "h"), Arrival::New);
        assert_eq!(deliveries.arrive(&id("10"), "h"), Arrival::Settled);
    }
}
