//! Times for messages that have none.
//!
//! A server keeps one of the points, or one of the equal lines, that have the same time. A message without a
//! time has that of its reading. All messages of a batch share it, and so do the parts into which a transform
//! divides a batch (`limit`, `route`). The writers of a sink therefore take times in nanoseconds here, and no
//! two messages of a run get the same.
//!
//! The number of a message in its batch, added to the time of the batch, was rejected: each part of a divided
//! batch counts from 0.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use thalweg_record::Batch;

/// The number of ranges of times that are known. Adjacent ranges are one.
const MOST: usize = 1024;

/// The times that the messages of a sink have got, for all of its writers.
#[derive(Debug, Clone, Default)]
pub(crate) struct Moments(Arc<Mutex<Taken>>);

/// Times in nanoseconds since 1970.
#[derive(Debug, Default)]
struct Taken {
    /// Where ranges of taken times start and end. They neither overlap nor touch.
    ranges: BTreeMap<i64, i64>,
    /// All times before it count as taken.
    floor: i64,
}

impl Moments {
    /// Takes a time for each message of a batch, and returns that of the first: the time when it was read, or
    /// a later one. The times follow each other.
    pub(crate) fn take(&self, batch: &Batch) -> i64 {
        let number = i64::try_from(batch.meta().number).unwrap_or(i64::MAX);
        let read_at = batch.meta().time_us.saturating_mul(1000).saturating_add(number);
        self.0.lock().take(read_at, i64::try_from(batch.rows()).unwrap_or(i64::MAX))
    }
}

impl Taken {
    fn take(&mut self, wanted: i64, count: i64) -> i64 {
        let start = self.free(wanted.max(self.floor), count);
        self.insert(start, start.saturating_add(count));
        if self.ranges.len() > MOST
            && let Some((_, end)) = self.ranges.pop_first()
        {
            self.floor = end;
        }
        start
    }

    /// Returns the first time, from this one on, after which as many are free.
    fn free(&self, mut start: i64, count: i64) -> i64 {
        if let Some((_, &end)) = self.ranges.range(..=start).next_back() {
            start = start.max(end);
        }
        for (&from, &end) in self.ranges.range(start..) {
            if from.saturating_sub(start) >= count {
                break;
            }
            start = end;
        }
        start
    }

    fn insert(&mut self, mut start: i64, mut end: i64) {
        if let Some((&before, &until)) = self.ranges.range(..start).next_back()
            && until == start
        {
            start = before;
        }
        if let Some(until) = self.ranges.remove(&end) {
            end = until;
        }
        if start < end {
            self.ranges.insert(start, end);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use proptest::prelude::*;
    use thalweg_engine::testing::batch;
    use thalweg_record::{Ack, Meta};

    #[test]
    fn the_parts_of_a_batch_get_times_that_differ() {
        let moments = Moments::default();
        let whole = batch(["a", "b", "c"]);
        assert_eq!(moments.take(&whole.share().select(&[0, 2]).unwrap().unwrap()), 1_700_000_000_000_000_000);
        assert_eq!(moments.clone().take(&whole.select(&[1]).unwrap().unwrap()), 1_700_000_000_000_000_002);
    }

    #[test]
    fn messages_with_a_number_have_times_after_it() {
        let whole = batch(["a", "b"]);
        let meta = Meta { number: 7, ..(**whole.meta()).clone() };
        let later = Batch::new(whole.payload().clone(), Arc::new(meta), Ack::noop());
        // Two runs, of which each knows its own times only.
        assert_eq!(Moments::default().take(&whole), 1_700_000_000_000_000_000);
        assert_eq!(Moments::default().take(&later), 1_700_000_000_000_000_007);
    }

    #[test]
    fn a_gap_is_used_if_it_is_large_enough() {
        let mut taken = Taken::default();
        let wanted = [(10, 5), (20, 5), (12, 5), (12, 1), (0, 10), (0, 1), (20, 0)];
        let got = wanted.map(|(wanted, count)| taken.take(wanted, count));
        assert_eq!(got, [10, 20, 15, 25, 0, 26, 27]);
        assert_eq!(taken.ranges, BTreeMap::from([(0, 27)]));
    }

    proptest! {
        #[test]
        fn no_time_is_taken_twice(wanted in prop::collection::vec((0..20_000i64, 0..9i64), 0..3000)) {
            let (mut taken, mut times) = (Taken::default(), BTreeSet::new());
            for (wanted, count) in wanted {
                let start = taken.take(wanted, count);
                prop_assert!(start >= wanted);
                for time in start..start + count {
                    prop_assert!(times.insert(time), "{time}");
                }
                prop_assert!(taken.ranges.len() <= MOST);
            }
        }
    }
}
