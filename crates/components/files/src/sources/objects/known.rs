//! Which objects were sent by runs before, in little memory.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use thalweg_store::Object;

/// How far the clock of a store may be off, and how long an object may take to be seen after the time that the store gives it.
const MARGIN: Duration = Duration::from_mins(10);

/// So many names are kept; what else was changed lately comes a second time.
const MOST_NAMES: usize = 1000;

/// What was sent: all that a whole listing found.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Known {
    /// Everything that was changed up to then, in nanoseconds since 1970.
    up_to: Option<i64>,
    /// What was changed later, and when it was.
    later: BTreeMap<String, i64>,
}

impl Known {
    /// Before anything is noted of a listing that begins now.
    ///
    /// The newest object that a listing found is no bound: another may have come behind the place where the listing was,
    /// before that one was changed.
    pub(super) fn listing_now() -> Self {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let up_to = i64::try_from(now.saturating_sub(MARGIN).as_nanos()).ok();
        Self { up_to, later: BTreeMap::new() }
    }

    /// An object is sent.
    pub(super) fn note(&mut self, object: &Object) {
        if let Some(time) = object.state().modified
            && Some(time) > self.up_to
            && self.later.len() < MOST_NAMES
        {
            self.later.insert(object.path().to_owned(), time);
        }
    }

    /// Whether an object was sent.
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
