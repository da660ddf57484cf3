//! Channels bounded by bytes.
//!
//! A push never waits. A polite sender waits for capacity with [`room`](Sender::room) *before* it produces
//! the item that it will push. The bound is therefore exceeded by at most one item per sender. In return, no
//! stage is ever stuck with work in hand, so no deadlock can arise from waiting in the middle of some work.
//!
//! Several receivers share the items. Each item comes with a [`Ticket`], numbered in the order of pushing. A
//! [`Sequencer`](crate::Sequencer) uses the tickets to restore the order of what several receivers made of
//! the items.
//!
//! While the channel is empty, an item can bypass it. A consumer that is [attached](Receiver::attach) to the
//! receiving end may claim the item, which is then processed on the stack of the thread that hands it over.
//!
//! See docs/decisions/003-capacity-before-work.md.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::at_once::at_once;
use crate::traffic::{Pass, Traffic};

/// The sequence number of an item in a channel.
pub type Ticket = u64;

/// A consumer that may accept an item directly, before it enters the channel.
pub(crate) trait Claim<T>: Send + Sync {
    /// Reserves a worker for an item, if the consumer accepts it directly. Called under the channel's lock,
    /// so no other task can come between: it must be quick, and must not touch the channel.
    fn claim(&self) -> Option<ClaimedWork<T>>;
}

/// A claimed slot: a function that processes the item it receives.
pub(crate) type ClaimedWork<T> = Box<dyn FnOnce(Taken<T>) + Send>;

/// An item that was taken from a channel.
#[derive(Debug)]
pub struct Taken<T> {
    /// Its sequence number.
    pub ticket: Ticket,
    /// The item.
    pub item: T,
    /// Counts the item as moving, until the task that took it is done with it: see [`Traffic`].
    pub pass: Option<Pass>,
}

/// The result of handing an item over.
#[must_use = "an item that was claimed must be worked on"]
pub enum HandOver {
    /// The item waits in the channel.
    Queued,
    /// The item was claimed: the next stage processes it when this is [`run`](AtOnce::run).
    AtOnce(AtOnce),
}

impl HandOver {
    /// Does the next stage's work, if the item was claimed.
    pub fn run(self) {
        if let HandOver::AtOnce(work) = self {
            work.run();
        }
    }
}

/// The work of the next stage on one item. The caller of `hand_over` does it as soon as it holds no lock.
/// Dropping it without running drops the item: for a batch, that is a failure and not a silent loss.
#[must_use = "an item that was claimed must be worked on"]
pub struct AtOnce(Box<dyn FnOnce() + Send>);

impl AtOnce {
    /// Does the work up to the first point where it has to wait.
    pub fn run(self) {
        at_once(self.0);
    }
}

struct Shared<T> {
    limit: usize,
    state: Mutex<State<T>>,
    /// Notified when an item was pushed or the last sender was dropped.
    filled: Notify,
    /// Notified when an item was removed or the last receiver was dropped.
    drained: Notify,
    senders: AtomicUsize,
    receivers: AtomicUsize,
    attached: OnceLock<Arc<dyn Claim<T>>>,
}

struct State<T> {
    items: VecDeque<Queued<T>>,
    bytes: usize,
    next: Ticket,
}

/// An item that waits in the channel.
struct Queued<T> {
    item: T,
    bytes: usize,
    pass: Option<Pass>,
}

/// Creates a channel that has capacity while it holds less than `limit` bytes.
pub fn channel<T>(limit: usize) -> (Sender<T>, Receiver<T>) {
    let shared = Arc::new(Shared {
        limit,
        state: Mutex::new(State { items: VecDeque::new(), bytes: 0, next: 0 }),
        filled: Notify::new(),
        drained: Notify::new(),
        senders: AtomicUsize::new(1),
        receivers: AtomicUsize::new(1),
        attached: OnceLock::new(),
    });
    (Sender { shared: shared.clone(), traffic: None }, Receiver(shared))
}

/// The end that items are pushed into. The channel ends when all its senders are dropped.
pub struct Sender<T> {
    shared: Arc<Shared<T>>,
    /// Counts the items that this sender sends.
    traffic: Option<Arc<Traffic>>,
}

impl<T> Sender<T> {
    /// Returns a sender whose items are counted as moving until they have been processed.
    #[must_use]
    pub fn counted(&self, traffic: &Arc<Traffic>) -> Self {
        let mut sender = self.clone();
        sender.traffic = Some(traffic.clone());
        sender
    }

    fn pass(&self) -> Option<Pass> {
        self.traffic.as_ref().map(Traffic::pass)
    }

    /// Waits until there is capacity, or all receivers are dropped.
    pub async fn room(&self) {
        loop {
            let notified = self.shared.drained.notified();
            let mut notified = std::pin::pin!(notified);
            notified.as_mut().enable();
            if self.has_room() {
                return;
            }
            notified.await;
        }
    }

    /// Adds an item that counts as `bytes`.
    ///
    /// # Errors
    /// Returns the item if all receivers were dropped.
    pub fn push(&self, item: T, bytes: usize) -> Result<(), T> {
        let state = self.shared.state.lock();
        // Checked under the lock: the last receiver empties the channel when it is dropped, and nothing may
        // be left in it after that.
        if self.is_abandoned() {
            return Err(item);
        }
        self.enqueue(state, item, bytes);
        Ok(())
    }

    /// Hands an item over: directly to the next stage if the channel is empty and the stage accepts the item
    /// at once, or else into the channel. Either way, this call determines the position of the item in the
    /// order.
    ///
    /// # Errors
    /// Returns the item if all receivers were dropped.
    pub fn hand_over(&self, item: T, bytes: usize) -> Result<HandOver, T>
    where
        T: Send + 'static,
    {
        let mut state = self.shared.state.lock();
        if self.is_abandoned() {
            return Err(item);
        }
        let attached = if state.items.is_empty() { self.shared.attached.get() } else { None };
        if let Some(place) = attached.and_then(|attached| attached.claim()) {
            let ticket = state.next;
            state.next += 1;
            let taken = Taken { ticket, item, pass: self.pass() };
            return Ok(HandOver::AtOnce(AtOnce(Box::new(move || place(taken)))));
        }
        self.enqueue(state, item, bytes);
        Ok(HandOver::Queued)
    }

    fn enqueue(&self, mut state: MutexGuard<State<T>>, item: T, bytes: usize) {
        state.items.push_back(Queued { item, bytes, pass: self.pass() });
        state.bytes += bytes;
        drop(state);
        self.shared.filled.notify_one();
    }

    /// True if there is capacity now.
    pub fn has_room(&self) -> bool {
        self.shared.state.lock().bytes < self.shared.limit || self.is_abandoned()
    }

    /// True if all receivers were dropped.
    pub fn is_abandoned(&self) -> bool {
        self.shared.receivers.load(Ordering::Acquire) == 0
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.shared.senders.fetch_add(1, Ordering::Relaxed);
        Self { shared: self.shared.clone(), traffic: self.traffic.clone() }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        if self.shared.senders.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.shared.filled.notify_waiters();
            self.shared.filled.notify_one();
        }
    }
}

/// Wakes the receivers. An attached consumer holds this: a receiver there would keep itself alive.
pub(crate) struct NewsGiver<T>(Weak<Shared<T>>);

impl<T> Clone for NewsGiver<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> NewsGiver<T> {
    /// Wakes one waiting receiver.
    pub(crate) fn wake(&self) {
        if let Some(shared) = self.0.upgrade() {
            shared.filled.notify_one();
        }
    }

    /// Wakes one receiver if an item is waiting.
    pub(crate) fn wake_if_any(&self) {
        if let Some(shared) = self.0.upgrade()
            && !shared.state.lock().items.is_empty()
        {
            shared.filled.notify_one();
        }
    }
}

/// The result of trying to take an item together with a claim.
pub(crate) enum TakenWith<C, T> {
    /// The channel is empty.
    Nothing,
    /// There is an item, but the claim failed.
    Unclaimed,
    /// The claim and an item.
    Item(C, Taken<T>),
}

/// The end that items are taken from. Clones share the items.
pub struct Receiver<T>(Arc<Shared<T>>);

impl<T> Receiver<T> {
    /// Waits for the next item. Returns `None` when the channel has ended and is empty.
    pub async fn take(&self) -> Option<Taken<T>> {
        loop {
            let news = self.news();
            let mut news = std::pin::pin!(news);
            news.as_mut().enable();
            // Read before the queue: a sender pushes before it is dropped, so its items are seen below.
            let ended = self.is_ended();
            if let Some(item) = self.try_take() {
                return Some(item);
            }
            if ended {
                self.pass_on_news();
                return None;
            }
            news.await;
        }
    }

    /// Returns a function that tells how many bytes wait in the channel, without keeping it alive.
    pub fn gauge(&self) -> impl Fn() -> usize + Send + Sync + use<T>
    where
        T: Send + 'static,
    {
        let shared = Arc::downgrade(&self.0);
        move || shared.upgrade().map_or(0, |shared| shared.state.lock().bytes)
    }

    /// Attaches a consumer that may claim items before they enter the channel. Only the first call has an
    /// effect.
    pub(crate) fn attach(&self, attached: Arc<dyn Claim<T>>) {
        let _ = self.0.attached.set(attached);
    }

    /// Completes when an item was pushed, the last sender was dropped, or
    /// [`pass_on_news`](Self::pass_on_news) was called.
    pub(crate) fn news(&self) -> Notified<'_> {
        self.0.filled.notified()
    }

    /// Returns a handle that wakes receivers without keeping the channel alive.
    pub(crate) fn news_giver(&self) -> NewsGiver<T> {
        NewsGiver(Arc::downgrade(&self.0))
    }

    /// Wakes one more waiting receiver.
    pub(crate) fn pass_on_news(&self) {
        self.0.filled.notify_one();
    }

    /// True if all senders were dropped. Their items may still be in the channel.
    pub fn is_ended(&self) -> bool {
        self.0.senders.load(Ordering::Acquire) == 0
    }

    /// Takes the next item together with a value that `claim` obtains, while no other task can take or
    /// receive an item.
    pub(crate) fn try_take_with<C>(&self, claim: impl FnOnce() -> Option<C>) -> TakenWith<C, T> {
        let state = self.0.state.lock();
        if state.items.is_empty() {
            return TakenWith::Nothing;
        }
        let Some(claimed) = claim() else { return TakenWith::Unclaimed };
        match self.pop(state) {
            Some(taken) => TakenWith::Item(claimed, taken),
            None => TakenWith::Nothing,
        }
    }

    /// True if no item is waiting.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.state.lock().items.is_empty()
    }

    /// Takes the next item if there is one.
    pub fn try_take(&self) -> Option<Taken<T>> {
        self.pop(self.0.state.lock())
    }

    fn pop(&self, mut state: MutexGuard<State<T>>) -> Option<Taken<T>> {
        let Queued { item, bytes, pass } = state.items.pop_front()?;
        state.bytes -= bytes;
        let ticket = state.next;
        state.next += 1;
        let more = !state.items.is_empty();
        drop(state);
        if more {
            // Several pushes while no receiver was waiting left only one permit in all.
            self.0.filled.notify_one();
        }
        self.0.drained.notify_waiters();
        Some(Taken { ticket, item, pass })
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        self.0.receivers.fetch_add(1, Ordering::Relaxed);
        Self(self.0.clone())
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        if self.0.receivers.fetch_sub(1, Ordering::AcqRel) == 1 {
            let items = std::mem::take(&mut self.0.state.lock().items);
            drop(items);
            self.0.drained.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn every_item_is_taken_once_and_tickets_follow_the_order_of_pushing() {
        let (sender, receiver) = channel::<usize>(64);
        let takers: Vec<_> = (0..3)
            .map(|_| {
                let receiver = receiver.clone();
                tokio::spawn(async move {
                    let mut taken = Vec::new();
                    while let Some(Taken { ticket, item, .. }) = receiver.take().await {
                        taken.push((ticket, item));
                    }
                    taken
                })
            })
            .collect();
        drop(receiver);
        for item in 0..10_000 {
            sender.room().await;
            sender.push(item, 10).unwrap();
        }
        drop(sender);
        let mut all = Vec::new();
        for taker in takers {
            all.extend(taker.await.unwrap());
        }
        all.sort_unstable();
        assert_eq!(all, (0..10_000).map(|n| (n as Ticket, n)).collect::<Vec<_>>());
    }

    #[test]
    fn a_gauge_shows_what_waits_and_does_not_keep_the_channel() {
        let (sender, receiver) = channel::<()>(10);
        let gauge = receiver.gauge();
        sender.push((), 7).unwrap();
        assert_eq!(gauge(), 7);
        drop(receiver);
        assert!(sender.is_abandoned());
        drop(sender);
        assert_eq!(gauge(), 0);
    }

    #[tokio::test]
    async fn a_full_channel_has_room_again_when_something_is_taken_or_nobody_is_left() {
        let (sender, receiver) = channel::<()>(10);
        sender.push((), 10).unwrap();
        assert!(tokio::time::timeout(std::time::Duration::from_millis(5), sender.room()).await.is_err());
        receiver.take().await.unwrap();
        sender.room().await;
        sender.push((), 10).unwrap();
        drop(receiver);
        sender.room().await;
        assert_eq!(sender.push((), 1), Err(()));
    }
}
