//! Which messages of a batch were sent before an error stopped the rest.
//!
//! A sink is given a batch again after a temporary error. One that sends a message at a time then goes on where it was,
//! in place of sending everything twice. The batch is recognised by the memory of its payloads, which is held here
//! until then, so that no other can come to lie in the same place.

use arrow_array::{Array, BinaryViewArray};

/// Which messages of the batch that is being sent are done.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    payload: Option<BinaryViewArray>,
    done: Vec<bool>,
    /// What was found to be of no use, and why.
    rejected: Vec<(u32, String)>,
}

impl Progress {
    /// Begins with a batch, or goes on with it.
    pub(crate) fn begin(&mut self, payload: &BinaryViewArray) {
        let known = self.payload.as_ref().is_some_and(|known| {
            known.len() == payload.len() && known.views().inner().ptr_eq(payload.views().inner())
        });
        if !known {
            self.payload = Some(payload.clone());
            self.rejected.clear();
            self.done.clear();
            self.done.resize(payload.len(), false);
        }
    }

    /// Whether a message is done.
    pub(crate) fn is_done(&self, row: usize) -> bool {
        self.done.get(row).copied().unwrap_or(false)
    }

    /// Notes that a message is done.
    pub(crate) fn done(&mut self, row: usize) {
        if let Some(done) = self.done.get_mut(row) {
            *done = true;
        }
    }

    /// Notes that a message can never be sent.
    pub(crate) fn reject(&mut self, row: usize, reason: String) {
        self.done(row);
        self.rejected.push((row as u32, reason));
    }

    /// The batch will not come again.
    pub(crate) fn give_up(&mut self) {
        *self = Self::default();
    }

    /// All messages are done: gives those that were rejected, in the order of their rows.
    pub(crate) fn finish(&mut self) -> Vec<(u32, String)> {
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
        progress.begin(other.payload());
        assert!(!progress.is_done(0) && !progress.is_done(1));
        progress.begin(one.payload());
        assert!(!progress.is_done(1));
        progress.done(0);
        progress.reject(1, "no".to_owned());
        assert_eq!(progress.finish(), [(1, "no".to_owned())]);
        progress.begin(one.payload());
        assert!(!progress.is_done(0) && progress.finish().is_empty());
    }
}
