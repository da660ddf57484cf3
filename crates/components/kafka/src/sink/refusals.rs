//! The records that a broker refused in an aborted transaction.
//!
//! A record that is refused ends its transaction. All messages of it come again then, and the sink must not
//! send this record again. Messages have no name by which it could know them, so it knows records by a hash
//! of all their parts.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};

use parking_lot::Mutex;

use crate::client::Outgoing;

/// At most this many records of each kind are remembered.
const MOST: usize = 100_000;

/// The refused records.
#[derive(Default)]
pub(super) struct Refusals {
    keys: RandomState,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// The reasons of those that are never stored.
    refused: HashMap<u64, String>,
    /// Those that were refused together with others.
    suspects: HashSet<u64>,
}

impl Refusals {
    fn hash(&self, record: &Outgoing) -> u64 {
        let Outgoing { topic, partition, key, value, timestamp, headers } = record;
        self.keys.hash_one((topic, partition, key, value, timestamp, headers))
    }

    pub(super) fn is_empty(&self) -> bool {
        let known = self.known.lock();
        known.refused.is_empty() && known.suspects.is_empty()
    }

    /// Notes a record that was refused, for a reason of its own if it has one. Returns true if that is new.
    pub(super) fn note(&self, record: &Outgoing, reason: Option<String>) -> bool {
        let hash = self.hash(record);
        let mut known = self.known.lock();
        match reason {
            Some(reason) => {
                known.suspects.remove(&hash);
                if known.refused.len() >= MOST {
                    known.refused.clear();
                }
                known.refused.insert(hash, reason).is_none()
            }
            // The first of them decide: they are tried one by one.
            None => known.suspects.len() < MOST && known.suspects.insert(hash),
        }
    }

    /// Notes that a record was stored.
    pub(super) fn clear(&self, record: &Outgoing) {
        let hash = self.hash(record);
        self.known.lock().suspects.remove(&hash);
    }

    /// Returns why a record is refused, if it is.
    pub(super) fn reason(&self, record: &Outgoing) -> Option<String> {
        let hash = self.hash(record);
        self.known.lock().refused.get(&hash).cloned()
    }

    /// True if a record was refused with others, and must be sent by itself.
    pub(super) fn is_suspect(&self, record: &Outgoing) -> bool {
        let hash = self.hash(record);
        self.known.lock().suspects.contains(&hash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_known_by_all_its_parts() {
        let record = |value: &'static str, key: Option<&'static str>| Outgoing {
            topic: "t".to_owned(),
            partition: None,
            key: key.map(|key| key.as_bytes().into()),
            value: value.as_bytes().into(),
            timestamp: None,
            headers: Vec::new(),
        };
        let refusals = Refusals::default();
        assert!(refusals.is_empty());
        for is_new in [true, false] {
            assert_eq!(refusals.note(&record("a", None), Some("too large".to_owned())), is_new);
            assert_eq!(refusals.note(&record("b", None), None), is_new);
        }
        assert_eq!(refusals.reason(&record("a", None)).as_deref(), Some("too large"));
        assert_eq!(refusals.reason(&record("a", Some("k"))), None);
        assert!(refusals.is_suspect(&record("b", None)) && !refusals.is_suspect(&record("a", None)));
        refusals.clear(&record("b", None));
        assert!(!refusals.is_suspect(&record("b", None)) && !refusals.is_empty());
    }
}
