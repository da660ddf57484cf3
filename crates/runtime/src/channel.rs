//! Channels bounded by bytes.
//!
//! A push never waits; a sender that wants to be polite asks for [`room`](Sender::room) before it makes
//! what it will push. So the bound is exceeded by at most one item a sender, and in return no stage can
//! ever be stuck with work in hand: the ways to deadlock by waiting in the middle of something are gone.
//!
//! Several receivers share the items. Each item comes with a [`Ticket`], numbered in the order of pushing;
//! with it a [`Sequencer`](crate::Sequencer) can put back in order what several receivers made of the items.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

/// The number of an item in the order of a channel.
pub type Ticket = u64;

struct Shared<T> {
    limit: usize,
    state: Mutex<State<T>>,
    /// Something was pushed, or the last sender went.
    filled: Notify,
    /// Something was taken, or the last receiver went.
    drained: Notify,
    senders: AtomicUsize,
    receivers: AtomicUsize,
}

struct State<T> {
    items: VecDeque<(T, usize)>,
    bytes: usize,
    next: Ticket,
}

/// A channel that has room while it holds less than `limit` bytes.
pub fn channel<T>(limit: usize) -> (Sender<T>, Receiver<T>) {
    let shared = Arc::new(Shared {
        limit,
        state: Mutex::new(State { items: VecDeque::new(), bytes: 0, next: 0 }),
        filled: Notify::new(),
        drained: Notify::new(),
        senders: AtomicUsize::new(1),
        receivers: AtomicUsize::new(1),
    });
    (Sender(shared.clone()), Receiver(shared))
}

/// The end that items are pushed into. The channel ends when all its senders are dropped.
pub struct Sender<T>(Arc<Shared<T>>);

impl<T> Sender<T> {
    /// Waits until there is room, or nobody is left to receive.
    pub async fn room(&self) {
        loop {
            let notified = self.0.drained.notified();
            let mut notified = std::pin::pin!(notified);
            notified.as_mut().enable();
            if self.0.state.lock().bytes < self.0.limit || self.is_abandoned() {
                return;
            }
            notified.await;
        }
    }

    /// Adds an item that counts as `bytes`. Gives it back if nobody is left to receive it.
    ///
    /// # Errors
    /// The item, if all receivers were dropped.
    pub fn push(&self, item: T, bytes: usize) -> Result<(), T> {
        let mut state = self.0.state.lock();
        // Under the lock: the last receiver empties the channel when it goes, and nothing may be left in it after that.
        if self.is_abandoned() {
            return Err(item);
        }
        state.items.push_back((item, bytes));
        state.bytes += bytes;
        drop(state);
        self.0.filled.notify_one();
        Ok(())
    }

    /// Whether all receivers were dropped.
    pub fn is_abandoned(&self) -> bool {
        self.0.receivers.load(Ordering::Acquire) == 0
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.0.senders.fetch_add(1, Ordering::Relaxed);
        Self(self.0.clone())
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        if self.0.senders.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.filled.notify_waiters();
            self.0.filled.notify_one();
        }
    }
}

/// The end that items are taken from. Clones share the items.
pub struct Receiver<T>(Arc<Shared<T>>);

impl<T> Receiver<T> {
    /// Waits for the next item; `None` when the channel has ended and is empty.
    pub async fn take(&self) -> Option<(Ticket, T)> {
        loop {
            let notified = self.0.filled.notified();
            let mut notified = std::pin::pin!(notified);
            notified.as_mut().enable();
            // Read before the queue: a sender pushes before it goes, so what it pushed is seen below.
            let ended = self.0.senders.load(Ordering::Acquire) == 0;
            if let Some(item) = self.try_take() {
                return Some(item);
            }
            if ended {
                // Pass it on: `notify_one` wakes a single receiver.
                self.0.filled.notify_one();
                return None;
            }
            notified.await;
        }
    }

    /// Takes the next item if there is one.
    pub fn try_take(&self) -> Option<(Ticket, T)> {
        let mut state = self.0.state.lock();
        let (item, bytes) = state.items.pop_front()?;
        state.bytes -= bytes;
        let ticket = state.next;
        state.next += 1;
        let more = !state.items.is_empty();
        drop(state);
        if more {
            // Pushes that came while no receiver was waiting left one permit between them.
            self.0.filled.notify_one();
        }
        self.0.drained.notify_waiters();
        Some((ticket, item))
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
                    while let Some(item) = receiver.take().await {
                        taken.push(item);
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
        assert!(sender.push((), 1).is_err());
    }
}
