//! What a component keeps of work that is half done.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use crate::Error;
use crate::store::Store;

/// Where a component notes what it has done of something long, so that a run after one that was cut off goes on with it: the
/// parts of a file that a store has, say. What is noted is there even if the process is killed; whether it survives a loss of
/// power is up to the system, so it must be such that work may be done twice.
#[derive(Clone)]
pub struct Journal {
    store: Arc<Store>,
    component: Arc<str>,
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Journal({})", self.component)
    }
}

impl Journal {
    /// The journal of a component, in the store of a state folder.
    pub fn new(store: Arc<Store>, component: &str) -> Self {
        Self { store, component: component.into() }
    }

    /// All that is noted below a prefix, in the order of the names.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn entries(&self, prefix: &str) -> Result<Vec<(String, Value)>, Error> {
        self.store.journal(&self.component, prefix)
    }

    /// Notes something under a name, in the place of what was there.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn note(&self, name: &str, value: &Value) -> Result<(), Error> {
        self.store.note(&self.component, name, Some(value))
    }

    /// Forgets all that is noted below a prefix.
    ///
    /// # Errors
    /// If the store cannot be written.
    pub fn forget(&self, prefix: &str) -> Result<(), Error> {
        for (name, _) in self.entries(prefix)? {
            self.store.note(&self.component, &name, None)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_noted_is_there_when_the_store_is_opened_again() {
        let folder = tempfile::tempdir().unwrap();
        {
            let store = Arc::new(Store::open(folder.path()).unwrap());
            let (mine, other) = (Journal::new(store.clone(), "out"), Journal::new(store, "outer"));
            mine.note("a/1", &1.into()).unwrap();
            mine.note("a/2", &2.into()).unwrap();
            mine.note("b/1", &3.into()).unwrap();
            other.note("a/1", &4.into()).unwrap();
            mine.note("a/1", &5.into()).unwrap();
        }
        let journal = Journal::new(Arc::new(Store::open(folder.path()).unwrap()), "out");
        assert_eq!(
            journal.entries("a/").unwrap(),
            [("a/1".to_owned(), 5.into()), ("a/2".to_owned(), 2.into())]
        );
        journal.forget("a/").unwrap();
        assert_eq!(journal.entries("").unwrap(), [("b/1".to_owned(), 3.into())]);
    }
}
