//! The objects that a target has already.
//!
//! A request per file takes as long as the copy of a small one. A listing answers for a thousand files at
//! once, and files come in nearly the same order as the listing. So a window of the listing moves along with
//! the files. Files behind the window, and stores that do not list in order, cost a request each. (Rejected:
//! the whole listing in memory, which grows with the target.)

use std::collections::BTreeMap;
use std::fmt;

use thalweg_store::{Listing, Object, Store, StoreError};
use tokio::sync::Mutex;

/// The number of objects in the window.
const MOST: usize = 2000;
/// The number of objects to skip before the listing is started again at another place.
const SKIPPED: usize = 1000;

/// Finds existing objects below a prefix.
#[derive(Default)]
pub struct Finder {
    window: Mutex<Window>,
}

#[derive(Default)]
struct Window {
    listing: Option<Listing>,
    objects: BTreeMap<String, Object>,
    /// All objects after `begin` up to `end` are in the window. None is before the first object.
    begin: Option<String>,
    end: Option<String>,
    /// True if the listing is at its end.
    is_complete: bool,
    /// True if the store refused to list.
    is_refused: bool,
}

impl fmt::Debug for Finder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Finder")
    }
}

impl Finder {
    /// Returns the object at a path below `prefix`, if there is one.
    ///
    /// # Errors
    /// If the store cannot be asked.
    pub async fn find(&self, store: &Store, prefix: &str, path: &str) -> Result<Option<Object>, StoreError> {
        if !store.is_here() && store.lists_in_order() {
            let mut window = self.window.lock().await;
            if window.reaches(store, prefix, path).await {
                return Ok(window.objects.get(path).cloned());
            }
        }
        match store.stat(path).await {
            Ok(found) => Ok(Some(found)),
            Err(StoreError::Absent { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Window {
    /// Moves the window to a path. Returns false if the path stays outside of it.
    async fn reaches(&mut self, store: &Store, prefix: &str, path: &str) -> bool {
        if self.is_refused || self.begin.as_deref().is_some_and(|begin| path <= begin) {
            return false;
        }
        let mut skipped = 0;
        while !self.is_complete && self.end.as_deref().is_none_or(|end| end < path) {
            if skipped == SKIPPED {
                *self = Self::after(store, prefix, path);
                return false;
            }
            skipped += 1;
            match self.listing.get_or_insert_with(|| store.list(prefix)).next().await {
                Ok(Some(object)) => self.push(object),
                Ok(None) => self.is_complete = true,
                // A request for the object says what is wrong, if anything is.
                Err(_) => {
                    self.is_refused = true;
                    return false;
                }
            }
        }
        true
    }

    /// Returns an empty window that begins after a path.
    fn after(store: &Store, prefix: &str, path: &str) -> Self {
        let listing = store.list(prefix).after(Some(path.to_owned()));
        let at = Some(path.to_owned());
        Self { listing: Some(listing), begin: at.clone(), end: at, ..Self::default() }
    }

    fn push(&mut self, object: Object) {
        self.end = Some(object.path().to_owned());
        self.objects.insert(object.path().to_owned(), object);
        if self.objects.len() > MOST {
            self.begin = self.objects.pop_first().map(|(path, _)| path);
        }
    }
}
