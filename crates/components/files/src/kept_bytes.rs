//! Bytes of unfinished output that are kept in the journal at a checkpoint, for a run that continues it.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thalweg_engine::{Error, Journal};

/// The maximum size of an entry, in bytes. The database holds one of each file that it merges.
const ENTRY: usize = 16 << 10;
/// The number of entries that are in memory at the same time.
const PAGE: u64 = 16;

/// How many bytes the journal has of an output. It is saved with the checkpoint: a run that is killed may
/// have added more since, which the next run replaces.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeptBytes {
    entries: u64,
    size: u64,
}

impl KeptBytes {
    /// The number of bytes.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Adds bytes to those below a name.
    ///
    /// # Errors
    /// If the journal cannot be written.
    pub(crate) fn add(&mut self, journal: &Journal, name: &str, bytes: &[u8]) -> Result<(), Error> {
        for bytes in bytes.chunks(ENTRY) {
            let (page, entry) = (self.entries / PAGE, self.entries % PAGE);
            journal.note(&format!("{}{entry:02}", page_name(name, page)), &STANDARD.encode(bytes).into())?;
            self.entries += 1;
            self.size += bytes.len() as u64;
        }
        Ok(())
    }

    /// Passes the bytes to `take`, a piece at a time.
    ///
    /// # Errors
    /// If some are missing, and the errors of `take`.
    pub(crate) fn read(
        self,
        journal: &Journal,
        name: &str,
        mut take: impl FnMut(Vec<u8>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut size = 0;
        for page in 0..self.entries.div_ceil(PAGE) {
            let entries = PAGE.min(self.entries - page * PAGE);
            for value in page_of(journal, name, page, entries)?.into_values() {
                if let Some(bytes) = value.as_str().and_then(|text| STANDARD.decode(text).ok()) {
                    size += bytes.len() as u64;
                    take(bytes)?;
                }
            }
        }
        if size == self.size {
            return Ok(());
        }
        Err(Error::permanent(format!(
            "the state folder is damaged: it has {size} of {} bytes of unfinished output. To write the output again, use \
             another state folder",
            self.size
        )))
    }
}

/// Returns the beginning of the names of a page's entries. Names grow with the entries: the database then
/// moves the tables that it writes of them. Tables that overlap it would merge, and write most bytes again.
fn page_name(name: &str, page: u64) -> String {
    format!("{name}{page:010}/")
}

/// Returns the first `entries` entries of a page, by their numbers in it, as far as they are there.
fn page_of(journal: &Journal, name: &str, page: u64, entries: u64) -> Result<BTreeMap<u64, Value>, Error> {
    let mut found = BTreeMap::new();
    // Earlier versions wrote the page without zeros before it. Where this one went on, its entries are later.
    for prefix in [page_name(name, page), format!("{name}{page}/")] {
        if found.len() as u64 == entries {
            break;
        }
        for (entry, value) in journal.entries(&prefix)? {
            let number = entry.strip_prefix(&prefix).and_then(|number| number.parse::<u64>().ok());
            if let Some(number) = number.filter(|number| *number < entries) {
                found.entry(number).or_insert(value);
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;

    fn read(kept: KeptBytes, journal: &Journal) -> Result<Vec<u8>, Error> {
        let mut all = Vec::new();
        kept.read(journal, "a/", |bytes| {
            all.extend(bytes);
            Ok(())
        })?;
        Ok(all)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]
        #[test]
        fn the_bytes_are_those_of_the_checkpoint_whatever_a_killed_run_added(
            sizes in prop::collection::vec((0..(3 * ENTRY), any::<bool>()), 0..12),
        ) {
            let state = tempfile::tempdir().unwrap();
            let journal = Journal::new(Arc::new(thalweg_engine::Store::open(state.path()).unwrap()), "out");
            let (mut kept, mut expected) = (KeptBytes::default(), Vec::new());
            for (number, (size, is_saved)) in (0u8..).zip(sizes) {
                let (bytes, mut next) = (vec![number; size], kept);
                next.add(&journal, "a/", &bytes).unwrap();
                if is_saved {
                    kept = next;
                    expected.extend(bytes);
                }
            }
            prop_assert_eq!(kept.size(), expected.len() as u64);
            prop_assert!(read(kept, &journal).unwrap() == expected);
        }
    }

    #[test]
    fn the_names_of_entries_grow() {
        let state = tempfile::tempdir().unwrap();
        let journal = Journal::new(Arc::new(thalweg_engine::Store::open(state.path()).unwrap()), "out");
        let mut kept = KeptBytes::default();
        let mut last = String::new();
        // The page after the tenth one has a number with another digit.
        for _ in 0..11 {
            kept.add(&journal, "a/", &vec![0; ENTRY * 16]).unwrap();
            let greatest = journal.names("a/").unwrap().pop().unwrap();
            assert!(greatest > last, "{greatest} after {last}");
            last = greatest;
        }
    }

    #[test]
    fn bytes_that_an_earlier_version_kept_are_read_and_continued() {
        let state = tempfile::tempdir().unwrap();
        let journal = Journal::new(Arc::new(thalweg_engine::Store::open(state.path()).unwrap()), "out");
        // Two more than its last checkpoint has: it was killed.
        for number in 0..22_u64 {
            let name = format!("a/{}/{:02}", number / PAGE, number % PAGE);
            journal.note(&name, &STANDARD.encode(format!("{number},")).into()).unwrap();
        }
        let mut expected: String = (0..20).map(|number| format!("{number},")).collect();
        let mut kept = KeptBytes { entries: 20, size: expected.len() as u64 };
        assert_eq!(read(kept, &journal).unwrap(), expected.as_bytes());
        for text in ["x,", "y,", "z,"] {
            kept.add(&journal, "a/", text.as_bytes()).unwrap();
            expected.push_str(text);
            assert_eq!(read(kept, &journal).unwrap(), expected.as_bytes());
        }
        journal.forget("a/").unwrap();
        assert!(journal.names("").unwrap().is_empty());
    }

    #[test]
    fn bytes_that_are_missing_are_an_error() {
        let state = tempfile::tempdir().unwrap();
        let journal = Journal::new(Arc::new(thalweg_engine::Store::open(state.path()).unwrap()), "out");
        let mut kept = KeptBytes::default();
        kept.add(&journal, "a/", b"some bytes").unwrap();
        journal.forget("a/").unwrap();
        let error = read(kept, &journal).unwrap_err().to_string();
        assert!(error.starts_with("the state folder is damaged: it has 0 of 10 bytes"), "{error}");
    }
}
