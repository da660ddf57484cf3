//! Memory to read into, piece after piece.
//!
//! What a piece ends with, the beginning of a message, is put at the front of the next one. Of memory that was hardly
//! used the little is copied out, so that it can be read into again: else a trickle of input would hold a whole
//! arena for each line.

use arrow_buffer::Buffer;
use thalweg_record::Arena;

use crate::taker::Taker;

/// Gives memory to read into, and makes buffers of it.
#[derive(Debug)]
pub struct Arenas {
    batch_bytes: usize,
    /// Memory of which so little was needed last time that it was copied out.
    kept: Option<Arena>,
}

impl Arenas {
    /// For batches of about so many bytes.
    pub fn new(batch_bytes: usize) -> Self {
        Self { batch_bytes: batch_bytes.max(1), kept: None }
    }

    /// Memory for `carried` bytes and for what is read after them. Waits until the budget has room.
    pub async fn take(&mut self, carried: usize, out: &impl Taker) -> Arena {
        // What is carried over fills at most half of it, so that a long message costs few copies.
        let capacity = self.batch_bytes.max(carried.saturating_mul(2));
        match self.kept.take().filter(|arena| arena.len() >= capacity) {
            Some(arena) => arena,
            None => out.arena(capacity).await,
        }
    }

    /// Takes back memory that was not used.
    pub fn keep(&mut self, arena: Arena) {
        self.kept = Some(arena);
    }

    /// The first bytes, which were read.
    pub fn freeze(&mut self, arena: Arena, filled: usize) -> Buffer {
        if filled >= arena.len() / 4 {
            return arena.freeze().slice_with_length(0, filled);
        }
        let copy = Buffer::from(arena.get(..filled).unwrap_or_default());
        self.kept = Some(arena);
        copy
    }

    /// Gives the memory back that is kept.
    pub fn clear(&mut self) {
        self.kept = None;
    }
}
