//! The store of a state directory: positions of sources, states of sinks, and dead letters.
//!
//! One embedded database in one directory holds all three, so that one atomic write saves positions and sink
//! states. A restart finds both as of the same time. Large unfinished output is in files beside it.

mod faults;
pub mod fuzzing;
mod inventory;
mod letter;
mod letters;
mod output_files;
mod owner;
mod rights;
#[cfg(target_os = "linux")]
mod served;
mod unflushed;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use fjall::compaction::Leveled;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, OwnedWriteBatch, PersistMode};
use serde_json::Value;
use thalweg_runtime::Failpoint;
use thalweg_runtime::private::{create_private, find_foreign, open_regular_with, private_file};

use crate::{DeadLetterLimits, Error};
use faults::Faults;
use inventory::Inventory;
pub(crate) use letter::hex;
pub use letter::{DeadLetter, KeptFile};
use letters::Letters;
pub use letters::{Added, DeadLetterCounts};
pub use output_files::OutputFile;
use output_files::OutputFiles;
pub use owner::Owner;
use rights::GivenBack;
#[cfg(target_os = "linux")]
pub(crate) use served::LettersServer;
#[cfg(target_os = "linux")]
pub use served::RunningLetters;
use unflushed::Unflushed;

/// The files of the database that exist before it is complete.
const LOCK: &str = "lock";
const FIRST_JOURNAL: &str = "0.jnl";

/// The store of one state directory. One process at a time may open it.
pub struct Store {
    database: Database,
    positions: Keyspace,
    sinks: Keyspace,
    journals: Keyspace,
    /// The size of the notes that are only in memory.
    unflushed: Unflushed,
    /// Unfinished output that is too large for the database.
    outputs: OutputFiles,
    letters: Letters,
    faults: Faults,
    /// Closed after the database.
    inventory: Arc<Inventory>,
    /// The last field, so that it knows all that was written.
    _given_back: Option<GivenBack>,
}

/// Before the name of a source, in the keys of the last dead letter that its positions cover. The names of
/// sources are not empty, so no position has such a key.
const COVERED: &str = "\0letters\0";

/// The number by which users name a dead letter.
pub type DeadLetterId = u64;

impl Store {
    /// Opens the store in a directory, which is created if it does not exist.
    ///
    /// # Errors
    /// If the directory cannot be used, another process uses it, or a file in it is damaged or is none. Such
    /// a directory is not changed.
    pub fn open(folder: &Path) -> Result<Self, Error> {
        Self::open_for(folder, None)
    }

    /// True if a store was created in this directory.
    #[must_use]
    pub fn exists(folder: &Path) -> bool {
        folder.join(inventory::KEYSPACES).exists()
    }

    /// Opens the store for a configuration, which owns it from now on.
    ///
    /// # Errors
    /// As [`open`](Self::open), and if the directory belongs to another configuration or another user, or
    /// others may write to it. It is not changed then.
    pub fn open_for(folder: &Path, owner: Option<&Owner>) -> Result<Self, Error> {
        create_private(folder).map_err(|error| {
            Error::permanent(format!("the state folder `{}` cannot be made: {error}", folder.display()))
        })?;
        rights::check(folder, &Faults::of(folder))?;
        let store = Self::open_trusted(folder, owner)?;
        if let Some(owner) = owner {
            owner::record(folder, owner).map_err(|error| store.faults.recording(&error))?;
        }
        Ok(store)
    }

    /// Opens a store that exists, to show its dead letters and to remove some. Root may do so for the user
    /// that the directory belongs to.
    ///
    /// # Errors
    /// As [`open_for`](Self::open_for).
    pub fn open_to_show(folder: &Path, owner: Option<&Owner>) -> Result<Self, Error> {
        match rustix::process::geteuid().is_root() {
            // Without a record of the owner: the user of the directory could not read a file of root.
            true => Self::open_trusted(folder, owner),
            false => Self::open_for(folder, owner),
        }
    }

    fn open_trusted(folder: &Path, owner: Option<&Owner>) -> Result<Self, Error> {
        let faults = Faults::of(folder);
        if let Some(foreign) = find_foreign(folder).map_err(|error| faults.unopened(&error.to_string()))? {
            return Err(faults.foreign(&foreign));
        }
        if let Some(owner) = owner {
            owner::check(folder, owner, &faults)?;
        }
        // Also if it cannot be opened.
        let given_back = GivenBack::of(folder);
        let inventory = Arc::new(Inventory::open(folder, &faults)?);
        clear_unfinished(folder).map_err(|error| faults.unopened(&error.to_string()))?;
        // Small, since positions are a few kilobytes and the run's memory belongs to its budget.
        let database = Database::builder(folder)
            .cache_size(1 << 20)
            .worker_threads(1)
            .max_journaling_size(64 << 20)
            .open()
            .map_err(|error| faults.opening(error))?;
        let keyspace = |name| database.keyspace(name, of_names).map_err(|error| faults.opening(error));
        let (positions, sinks) = (keyspace("positions")?, keyspace("sinks")?);
        let journals = database.keyspace("journals", of_journals).map_err(|error| faults.opening(error))?;
        let letters = Letters::open(&database, keyspace("tallies")?, faults.clone(), inventory.clone())?;
        inventory.begin().map_err(|error| faults.recording(&error))?;
        rights::close_files(folder);
        let unflushed = Unflushed::default();
        let outputs = OutputFiles::new(folder, faults.clone());
        Ok(Self {
            database,
            positions,
            sinks,
            journals,
            unflushed,
            outputs,
            letters,
            faults,
            inventory,
            _given_back: given_back,
        })
    }

    /// Refuses a directory of dead letters that belongs to another configuration, or that other users may
    /// write to. Neither opens nor creates it.
    pub(crate) fn check_letters(folder: &Path, owner: &Owner) -> Result<(), Error> {
        let faults = Faults::of(folder);
        // One that cannot be looked at is reported when it is opened.
        if folder.exists() {
            rights::check(folder, &faults)?;
        }
        owner::check_letters(folder, owner, &faults)
    }

    /// Returns the positions of a source, by partition.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn positions(&self, source: &str) -> Result<BTreeMap<String, Value>, Error> {
        self.below(&self.positions, &format!("{source}\0"), "").collect()
    }

    /// Returns the journal entries of a component whose names start with a prefix, in the order of their
    /// names. They are read one by one, and may be deleted meanwhile.
    pub(crate) fn journal(
        &self,
        component: &str,
        prefix: &str,
    ) -> impl Iterator<Item = Result<(String, Value), Error>> + use<> {
        self.below(&self.journals, &format!("{component}\0"), prefix)
    }

    /// Writes an entry to the journal of a component, or deletes it. When this returns, the system has the
    /// entry, so it survives `kill -9`.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn note(&self, component: &str, name: &str, value: Option<&Value>) -> Result<(), Error> {
        let mut batch = self.database.batch().durability(Some(PersistMode::Buffer));
        let bytes = self.put_note(&mut batch, component, name, value);
        self.inventory.unsynced(|| batch.commit()).map_err(|error| self.faults.writing(error))?;
        self.unflushed.add(&self.journals, 1, bytes).map_err(|error| self.faults.writing(error))
    }

    /// As [`note`](Self::note), for several entries in one atomic write, which is synced to the disk.
    ///
    /// # Errors
    /// If they cannot be written.
    pub(crate) fn note_durably(
        &self,
        component: &str,
        entries: &[(String, Option<Value>)],
    ) -> Result<(), Error> {
        let mut batch = self.database.batch().durability(Some(PersistMode::SyncData));
        let mut bytes = 0;
        for (name, value) in entries {
            bytes += self.put_note(&mut batch, component, name, value.as_ref());
        }
        self.commit(batch)?;
        self.unflushed.add(&self.journals, entries.len(), bytes).map_err(|error| self.faults.writing(error))
    }

    /// Adds an entry of a journal to a write, or its deletion. Returns its size in bytes.
    fn put_note(
        &self,
        batch: &mut OwnedWriteBatch,
        component: &str,
        name: &str,
        value: Option<&Value>,
    ) -> u64 {
        let key = format!("{component}\0{name}");
        let text = value.map(Value::to_string);
        let bytes = key.len() + text.as_ref().map_or(0, String::len);
        match text {
            Some(text) => batch.insert(&self.journals, key, text),
            None => batch.remove(&self.journals, key),
        }
        bytes as u64
    }

    /// Returns the names of the entries in the journal of a component that start with a prefix, at most
    /// `most`, in their order. Their values, which may be large, are not read.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(crate) fn journal_names(
        &self,
        component: &str,
        prefix: &str,
        most: usize,
    ) -> Result<Vec<String>, Error> {
        let owner = format!("{component}\0");
        let keys = self.journals.prefix(format!("{owner}{prefix}")).take(most).map(|entry| {
            let key = entry.key().map_err(|error| self.faults.reading(error))?;
            Ok(String::from_utf8_lossy(key.get(owner.len()..).unwrap_or_default()).into_owned())
        });
        keys.collect()
    }

    /// Returns the files of unfinished output.
    pub(crate) fn outputs(&self) -> &OutputFiles {
        &self.outputs
    }

    /// Returns the state of a sink.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn sink_state(&self, sink: &str) -> Result<Option<Value>, Error> {
        let found = self.sinks.get(sink).map_err(|error| self.faults.reading(error))?;
        found
            .map(|value| serde_json::from_slice(&value).map_err(|error| self.faults.parsing(error)))
            .transpose()
    }

    /// Returns a component with a state and [unfinished output](crate::Journal::UNFINISHED) that is not
    /// `known`, if there is one.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(crate) fn unfinished_of_another(
        &self,
        known: impl Fn(&str) -> bool,
    ) -> Result<Option<String>, Error> {
        for entry in self.below(&self.sinks, "", "") {
            let (name, _) = entry?;
            if !known(&name) && !self.journal_names(&name, crate::Journal::UNFINISHED, 1)?.is_empty() {
                return Ok(Some(name));
            }
        }
        Ok(None)
    }

    /// Saves positions and states of components in one atomic write, and syncs it to the disk. Positions are
    /// by source and partition; None deletes one. `letters` has, for sources whose messages come again if the
    /// run is killed, the last dead letter that the positions cover: a later run makes those after it again.
    /// None means that nothing comes again.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn save(
        &self,
        positions: &[(Arc<str>, Arc<str>, Option<Value>)],
        sinks: &[(Arc<str>, Value)],
        letters: &[(Arc<str>, Option<DeadLetterId>)],
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
        for (source, covered) in letters {
            let key = format!("{COVERED}{source}");
            match covered {
                Some(id) => batch.insert(&self.positions, key, id.to_string()),
                None => batch.remove(&self.positions, key),
            }
        }
        self.commit(batch)
    }

    fn commit(&self, batch: OwnedWriteBatch) -> Result<(), Error> {
        self.inventory.synced(|| batch.commit()).map_err(|error| self.faults.writing(error))
    }

    /// Notes, before a run begins, that all dead letters so far are covered for these sources, whose messages
    /// come again if the run is killed: see [`save`](Self::save). Survives `kill -9`.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn cover_letters<'a>(&self, sources: impl Iterator<Item = &'a Arc<str>>) -> Result<(), Error> {
        let last = self.last_letter().unwrap_or_default().to_string();
        let sources: BTreeSet<&str> = sources.map(|source| &**source).collect();
        let mut batch = self.database.batch().durability(Some(PersistMode::Buffer));
        // Nothing of other sources comes again in this run, such as a replay: its letters of them stay.
        for entry in self.below(&self.positions, COVERED, "") {
            let (source, _) = entry?;
            if !sources.contains(&*source) {
                batch.remove(&self.positions, format!("{COVERED}{source}"));
            }
        }
        for source in sources {
            batch.insert(&self.positions, format!("{COVERED}{source}"), &*last);
        }
        self.inventory.unsynced(|| batch.commit()).map_err(|error| self.faults.writing(error))
    }

    /// As [`cover_letters`](Self::cover_letters), while other sources run: their notes stay.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn cover_letters_beside<'a>(
        &self,
        sources: impl Iterator<Item = &'a Arc<str>>,
    ) -> Result<(), Error> {
        let last = self.last_letter().unwrap_or_default().to_string();
        let mut batch = self.database.batch().durability(Some(PersistMode::Buffer));
        for source in sources {
            batch.insert(&self.positions, format!("{COVERED}{source}"), &*last);
        }
        self.inventory.unsynced(|| batch.commit()).map_err(|error| self.faults.writing(error))
    }

    /// Returns the dead letters whose messages the next run of these sources processes again: a run was
    /// killed after it stored them and before its next checkpoint.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn uncovered_letters(&self) -> Result<Vec<DeadLetterId>, Error> {
        self.uncovered_letters_of(|_| true)
    }

    /// As [`uncovered_letters`](Self::uncovered_letters), of some sources.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(crate) fn uncovered_letters_of(
        &self,
        is_meant: impl Fn(&str) -> bool,
    ) -> Result<Vec<DeadLetterId>, Error> {
        let covered = self.below(&self.positions, COVERED, "");
        let mut covered = covered.collect::<Result<BTreeMap<String, Value>, Error>>()?;
        covered.retain(|source, _| is_meant(source));
        let Some(first) = covered.values().filter_map(Value::as_u64).min() else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        for letter in self.letters_after(first) {
            let (id, letter) = letter?;
            let last = covered.get(&letter.source).and_then(Value::as_u64);
            found.extend(last.is_some_and(|last| id > last).then_some(id));
        }
        Ok(found)
    }

    /// Deletes all positions, states of sinks, journals and files of unfinished output. Dead letters stay.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn forget_progress(&self) -> Result<(), Error> {
        let mut batch = self.database.batch().durability(Some(PersistMode::SyncData));
        for keyspace in [&self.positions, &self.sinks, &self.journals] {
            for entry in keyspace.iter() {
                batch.remove(keyspace, entry.key().map_err(|error| self.faults.reading(error))?);
            }
        }
        self.commit(batch)?;
        // Last: a state without the files that it names counts as damaged.
        self.outputs.clear()
    }

    /// Adds dead letters and syncs them to the disk, all or none. If they exceed the limits, it drops the
    /// oldest ones or adds none, as the limits say.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn add_letters<'l>(
        &self,
        letters: impl IntoIterator<Item = &'l DeadLetter>,
        limits: &DeadLetterLimits,
    ) -> Result<Added, Error> {
        self.letters.add(letters, limits)
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

    /// As [`last_letter`](Self::last_letter), of the letters of a source since the store was opened.
    pub(crate) fn last_letter_of(&self, source: &str) -> Option<DeadLetterId> {
        self.letters.last_of(source)
    }

    /// Removes dead letters, and returns how many of them there were.
    ///
    /// # Errors
    /// If the store cannot be written.
    pub fn remove_letters(&self, ids: &[DeadLetterId]) -> Result<u64, Error> {
        Failpoint::LettersRemoveBefore.pass();
        let removed = self.letters.remove(ids)?;
        Failpoint::LettersRemoveAfter.pass();
        Ok(removed)
    }

    /// Returns the entries whose keys start with both prefixes. Their names keep only the second one.
    fn below(
        &self,
        keyspace: &Keyspace,
        owner: &str,
        prefix: &str,
    ) -> impl Iterator<Item = Result<(String, Value), Error>> + use<> {
        let (start, faults) = (owner.len(), self.faults.clone());
        keyspace.prefix(format!("{owner}{prefix}")).map(move |entry| {
            let (key, value) = entry.into_inner().map_err(|error| faults.reading(error))?;
            let name = String::from_utf8_lossy(key.get(start..).unwrap_or_default()).into_owned();
            let value = serde_json::from_slice(&value).map_err(|error| faults.parsing(error))?;
            Ok((name, value))
        })
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // The inventory of the closed store says that the journals are as they are now.
        if let Err(error) = self.database.persist(PersistMode::SyncAll) {
            tracing::debug!("{}", self.faults.writing(error));
        }
    }
}

/// Removes the leftovers of a store whose creation was interrupted: it could never be opened. A store is
/// complete when its version file is written. Before that it has no records.
fn clear_unfinished(folder: &Path) -> io::Result<()> {
    let version = folder.join(inventory::VERSION);
    if fs::metadata(&version).is_ok_and(|version| version.len() > 0) {
        // The database opens its lock without creating it.
        open_regular_with(private_file().create(true).append(true), &folder.join(LOCK))?;
        return Ok(());
    }
    if inventory::has_records(folder)? {
        return Ok(());
    }
    for name in [inventory::VERSION, FIRST_JOURNAL, LOCK] {
        match fs::remove_file(folder.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Returns the options of every keyspace of the store. A memtable keeps every version of a position until it
/// is flushed: a service that saves a hundred times a second fills it within minutes, beside the budget.
fn options() -> KeyspaceCreateOptions {
    KeyspaceCreateOptions::default().max_memtable_size(1 << 20)
}

/// The options of keyspaces whose keys are names. While the database writes a table, it keeps the last key of
/// each block, and with a key of more than 20 bytes its whole block: small tables bound that memory.
fn of_names() -> KeyspaceCreateOptions {
    options().compaction_strategy(Arc::new(Leveled::default().with_table_target_size(4 << 20)))
}

/// The options of the keyspace whose memtables [`Unflushed`] bounds.
fn of_journals() -> KeyspaceCreateOptions {
    of_names().max_memtable_size(unflushed::KEYSPACE_LIMIT)
}

#[cfg(test)]
mod damage;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
        store.save(&[position("a", Some(json!(1))), position("b", Some(json!(2)))], &[], &[]).unwrap();
        store.save(&[position("a", None)], &[("out".into(), json!({"length": 5}))], &[]).unwrap();
        drop(store);
        let store = Store::open(folder.path()).unwrap();
        assert_eq!(store.positions("in").unwrap(), BTreeMap::from([("b".to_owned(), json!(2))]));
        assert_eq!(store.positions("i").unwrap(), BTreeMap::new());
        assert_eq!(store.sink_state("out").unwrap(), Some(json!({"length": 5})));
    }

    #[test]
    fn the_letters_of_a_replay_stay_although_the_run_before_was_killed() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let (source, replay): (Arc<str>, Arc<str>) = ("in".into(), "letters.main".into());
        let add = || store.add_letters(&[letter(b"text")], &DeadLetterLimits::default()).unwrap();
        store.cover_letters(std::iter::once(&source)).unwrap();
        add();
        assert_eq!(store.uncovered_letters().unwrap().len(), 1);
        store.cover_letters(std::iter::once(&replay)).unwrap();
        add();
        assert!(store.uncovered_letters().unwrap().is_empty());
    }

    #[test]
    fn a_source_that_begins_beside_others_leaves_their_letters_to_them() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let (source, other): (Arc<str>, Arc<str>) = ("in".into(), "other".into());
        let add = || store.add_letters(&[letter(b"text")], &DeadLetterLimits::default()).unwrap();
        store.cover_letters(std::iter::once(&source)).unwrap();
        add();
        store.cover_letters_beside(std::iter::once(&other)).unwrap();
        let found = |name: &str| store.uncovered_letters_of(|source| source == name).unwrap().len();
        assert_eq!((found("in"), found("other")), (1, 0));
        assert_eq!(store.uncovered_letters().unwrap().len(), 1);
    }

    #[test]
    fn progress_is_forgotten_and_letters_stay() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        store.save(&[("in".into(), "a".into(), Some(json!(1)))], &[("out".into(), json!(2))], &[]).unwrap();
        store.note("out", "begun", Some(&json!(3))).unwrap();
        store.outputs().open("out", "file", 0).unwrap().append(b"text").unwrap();
        store.add_letters(&[letter(b"text")], &DeadLetterLimits::default()).unwrap();
        store.forget_progress().unwrap();
        assert_eq!(store.outputs().count("out").unwrap(), 0);
        assert!(store.positions("in").unwrap().is_empty() && store.sink_state("out").unwrap().is_none());
        assert!(store.journal("out", "").next().is_none());
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
            store.save(&[], &[("out".into(), json!(1))], &[]).unwrap();
            drop(store);
            assert_eq!(Store::open(folder.path()).unwrap().sink_state("out").unwrap(), Some(json!(1)));
        }
    }

    #[test]
    fn the_database_is_not_asked_for_a_flush_with_each_short_note() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let note = |number: u32| store.note("out", &format!("a/{number:05}"), Some(&json!(1))).unwrap();
        // More than the usual limit of a keyspace, and less than that of `Unflushed`.
        (0..20_000).for_each(note);
        assert_eq!((store.journals.sealed_memtable_count(), store.journals.disk_space()), (0, 0));
        (20_000..40_000).for_each(note);
        assert!(store.journals.sealed_memtable_count() > 0 || store.journals.disk_space() > 0);
    }

    #[test]
    fn entries_that_are_written_together_count_one_by_one() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let entries: Vec<(String, Option<Value>)> =
            (0..1000).map(|number| (format!("a/{number:05}"), Some(json!(1)))).collect();
        // With what the memtable has beside keys and values, more than the limit of `Unflushed`.
        (0..40).for_each(|_| store.note_durably("out", &entries).unwrap());
        assert!(store.journals.sealed_memtable_count() > 0 || store.journals.disk_space() > 0);
    }

    #[test]
    fn a_second_run_on_the_same_state_is_told_so() {
        let folder = tempfile::tempdir().unwrap();
        let _store = Store::open(folder.path()).unwrap();
        let error = Store::open(folder.path()).err().unwrap().full();
        assert!(error.contains("another run is using it"), "{error}");
    }
}
