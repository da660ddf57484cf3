//! Partitions that were taken away, or are read again: records that were read before must not be sent.
//!
//! Records wait between the task that reads them and the one that sends them. So each answer of a broker is
//! noted with the number of such events until then, and each partition with the number of its last one.

use std::collections::HashMap;

use crate::client::Partition;

/// The events so far.
#[derive(Default)]
pub(super) struct Gone {
    count: u64,
    /// The last event of each partition.
    last: HashMap<Partition, u64>,
}

impl Gone {
    /// The number of events so far.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Notes that these partitions were taken away, or are read again.
    pub(super) fn add(&mut self, partitions: &[Partition]) {
        self.count += 1;
        let count = self.count;
        self.last.extend(partitions.iter().map(|partition| (partition.clone(), count)));
    }

    /// True if the partition had an event after the first `count`.
    pub(super) fn has_since(&self, partition: &Partition, count: u64) -> bool {
        self.last.get(partition).is_some_and(|last| *last > count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_read_of_a_partition_before_its_last_event_is_gone() {
        let partition = |number| Partition { topic: "t".into(), number };
        let mut gone = Gone::default();
        let read = gone.count();
        assert!(!gone.has_since(&partition(0), read));
        gone.add(&[partition(0)]);
        assert!(gone.has_since(&partition(0), read) && !gone.has_since(&partition(1), read));
        assert!(!gone.has_since(&partition(0), gone.count()));
    }
}
