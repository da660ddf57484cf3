//! Notes of a component about unfinished work.
//!
//! See docs/decisions/036-uploads-are-our-own-requests.md.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use crate::Error;
use crate::store::{OutputFile, Store};

/// Records the progress of long work, such as the uploaded parts of a file, so that a later run resumes it.
/// Entries survive `kill -9`. The system decides whether they survive a loss of power, so it must be harmless
/// to repeat recorded work. Those of [`note_durably`](Self::note_durably) survive it.
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
    /// The beginning of the names of entries with output that is not complete, and whose messages are not
    /// read again. A run whose configuration lacks the component is refused.
    pub const UNFINISHED: &str = "unfinished/";

    /// Opens the journal of a component, in the store of a state directory.
    pub fn new(store: Arc<Store>, component: &str) -> Self {
        Self { store, component: component.into() }
    }

    /// Returns all entries whose names start with a prefix, in the order of their names.
    pub fn entries(&self, prefix: &str) -> Result<Vec<(String, Value)>, Error> {
        self.each(prefix).collect()
    }

    /// As [`entries`](Self::entries), one by one: there may be many. The caller may delete an entry that it
    /// got.
    pub fn each(&self, prefix: &str) -> impl Iterator<Item = Result<(String, Value), Error>> + use<> {
        self.store.journal(&self.component, prefix)
    }

    /// Returns the names of all entries that start with a prefix, in their order.
    pub fn names(&self, prefix: &str) -> Result<Vec<String>, Error> {
        self.store.journal_names(&self.component, prefix, usize::MAX)
    }

    /// Writes an entry. It replaces an earlier entry of that name.
    pub fn note(&self, name: &str, value: &Value) -> Result<(), Error> {
        self.store.note(&self.component, name, Some(value))
    }

    /// Writes entries in one step, and deletes those without a value. When this returns, the disk has it.
    pub fn note_durably(&self, entries: &[(String, Option<Value>)]) -> Result<(), Error> {
        self.store.note_durably(&self.component, entries)
    }

    /// Deletes all entries whose names start with a prefix.
    pub fn forget(&self, prefix: &str) -> Result<(), Error> {
        self.names(prefix)?.iter().try_for_each(|name| self.store.note(&self.component, name, None))
    }

    /// Opens the file of an unfinished output, to append bytes after the first `length` ones. The rest, which
    /// a run added that was killed, is cut off. A file that shall be empty is created.
    ///
    /// An output with a file also needs an [entry](Self::UNFINISHED), so that a run without the component is
    /// refused.
    ///
    /// # Errors
    /// If the file cannot be opened, or has fewer bytes.
    pub fn open_output(&self, name: &str, length: u64) -> Result<OutputFile, Error> {
        self.store.outputs().open(&self.component, name, length)
    }

    /// Passes the first `length` bytes in the file of an unfinished output to `take`, a piece at a time.
    ///
    /// # Errors
    /// If the file is missing or has fewer bytes, and the errors of `take`.
    pub fn read_output(
        &self,
        name: &str,
        length: u64,
        take: impl FnMut(Vec<u8>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.store.outputs().read(&self.component, name, length, take)
    }

    /// Returns the error of an output whose file does not fit the checksum in the checkpoint.
    pub fn changed_output(&self, name: &str) -> Error {
        self.store.outputs().changed(&self.component, name)
    }

    /// Returns the number of outputs that have a file.
    ///
    /// # Errors
    /// If the state directory cannot be read.
    pub fn count_outputs(&self) -> Result<usize, Error> {
        self.store.outputs().count(&self.component)
    }

    /// Removes the file of an output, if it has one.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub fn forget_output(&self, name: &str) -> Result<(), Error> {
        self.store.outputs().remove(&self.component, name)
    }

    /// Removes the files of all outputs, except of those with these names.
    ///
    /// # Errors
    /// If one cannot be removed.
    pub fn forget_outputs_except<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Result<(), Error> {
        self.store.outputs().remove_except(&self.component, names)
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

    #[test]
    fn entries_are_written_and_deleted_in_one_step() {
        let folder = tempfile::tempdir().unwrap();
        {
            let journal = Journal::new(Arc::new(Store::open(folder.path()).unwrap()), "out");
            journal.note("a", &1.into()).unwrap();
            let entries = [("a".to_owned(), None), ("b".to_owned(), Some(2.into()))];
            journal.note_durably(&entries).unwrap();
        }
        let journal = Journal::new(Arc::new(Store::open(folder.path()).unwrap()), "out");
        assert_eq!(journal.entries("").unwrap(), [("b".to_owned(), 2.into())]);
    }

    #[test]
    fn each_entry_is_found_although_those_before_are_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::new(Arc::new(Store::open(folder.path()).unwrap()), "out");
        for number in 0..3000 {
            journal.note(&format!("a/{number:05}"), &number.into()).unwrap();
        }
        let mut found = Vec::new();
        for entry in journal.each("a/") {
            let (name, number) = entry.unwrap();
            journal.forget(&name).unwrap();
            found.extend(number.as_u64());
        }
        assert!(found.into_iter().eq(0..3000));
        assert!(journal.entries("").unwrap().is_empty());
    }
}
