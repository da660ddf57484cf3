//! What outlives a run: positions of sources, states of sinks, and what could not be processed.
//!
//! One embedded store in one folder holds all three, so that positions and sink states are saved in one
//! atomic write: a restart finds both as of one moment.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::kept::KeptField;
use crate::{Error, LetterBounds};

/// The store of one state folder. One process at a time may have it open.
pub struct Store {
    database: Database,
    positions: Keyspace,
    sinks: Keyspace,
    letters: Keyspace,
    tallies: Keyspace,
    /// Known once it was needed.
    tally: Mutex<Option<LetterTally>>,
}

/// What is known of the dead letters of a store as a whole.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LetterTally {
    /// How many there are.
    pub count: u64,
    /// The bytes that they take.
    pub bytes: u64,
    /// How many were dropped since there were too many.
    pub dropped: u64,
    /// No letter has a lower number. To look for the oldest from here on passes over what was removed before
    /// it, of which the store may still know.
    #[serde(default)]
    first: LetterId,
}

/// What could not be processed, with all that is needed to look into it and to try again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeadLetter {
    /// When it was rejected, in microseconds since 1970 (UTC).
    pub time_us: i64,
    /// The component that rejected it.
    pub component: String,
    /// The transforms of its pipeline that it had been through before that, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub passed: Vec<String>,
    /// Why.
    pub reason: String,
    /// The source that it came from.
    pub source: String,
    /// The file or address it came from, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Where in that it began, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
    /// Its payload when it came to the component that rejected it, where that is text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<String>,
    /// Its payload in hexadecimal digits, where it is not text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_hex: Option<String>,
    /// The fields that it had, when it came to the component that rejected it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<KeptField>,
}

impl DeadLetter {
    /// Its payload.
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

    /// About how many bytes it takes in memory.
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

/// The number of a dead letter, as people name it.
pub type LetterId = u64;

impl Store {
    /// Opens the store in a folder, which is made if need be.
    ///
    /// # Errors
    /// If the folder cannot be used, or another process uses it.
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
        // Small: positions are a few kilobytes, and the run's memory belongs to its budget.
        let database = Database::builder(folder)
            .cache_size(1 << 20)
            .worker_threads(1)
            .max_journaling_size(64 << 20)
            .open()
            .map_err(failed)?;
        let keyspace = |name| {
            database
                .keyspace(name, || KeyspaceCreateOptions::default().max_memtable_size(4 << 20))
                .map_err(failed)
        };
        let (positions, sinks, letters) =
            (keyspace("positions")?, keyspace("sinks")?, keyspace("dead_letters")?);
        let tallies = keyspace("tallies")?;
        Ok(Self { database, positions, sinks, letters, tallies, tally: Mutex::default() })
    }

    /// The positions of a source, by lane.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn positions(&self, source: &str) -> Result<BTreeMap<String, Value>, Error> {
        let prefix = format!("{source}\0");
        let mut found = BTreeMap::new();
        for entry in self.positions.prefix(&prefix) {
            let (key, value) = entry.into_inner().map_err(unreadable)?;
            let lane = String::from_utf8_lossy(key.get(prefix.len()..).unwrap_or_default()).into_owned();
            found.insert(lane, parse(&value)?);
        }
        Ok(found)
    }

    /// The state of a sink.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn sink_state(&self, sink: &str) -> Result<Option<Value>, Error> {
        let found = self.sinks.get(sink).map_err(unreadable)?;
        found.map(|value| parse(&value)).transpose()
    }

    /// Saves positions (by source and lane; none: forgotten) and states of sinks, all or nothing, and brings them to
    /// the disk.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn save(
        &self,
        positions: &[(Arc<str>, Arc<str>, Option<Value>)],
        sinks: &[(Arc<str>, Value)],
    ) -> Result<(), Error> {
        let mut batch = self.database.batch().durability(Some(PersistMode::SyncData));
        for (source, lane, position) in positions {
            let key = format!("{source}\0{lane}");
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

    /// Adds dead letters, and brings them to the disk. Where there are then too many, the oldest go: says how many.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn add_letters(&self, letters: &[DeadLetter], bounds: &LetterBounds) -> Result<u64, Error> {
        let mut known = self.known_tally()?;
        let mut tally = known.unwrap_or_default();
        let last = self.last_letter()?.unwrap_or(0);
        let fits = |count: u64, bytes: u64| count <= bounds.max_count && bytes <= bounds.max_bytes.bytes();
        let mut texts = Vec::with_capacity(letters.len());
        let (mut coming, mut dropped) = (0, 0);
        for (id, letter) in (last + 1..).zip(letters) {
            let text = serde_json::to_string(letter)
                .map_err(|error| Error::permanent("a dead letter cannot be written").caused_by(error))?;
            let size = stored_size(text.len());
            // One that is too large for the store by itself is not to drive out all the others.
            if fits(1, size) {
                coming += size;
                texts.push((id, text));
            } else {
                dropped += 1;
            }
        }
        // Of letters that are too many by themselves only the last are written at all.
        let mut skipped = 0;
        while let Some((_, text)) =
            texts.get(skipped).filter(|_| !fits((texts.len() - skipped) as u64, coming))
        {
            coming -= stored_size(text.len());
            skipped += 1;
        }
        let count = (texts.len() - skipped) as u64;
        dropped += skipped as u64;
        let mut batch = self.database.batch().durability(Some(PersistMode::SyncData));
        if skipped > 0 || !fits(tally.count + count, tally.bytes + coming) {
            for entry in self.letters.range(tally.first.to_be_bytes()..) {
                if skipped == 0 && fits(tally.count + count, tally.bytes + coming) {
                    break;
                }
                let (key, value) = entry.into_inner().map_err(unreadable)?;
                tally.first = letter_id(&key).saturating_add(1);
                tally.count = tally.count.saturating_sub(1);
                tally.bytes = tally.bytes.saturating_sub(stored_size(value.len()));
                dropped += 1;
                batch.remove(&self.letters, key);
            }
        }
        for (id, text) in texts.into_iter().skip(skipped) {
            batch.insert(&self.letters, id.to_be_bytes(), text);
        }
        tally.count += count;
        tally.bytes += coming;
        tally.dropped += dropped;
        batch.insert(&self.tallies, LETTERS, to_text(&tally)?);
        batch.commit().map_err(unwritable)?;
        *known = Some(tally);
        Ok(dropped)
    }

    /// How many dead letters there are, and how many were dropped.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn tally(&self) -> Result<LetterTally, Error> {
        Ok(self.known_tally()?.unwrap_or_default())
    }

    /// Forgets that dead letters were dropped.
    ///
    /// # Errors
    /// If the store cannot be written.
    pub fn forget_dropped(&self) -> Result<(), Error> {
        let mut known = self.known_tally()?;
        let tally = LetterTally { dropped: 0, ..known.unwrap_or_default() };
        self.tallies.insert(LETTERS, to_text(&tally)?).map_err(unwritable)?;
        *known = Some(tally);
        Ok(())
    }

    fn known_tally(&self) -> Result<MutexGuard<'_, Option<LetterTally>>, Error> {
        let mut known = self.tally.lock();
        if known.is_none() {
            *known = Some(match self.tallies.get(LETTERS).map_err(unreadable)? {
                Some(text) => serde_json::from_slice(&text)
                    .map_err(|error| Error::permanent("the state cannot be understood").caused_by(error))?,
                None => self.count_letters()?,
            });
        }
        Ok(known)
    }

    /// Looks at all of them, since a version that did not keep a tally wrote them.
    fn count_letters(&self) -> Result<LetterTally, Error> {
        let mut tally = LetterTally::default();
        for entry in self.letters.iter() {
            let (_, value) = entry.into_inner().map_err(unreadable)?;
            tally.count += 1;
            tally.bytes += stored_size(value.len());
        }
        Ok(tally)
    }

    /// The dead letters, oldest first.
    pub fn letters(&self) -> impl Iterator<Item = Result<(LetterId, DeadLetter), Error>> + use<> {
        self.letters_after(0)
    }

    /// The dead letters with higher numbers than this, oldest first.
    pub fn letters_after(
        &self,
        id: LetterId,
    ) -> impl Iterator<Item = Result<(LetterId, DeadLetter), Error>> + use<> {
        self.letters.range(id.saturating_add(1).to_be_bytes()..).map(|entry| {
            let (key, value) = entry.into_inner().map_err(unreadable)?;
            let letter = serde_json::from_slice(&value)
                .map_err(|error| Error::permanent("a dead letter cannot be understood").caused_by(error))?;
            Ok((letter_id(&key), letter))
        })
    }

    /// The dead letter of this number.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn letter(&self, id: LetterId) -> Result<Option<DeadLetter>, Error> {
        let found = self.letters_after(id.saturating_sub(1)).next().transpose()?;
        Ok(found.filter(|(number, _)| *number == id).map(|(_, letter)| letter))
    }

    /// The highest number of a dead letter.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn last_letter(&self) -> Result<Option<LetterId>, Error> {
        let last = self.letters.last_key_value().map(|entry| entry.key()).transpose().map_err(unreadable)?;
        Ok(last.map(|key| letter_id(&key)))
    }

    /// Removes dead letters.
    ///
    /// # Errors
    /// If the store cannot be written.
    pub fn remove_letters(&self, ids: &[LetterId]) -> Result<(), Error> {
        let mut known = self.known_tally()?;
        let mut tally = known.unwrap_or_default();
        let mut batch = self.database.batch().durability(Some(PersistMode::SyncData));
        for id in ids {
            // One that was dropped meanwhile is not counted any more.
            let Some(size) = self.letters.size_of(id.to_be_bytes()).map_err(unreadable)? else { continue };
            tally.count = tally.count.saturating_sub(1);
            tally.bytes = tally.bytes.saturating_sub(stored_size(size as usize));
            batch.remove(&self.letters, id.to_be_bytes());
        }
        // Numbers begin anew when there is none left.
        tally.first = if tally.count == 0 { 0 } else { tally.first };
        batch.insert(&self.tallies, LETTERS, to_text(&tally)?);
        batch.commit().map_err(unwritable)?;
        *known = Some(tally);
        Ok(())
    }
}

/// The key of their tally.
const LETTERS: &str = "dead_letters";

/// What a letter of so many bytes takes, with its number.
fn stored_size(text: usize) -> u64 {
    text as u64 + 8
}

fn to_text(tally: &LetterTally) -> Result<String, Error> {
    serde_json::to_string(tally)
        .map_err(|error| Error::permanent("the state cannot be written").caused_by(error))
}

fn letter_id(key: &[u8]) -> LetterId {
    key.try_into().map_or(0, u64::from_be_bytes)
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
    use std::collections::VecDeque;

    use proptest::prelude::*;
    use serde_json::json;

    fn letter(payload: &[u8]) -> DeadLetter {
        let mut letter = DeadLetter {
            time_us: 1,
            component: "main.parse_json".into(),
            passed: vec!["main.filter".into()],
            reason: "is not JSON".into(),
            source: "in".into(),
            path: None,
            position: Some(7),
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
        let position = |lane: &str, value| ("in".into(), Arc::from(lane), value);
        store.save(&[position("a", Some(json!(1))), position("b", Some(json!(2)))], &[]).unwrap();
        store.save(&[position("a", None)], &[("out".into(), json!({"length": 5}))]).unwrap();
        drop(store);
        let store = Store::open(folder.path()).unwrap();
        assert_eq!(store.positions("in").unwrap(), BTreeMap::from([("b".to_owned(), json!(2))]));
        assert_eq!(store.positions("i").unwrap(), BTreeMap::new());
        assert_eq!(store.sink_state("out").unwrap(), Some(json!({"length": 5})));
    }

    #[test]
    fn letters_keep_bytes_that_are_not_text() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let bounds = LetterBounds::default();
        store.add_letters(&[letter(b"text"), letter(b"\xff\x00")], &bounds).unwrap();
        store.add_letters(&[letter(b"")], &bounds).unwrap();
        let found: Vec<_> = store.letters().collect::<Result<_, _>>().unwrap();
        assert_eq!(found.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(found[1].1.payload_bytes(), b"\xff\x00");
        store.remove_letters(&[1, 3]).unwrap();
        assert_eq!(store.letters().count(), 1);
    }

    #[test]
    fn a_second_run_on_the_same_state_is_told_so() {
        let folder = tempfile::tempdir().unwrap();
        let _store = Store::open(folder.path()).unwrap();
        let error = Store::open(folder.path()).err().unwrap().full();
        assert!(error.contains("another run is using it"), "{error}");
    }

    /// What a simple list does with the same letters.
    #[derive(Default)]
    struct Model {
        kept: VecDeque<(LetterId, u64)>,
        dropped: u64,
    }

    impl Model {
        fn add(&mut self, last: LetterId, letters: &[DeadLetter], bounds: &LetterBounds) {
            for (number, letter) in letters.iter().enumerate() {
                let size = stored_size(serde_json::to_string(letter).unwrap().len());
                match size <= bounds.max_bytes.bytes() && bounds.max_count > 0 {
                    true => self.kept.push_back((last + 1 + number as u64, size)),
                    false => self.dropped += 1,
                }
            }
            while self.kept.len() as u64 > bounds.max_count
                || self.kept.iter().map(|kept| kept.1).sum::<u64>() > bounds.max_bytes.bytes()
            {
                self.kept.pop_front();
                self.dropped += 1;
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn the_oldest_letters_go_when_there_are_too_many(
            max_count in 0..12u64,
            max_bytes in 0..3000u64,
            steps in prop::collection::vec((0..9usize, 0..400usize, 0..5u8), 1..30),
        ) {
            let folder = tempfile::tempdir().unwrap();
            let mut store = Store::open(folder.path()).unwrap();
            let bounds = LetterBounds { max_count, max_bytes: max_bytes.into() };
            let mut model = Model::default();
            for (count, length, then) in steps {
                let letters: Vec<_> = (0..count).map(|n| letter(&vec![b'x'; length * n])).collect();
                let before = model.dropped;
                model.add(store.last_letter().unwrap().unwrap_or(0), &letters, &bounds);
                prop_assert_eq!(store.add_letters(&letters, &bounds).unwrap(), model.dropped - before);
                match then {
                    0 => {
                        drop(store);
                        store = Store::open(folder.path()).unwrap();
                    }
                    1 => {
                        let at = model.kept.len() / 2;
                        let ids: Vec<_> = model.kept.remove(at).map(|kept| kept.0).into_iter().collect();
                        // What is not there any more is not counted twice.
                        store.remove_letters(&ids).unwrap();
                        store.remove_letters(&ids).unwrap();
                    }
                    2 => {
                        let ids: Vec<_> = model.kept.drain(..).map(|kept| kept.0).collect();
                        store.remove_letters(&ids).unwrap();
                    }
                    _ => {}
                }
                let found: Vec<_> = store.letters().map(|found| found.unwrap().0).collect();
                prop_assert_eq!(&found, &model.kept.iter().map(|kept| kept.0).collect::<Vec<_>>());
                let tally = store.tally().unwrap();
                let bytes: u64 = model.kept.iter().map(|kept| kept.1).sum();
                prop_assert_eq!((tally.count, tally.bytes, tally.dropped), (found.len() as u64, bytes, model.dropped));
            }
            store.forget_dropped().unwrap();
            prop_assert_eq!(store.tally().unwrap().dropped, 0);
        }
    }

    #[test]
    fn letters_of_a_version_without_a_tally_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        store.add_letters(&[letter(b"one"), letter(b"two")], &LetterBounds::default()).unwrap();
        let tally = store.tally().unwrap();
        store.tallies.remove(LETTERS).unwrap();
        drop(store);
        assert_eq!(Store::open(folder.path()).unwrap().tally().unwrap(), tally);
    }
}
