//! Tracks which messages of a batch were sent before an error stopped the rest.
//!
//! After a temporary error, a sink receives the same batch again. A sink that sends messages one at a time
//! then resumes after the messages already sent, instead of sending everything twice. The batch is recognised
//! by the address of its payload views. The payload is held until then, so that no other batch can occupy the
//! same memory.

use std::time::Duration;

use arrow_array::{Array, BinaryViewArray};
use thalweg_record::is_same_payload;

/// The pause before a sink sends the rest of a batch after an error, if it has sent a part of it. The
/// engine's pauses grow with each failed write of the same batch, as if nothing had been sent.
pub const PAUSE: Duration = Duration::from_millis(100);

/// Tracks which messages of the current batch are done.
#[derive(Debug, Default)]
pub struct Progress {
    payload: Option<BinaryViewArray>,
    done: Vec<bool>,
    /// The number of messages that were done when [`has_advanced`](Self::has_advanced) was called last.
    seen: usize,
    /// Rows that can never be sent, with the reason.
    rejected: Vec<(u32, String)>,
}

impl Progress {
    /// Starts a batch, or resumes it if it is the same batch as before. Returns true if it is another one.
    pub fn begin(&mut self, payload: &BinaryViewArray) -> bool {
        let known = self.payload.as_ref().is_some_and(|known| is_same_payload(known, payload));
        if !known {
            self.payload = Some(payload.clone());
            self.rejected.clear();
            self.done.clear();
            self.seen = 0;
            self.done.resize(payload.len(), false);
        }
        !known
    }

    /// True if the message of this row is done.
    pub fn is_done(&self, row: usize) -> bool {
        self.done.get(row).copied().unwrap_or(false)
    }

    /// Returns the first row whose message is not done, or the number of rows.
    pub fn first(&self) -> usize {
        self.done.iter().position(|done| !done).unwrap_or(self.done.len())
    }

    /// True if more messages were sent than at the last call. Rejected ones were not sent.
    pub fn has_advanced(&mut self) -> bool {
        let done = self.done.iter().filter(|done| **done).count() - self.rejected.len();
        std::mem::replace(&mut self.seen, done) < done
    }

    /// Marks a message as done.
    pub fn done(&mut self, row: usize) {
        if let Some(done) = self.done.get_mut(row) {
            *done = true;
        }
    }

    /// Records that a message can never be sent. A sink that checks its messages again after an error may
    /// call this again: a message is rejected once.
    pub fn reject(&mut self, row: usize, reason: String) {
        if !self.is_done(row) {
            self.done(row);
            self.rejected.push((row as u32, reason));
        }
    }

    /// Forgets the batch, which will not be retried.
    pub fn forget(&mut self) {
        *self = Self::default();
    }

    /// Ends the batch, all of whose messages are done. Returns the rejected rows in order.
    pub fn finish(&mut self) -> Vec<(u32, String)> {
        self.payload = None;
        self.done.clear();
        let mut rejected = std::mem::take(&mut self.rejected);
        rejected.sort_unstable_by_key(|(row, _)| *row);
        rejected
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_engine::testing::batch;

    #[test]
    fn a_batch_that_comes_again_goes_on_and_another_begins_anew() {
        let (one, other) = (batch(["a", "b"]), batch(["a", "b"]));
        let mut progress = Progress::default();
        progress.begin(one.payload());
        progress.reject(1, "no".to_owned());
        progress.begin(one.share().payload());
        assert!(!progress.is_done(0) && progress.is_done(1));
        assert_eq!(progress.first(), 0);
        assert!(!progress.has_advanced());
        progress.done(0);
        assert!(progress.has_advanced() && !progress.has_advanced());
        assert_eq!(progress.first(), 2);
        progress.begin(other.payload());
        assert!(!progress.is_done(0) && !progress.is_done(1));
        progress.begin(one.payload());
        assert!(!progress.is_done(1));
        progress.done(0);
        progress.reject(1, "no".to_owned());
        progress.begin(one.share().payload());
        progress.reject(1, "no again".to_owned());
        assert_eq!(progress.finish(), [(1, "no".to_owned())]);
        progress.begin(one.payload());
        assert!(!progress.is_done(0) && progress.finish().is_empty());
    }
}
