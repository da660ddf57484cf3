//! Remembers in little memory which objects earlier runs have sent.
//!
//! See docs/decisions/034-new-files-are-known-by-time.md.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use thalweg_store::Object;

/// How far the clock of a store may differ, and how late an object may become visible after its modification
/// time.
const MARGIN: Duration = Duration::from_mins(10);

/// The maximum number of names to keep. Other recently modified objects are sent a second time.
const MOST_NAMES: usize = 1000;

/// The objects that were sent: all that a complete listing found.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Known {
    /// Every object modified up to this time was sent. In nanoseconds since 1970.
    up_to: Option<i64>,
    /// Objects that were modified later, with their modification times in nanoseconds since 1970.
    later: BTreeMap<String, i64>,
}

impl Known {
    /// Returns the state before the first object of a listing that begins now.
    ///
    /// The modification time of the newest listed object cannot be the limit. An object with an earlier time
    /// may have appeared at a name that the listing had already passed.
    pub(super) fn listing_now() -> Self {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let up_to = i64::try_from(now.saturating_sub(MARGIN).as_nanos()).ok();
        Self { up_to, later: BTreeMap::new() }
    }

    /// Records that an object is sent.
    pub(super) fn note(&mut self, object: &Object) {
        if let Some(time) = object.state().modified
            && Some(time) > self.up_to
            && self.later.len() < MOST_NAMES
        {
            self.later.insert(object.path().to_owned(), time);
        }
    }

    /// True if the object was sent.
    pub(super) fn covers(&self, object: &Object) -> bool {
        object.state().modified.is_some_and(|time| {
            Some(time) <= self.up_to || self.later.get(object.path()).is_some_and(|sent| *sent == time)
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
        let mut known = Known::listing_now();
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
        let mut known = Known::listing_now();
        let all: Vec<Object> = (0..MOST_NAMES + 5).map(|n| object(&n.to_string(), Duration::ZERO)).collect();
        all.iter().for_each(|object| known.note(object));
        assert_eq!(all.iter().filter(|object| !known.covers(object)).count(), 5);
    }
}
