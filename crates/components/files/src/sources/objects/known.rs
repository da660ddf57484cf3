//! Remembers in little memory which objects earlier runs have sent.
//!
//! See docs/decisions/034-new-files-are-known-by-time.md.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use thalweg_store::Object;
use xxhash_rust::xxh3::Xxh3;

/// The maximum number of names to keep. Other recently modified objects are sent a second time.
const MOST_NAMES: usize = 1000;

/// The objects that were sent: all that a complete listing found.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Known {
    /// Every object modified up to this time was sent. In nanoseconds since 1970.
    up_to: Option<i64>,
    /// Objects that were modified later. Stores round times to seconds, so an object may have been replaced
    /// since without a later time: the rest of its state tells.
    #[serde(default)]
    sent: BTreeMap<String, Version>,
}

/// A version of an object: its modification time in nanoseconds since 1970, and a hash of its length and
/// entity tag.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Version(i64, u64);

impl Version {
    fn of(object: &Object) -> Option<Self> {
        let mut hash = Xxh3::new();
        hash.update(&object.size().to_le_bytes());
        hash.update(object.state().etag.as_deref().unwrap_or_default().as_bytes());
        Some(Self(object.state().modified?, hash.digest()))
    }
}

impl Known {
    /// Returns the state before the first object of a listing that begins now.
    ///
    /// The modification time of the newest listed object cannot be the limit. An object with an earlier time
    /// may have appeared at a name that the listing had already passed.
    ///
    /// `tolerance`: how far the clock of the store may differ, and how late an object may become visible
    /// after its modification time.
    pub(super) fn listing_now(tolerance: Duration) -> Self {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let up_to = i64::try_from(now.saturating_sub(tolerance).as_nanos()).ok();
        Self { up_to, sent: BTreeMap::new() }
    }

    /// Records that an object is sent.
    pub(super) fn note(&mut self, object: &Object) {
        if let Some(version) = Version::of(object)
            && Some(version.0) > self.up_to
            && self.sent.len() < MOST_NAMES
        {
            self.sent.insert(object.path().to_owned(), version);
        }
    }

    /// True if the object was sent.
    pub(super) fn covers(&self, object: &Object) -> bool {
        Version::of(object).is_some_and(|version| {
            Some(version.0) <= self.up_to || self.sent.get(object.path()) == Some(&version)
        })
    }
}

#[cfg(test)]
mod tests {
    use thalweg_store::{Fingerprint, Store};

    use super::*;

    fn object(path: &str, ago: Duration) -> Object {
        let (store, _) = Store::from_url("/tmp/").unwrap();
        let since = (SystemTime::now() - ago).duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let modified = i64::try_from(since.as_nanos()).ok();
        Object::new(store, path.to_owned(), Fingerprint { length: 1, etag: None, modified })
    }

    #[test]
    fn what_comes_behind_the_listing_is_new_though_a_newer_one_was_sent() {
        let (came, sent) = (object("a", Duration::from_secs(20)), object("b", Duration::from_secs(10)));
        let mut known = Known::listing_now(Duration::from_mins(10));
        known.note(&sent);
        assert!(known.covers(&sent));
        assert!(!known.covers(&came));
        assert!(known.covers(&object("old", Duration::from_hours(1))));
    }

    #[test]
    fn what_was_changed_again_is_new() {
        let mut known = Known::default();
        known.note(&object("a", Duration::from_secs(20)));
        assert!(!known.covers(&object("a", Duration::from_secs(10))));
        assert!(!Known::default().covers(&object("a", Duration::from_hours(1))));
    }

    #[test]
    fn of_too_many_at_once_some_come_again_and_none_is_lost() {
        let mut known = Known::listing_now(Duration::from_mins(10));
        let all: Vec<Object> = (0..MOST_NAMES + 5).map(|n| object(&n.to_string(), Duration::ZERO)).collect();
        all.iter().for_each(|object| known.note(object));
        assert_eq!(all.iter().filter(|object| !known.covers(object)).count(), 5);
    }

    #[test]
    fn what_was_replaced_within_the_same_second_is_new() {
        let sent = object("a", Duration::from_secs(20));
        let mut known = Known::listing_now(Duration::from_mins(10));
        known.note(&sent);
        let with = |state: Fingerprint| Object::new(sent.store().clone(), "a".to_owned(), state);
        let state = sent.state().clone();
        assert!(known.covers(&with(state.clone())));
        assert!(!known.covers(&with(Fingerprint { length: 2, ..state.clone() })));
        assert!(!known.covers(&with(Fingerprint { etag: Some("other".to_owned()), ..state })));
    }

    #[test]
    fn what_becomes_visible_late_is_new_within_the_tolerance() {
        let known = Known::listing_now(Duration::from_hours(24));
        assert!(!known.covers(&object("of a slow upload", Duration::from_hours(2))));
    }
}
