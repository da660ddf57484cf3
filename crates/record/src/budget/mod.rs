//! One budget, in bytes, for the whole process.
//!
//! A source *reserves* before it reads, and waits until there is room: that waiting is the engine's
//! backpressure. What transforms and sinks make out of what was read is *claimed*: counted at once and
//! never refused, because refusing the stages downstream is how a pipeline that is full stays full for
//! ever. So that claims have somewhere to go, sources may only fill three quarters of the budget; the rest
//! is the floor that everything downstream drains with.
//!
//! Each source holds a [`Share`], and a share that holds nothing is always granted what it asks for. Two
//! things follow: no budget, however small, can stop a run, since a source whose batches are all done may
//! always read the next; and a source that waits for its input (with a buffer in hand) cannot starve
//! another. The price is that the budget may be exceeded by one batch a source, which is bounded.
//!
//! Bytes are counted where they are held: a [`Lease`] lives inside the Arrow buffer that it pays for (Arrow
//! calls this a memory reservation), so a buffer counts once, whole, however many slices and batches share
//! it, until the last of them lets go. A counter at each queue was rejected: it loses sight of bytes that
//! have left a queue and are still held by a batch, a request or an acknowledgement.
//!
//! The memory of an [`Arena`] is used again when its last slice is gone. Faulting in a fresh mebibyte
//! for every batch costs more than copying a mebibyte into one that is still in the cache.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow_array::Array;
use arrow_buffer::{Buffer, MemoryPool, MemoryReservation};
use arrow_data::ArrayData;
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

/// The process's memory for data in flight. Cloning gives another handle on the same budget.
#[derive(Clone)]
pub struct Budget(Arc<Shared>);

struct Shared {
    limit: usize,
    state: Mutex<State>,
    shortage: Arc<Notify>,
}

#[derive(Default)]
struct State {
    used: usize,
    peak: usize,
    /// Arenas whose slices are all gone, kept for the next reader.
    idle: Vec<Box<[u8]>>,
    idle_bytes: usize,
    waiting: VecDeque<Waiting>,
    /// Where the buffers begin that were made under a lease: these pay for themselves, to their source's share, and
    /// are left out when a batch is claimed.
    arenas: HashSet<usize>,
}

struct Waiting {
    bytes: usize,
    share: Arc<AtomicUsize>,
    grant: oneshot::Sender<Lease>,
}

impl Budget {
    /// A budget of `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self(Arc::new(Shared { limit, state: Mutex::default(), shortage: Arc::default() }))
    }

    /// The bytes that it was made with.
    pub fn limit(&self) -> usize {
        self.0.limit
    }

    /// The bytes held now, by anyone.
    pub fn used(&self) -> usize {
        self.0.state.lock().used
    }

    /// The most bytes that were ever held.
    pub fn peak(&self) -> usize {
        self.0.state.lock().peak
    }

    /// Whether a source is waiting for room. Sinks that hold data back to write larger pieces look at this.
    pub fn is_short(&self) -> bool {
        !self.0.state.lock().waiting.is_empty()
    }

    /// Tells those who wait for it when a source begins to wait for room.
    pub fn shortage(&self) -> Arc<Notify> {
        self.0.shortage.clone()
    }

    /// What sources may fill: all but the floor that stages downstream drain with.
    fn ceiling(&self) -> usize {
        self.0.limit - self.0.limit / 4
    }

    /// Makes a share: the account of one source.
    pub fn share(&self) -> Share {
        Share { budget: self.clone(), held: Arc::default() }
    }

    /// Counts bytes that stages downstream hold already, or are about to. Never waits, never refuses.
    pub fn claim(&self, bytes: usize) -> Lease {
        let mut state = self.0.state.lock();
        state.used += bytes;
        state.peak = state.peak.max(state.used);
        Lease { budget: self.clone(), share: None, bytes }
    }

    fn release(&self, bytes: usize, share: Option<&AtomicUsize>) {
        let granted = {
            let mut state = self.0.state.lock();
            state.used -= bytes;
            if let Some(held) = share {
                held.fetch_sub(bytes, Ordering::Relaxed);
            }
            self.grant_waiting(&mut state)
        };
        // Outside the lock: a grant whose waiter has gone comes back, and giving it back takes the lock.
        for (waiting, lease) in granted {
            drop(waiting.grant.send(lease));
        }
    }

    /// Grants what can be granted, in the order asked; a share that holds nothing is granted out of turn.
    fn grant_waiting(&self, state: &mut State) -> Vec<(Waiting, Lease)> {
        let mut granted = Vec::new();
        let mut at = 0;
        let mut blocked = false;
        while let Some(waiting) = state.waiting.get(at) {
            let fits = !blocked && state.used + waiting.bytes <= self.ceiling();
            if fits || waiting.share.load(Ordering::Relaxed) == 0 {
                if let Some(waiting) = state.waiting.remove(at) {
                    let lease = self.take(state, waiting.bytes, &waiting.share);
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
        state.used += bytes;
        state.peak = state.peak.max(state.used);
        share.fetch_add(bytes, Ordering::Relaxed);
        Lease { budget: self.clone(), share: Some(share.clone()), bytes }
    }

    /// Writable memory of `capacity` bytes, without waiting for room: as [`claim`](Self::claim).
    pub fn claim_arena(&self, capacity: usize) -> Arena {
        let lease = self.claim(capacity);
        Arena { memory: self.memory(capacity), lease }
    }

    /// Memory of exactly `capacity` bytes: an idle arena's, or fresh. Idle ones that no longer fit are freed.
    fn memory(&self, capacity: usize) -> Box<[u8]> {
        let mut freed = Vec::new();
        let found = {
            let mut state = self.0.state.lock();
            let found = state.idle.iter().rposition(|memory| memory.len() == capacity);
            let found = found.map(|at| state.idle.swap_remove(at));
            state.idle_bytes -= found.as_ref().map_or(0, |memory| memory.len());
            while state.used + state.idle_bytes > self.0.limit {
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
        let mut state = self.0.state.lock();
        state.arenas.remove(&(memory.as_ptr() as usize));
        if state.idle_bytes + memory.len() <= self.0.limit / 4 {
            state.idle_bytes += memory.len();
            state.idle.push(memory);
        }
    }
}

impl std::fmt::Debug for Budget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Budget({} of {} bytes)", self.used(), self.0.limit)
    }
}

/// Arrow asks the pool when a buffer is claimed. A buffer that is claimed again is reserved anew before its
/// former reservation is dropped, so the peak is not taken here but when the claiming is over.
impl MemoryPool for Budget {
    fn reserve(&self, size: usize) -> Box<dyn MemoryReservation> {
        self.0.state.lock().used += size;
        Box::new(Lease { budget: self.clone(), share: None, bytes: size })
    }

    fn available(&self) -> isize {
        self.0.limit as isize - self.used() as isize
    }

    fn used(&self) -> usize {
        Budget::used(self)
    }

    fn capacity(&self) -> usize {
        self.0.limit
    }
}

impl Budget {
    /// Counts the buffers of `arrays` from here on until each is dropped: each once, whole, whoever else
    /// shares it. What is counted already stays counted once.
    pub(crate) fn claim_buffers<'a>(&self, arrays: impl Iterator<Item = &'a dyn Array>) {
        let mut buffers = Vec::new();
        arrays.for_each(|array| collect_buffers(&array.to_data(), &mut buffers));
        {
            let state = self.0.state.lock();
            buffers.retain(|buffer| !state.arenas.contains(&(buffer.data_ptr().as_ptr() as usize)));
        }
        buffers.iter().for_each(|buffer| buffer.claim(self));
        let mut state = self.0.state.lock();
        state.peak = state.peak.max(state.used);
    }
}

fn collect_buffers(data: &ArrayData, buffers: &mut Vec<Buffer>) {
    buffers.extend(data.buffers().iter().cloned());
    buffers.extend(data.nulls().map(|nulls| nulls.buffer().clone()));
    data.child_data().iter().for_each(|child| collect_buffers(child, buffers));
}

/// One source's account with the budget.
#[derive(Clone, Debug)]
pub struct Share {
    budget: Budget,
    held: Arc<AtomicUsize>,
}

impl Share {
    /// Waits until `bytes` may be held, and holds them. Requests are granted in the order made, but one of
    /// a share that holds nothing is granted at once, even beyond the limit. Dropping the future withdraws it.
    pub async fn reserve(&self, bytes: usize) -> Lease {
        let granted = {
            let mut state = self.budget.0.state.lock();
            let fits = state.waiting.is_empty() && state.used + bytes <= self.budget.ceiling();
            if fits || self.held.load(Ordering::Relaxed) == 0 {
                return self.budget.take(&mut state, bytes, &self.held);
            }
            let (grant, granted) = oneshot::channel();
            state.waiting.push_back(Waiting { bytes, share: self.held.clone(), grant });
            granted
        };
        self.budget.0.shortage.notify_waiters();
        match granted.await {
            Ok(lease) => lease,
            // The sender lives in the budget, which `self` keeps alive; were it ever gone, being generous is safe.
            Err(_) => self.budget.claim(bytes),
        }
    }

    /// Waits for room, and gives writable memory of `capacity` bytes.
    pub async fn arena(&self, capacity: usize) -> Arena {
        let lease = self.reserve(capacity).await;
        Arena { memory: self.budget.memory(capacity), lease }
    }

    /// The bytes that this share holds now.
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// The budget that it is a share of.
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
    /// How many bytes it holds.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Parts with `bytes` of it (or all that it has, if that is less).
    pub fn split(&mut self, bytes: usize) -> Lease {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Lease { budget: self.budget.clone(), share: self.share.clone(), bytes }
    }

    /// Memory that was filled under this lease, as an Arrow buffer that keeps the lease until its last slice is
    /// dropped. For what has no fixed size, such as what comes over a network: unlike an [`Arena`]'s, the memory is
    /// freed afterwards and not kept for the next reader.
    pub fn freeze(mut self, memory: Vec<u8>) -> Buffer {
        self.resize(memory.capacity());
        if memory.capacity() == 0 {
            return Buffer::from_vec(memory);
        }
        let budget = self.budget.clone();
        let buffer = Buffer::from(bytes::Bytes::from_owner(Filled { memory, lease: self }));
        budget.0.state.lock().arenas.insert(buffer.data_ptr().as_ptr() as usize);
        buffer
    }

    /// Takes over what another holds. Those of different shares or budgets cannot be one: the other is given back.
    pub fn merge(&mut self, mut other: Lease) -> Result<(), Lease> {
        let same_share = match (&self.share, &other.share) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (None, None) => true,
            _ => false,
        };
        if !same_share || !Arc::ptr_eq(&self.budget.0, &other.budget.0) {
            return Err(other);
        }
        self.bytes += std::mem::take(&mut other.bytes);
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

/// Writable memory that is paid for. It comes zeroed or with what a former reader left in it.
#[derive(Debug)]
pub struct Arena {
    memory: Box<[u8]>,
    lease: Lease,
}

impl Arena {
    /// Gives up writing: the memory as an Arrow buffer whose last slice returns the bytes to the budget
    /// and the memory to the next reader.
    pub fn freeze(self) -> Buffer {
        let Arena { memory, lease } = self;
        let budget = lease.budget.clone();
        let buffer = Buffer::from(bytes::Bytes::from_owner(Recycled { memory, lease }));
        budget.0.state.lock().arenas.insert(buffer.data_ptr().as_ptr() as usize);
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

/// An arena that became a buffer: what its last slice leaves behind.
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

/// Memory that was filled under a lease and became a buffer.
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
        self.lease.budget.0.state.lock().arenas.remove(&(self.memory.as_ptr() as usize));
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests;
