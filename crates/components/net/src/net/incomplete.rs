//! The incomplete messages of a source, and which of them is dropped if they use up the memory.
//!
//! A message that has arrived in part holds memory until its rest arrives. Many clients that send a byte now
//! and then would hold all of it, and no other client could be served. So a connection that waits for memory
//! looks whether incomplete messages hold it, and then drops the oldest of them.
//!
//! Nothing is dropped while complete messages of the source are still being delivered: their memory returns
//! by itself, and slow delivery is not the client's fault. For the same reason nothing is dropped while
//! incomplete messages hold less than half of the budget: others use it. A message is not dropped for its own
//! rest either, as long as it alone holds memory: it then competes with no other.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use thalweg_record::{Lease, Share};
use tokio::sync::Notify;

/// The reason of a message that is dropped.
pub const REASON: &str = "incomplete messages used up the memory, and it was the oldest of them";

/// How long to wait for memory before looking who holds it, and how often to look.
const LOOK: Duration = Duration::from_secs(1);

/// The incomplete messages of a source. A clone is another handle on the same ones.
#[derive(Debug, Clone, Default)]
pub struct Incomplete(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    next: u64,
    /// By age: the first one is the oldest.
    parts: BTreeMap<u64, (usize, Arc<Notify>)>,
    /// The memory that all parts hold together, in bytes.
    bytes: usize,
}

impl Incomplete {
    /// Registers a message that begins now.
    pub fn begin(&self) -> Part {
        let mut state = self.0.lock();
        let number = state.next;
        state.next += 1;
        let dropped = Arc::new(Notify::new());
        state.parts.insert(number, (0, dropped.clone()));
        Part { incomplete: self.clone(), number, dropped }
    }

    /// Waits until `bytes` of the source's share are available, as [`Share::reserve`] does. If incomplete
    /// messages hold its memory, the oldest of them are dropped meanwhile. `part` is the incomplete message
    /// that the bytes are for, if it has begun.
    pub async fn reserve(&self, share: &Share, bytes: usize, part: Option<&Part>) -> Lease {
        let mut reserved = pin!(share.reserve(bytes));
        loop {
            tokio::select! {
                biased;
                lease = reserved.as_mut() => return lease,
                () = tokio::time::sleep(LOOK) => self.relieve(share, part),
            }
        }
    }

    /// Drops the oldest message if incomplete messages hold all memory of the source, and at least half of
    /// the budget, unless all of that is held by `part` itself.
    fn relieve(&self, share: &Share, part: Option<&Part>) {
        let mut state = self.0.lock();
        if state.bytes < share.held() || state.bytes < share.budget().limit() / 2 {
            return;
        }
        let own = part.and_then(|part| state.parts.get(&part.number)).map_or(0, |(bytes, _)| *bytes);
        if own == state.bytes {
            return;
        }
        if let Some((_, (bytes, dropped))) = state.parts.pop_first() {
            state.bytes -= bytes;
            dropped.notify_one();
        }
    }
}

/// Returns by how many bytes to enlarge the memory of an incomplete message that holds `held` bytes: by
/// `wanted`, or by what the budget can ever grant if that is less, but at least by `least`.
pub fn growth(share: &Share, held: usize, least: usize, wanted: usize) -> usize {
    wanted.min(share.budget().ceiling().saturating_sub(held)).max(least)
}

/// An incomplete message, until this is dropped.
#[derive(Debug)]
pub struct Part {
    incomplete: Incomplete,
    number: u64,
    dropped: Arc<Notify>,
}

impl Part {
    /// Records that the message now holds this number of bytes.
    pub fn hold(&self, bytes: usize) {
        let mut state = self.incomplete.0.lock();
        if let Some((held, _)) = state.parts.get_mut(&self.number) {
            let before = std::mem::replace(held, bytes);
            state.bytes = state.bytes - before + bytes;
        }
    }

    /// Waits until the message must be dropped, for [`REASON`].
    pub async fn dropped(&self) {
        self.dropped.notified().await;
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let mut state = self.incomplete.0.lock();
        if let Some((bytes, _)) = state.parts.remove(&self.number) {
            state.bytes -= bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::testing::within;
    use thalweg_record::Budget;

    #[tokio::test]
    async fn the_oldest_message_is_dropped_when_messages_hold_everything() {
        let budget = Budget::new(400);
        let (share, incomplete) = (budget.share(), Incomplete::default());
        let mut parts: Vec<(Part, Lease)> = Vec::new();
        for _ in 0..3 {
            let part = incomplete.begin();
            part.hold(100);
            parts.push((part, share.reserve(100).await));
        }
        let oldest = parts.remove(0);
        let (lease, ()) = within(async {
            tokio::join!(incomplete.reserve(&share, 100, None), async {
                oldest.0.dropped().await;
                drop(oldest);
            })
        })
        .await;
        assert_eq!((lease.bytes(), share.held()), (100, 300));
        // The others stay: what is complete is on its way.
        let waiting = incomplete.reserve(&share, 100, None);
        assert!(tokio::time::timeout(LOOK * 3, waiting).await.is_err());
        assert_eq!(incomplete.0.lock().parts.len(), 2);
        drop((lease, parts));
        assert_eq!((share.held(), incomplete.0.lock().bytes), (0, 0));
    }

    #[tokio::test]
    async fn a_small_message_is_not_dropped_for_what_others_hold() {
        let budget = Budget::new(400);
        let (share, other) = (budget.share(), budget.share());
        let incomplete = Incomplete::default();
        let part = incomplete.begin();
        part.hold(10);
        let _leases = (share.reserve(10).await, other.reserve(290).await);
        assert!(tokio::time::timeout(LOOK * 3, incomplete.reserve(&share, 100, None)).await.is_err());
        assert_eq!(incomplete.0.lock().bytes, 10);
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_that_competes_with_no_other_waits_for_its_rest() {
        let budget = Budget::new(400);
        let (share, incomplete) = (budget.share(), Incomplete::default());
        let part = incomplete.begin();
        part.hold(200);
        let _lease = share.reserve(200).await;
        let rest = incomplete.reserve(&share, 200, Some(&part));
        assert!(tokio::time::timeout(LOOK * 3, rest).await.is_err());
        assert_eq!(incomplete.0.lock().parts.len(), 1);
        let other = incomplete.begin();
        let rest = incomplete.reserve(&share, 200, Some(&other));
        assert!(tokio::time::timeout(LOOK * 3, rest).await.is_err());
        within(part.dropped()).await;
        assert_eq!(incomplete.0.lock().parts.keys().copied().collect::<Vec<u64>>(), [other.number]);
    }

    #[test]
    fn memory_grows_as_far_as_the_budget_can_ever_grant_it() {
        // Sources may fill 300 bytes.
        let share = Budget::new(400).share();
        let grown = [100, 200, 295, 300, 400].map(|held| growth(&share, held, 10, held));
        assert_eq!(grown, [100, 100, 10, 10, 10]);
    }
}
