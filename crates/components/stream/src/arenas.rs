//! Memory to read into, one arena after another.
//!
//! The end of a read, the start of an incomplete message, is moved to the front of the next arena. If little
//! of an arena was filled, its bytes are copied out and the arena is reused. Otherwise a trickle of input
//! would hold a whole arena for each line.

use arrow_buffer::Buffer;
use thalweg_record::Arena;

use thalweg_engine::SourceOutput;

/// Provides memory to read into, and turns it into buffers.
#[derive(Debug)]
pub struct Arenas {
    batch_bytes: usize,
    /// An arena whose few bytes were copied out after the last read.
    kept: Option<Arena>,
}

impl Arenas {
    /// Creates arenas for batches of about `batch_bytes` bytes.
    pub fn new(batch_bytes: usize) -> Self {
        Self { batch_bytes: batch_bytes.max(1), kept: None }
    }

    /// Returns memory for `carried` bytes and the bytes that are read after them. Waits until the budget has
    /// capacity, and while the source is paused: an arena that is kept is then given back.
    pub async fn take(&mut self, carried: usize, out: &SourceOutput) -> Arena {
        // The carried bytes fill at most half of the arena, so that a long message is copied few times.
        let capacity = self.batch_bytes.max(carried.saturating_mul(2));
        match self.kept.take().filter(|arena| arena.len() >= capacity && !out.is_paused()) {
            Some(arena) => arena,
            None => out.arena(capacity).await,
        }
    }

    /// Takes back memory that was not used.
    pub fn keep(&mut self, arena: Arena) {
        self.kept = Some(arena);
    }

    /// Turns the first `filled` bytes of an arena, which were read, into a buffer.
    pub fn freeze(&mut self, arena: Arena, filled: usize) -> Buffer {
        if filled >= arena.len() / 4 {
            return arena.freeze().slice_with_length(0, filled);
        }
        let copy = Buffer::from(arena.get(..filled).unwrap_or_default());
        self.kept = Some(arena);
        copy
    }

    /// Releases the arena that is kept for reuse.
    pub fn clear(&mut self) {
        self.kept = None;
    }
}
