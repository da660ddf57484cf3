//! The memory of what a transform keeps between batches, counted on the budget.

use thalweg_record::{Lease, Share};

/// Counts memory that a transform keeps until it ends. It is never refused: see [`thalweg_record::Budget`].
pub(crate) struct Kept {
    memory: Share,
    lease: Lease,
}

impl Kept {
    /// Starts with nothing, on the budget of this account.
    pub(crate) fn new(memory: &Share) -> Self {
        Self { memory: memory.clone(), lease: memory.budget().claim(0) }
    }

    /// Sets the number of bytes.
    pub(crate) fn set(&mut self, bytes: usize) {
        if self.lease.bytes() != bytes {
            self.lease = self.memory.budget().claim(bytes);
        }
    }
}
