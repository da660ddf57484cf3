//! The store of a state directory: positions of sources, states of sinks, and dead letters.
//!
//! One embedded database in one directory holds all three, so that one atomic write saves positions and sink
//! states. A restart finds both as of the same time.

mod letters;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::kept::KeptField;
use crate::{DeadLetterLimits, Error, Flow};
pub use letters::DeadLetterCounts;
use letters::Letters;

/// The store of one state directory. One process at a time may open it.
pub struct Store {
    database: Database,
    positions: Keyspace,
    sinks: Keyspace,
    journals: Keyspace,
    letters: Letters,
}

/// A message or file that could not be processed, with the data needed to examine it and to process it again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeadLetter {
    /// The time of the rejection, in microseconds since 1970 (UTC).
    pub time_us: i64,
    /// The component that rejected it.
    pub component: String,
    /// The transforms of its pipeline that it had passed, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub passed: Vec<String>,
    /// The reason of the rejection.
    pub reason: String,
    /// The source that it came from.
    pub source: String,
    /// The path or address of its origin, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The offset at which it begins in its origin, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
    /// The properties of the file, if it is one. If its content is stored at [`path`](Self::path), the letter
    /// has no payload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<KeptFile>,
    /// The payload that reached the component that rejected it, if it is text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<String>,
    /// The same payload in hexadecimal digits, if it is not text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_hex: Option<String>,
    /// The fields that reached the component that rejected it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<KeptField>,
}

/// The properties of a file that are kept beside its content.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KeptFile {
    /// The name of the file.
    pub name: String,
    /// Its size in bytes.
    pub size: u64,
    /// Its MIME type, if it was detected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mime: Option<String>,
}

impl DeadLetter {
    /// Returns the flow that it left: a file, or a message.
    pub fn flow(&self) -> Flow {
        if self.file.is_some() { Flow::Files } else { Flow::Messages }
    }

    /// Returns its payload.
    pub fn payload_bytes(&self) -> Vec<u8> {
        match (&self.payload, &self.payload_hex) {
            (Some(text), _) => text.clone().into_bytes(),
            (None, Some(hex)) => {
                let digits: Vec<u8> =
                    hex.chars().filter_map(|c| c.to_digit(16)).map(|digit| digit as u8).collect();
                digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect()
            }
            (None, None) => Vec::new(),
        }
    }

    /// Returns the approximate number of bytes that it takes in memory.
    pub fn size(&self) -> usize {
        let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let fields = self.fields.iter().map(|field| field.name.len() + text(&field.value) + 64);
        size_of::<Self>()
            + text(&self.payload)
            + text(&self.payload_hex)
            + self.reason.len()
            + fields.sum::<usize>()
    }

    /// Sets its payload.
    pub fn set_payload(&mut self, payload: &[u8]) {
        match std::str::from_utf8(payload) {
            Ok(text) => self.payload = Some(text.to_owned()),
            Err(_) => {
                let digit = |nibble: u8| char::from_digit(nibble.into(), 16).unwrap_or('0');
                let hex = payload.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]);
                self.payload_hex = Some(hex.collect());
            }
        }
    }
}

/// The number by which users name a dead letter.
pub type DeadLetterId = u64;

impl Store {
    /// Opens the store in a directory, which is created if it does not exist.
    ///
    /// # Errors
    /// If the directory cannot be used, or another process uses it.
    pub fn open(folder: &Path) -> Result<Self, Error> {
        let failed = |error: fjall::Error| {
            let why = match &error {
                fjall::Error::Locked => {
                    "another run is using it: stop that, or name another folder".to_owned()
                }
                other => other.to_string(),
            };
            Error::permanent(format!("the state in `{}` cannot be opened: {why}", folder.display()))
        };
        std::fs::create_dir_all(folder).map_err(|error| {
            Error::permanent(format!("the state folder `{}` cannot be made: {error}", folder.display()))
        })?;
        clear_unfinished(folder);
        // Small, since positions are a few kilobytes and the run's memory belongs to its budget.
        let database = Database::builder(folder)
            .cache_size(1 << 20)
            .worker_threads(1)
            .max_journaling_size(64 << 20)
            .open()
            .map_err(failed)?;
        let keyspace = |name| database.keyspace(name, options).map_err(failed);
        let (positions, sinks) = (keyspace("positions")?, keyspace("sinks")?);
        let journals = keyspace("journals")?;
        let letters = Letters::open(&database, keyspace("tallies")?)?;
        Ok(Self { database, positions, sinks, journals, letters })
    }

    /// Returns the positions of a source, by partition.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn positions(&self, source: &str) -> Result<BTreeMap<String, Value>, Error> {
        Ok(below(&self.positions, &format!("{source}\0"), "")?.into_iter().collect())
    }

    /// Returns the journal entries of a component whose names start with a prefix, in the order of their
    /// names.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(crate) fn journal(&self, component: &str, prefix: &str) -> Result<Vec<(String, Value)>, Error> {
        below(&self.journals, &format!("{component}\0"), prefix)
    }

    /// Writes an entry to the journal of a component, or deletes it. When this returns, the system has the
    /// entry, so it survives `kill -9`.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn note(&self, component: &str, name: &str, value: Option<&Value>) -> Result<(), Error> {
        let mut batch = self.database.batch().durability(Some(PersistMode::Buffer));
        let key = format!("{component}\0{name}");
        match value {
            Some(value) => batch.insert(&self.journals, key, value.to_string()),
            None => batch.remove(&self.journals, key),
        }
        batch.commit().map_err(unwritable)
    }

    /// Returns the state of a sink.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn sink_state(&self, sink: &str) -> Result<Option<Value>, Error> {
        let found = self.sinks.get(sink).map_err(unreadable)?;
        found.map(|value| parse(&value)).transpose()
    }

    /// Saves positions and states of sinks in one atomic write, and syncs it to the disk. Positions are by
    /// source and partition; None deletes one.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn save(
        &self,
        positions: &[(Arc<str>, Arc<str>, Option<Value>)],
        sinks: &[(Arc<str>, Value)],
    ) -> Result<(), Error> {
        let mut batch = self.database.batch().durability(Some(PersistMode::SyncData));
        for (source, partition, position) in positions {
            let key = format!("{source}\0{partition}");
            match position {
                Some(position) => batch.insert(&self.positions, key, position.to_string()),
                None => batch.remove(&self.positions, key),
            }
        }
        for (sink, state) in sinks {
            batch.insert(&self.sinks, &**sink, state.to_string());
        }
        batch.commit().map_err(unwritable)
    }

    /// Deletes all positions, states of sinks and journals. Dead letters stay.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn forget_progress(&self) -> Result<(), Error> {
        let mut batch = self.database.batch().durability(Some(PersistMode::SyncData));
        for keyspace in [&self.positions, &self.sinks, &self.journals] {
            for entry in keyspace.iter() {
                batch.remove(keyspace, entry.key().map_err(unreadable)?);
            }
        }
        batch.commit().map_err(unwritable)
    }

    /// Adds dead letters and syncs them to the disk. If the limits are exceeded, it drops the oldest ones.
    /// Returns the number of dropped letters.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn add_letters(&self, letters: &[DeadLetter], bounds: &DeadLetterLimits) -> Result<u64, Error> {
        self.letters.add(letters, bounds)
    }

    /// Returns the numbers of kept and dropped dead letters.
    pub fn tally(&self) -> DeadLetterCounts {
        self.letters.tally()
    }

    /// Resets the number of dropped dead letters.
    ///
    /// # Errors
    /// If the store cannot be written.
    pub fn forget_dropped(&self) -> Result<(), Error> {
        self.letters.forget_dropped()
    }

    /// Returns the dead letters, oldest first.
    pub fn letters(&self) -> impl Iterator<Item = Result<(DeadLetterId, DeadLetter), Error>> + use<> {
        self.letters_after(0)
    }

    /// Returns the dead letters with higher numbers than this one, oldest first.
    pub fn letters_after(
        &self,
        id: DeadLetterId,
    ) -> impl Iterator<Item = Result<(DeadLetterId, DeadLetter), Error>> + use<> {
        self.letters.after(id)
    }

    /// Returns the dead letter with this number.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn letter(&self, id: DeadLetterId) -> Result<Option<DeadLetter>, Error> {
        let found = self.letters_after(id.saturating_sub(1)).next().transpose()?;
        Ok(found.filter(|(number, _)| *number == id).map(|(_, letter)| letter))
    }

    /// Returns an upper limit of the numbers of the dead letters, or None if there are none.
    pub fn last_letter(&self) -> Option<DeadLetterId> {
        self.letters.last()
    }

    /// Removes dead letters.
    ///
    /// # Errors
    /// If the store cannot be written.
    pub fn remove_letters(&self, ids: &[DeadLetterId]) -> Result<(), Error> {
        self.letters.remove(ids)
    }
}

/// Removes the leftovers of a store whose creation was interrupted: it could never be opened. A store is
/// complete when its version file is written, which comes last. If the removal fails, opening the store
/// reports the error.
fn clear_unfinished(folder: &Path) {
    let is_whole = std::fs::metadata(folder.join("version")).is_ok_and(|version| version.len() > 0);
    // The process that creates it holds this lock.
    let Ok(lock) = std::fs::File::open(folder.join("lock")) else { return };
    if is_whole || !folder.join("keyspaces").is_dir() && !folder.join("0.jnl").is_file() && !is_empty(&lock) {
        return;
    }
    if lock.try_lock().is_ok() {
        ["version", "0.jnl", "lock"]
            .into_iter()
            .for_each(|name| drop(std::fs::remove_file(folder.join(name))));
    }
}

fn is_empty(file: &std::fs::File) -> bool {
    file.metadata().is_ok_and(|metadata| metadata.len() == 0)
}

/// Returns the options of every keyspace of the store.
fn options() -> KeyspaceCreateOptions {
    KeyspaceCreateOptions::default().max_memtable_size(4 << 20)
}

/// Returns the entries whose keys start with both prefixes. Their names keep only the second one.
fn below(keyspace: &Keyspace, owner: &str, prefix: &str) -> Result<Vec<(String, Value)>, Error> {
    let mut found = Vec::new();
    for entry in keyspace.prefix(format!("{owner}{prefix}")) {
        let (key, value) = entry.into_inner().map_err(unreadable)?;
        let name = String::from_utf8_lossy(key.get(owner.len()..).unwrap_or_default()).into_owned();
        found.push((name, parse(&value)?));
    }
    Ok(found)
}

fn parse(text: &[u8]) -> Result<Value, Error> {
    serde_json::from_slice(text)
        .map_err(|error| Error::permanent("the state cannot be understood").caused_by(error))
}

fn unreadable(error: fjall::Error) -> Error {
    Error::permanent("the state cannot be read").caused_by(error)
}

fn unwritable(error: fjall::Error) -> Error {
    Error::permanent("the state cannot be written").caused_by(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    pub(super) fn letter(payload: &[u8]) -> DeadLetter {
        let mut letter = DeadLetter {
            time_us: 1,
            component: "main.parse_json".into(),
            passed: vec!["main.filter".into()],
            reason: "is not JSON".into(),
            source: "in".into(),
            path: None,
            position: Some(7),
            file: None,
            payload: None,
            payload_hex: None,
            fields: Vec::new(),
        };
        letter.set_payload(payload);
        letter
    }

    #[test]
    fn positions_and_states_are_there_after_reopening() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let position = |partition: &str, value| ("in".into(), Arc::from(partition), value);
        store.save(&[position("a", Some(json!(1))), position("b", Some(json!(2)))], &[]).unwrap();
        store.save(&[position("a", None)], &[("out".into(), json!({"length": 5}))]).unwrap();
        drop(store);
        let store = Store::open(folder.path()).unwrap();
        assert_eq!(store.positions("in").unwrap(), BTreeMap::from([("b".to_owned(), json!(2))]));
        assert_eq!(store.positions("i").unwrap(), BTreeMap::new());
        assert_eq!(store.sink_state("out").unwrap(), Some(json!({"length": 5})));
    }

    #[test]
    fn progress_is_forgotten_and_letters_stay() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        store.save(&[("in".into(), "a".into(), Some(json!(1)))], &[("out".into(), json!(2))]).unwrap();
        store.note("out", "begun", Some(&json!(3))).unwrap();
        store.add_letters(&[letter(b"text")], &DeadLetterLimits::default()).unwrap();
        store.forget_progress().unwrap();
        assert!(store.positions("in").unwrap().is_empty() && store.sink_state("out").unwrap().is_none());
        assert!(store.journal("out", "").unwrap().is_empty());
        assert_eq!(store.letters().count(), 1);
    }

    #[test]
    fn letters_keep_bytes_that_are_not_text() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let bounds = DeadLetterLimits::default();
        store.add_letters(&[letter(b"text"), letter(b"\xff\x00")], &bounds).unwrap();
        store.add_letters(&[letter(b"")], &bounds).unwrap();
        let found: Vec<_> = store.letters().collect::<Result<_, _>>().unwrap();
        assert_eq!(found.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(found[1].1.payload_bytes(), b"\xff\x00");
        store.remove_letters(&[1, 3]).unwrap();
        assert_eq!(store.letters().count(), 1);
    }

    #[test]
    fn a_store_whose_making_was_broken_off_is_made_anew() {
        for left in
            [&["lock"][..], &["lock", "keyspaces", "0.jnl"], &["lock", "keyspaces", "0.jnl", "version"]]
        {
            let folder = tempfile::tempdir().unwrap();
            for name in left {
                let path = folder.path().join(name);
                if *name == "keyspaces" {
                    std::fs::create_dir(path).unwrap();
                } else {
                    std::fs::write(path, "").unwrap();
                }
            }
            let store =
                Store::open(folder.path()).unwrap_or_else(|error| panic!("{left:?}: {}", error.full()));
            store.save(&[], &[("out".into(), json!(1))]).unwrap();
            drop(store);
            assert_eq!(Store::open(folder.path()).unwrap().sink_state("out").unwrap(), Some(json!(1)));
        }
    }

    #[test]
    fn a_second_run_on_the_same_state_is_told_so() {
        let folder = tempfile::tempdir().unwrap();
        let _store = Store::open(folder.path()).unwrap();
        let error = Store::open(folder.path()).err().unwrap().full();
        assert!(error.contains("another run is using it"), "{error}");
    }
}
