//! One memory budget, in bytes, for the whole process.
//!
//! A source *reserves* bytes before it reads, and waits until they are available: this wait is the engine's
//! backpressure. Transforms and sinks *claim* the memory of what they produce: it is counted at once and
//! never refused. If the downstream stages had to wait too, a full pipeline would stay full for ever. Sources
//! may fill only three quarters of the budget; the last quarter is left for such claims, so the downstream
//! stages can drain.
//!
//! Each source holds a [`Share`]. A reservation of a share that holds nothing is always granted. First,
//! therefore, no budget is too small for a run: a source whose batches are all settled may always read the
//! next one. Second, a source that waits for its input with a buffer in hand cannot starve another source.
//! The cost is that the budget may be exceeded by one batch per source, which is bounded.
//!
//! Bytes are counted where they are held. A [`Lease`] is stored inside the Arrow buffer that it covers (Arrow
//! calls this a memory reservation). A buffer therefore counts once, as a whole, however many slices and
//! batches share it, until the last of them is dropped. A counter at each queue was rejected: it misses bytes
//! that have left a queue and are still held by a batch, a request or an ack.
//!
//! Each handle on the budget belongs to a [holder](Budget::held_by), such as a component. Bytes that are
//! claimed or reserved through it are counted on the holder too, under the lock that is taken anyway.
//!
//! The memory of an [`Arena`] is reused once its last slice is dropped. The page faults of a fresh mebibyte
//! for every batch cost more than copying a mebibyte into memory that is still in the cache.
//!
//! See docs/decisions/001-a-lease-lives-in-its-buffer.md and
//! docs/decisions/002-sources-wait-downstream-never-does.md.

mod gate;
mod holders;
mod incomplete;

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow_array::Array;
use arrow_buffer::{Buffer, MemoryPool, MemoryReservation};
use arrow_data::ArrayData;
use parking_lot::{Condvar, Mutex};
use tokio::sync::{Notify, oneshot};

pub use gate::{Gate, Opening};
pub use holders::Held;
pub use incomplete::Incomplete;

use holders::{Holder, Holders};

/// The bytes beside a buffer: its owner, its reservation, and its part of the array. Thousands of columns
/// with few values take more of them than of values.
const OWNER: usize = 192;

/// The maximum size of a text that a transform makes of a message, in bytes, with enough memory.
pub const LONGEST_TEXT: usize = 16 << 20;

/// The process-wide limit on memory for data in flight. A clone is another handle on the same budget, of the
/// same holder.
#[derive(Clone)]
pub struct Budget {
    shared: Arc<Shared>,
    holder: Holder,
}

struct Shared {
    limit: usize,
    state: Mutex<State>,
    incomplete: Mutex<incomplete::Messages>,
    shortage: Arc<Notify>,
    /// True while a [`Turn`] is taken.
    is_taken: Mutex<bool>,
    turn_ended: Condvar,
}

#[derive(Default)]
struct State {
    used: usize,
    peak: usize,
    /// Which holder has how much of `used`.
    holders: Holders,
    /// Arenas whose slices are all dropped, kept for the next reader.
    idle: Vec<Box<[u8]>>,
    idle_bytes: usize,
    waiting: VecDeque<Waiting>,
    /// The start addresses of buffers made under a lease. Each holds a lease on its source's share, so it is
    /// left out when a batch is claimed.
    arenas: HashSet<usize>,
}

struct Waiting {
    bytes: usize,
    share: Arc<AtomicUsize>,
    holder: Holder,
    grant: oneshot::Sender<Lease>,
}

impl State {
    /// Counts bytes on a holder.
    fn add(&mut self, bytes: usize, holder: Holder) {
        self.used += bytes;
        self.holders.add(holder, bytes);
    }
}

impl Budget {
    /// Creates a budget of `limit` bytes.
    pub fn new(limit: usize) -> Self {
        let shared = Shared {
            limit,
            state: Mutex::default(),
            incomplete: Mutex::default(),
            shortage: Arc::default(),
            is_taken: Mutex::default(),
            turn_ended: Condvar::new(),
        };
        Self { shared: Arc::new(shared), holder: Holder::default() }
    }

    /// Returns the limit in bytes.
    pub fn limit(&self) -> usize {
        self.shared.limit
    }

    /// Returns the bytes held now by all holders.
    pub fn used(&self) -> usize {
        self.shared.state.lock().used
    }

    /// Returns the most bytes that were held at any time.
    pub fn peak(&self) -> usize {
        self.shared.state.lock().peak
    }

    /// True if a source waits for capacity. Sinks that hold data back to write larger pieces check this.
    pub fn is_short(&self) -> bool {
        !self.shared.state.lock().waiting.is_empty()
    }

    /// Returns the notification that is sent when a source begins to wait for capacity.
    pub fn shortage(&self) -> Arc<Notify> {
        self.shared.shortage.clone()
    }

    /// Returns the maximum size of a text that a transform makes of a message, in bytes: it is held several
    /// times on its way to a sink.
    pub fn longest_text(&self) -> usize {
        (self.shared.limit / 8).clamp(512 << 10, LONGEST_TEXT) >> 19 << 19
    }

    /// Returns the maximum size of all values that a transform makes of one message, in bytes.
    pub fn most_values(&self) -> usize {
        (self.shared.limit / 2).clamp(2 << 20, 8 * LONGEST_TEXT) >> 20 << 20
    }

    /// Returns the bytes that sources may fill; the rest is left for the stages downstream.
    pub fn ceiling(&self) -> usize {
        self.shared.limit - self.shared.limit / 4
    }

    /// Creates a share: the account of one source. Its holder is that of this handle.
    pub fn share(&self) -> Share {
        Share { budget: self.clone(), held: Arc::default(), incomplete: Arc::default(), gate: None }
    }

    /// Counts bytes that a downstream stage holds already or is about to hold. Never waits, never refuses.
    pub fn claim(&self, bytes: usize) -> Lease {
        let mut state = self.shared.state.lock();
        state.add(bytes, self.holder);
        state.peak = state.peak.max(state.used);
        Lease { budget: self.clone(), share: None, bytes }
    }

    /// Waits for the turn to hold far more memory for a moment than a batch has. Such work is done by one
    /// worker at a time: the number of workers then does not multiply it. The holder must wait for nothing
    /// else, and must not take a second turn.
    pub fn turn(&self) -> Turn {
        let mut is_taken = self.shared.is_taken.lock();
        while *is_taken {
            self.shared.turn_ended.wait(&mut is_taken);
        }
        *is_taken = true;
        Turn(self.clone())
    }

    fn release(&self, bytes: usize, share: Option<&AtomicUsize>) {
        let granted = {
            let mut state = self.shared.state.lock();
            state.used -= bytes;
            state.holders.remove(self.holder, bytes);
            if let Some(held) = share {
                held.fetch_sub(bytes, Ordering::Relaxed);
            }
            self.grant_waiting(&mut state)
        };
        // Sent outside the lock: if the waiter is gone, the lease comes back, and dropping it takes the lock.
        for (waiting, lease) in granted {
            drop(waiting.grant.send(lease));
        }
    }

    /// Grants the waiting requests that fit, in their order. A request of a share that holds nothing is
    /// granted out of turn.
    fn grant_waiting(&self, state: &mut State) -> Vec<(Waiting, Lease)> {
        let mut granted = Vec::new();
        let mut at = 0;
        let mut blocked = false;
        while let Some(waiting) = state.waiting.get(at) {
            let fits = !blocked && state.used + waiting.bytes <= self.ceiling();
            if fits || waiting.share.load(Ordering::Relaxed) == 0 {
                if let Some(waiting) = state.waiting.remove(at) {
                    let budget = Self { shared: self.shared.clone(), holder: waiting.holder };
                    let lease = budget.take(state, waiting.bytes, &waiting.share);
                    granted.push((waiting, lease));
                }
            } else {
                blocked = true;
                at += 1;
            }
        }
        granted
    }

    fn take(&self, state: &mut State, bytes: usize, share: &Arc<AtomicUsize>) -> Lease {
        state.add(bytes, self.holder);
        state.peak = state.peak.max(state.used);
        share.fetch_add(bytes, Ordering::Relaxed);
        Lease { budget: self.clone(), share: Some(share.clone()), bytes }
    }

    /// Returns writable memory of `capacity` bytes without waiting for capacity, as [`claim`](Self::claim)
    /// does.
    pub fn claim_arena(&self, capacity: usize) -> Arena {
        let lease = self.claim(capacity);
        Arena { memory: self.memory(capacity), lease }
    }

    /// Returns memory of exactly `capacity` bytes: from an idle arena or fresh. Frees idle arenas that no
    /// longer fit in the budget.
    fn memory(&self, capacity: usize) -> Box<[u8]> {
        let mut freed = Vec::new();
        let found = {
            let mut state = self.shared.state.lock();
            let found = state.idle.iter().rposition(|memory| memory.len() == capacity);
            let found = found.map(|at| state.idle.swap_remove(at));
            state.idle_bytes -= found.as_ref().map_or(0, |memory| memory.len());
            while state.used + state.idle_bytes > self.shared.limit {
                let Some(memory) = state.idle.pop() else { break };
                state.idle_bytes -= memory.len();
                freed.push(memory);
            }
            found
        };
        drop(freed);
        found.unwrap_or_else(|| vec![0; capacity].into_boxed_slice())
    }

    fn keep_idle(&self, memory: Box<[u8]>) {
        let mut state = self.shared.state.lock();
        state.arenas.remove(&(memory.as_ptr() as usize));
        if state.idle_bytes + memory.len() <= self.shared.limit / 4 {
            state.idle_bytes += memory.len();
            state.idle.push(memory);
        }
    }
}

impl std::fmt::Debug for Budget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Budget({} of {} bytes)", self.used(), self.shared.limit)
    }
}

/// Arrow calls the pool when a buffer is claimed. A second claim reserves the buffer again before the first
/// reservation is dropped. The peak is therefore updated after all buffers of a batch are claimed, not here.
impl MemoryPool for Budget {
    fn reserve(&self, size: usize) -> Box<dyn MemoryReservation> {
        // An empty buffer has no allocation.
        let bytes = if size == 0 { 0 } else { size + OWNER };
        self.shared.state.lock().add(bytes, self.holder);
        Box::new(Lease { budget: self.clone(), share: None, bytes })
    }

    fn available(&self) -> isize {
        self.shared.limit as isize - self.used() as isize
    }

    fn used(&self) -> usize {
        Budget::used(self)
    }

    fn capacity(&self) -> usize {
        self.shared.limit
    }
}

impl Budget {
    /// Counts each buffer of `arrays` once, as a whole, until it is dropped, whatever else shares it. A
    /// buffer that is already counted stays counted once.
    pub(crate) fn claim_buffers<'a>(&self, arrays: impl Iterator<Item = &'a dyn Array>) {
        let mut buffers = Vec::new();
        arrays.for_each(|array| collect_buffers(&array.to_data(), &mut buffers));
        {
            let state = self.shared.state.lock();
            buffers.retain(|buffer| !state.arenas.contains(&(buffer.data_ptr().as_ptr() as usize)));
        }
        buffers.iter().for_each(|buffer| buffer.claim(self));
        let mut state = self.shared.state.lock();
        state.peak = state.peak.max(state.used);
    }
}

fn collect_buffers(data: &ArrayData, buffers: &mut Vec<Buffer>) {
    buffers.extend(data.buffers().iter().cloned());
    buffers.extend(data.nulls().map(|nulls| nulls.buffer().clone()));
    data.child_data().iter().for_each(|child| collect_buffers(child, buffers));
}

/// The turn of one worker: see [`Budget::turn`]. It ends when this is dropped.
#[derive(Debug)]
pub struct Turn(Budget);

impl Drop for Turn {
    fn drop(&mut self) {
        *self.0.shared.is_taken.lock() = false;
        self.0.shared.turn_ended.notify_one();
    }
}

/// Returns a size as text, in the largest unit that divides it.
pub fn size_text(bytes: usize) -> String {
    match bytes {
        _ if bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ if bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} bytes"),
    }
}

/// One source's account with the budget.
#[derive(Clone, Debug)]
pub struct Share {
    budget: Budget,
    held: Arc<AtomicUsize>,
    /// The bytes that the incomplete messages of the source hold.
    incomplete: Arc<AtomicUsize>,
    /// Holds its reservations back.
    gate: Option<Arc<dyn Gate>>,
}

impl Share {
    /// Waits until `bytes` are available, and holds them. Requests are granted in order, but a request of a
    /// share that holds nothing is granted at once, even beyond the limit. Dropping the future withdraws the
    /// request. While the [gate](Self::behind) of the share is closed, nothing is granted.
    pub async fn reserve(&self, bytes: usize) -> Lease {
        loop {
            self.opened().await;
            let lease = self.granted(bytes).await;
            // Closed during the wait: others use the memory until it opens.
            if !self.is_held_back() {
                return lease;
            }
        }
    }

    /// As [`reserve`](Self::reserve), whatever the gate says.
    async fn granted(&self, bytes: usize) -> Lease {
        let granted = {
            let mut state = self.budget.shared.state.lock();
            let fits = state.waiting.is_empty() && state.used + bytes <= self.budget.ceiling();
            if fits || self.held.load(Ordering::Relaxed) == 0 {
                return self.budget.take(&mut state, bytes, &self.held);
            }
            let (grant, granted) = oneshot::channel();
            let (share, holder) = (self.held.clone(), self.budget.holder);
            state.waiting.push_back(Waiting { bytes, share, holder, grant });
            granted
        };
        self.budget.shared.shortage.notify_waiters();
        match granted.await {
            Ok(lease) => lease,
            // The sender is stored in the budget, which `self` keeps alive. If it were ever gone, an
            // unconditional claim would do no harm.
            Err(_) => self.budget.claim(bytes),
        }
    }

    /// Holds bytes at once, even beyond the limit: for what is in hand already. Until they are released, the
    /// share holds something, so that its later reservations wait for capacity.
    pub fn claim(&self, bytes: usize) -> Lease {
        self.budget.take(&mut self.budget.shared.state.lock(), bytes, &self.held)
    }

    /// Waits for capacity, and returns writable memory of `capacity` bytes.
    pub async fn arena(&self, capacity: usize) -> Arena {
        let lease = self.reserve(capacity).await;
        Arena { memory: self.budget.memory(capacity), lease }
    }

    /// Returns the bytes that this share holds now.
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// Returns the budget of this share.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }
}

/// Bytes of the budget, held until dropped.
#[derive(Debug)]
pub struct Lease {
    budget: Budget,
    share: Option<Arc<AtomicUsize>>,
    bytes: usize,
}

impl Lease {
    /// Returns the number of bytes held.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Splits off `bytes` of the lease, or all of it if it holds less.
    pub fn split(&mut self, bytes: usize) -> Lease {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Lease { budget: self.budget.clone(), share: self.share.clone(), bytes }
    }

    /// Turns memory that was filled under this lease into an Arrow buffer, which keeps the lease until its
    /// last slice is dropped. For data of unknown size, such as data from a network. Unlike an [`Arena`]'s
    /// memory, this memory is freed afterwards and not kept for the next reader.
    pub fn freeze(mut self, memory: Vec<u8>) -> Buffer {
        self.resize(memory.capacity());
        if memory.capacity() == 0 {
            return Buffer::from_vec(memory);
        }
        let budget = self.budget.clone();
        let buffer = Buffer::from(bytes::Bytes::from_owner(Filled { memory, lease: self }));
        budget.shared.state.lock().arenas.insert(buffer.data_ptr().as_ptr() as usize);
        buffer
    }

    /// Adds the bytes of another lease to this one. Leases of different shares or budgets cannot be merged:
    /// `other` is returned.
    pub fn merge(&mut self, mut other: Lease) -> Result<(), Lease> {
        let same_share = match (&self.share, &other.share) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (None, None) => true,
            _ => false,
        };
        if !same_share || !Arc::ptr_eq(&self.budget.shared, &other.budget.shared) {
            return Err(other);
        }
        let bytes = std::mem::take(&mut other.bytes);
        let (from, to) = (other.budget.holder, self.budget.holder);
        if from != to {
            self.budget.shared.state.lock().holders.pass(from, to, bytes);
        }
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.budget.release(self.bytes, self.share.as_deref());
        }
    }
}

impl MemoryReservation for Lease {
    fn size(&self) -> usize {
        self.bytes
    }

    fn resize(&mut self, new_size: usize) {
        if new_size < self.bytes {
            drop(self.split(self.bytes - new_size));
        } else {
            let mut more = self.budget.claim(new_size - self.bytes);
            if let (Some(held), bytes) = (&self.share, more.bytes) {
                held.fetch_add(bytes, Ordering::Relaxed);
            }
            self.bytes += std::mem::take(&mut more.bytes);
        }
    }
}

/// Writable memory covered by a lease. It is zeroed or contains the data of a former reader.
#[derive(Debug)]
pub struct Arena {
    memory: Box<[u8]>,
    lease: Lease,
}

impl Arena {
    /// Ends writing and returns the memory as an Arrow buffer. When its last slice is dropped, the bytes
    /// return to the budget and the memory is kept for the next reader.
    pub fn freeze(self) -> Buffer {
        let Arena { memory, lease } = self;
        let budget = lease.budget.clone();
        let buffer = Buffer::from(bytes::Bytes::from_owner(Recycled { memory, lease }));
        budget.shared.state.lock().arenas.insert(buffer.data_ptr().as_ptr() as usize);
        buffer
    }
}

impl std::ops::Deref for Arena {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.memory
    }
}

impl std::ops::DerefMut for Arena {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory
    }
}

/// The owner of a frozen arena's buffer: it recycles the memory when the last slice is dropped.
struct Recycled {
    memory: Box<[u8]>,
    lease: Lease,
}

impl AsRef<[u8]> for Recycled {
    fn as_ref(&self) -> &[u8] {
        &self.memory
    }
}

impl Drop for Recycled {
    fn drop(&mut self) {
        self.lease.budget.keep_idle(std::mem::take(&mut self.memory));
    }
}

/// The owner of a buffer that was filled under a lease.
struct Filled {
    memory: Vec<u8>,
    lease: Lease,
}

impl AsRef<[u8]> for Filled {
    fn as_ref(&self) -> &[u8] {
        &self.memory
    }
}

impl Drop for Filled {
    fn drop(&mut self) {
        self.lease.budget.shared.state.lock().arenas.remove(&(self.memory.as_ptr() as usize));
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests;
