//! The records that a broker refused in an aborted transaction.
//!
//! A record that is refused ends its transaction. All messages of it come again then, and the sink must not
//! send this record again. Not every message has a name, so it knows records by a hash of all their parts.
//!
//! A transform may make another record of a message each time, with the present time in it, for example. So
//! what comes from the same place in the source is refused too, once the broker has refused it several times.
//! Not at once: another record may be taken.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};

use parking_lot::Mutex;

use crate::client::Outgoing;

/// At most this many records of each kind are remembered.
const MOST: usize = 100_000;

/// How often the broker must have refused what came from a place.
const ATTEMPTS: u32 = 3;

/// The place of a message: its source, the sequence, and its position there.
pub(super) type Origin<'a> = (&'a str, &'a str, u64);

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
    /// The places of both.
    places: HashMap<u64, Place>,
}

/// A place of which a record was refused.
#[derive(Default)]
struct Place {
    /// How often that had a reason of its own.
    refused: u32,
    /// The last one.
    reason: String,
}

/// A record that was refused with others, and must be sent by itself.
pub(super) struct Suspicion<'a> {
    refusals: &'a Refusals,
    origin: Option<u64>,
}

impl Suspicion<'_> {
    /// Notes that the record was stored.
    pub(super) fn clear(&self, record: &Outgoing) {
        let hash = self.refusals.hash(record);
        let mut known = self.refusals.known.lock();
        known.suspects.remove(&hash);
        if let Some(origin) = self.origin {
            known.places.remove(&origin);
        }
    }
}

impl Refusals {
    fn hash(&self, record: &Outgoing) -> u64 {
        let Outgoing { topic, partition, key, value, timestamp, headers } = record;
        self.keys.hash_one((topic, partition, key, value, timestamp, headers))
    }

    fn hash_of(&self, origin: Option<Origin<'_>>) -> Option<u64> {
        origin.map(|origin| self.keys.hash_one(origin))
    }

    pub(super) fn is_empty(&self) -> bool {
        let known = self.known.lock();
        known.refused.is_empty() && known.suspects.is_empty() && known.places.is_empty()
    }

    /// Notes a record that was refused, for a reason of its own if it has one. Returns true if that is new.
    pub(super) fn note(&self, record: &Outgoing, origin: Option<Origin<'_>>, reason: Option<String>) -> bool {
        let (hash, origin) = (self.hash(record), self.hash_of(origin));
        let mut known = self.known.lock();
        if let Some(origin) = origin {
            if known.places.len() >= MOST {
                known.places.clear();
            }
            let place = known.places.entry(origin).or_default();
            if let Some(reason) = &reason {
                place.refused += 1;
                place.reason.clone_from(reason);
            }
        }
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

    /// Returns why a record is refused, if it is.
    pub(super) fn reason(&self, record: &Outgoing, origin: Option<Origin<'_>>) -> Option<String> {
        let (hash, origin) = (self.hash(record), self.hash_of(origin));
        let known = self.known.lock();
        known.refused.get(&hash).cloned().or_else(|| {
            let place = known.places.get(&origin?).filter(|place| place.refused >= ATTEMPTS)?;
            Some(place.reason.clone())
        })
    }

    /// Returns the suspicion if a record was refused with others, or what came from its place before.
    pub(super) fn suspicion(&self, record: &Outgoing, origin: Option<Origin<'_>>) -> Option<Suspicion<'_>> {
        let (hash, origin) = (self.hash(record), self.hash_of(origin));
        let known = self.known.lock();
        let is_suspect =
            known.suspects.contains(&hash) || origin.is_some_and(|origin| known.places.contains_key(&origin));
        is_suspect.then_some(Suspicion { refusals: self, origin })
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
            assert_eq!(refusals.note(&record("a", None), None, Some("too large".to_owned())), is_new);
            assert_eq!(refusals.note(&record("b", None), None, None), is_new);
        }
        assert_eq!(refusals.reason(&record("a", None), None).as_deref(), Some("too large"));
        assert_eq!(refusals.reason(&record("a", Some("k")), None), None);
        assert!(refusals.suspicion(&record("a", None), None).is_none());
        refusals.suspicion(&record("b", None), None).unwrap().clear(&record("b", None));
        assert!(refusals.suspicion(&record("b", None), None).is_none() && !refusals.is_empty());
    }
}
