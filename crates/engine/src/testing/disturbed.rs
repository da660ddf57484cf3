//! A source whose connections break while its messages are on their way.

use std::collections::BTreeSet;
use std::time::Duration;

use thalweg_patience::Patience;
use thalweg_record::{Batch, Outcome};

use super::{RunningSource, numbers};

/// The number of further messages after which the source is disturbed again.
const STEP: usize = 100;
/// How long a batch is waited for before those that are open are settled.
const WAIT: Duration = Duration::from_millis(20);

impl RunningSource {
    /// Takes messages that are numbers until there are `count` different ones. Calls `disturb` after each
    /// hundred of them. Batches are settled late, so that connections break while they are on their way.
    /// Returns all numbers as they came.
    ///
    /// # Panics
    /// If a message is no number, or they do not come.
    pub async fn take_disturbed(&self, count: usize, mut disturb: impl FnMut()) -> Vec<u32> {
        let (mut next, patience) = (STEP, Patience::begin());
        let (mut found, mut different, mut open) =
            (Vec::<u32>::new(), BTreeSet::<u32>::new(), Vec::<Batch>::new());
        while different.len() < count {
            patience.check(|| format!("{} of {count} messages", different.len()));
            let batch = self.take_batch(WAIT).await;
            let is_waiting = batch.is_none();
            let new: Vec<u32> = batch.iter().flat_map(numbers).collect();
            different.extend(new.iter().copied());
            found.extend(new);
            open.extend(batch);
            if different.len() >= next {
                next = different.len() + STEP;
                disturb();
            }
            if is_waiting || open.len() > 2 {
                open.drain(..).for_each(settle);
            }
        }
        open.into_iter().for_each(settle);
        found
    }
}

fn settle(batch: Batch) {
    batch.settle(Outcome::Delivered);
}
