//! Bytes of unfinished output that are kept at a checkpoint, for a run that continues it.
//!
//! The first bytes of an output are entries of the journal, which cost no sync of their own. The others are
//! in a file beside the store, which is appended to and synced once for each checkpoint. (Rejected: entries
//! for all. The database writes each byte several times: 200 MB took seconds, and a minute beside other load.
//! A file for each output: a sink may have thousands of small ones, and a sync takes milliseconds.)
//!
//! See docs/decisions/109-unfinished-output-is-a-file-beside-the-store.md.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use crc32c::crc32c_append;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thalweg_engine::{Error, Journal, OutputFile};

/// The maximum size of an entry, in bytes. The database holds one of each file that it merges.
const ENTRY: usize = 16 << 10;
/// The number of entries that are in memory at the same time.
const PAGE: u64 = 16;
/// The number of bytes after which an output gets a file.
const SMALL: u64 = 64 << 10;
/// The maximum number of files of a component. Each costs a checkpoint a sync. Further outputs stay in the
/// journal.
const MOST_FILES: usize = 16;

/// How many bytes the journal and the file of an output have. It is saved with the checkpoint: a run that is
/// killed may have added more since, which the next run replaces.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeptBytes {
    /// The number of entries of the journal, which are the first bytes.
    entries: u64,
    /// The number of all bytes. A version that knows no files finds too few.
    size: u64,
    /// The bytes after the entries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    file: Option<InFile>,
}

/// The bytes in the file of an output.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
struct InFile {
    length: u64,
    crc32c: u32,
}

impl KeptBytes {
    /// The number of bytes.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Begins to add bytes to those of the output with this name.
    pub(crate) fn adding<'a>(self, journal: &'a Journal, name: &'a str) -> Adding<'a> {
        Adding { journal, name, kept: self, file: None, has_room: None }
    }

    /// Passes the bytes to `take`, a piece at a time. Those that `take` got are of no use after an error.
    ///
    /// # Errors
    /// If some are missing or changed, and the errors of `take`.
    pub(crate) fn read(
        self,
        journal: &Journal,
        name: &str,
        mut take: impl FnMut(Vec<u8>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let InFile { length, crc32c } = self.file.unwrap_or_default();
        let mut size = length;
        for page in 0..self.entries.div_ceil(PAGE) {
            let entries = PAGE.min(self.entries - page * PAGE);
            for value in page_of(journal, name, page, entries)?.into_values() {
                if let Some(bytes) = value.as_str().and_then(|text| STANDARD.decode(text).ok()) {
                    size += bytes.len() as u64;
                    take(bytes)?;
                }
            }
        }
        if size != self.size {
            return Err(Error::permanent(format!(
                "the state folder is damaged: it has {size} of {} bytes of unfinished output. To write the output again, \
                 use another state folder",
                self.size
            )));
        }
        if length == 0 {
            return Ok(());
        }
        let mut found = 0;
        journal.read_output(name, length, |bytes| {
            found = crc32c_append(found, &bytes);
            take(bytes)
        })?;
        if found == crc32c { Ok(()) } else { Err(journal.changed_output(name)) }
    }
}

/// Removes the bytes of the output with this name.
///
/// # Errors
/// If the state folder cannot be changed.
pub(crate) fn forget(journal: &Journal, name: &str) -> Result<(), Error> {
    journal.forget(name)?;
    // Last: if the store can no longer be written, its last checkpoint needs the file.
    journal.forget_output(name)
}

/// Adds bytes to an output. They count once [`finish`](Self::finish) returns.
pub(crate) struct Adding<'a> {
    journal: &'a Journal,
    name: &'a str,
    kept: KeptBytes,
    file: Option<OutputFile>,
    /// True if the component may have one more file, once that was asked for.
    has_room: Option<bool>,
}

impl Adding<'_> {
    /// Adds bytes.
    ///
    /// # Errors
    /// If they cannot be written.
    pub(crate) fn add(&mut self, bytes: &[u8]) -> Result<(), Error> {
        for bytes in bytes.chunks(ENTRY) {
            if self.is_file()? {
                self.append(bytes)?
            } else {
                self.note(bytes)?
            }
            self.kept.size += bytes.len() as u64;
        }
        Ok(())
    }

    /// Puts the bytes on the disk, except those in the journal, which are there with the next checkpoint.
    ///
    /// # Errors
    /// If the disk fails.
    pub(crate) fn finish(self) -> Result<KeptBytes, Error> {
        if let Some(file) = &self.file {
            file.sync()?;
        }
        Ok(self.kept)
    }

    /// True if the next bytes go into a file.
    fn is_file(&mut self) -> Result<bool, Error> {
        if self.kept.file.is_some() {
            return Ok(true);
        }
        if self.kept.size < SMALL {
            return Ok(false);
        }
        let has_room = match self.has_room {
            Some(has_room) => has_room,
            None => self.journal.count_outputs()? < MOST_FILES,
        };
        self.has_room = Some(has_room);
        Ok(has_room)
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let InFile { length, crc32c } = self.kept.file.unwrap_or_default();
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(self.journal.open_output(self.name, length)?),
        };
        file.append(bytes)?;
        let length = length + bytes.len() as u64;
        self.kept.file = Some(InFile { length, crc32c: crc32c_append(crc32c, bytes) });
        Ok(())
    }

    fn note(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let (page, entry) = (self.kept.entries / PAGE, self.kept.entries % PAGE);
        let name = format!("{}{entry:02}", page_name(self.name, page));
        self.journal.note(&name, &STANDARD.encode(bytes).into())?;
        self.kept.entries += 1;
        Ok(())
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
    use std::fs;
    use std::path::{Path, PathBuf};
    use std::sync::Arc;

    use proptest::prelude::*;
    use thalweg_engine::Store;

    use super::*;

    fn journal(state: &Path) -> Journal {
        Journal::new(Arc::new(Store::open(state).unwrap()), "out")
    }

    fn add(kept: &mut KeptBytes, journal: &Journal, name: &str, bytes: &[u8]) {
        let mut adding = kept.adding(journal, name);
        adding.add(bytes).unwrap();
        *kept = adding.finish().unwrap();
    }

    fn read(kept: KeptBytes, journal: &Journal) -> Result<Vec<u8>, Error> {
        let mut all = Vec::new();
        kept.read(journal, "a/", |bytes| {
            all.extend(bytes);
            Ok(())
        })?;
        Ok(all)
    }

    /// The files of unfinished output.
    fn files(state: &Path) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(state.join("unfinished")) else { return Vec::new() };
        entries.map(|entry| entry.unwrap().path()).collect()
    }

    /// An event of a run.
    #[derive(Debug, Clone)]
    enum Event {
        /// It adds this number of bytes, which the next checkpoint has.
        Add(usize),
        /// It adds this number of bytes, and the disk fails before they are safe.
        AddUnsynced(usize),
        /// A checkpoint is saved.
        Save,
        /// The run is killed, or the power is lost: the disk has this share of the bytes that no checkpoint
        /// needs, and zeros for the rest of them, or not even their length.
        Crash(f64, bool),
    }

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![
            4 => (0..(5 * ENTRY)).prop_map(Event::Add),
            1 => (0..(5 * ENTRY)).prop_map(Event::AddUnsynced),
            3 => Just(Event::Save),
            2 => (0.0..=1.0, any::<bool>()).prop_map(|(share, has_length)| Event::Crash(share, has_length)),
        ]
    }

    /// Loses bytes of the file after the first `safe` ones.
    fn lose(path: &Path, safe: u64, share: f64, has_length: bool) {
        let mut bytes = fs::read(path).unwrap();
        let end = bytes.len();
        let safe = usize::try_from(safe).unwrap().min(end);
        let left = safe + ((end - safe) as f64 * share) as usize;
        bytes.truncate(left);
        if has_length {
            bytes.resize(end, 0);
        }
        fs::write(path, bytes).unwrap();
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn the_bytes_are_those_of_the_checkpoint_whatever_was_lost_since(
            events in prop::collection::vec(event(), 0..24),
        ) {
            let state = tempfile::tempdir().unwrap();
            let mut run = journal(state.path());
            // Bytes of the run, and of its checkpoint.
            let (mut kept, mut bytes) = (KeptBytes::default(), Vec::<u8>::new());
            let (mut saved, mut covered) = (kept, bytes.clone());
            for (number, event) in (1u8..).zip(events) {
                match event {
                    Event::Add(size) => {
                        let more = vec![number; size];
                        add(&mut kept, &run, "a/", &more);
                        bytes.extend(more);
                    }
                    Event::AddUnsynced(size) => {
                        kept.adding(&run, "a/").add(&vec![number; size]).unwrap();
                    }
                    Event::Save => (saved, covered) = (kept, bytes.clone()),
                    Event::Crash(share, has_length) => {
                        drop(run);
                        let safe = saved.file.unwrap_or_default().length;
                        files(state.path()).iter().for_each(|path| lose(path, safe, share, has_length));
                        run = journal(state.path());
                        let text = serde_json::to_string(&saved).unwrap();
                        (kept, bytes) = (serde_json::from_str(&text).unwrap(), covered.clone());
                        prop_assert!(read(kept, &run).unwrap() == covered);
                    }
                }
                prop_assert_eq!(kept.size(), bytes.len() as u64);
                prop_assert!(files(state.path()).len() <= 1);
            }
            prop_assert!(read(kept, &run).unwrap() == bytes);
            prop_assert!(read(saved, &run).unwrap() == covered);
            forget(&run, "a/").unwrap();
            prop_assert!(run.names("").unwrap().is_empty() && files(state.path()).is_empty());
        }
    }

    #[test]
    fn the_names_of_entries_grow() {
        let state = tempfile::tempdir().unwrap();
        let journal = journal(state.path());
        let mut kept = KeptBytes::default();
        let mut last = String::new();
        // The page after the tenth one has a number with another digit.
        for page in 0..11 {
            for _ in 0..PAGE {
                add(&mut kept, &journal, "a/", b"a");
            }
            let greatest = journal.names("a/").unwrap().pop().unwrap();
            assert!(greatest > last, "{greatest} after {last}, page {page}");
            last = greatest;
        }
    }

    #[test]
    fn a_small_output_has_no_file_and_a_large_one_has_few_entries() {
        let state = tempfile::tempdir().unwrap();
        let journal = journal(state.path());
        let mut kept = KeptBytes::default();
        add(&mut kept, &journal, "a/", &vec![b'a'; SMALL as usize]);
        assert!(files(state.path()).is_empty());
        add(&mut kept, &journal, "a/", &vec![b'b'; 1 << 20]);
        assert_eq!(fs::metadata(&files(state.path())[0]).unwrap().len(), 1 << 20);
        assert_eq!(journal.names("").unwrap().len() as u64, SMALL / ENTRY as u64);
        assert!(read(kept, &journal).unwrap().ends_with(b"bb"));
    }

    #[test]
    fn further_outputs_stay_in_the_journal() {
        let state = tempfile::tempdir().unwrap();
        let journal = journal(state.path());
        let large = vec![b'x'; SMALL as usize + 2 * ENTRY];
        let mut kept = Vec::new();
        for number in 0..MOST_FILES + 2 {
            let mut one = KeptBytes::default();
            add(&mut one, &journal, &format!("{number}/"), &large);
            kept.push(one);
        }
        assert_eq!(files(state.path()).len(), MOST_FILES);
        // One of them gets the file of an output that is finished.
        forget(&journal, "0/").unwrap();
        let last = MOST_FILES + 1;
        add(&mut kept[last], &journal, &format!("{last}/"), b"end");
        assert_eq!(files(state.path()).len(), MOST_FILES);
        let mut all = Vec::new();
        let take = |bytes: Vec<u8>| {
            all.extend(bytes);
            Ok(())
        };
        kept[last].read(&journal, &format!("{last}/"), take).unwrap();
        assert!(all == [&large[..], b"end"].concat());
    }

    #[test]
    fn bytes_that_an_earlier_version_kept_are_read_and_continued() {
        let state = tempfile::tempdir().unwrap();
        let journal = journal(state.path());
        // Two more than its last checkpoint has: it was killed.
        for number in 0..22_u64 {
            let name = format!("a/{}/{:02}", number / PAGE, number % PAGE);
            journal.note(&name, &STANDARD.encode(format!("{number},")).into()).unwrap();
        }
        let mut expected: String = (0..20).map(|number| format!("{number},")).collect();
        let saved = serde_json::json!({ "entries": 20, "size": expected.len() });
        let mut kept: KeptBytes = serde_json::from_value(saved).unwrap();
        assert_eq!(read(kept, &journal).unwrap(), expected.as_bytes());
        let long = "l".repeat(SMALL as usize);
        for text in ["x,", "y,", "z,", &long, "in a file"] {
            add(&mut kept, &journal, "a/", text.as_bytes());
            expected.push_str(text);
            assert!(read(kept, &journal).unwrap() == expected.as_bytes());
        }
        assert_eq!(files(state.path()).len(), 1);
        forget(&journal, "a/").unwrap();
        assert!(journal.names("").unwrap().is_empty() && files(state.path()).is_empty());
    }

    #[test]
    fn bytes_that_are_missing_are_an_error() {
        let state = tempfile::tempdir().unwrap();
        let journal = journal(state.path());
        let mut kept = KeptBytes::default();
        add(&mut kept, &journal, "a/", b"some bytes");
        journal.forget("a/").unwrap();
        let error = read(kept, &journal).unwrap_err().to_string();
        assert!(error.starts_with("the state folder is damaged: it has 0 of 10 bytes"), "{error}");
    }

    #[test]
    fn a_file_that_is_missing_short_or_changed_is_an_error_that_names_it() {
        let state = tempfile::tempdir().unwrap();
        let journal = journal(state.path());
        let mut kept = KeptBytes::default();
        add(&mut kept, &journal, "a/", &vec![b'x'; 200_000]);
        let path = files(state.path()).remove(0);
        let whole = fs::read(&path).unwrap();
        let refused = || {
            let error = read(kept, &journal).unwrap_err().full();
            assert!(error.contains("is damaged: `"), "{error}");
            error.contains(&path.display().to_string()).then_some(error)
        };
        let mut damaged = whole.clone();
        damaged[70_000] ^= 1;
        fs::write(&path, &damaged).unwrap();
        assert!(refused().unwrap().contains("` was changed."));
        fs::write(&path, &whole[..whole.len() - 1]).unwrap();
        assert!(refused().unwrap().contains("` is shorter than it was."));
        fs::remove_file(&path).unwrap();
        assert!(refused().unwrap().contains("` is missing."));
        fs::write(&path, [&whole[..], b"of a killed run"].concat()).unwrap();
        assert!(read(kept, &journal).unwrap() == [b'x'; 200_000]);
    }
}
