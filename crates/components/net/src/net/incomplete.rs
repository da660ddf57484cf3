//! The incomplete messages of a source, and which of them is dropped if they use up the memory.
//!
//! A message that has arrived in part holds memory until its rest arrives. Many clients that send a byte now
//! and then would hold all of it, and no other client could be served. So a connection that waits for memory
//! looks whether incomplete messages hold it, and then drops the oldest of them.
//!
//! Nothing is dropped while complete messages of the source are still being delivered: their memory returns
//! by itself, and slow delivery is not the client's fault. For the same reason nothing is dropped while
//! incomplete messages hold less than half of the budget: others use it.

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
    /// messages hold its memory, the oldest of them are dropped meanwhile.
    pub async fn reserve(&self, share: &Share, bytes: usize) -> Lease {
        let mut reserved = pin!(share.reserve(bytes));
        loop {
            tokio::select! {
                biased;
                lease = reserved.as_mut() => return lease,
                () = tokio::time::sleep(LOOK) => self.relieve(share),
            }
        }
    }

    /// Drops the oldest message if incomplete messages hold all memory of the source, and at least half of
    /// the budget.
    fn relieve(&self, share: &Share) {
        let mut state = self.0.lock();
        if state.bytes < share.held() || state.bytes < share.budget().limit() / 2 {
            return;
        }
        if let Some((_, (bytes, dropped))) = state.parts.pop_first() {
            state.bytes -= bytes;
            dropped.notify_one();
        }
    }
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
            tokio::join!(incomplete.reserve(&share, 100), async {
                oldest.0.dropped().await;
                drop(oldest);
            })
        })
        .await;
        assert_eq!((lease.bytes(), share.held()), (100, 300));
        // The others stay: what is complete is on its way.
        let waiting = incomplete.reserve(&share, 100);
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
        assert!(tokio::time::timeout(LOOK * 3, incomplete.reserve(&share, 100)).await.is_err());
        assert_eq!(incomplete.0.lock().bytes, 10);
    }
}
