//! The incomplete messages of all sources, and which of them is dropped if they use up the memory.
//!
//! A message that has arrived in part holds memory until its rest arrives. Many clients that send a byte now
//! and then would hold all of it, and no other client could be served. So a source that waits for memory
//! looks whether incomplete messages hold it, and then drops the oldest of them, whichever source it belongs
//! to: clients of several sources would otherwise each hold a part of the memory that is not worth dropping.
//!
//! Nothing is dropped while complete messages of the waiting source are still being delivered: their memory
//! returns by itself, and slow delivery is not the client's fault. For the same reason nothing is dropped
//! while incomplete messages hold less than half of the budget: others use it. A message is not dropped for
//! its own rest either, as long as it alone holds memory: it then competes with no other.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use super::{Lease, Share};

/// How long to wait for memory before looking who holds it, and how often to look.
const LOOK: Duration = Duration::from_secs(1);

/// The incomplete messages of all sources of a budget.
#[derive(Default)]
pub(super) struct Messages {
    next: u64,
    /// By age: the first one is the oldest.
    by_age: BTreeMap<u64, Message>,
    /// The memory that all of them hold together, in bytes.
    bytes: usize,
}

struct Message {
    bytes: usize,
    /// The bytes that all incomplete messages of its source hold.
    of_source: Arc<AtomicUsize>,
    dropped: Arc<Notify>,
}

impl Messages {
    /// Sets how many bytes a message holds.
    fn hold(&mut self, number: u64, bytes: usize) {
        if let Some(message) = self.by_age.get_mut(&number) {
            let before = std::mem::replace(&mut message.bytes, bytes);
            // Changed only under the lock, so the two steps are one.
            message.of_source.fetch_add(bytes, Ordering::Relaxed);
            message.of_source.fetch_sub(before, Ordering::Relaxed);
            self.bytes = self.bytes + bytes - before;
        }
    }

    fn remove(&mut self, number: u64) -> Option<Message> {
        self.hold(number, 0);
        self.by_age.remove(&number)
    }
}

impl Share {
    /// Registers a message that begins to arrive now.
    pub fn begin_message(&self) -> Incomplete {
        let mut messages = self.budget.shared.incomplete.lock();
        let number = messages.next;
        messages.next += 1;
        let dropped = Arc::new(Notify::new());
        let of_source = self.incomplete.clone();
        messages.by_age.insert(number, Message { bytes: 0, of_source, dropped: dropped.clone() });
        Incomplete { share: self.clone(), number, dropped }
    }

    /// Waits until `bytes` are available, as [`reserve`](Self::reserve) does, for a message that comes from a
    /// client. If incomplete messages hold the memory, the oldest of them are dropped meanwhile. `message` is
    /// the incomplete one that the bytes are for, if it has begun.
    pub async fn reserve_for(&self, bytes: usize, message: Option<&Incomplete>) -> Lease {
        loop {
            // No message is dropped for a share that is held back.
            self.opened().await;
            let lease = self.granted_for(bytes, message).await;
            if !self.is_held_back() {
                return lease;
            }
        }
    }

    /// As [`reserve_for`](Self::reserve_for), whatever the gate says.
    async fn granted_for(&self, bytes: usize, message: Option<&Incomplete>) -> Lease {
        let mut reserved = pin!(self.granted(bytes));
        loop {
            tokio::select! {
                biased;
                lease = reserved.as_mut() => return lease,
                () = tokio::time::sleep(LOOK) => self.relieve(message),
            }
        }
    }

    /// Drops the oldest message if incomplete messages hold all memory of this source, and those of all
    /// sources at least half of the budget, unless all of that is held by `message` itself.
    fn relieve(&self, message: Option<&Incomplete>) {
        let mut messages = self.budget.shared.incomplete.lock();
        let of_source = self.incomplete.load(Ordering::Relaxed);
        if of_source < self.held() || messages.bytes < self.budget.limit() / 2 {
            return;
        }
        let own = message.and_then(|message| messages.by_age.get(&message.number));
        if own.map_or(0, |own| own.bytes) == messages.bytes {
            return;
        }
        if let Some(oldest) = messages.by_age.keys().next().copied()
            && let Some(oldest) = messages.remove(oldest)
        {
            oldest.dropped.notify_one();
        }
    }

    /// Returns by how many bytes to enlarge the memory of an incomplete message that holds `held` bytes: by
    /// `wanted`, or by what the budget can ever grant if that is less, but at least by `least`.
    pub fn growth(&self, held: usize, least: usize, wanted: usize) -> usize {
        wanted.min(self.budget.ceiling().saturating_sub(held)).max(least)
    }
}

/// An incomplete message, until this is dropped.
#[derive(Debug)]
pub struct Incomplete {
    share: Share,
    number: u64,
    dropped: Arc<Notify>,
}

impl Incomplete {
    /// The reason of a message that is dropped.
    pub const REASON: &str = "incomplete messages used up the memory, and it was the oldest of them";

    /// Records that the message now holds this number of bytes.
    pub fn hold(&self, bytes: usize) {
        self.share.budget.shared.incomplete.lock().hold(self.number, bytes);
    }

    /// Waits until the message must be dropped, for [`REASON`](Self::REASON).
    pub async fn dropped(&self) {
        self.dropped.notified().await;
    }
}

impl Drop for Incomplete {
    fn drop(&mut self) {
        self.share.budget.shared.incomplete.lock().remove(self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::super::Budget;
    use super::*;
    use tokio::time::timeout;

    /// Longer than every wait that ends.
    const LONG: Duration = Duration::from_secs(30);

    fn numbers(budget: &Budget) -> Vec<u64> {
        budget.shared.incomplete.lock().by_age.keys().copied().collect()
    }

    async fn begin(share: &Share, bytes: usize) -> (Incomplete, Lease) {
        let message = share.begin_message();
        message.hold(bytes);
        (message, share.reserve(bytes).await)
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_message_is_dropped_when_messages_hold_everything() {
        let budget = Budget::new(400);
        let share = budget.share();
        let mut messages = Vec::new();
        for _ in 0..3 {
            messages.push(begin(&share, 100).await);
        }
        let oldest = messages.remove(0);
        let both = async {
            tokio::join!(share.reserve_for(100, None), async {
                oldest.0.dropped().await;
                drop(oldest);
            })
        };
        let (lease, ()) = timeout(LONG, both).await.expect("the oldest message is dropped");
        assert_eq!((lease.bytes(), share.held()), (100, 300));
        // The others stay: what is complete is on its way.
        assert!(timeout(LONG, share.reserve_for(100, None)).await.is_err());
        assert_eq!(numbers(&budget), [1, 2]);
        drop((lease, messages));
        assert_eq!((share.held(), share.incomplete.load(Ordering::Relaxed)), (0, 0));
        assert_eq!(budget.shared.incomplete.lock().bytes, 0);
    }

    /// Each of the sources holds less than half of the budget.
    #[tokio::test(start_paused = true)]
    async fn the_oldest_message_is_dropped_when_those_of_several_sources_hold_everything() {
        let budget = Budget::new(400);
        let shares: Vec<Share> = (0..3).map(|_| budget.share()).collect();
        let mut messages = Vec::new();
        for share in &shares {
            messages.push(begin(share, 100).await);
        }
        let oldest = messages.remove(0);
        let both = async {
            tokio::join!(shares[2].reserve_for(50, None), async {
                oldest.0.dropped().await;
                drop(oldest);
            })
        };
        let (lease, ()) = timeout(LONG, both).await.expect("the oldest message of another source is dropped");
        assert_eq!((lease.bytes(), shares[0].held(), shares[2].held()), (50, 0, 150));
        assert_eq!(numbers(&budget), [1, 2]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_small_message_is_not_dropped_for_what_others_hold() {
        let budget = Budget::new(400);
        let (share, other) = (budget.share(), budget.share());
        let _held = (begin(&share, 10).await, other.reserve(290).await);
        assert!(timeout(LONG, share.reserve_for(100, None)).await.is_err());
        assert_eq!(numbers(&budget), [0]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_that_competes_with_no_other_waits_for_its_rest() {
        let budget = Budget::new(400);
        let share = budget.share();
        let (message, _lease) = begin(&share, 200).await;
        assert!(timeout(LONG, share.reserve_for(200, Some(&message))).await.is_err());
        assert_eq!(numbers(&budget), [0]);
        let other = share.begin_message();
        assert!(timeout(LONG, share.reserve_for(200, Some(&other))).await.is_err());
        timeout(LONG, message.dropped()).await.expect("it competes with another one");
        assert_eq!(numbers(&budget), [other.number]);
    }

    #[test]
    fn memory_grows_as_far_as_the_budget_can_ever_grant_it() {
        // Sources may fill 300 bytes.
        let share = Budget::new(400).share();
        let grown = [100, 200, 295, 300, 400].map(|held| share.growth(held, 10, held));
        assert_eq!(grown, [100, 100, 10, 10, 10]);
    }
}
