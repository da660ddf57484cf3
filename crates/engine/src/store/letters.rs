//! The dead letters of a store, and the limits of their number and size.
//!
//! The letters are stored in *portions*, each a keyspace of its own, in the order of their numbers. If there
//! are too many, the oldest portion is dropped as a whole, with its files. Removing the oldest letters one by
//! one was tried. An LSM tree keeps removed entries until it has merged all levels above them. With letters
//! arriving as fast as others were dropped, the tree took twice its limit on disk, and hundreds of megabytes
//! of memory.
//!
//! See docs/decisions/022-dead-letters-lie-in-portions.md.

use fjall::{Database, Keyspace, PersistMode};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::{DeadLetter, DeadLetterId, options, unreadable, unwritable};
use crate::{DeadLetterLimits, Error};

/// The name of the first portion, and the prefix of the names of the others.
const NAME: &str = "dead_letters";
/// The key of the saved counts.
const KEY: &str = "dead_letters";
/// A portion has 1/16 of the limits, but at least [`LEAST`].
const PARTS: u64 = 16;
/// The lower bound of the limits of a portion.
const LEAST: DeadLetterLimits =
    DeadLetterLimits { max_bytes: thalweg_config::ByteSize::kib(256), max_count: 1024 };

/// The counts of the dead letters of a store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeadLetterCounts {
    /// The number of kept letters.
    pub count: u64,
    /// Their size in bytes.
    pub bytes: u64,
    /// The number of letters that were dropped because the limits were exceeded.
    pub dropped: u64,
}

pub(super) struct Letters {
    database: Database,
    tallies: Keyspace,
    known: Mutex<Known>,
}

#[derive(Clone)]
struct Known {
    dropped: u64,
    /// The number of the next letter. Numbers are never reused.
    next: DeadLetterId,
    portions: Vec<Portion>,
}

#[derive(Clone)]
struct Portion {
    tally: PortionTally,
    keyspace: Keyspace,
}

/// The saved part of a portion.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct PortionTally {
    /// No letter in this portion or a later one has a lower number.
    first: DeadLetterId,
    count: u64,
    bytes: u64,
}

/// The saved counts of all portions.
#[derive(Serialize, Deserialize)]
struct Saved {
    dropped: u64,
    next: DeadLetterId,
    portions: Vec<PortionTally>,
}

impl Known {
    fn count(&self) -> u64 {
        self.portions.iter().map(|portion| portion.tally.count).sum()
    }

    fn bytes(&self) -> u64 {
        self.portions.iter().map(|portion| portion.tally.bytes).sum()
    }

    fn text(&self) -> Result<String, Error> {
        let portions = self.portions.iter().map(|portion| portion.tally).collect();
        let saved = Saved { dropped: self.dropped, next: self.next, portions };
        serde_json::to_string(&saved)
            .map_err(|error| Error::permanent("the state cannot be written").caused_by(error))
    }

    /// Removes and returns the empty portions.
    fn part_with_empty(&mut self) -> Vec<Portion> {
        let (empty, full) =
            std::mem::take(&mut self.portions).into_iter().partition(|portion| portion.tally.count == 0);
        self.portions = full;
        empty
    }
}

fn name_of(first: DeadLetterId) -> String {
    if first == 0 { NAME.to_owned() } else { format!("{NAME}.{first:020}") }
}

/// Returns the size of a letter with `text` bytes, with its number.
fn size_of_letter(text: usize) -> u64 {
    text as u64 + 8
}

fn letter_id(key: &[u8]) -> DeadLetterId {
    key.try_into().map_or(0, u64::from_be_bytes)
}

impl Letters {
    /// Opens the existing letters.
    pub(super) fn open(database: &Database, tallies: Keyspace) -> Result<Self, Error> {
        let keyspace = |first| database.keyspace(&name_of(first), options).map_err(unreadable);
        let known = match tallies.get(KEY).map_err(unreadable)? {
            Some(text) => {
                let saved: Saved = serde_json::from_slice(&text)
                    .map_err(|error| Error::permanent("the state cannot be understood").caused_by(error))?;
                let portions = saved.portions.into_iter();
                let portions = portions.map(|tally| Ok(Portion { tally, keyspace: keyspace(tally.first)? }));
                let portions = portions.collect::<Result<_, Error>>()?;
                Known { dropped: saved.dropped, next: saved.next, portions }
            }
            None => Known { dropped: 0, next: 1, portions: Vec::new() },
        };
        // A portion that was being deleted or created when the process was killed.
        for name in database.list_keyspace_names() {
            let is_one = name.strip_prefix(NAME).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
            if is_one && !known.portions.iter().any(|portion| name_of(portion.tally.first) == *name) {
                let stray = database.keyspace(&name, options).map_err(unreadable)?;
                database.delete_keyspace(stray).map_err(unwritable)?;
            }
        }
        Ok(Self { database: database.clone(), tallies, known: Mutex::new(known) })
    }

    pub(super) fn tally(&self) -> DeadLetterCounts {
        let known = self.known.lock();
        DeadLetterCounts { count: known.count(), bytes: known.bytes(), dropped: known.dropped }
    }

    pub(super) fn forget_dropped(&self) -> Result<(), Error> {
        let mut known = self.known.lock();
        let new = Known { dropped: 0, ..known.clone() };
        self.tallies.insert(KEY, new.text()?).map_err(unwritable)?;
        *known = new;
        Ok(())
    }

    /// Returns the highest number that a letter may have, or None if there are none.
    pub(super) fn last(&self) -> Option<DeadLetterId> {
        let known = self.known.lock();
        (known.count() > 0).then(|| known.next - 1)
    }

    pub(super) fn after(
        &self,
        id: DeadLetterId,
    ) -> impl Iterator<Item = Result<(DeadLetterId, DeadLetter), Error>> + use<> {
        let keyspaces: Vec<Keyspace> =
            self.known.lock().portions.iter().map(|portion| portion.keyspace.clone()).collect();
        let from = id.saturating_add(1).to_be_bytes();
        keyspaces.into_iter().flat_map(move |keyspace| keyspace.range(from..)).map(|entry| {
            let (key, value) = entry.into_inner().map_err(unreadable)?;
            let letter = serde_json::from_slice(&value)
                .map_err(|error| Error::permanent("a dead letter cannot be understood").caused_by(error))?;
            Ok((letter_id(&key), letter))
        })
    }

    pub(super) fn add(&self, letters: &[DeadLetter], bounds: &DeadLetterLimits) -> Result<u64, Error> {
        let mut known = self.known.lock();
        let mut new = known.clone();
        let fits = |count: u64, bytes: u64| count <= bounds.max_count && bytes <= bounds.max_bytes.bytes();
        let (mut texts, mut coming) = (Vec::with_capacity(letters.len()), 0);
        let mut dropped = 0;
        for letter in letters {
            let text = serde_json::to_string(letter)
                .map_err(|error| Error::permanent("a dead letter cannot be written").caused_by(error))?;
            // A letter that exceeds the limits by itself is dropped. It must not drive out all the others.
            if fits(1, size_of_letter(text.len())) {
                coming += size_of_letter(text.len());
                texts.push((new.next, text));
            } else {
                dropped += 1;
            }
            new.next += 1;
        }
        // If the new letters exceed the limits by themselves, only the last ones are written.
        let mut skipped = 0;
        while let Some((_, text)) =
            texts.get(skipped).filter(|_| !fits((texts.len() - skipped) as u64, coming))
        {
            coming -= size_of_letter(text.len());
            skipped += 1;
        }
        let texts = texts.get(skipped..).unwrap_or_default();
        dropped += skipped as u64;
        let mut batch = self.database.batch().durability(Some(PersistMode::SyncData));
        let mut gone = Vec::new();
        while (skipped > 0 && new.count() > 0)
            || !fits(new.count() + texts.len() as u64, new.bytes() + coming)
        {
            if new.portions.len() > 1 || skipped > 0 {
                if new.portions.is_empty() {
                    break;
                }
                let oldest = new.portions.remove(0);
                dropped += oldest.tally.count;
                gone.push(oldest);
                continue;
            }
            let Some(oldest) = new.portions.first_mut() else { break };
            // The rest is less than a portion.
            for entry in oldest.keyspace.iter() {
                let tally = &mut oldest.tally;
                if fits(tally.count + texts.len() as u64, tally.bytes + coming) {
                    break;
                }
                let (key, value) = entry.into_inner().map_err(unreadable)?;
                tally.count = tally.count.saturating_sub(1);
                tally.bytes = tally.bytes.saturating_sub(size_of_letter(value.len()));
                dropped += 1;
                batch.remove(&oldest.keyspace, key);
            }
            break;
        }
        if let Some((first, _)) = texts.first() {
            let share = |bound: u64, least: u64| (bound / PARTS).max(least);
            let most_bytes = share(bounds.max_bytes.bytes(), LEAST.max_bytes.bytes());
            let most = share(bounds.max_count, LEAST.max_count);
            let is_full =
                |portion: &Portion| portion.tally.count >= most || portion.tally.bytes >= most_bytes;
            if new.portions.last().is_none_or(is_full) {
                if let Some(full) = new.portions.last() {
                    // A full portion gets no more letters. Its memtable is flushed so that the journal need
                    // not keep the letters.
                    full.keyspace.rotate_memtable().map_err(unwritable)?;
                }
                let keyspace = self.database.keyspace(&name_of(*first), options).map_err(unwritable)?;
                new.portions
                    .push(Portion { tally: PortionTally { first: *first, count: 0, bytes: 0 }, keyspace });
            }
        }
        if let Some(portion) = new.portions.last_mut() {
            portion.tally.count += texts.len() as u64;
            portion.tally.bytes += coming;
            for (id, text) in texts {
                batch.insert(&portion.keyspace, id.to_be_bytes(), text.as_str());
            }
        }
        new.dropped += dropped;
        gone.extend(new.part_with_empty());
        batch.insert(&self.tallies, KEY, new.text()?);
        batch.commit().map_err(unwritable)?;
        *known = new;
        self.delete(gone)?;
        Ok(dropped)
    }

    pub(super) fn remove(&self, ids: &[DeadLetterId]) -> Result<(), Error> {
        let mut known = self.known.lock();
        let mut new = known.clone();
        let mut batch = self.database.batch().durability(Some(PersistMode::SyncData));
        for id in ids {
            let at = new.portions.partition_point(|portion| portion.tally.first <= *id);
            let Some(portion) = at.checked_sub(1).and_then(|at| new.portions.get_mut(at)) else { continue };
            let key = id.to_be_bytes();
            // A letter that was dropped meanwhile is not counted again.
            let Some(size) = portion.keyspace.size_of(key).map_err(unreadable)? else { continue };
            portion.tally.count = portion.tally.count.saturating_sub(1);
            portion.tally.bytes = portion.tally.bytes.saturating_sub(size_of_letter(size as usize));
            batch.remove(&portion.keyspace, key);
        }
        let gone = new.part_with_empty();
        batch.insert(&self.tallies, KEY, new.text()?);
        batch.commit().map_err(unwritable)?;
        *known = new;
        self.delete(gone)
    }

    fn delete(&self, portions: Vec<Portion>) -> Result<(), Error> {
        portions
            .into_iter()
            .try_for_each(|portion| self.database.delete_keyspace(portion.keyspace))
            .map_err(unwritable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::super::Store;
    use super::super::tests::letter;

    /// A plain list of the same letters. Unlike the store, it drops no more than necessary.
    #[derive(Default)]
    struct Model {
        kept: VecDeque<(DeadLetterId, u64)>,
        next: DeadLetterId,
        dropped: u64,
    }

    impl Model {
        fn count(&self) -> u64 {
            self.kept.len() as u64
        }

        fn bytes(&self) -> u64 {
            self.kept.iter().map(|kept| kept.1).sum()
        }

        fn add(&mut self, letters: &[DeadLetter], bounds: &DeadLetterLimits) {
            for letter in letters {
                self.next += 1;
                let size = size_of_letter(serde_json::to_string(letter).unwrap().len());
                match size <= bounds.max_bytes.bytes() && bounds.max_count > 0 {
                    true => self.kept.push_back((self.next, size)),
                    false => self.dropped += 1,
                }
            }
            while self.count() > bounds.max_count || self.bytes() > bounds.max_bytes.bytes() {
                self.kept.pop_front();
                self.dropped += 1;
            }
        }
    }

    fn found(store: &Store) -> Vec<DeadLetterId> {
        store.letters().map(|found| found.unwrap().0).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(6))]
        #[test]
        fn the_oldest_letters_go_when_there_are_too_many(
            max_count in 0..12u64,
            max_bytes in 0..3000u64,
            steps in prop::collection::vec((0..9usize, 0..400usize, 0..5u8), 1..30),
        ) {
            let folder = tempfile::tempdir().unwrap();
            let mut store = Store::open(folder.path()).unwrap();
            let bounds = DeadLetterLimits { max_count, max_bytes: max_bytes.into() };
            let mut model = Model::default();
            for (count, length, then) in steps {
                let letters: Vec<_> = (0..count).map(|n| letter(&vec![b'x'; length * n])).collect();
                let before = model.dropped;
                model.add(&letters, &bounds);
                prop_assert_eq!(store.add_letters(&letters, &bounds).unwrap(), model.dropped - before);
                match then {
                    0 => {
                        drop(store);
                        store = Store::open(folder.path()).unwrap();
                    }
                    1 => {
                        let at = model.kept.len() / 2;
                        let ids: Vec<_> = model.kept.remove(at).map(|kept| kept.0).into_iter().collect();
                        // Letters that are already removed are not counted twice.
                        store.remove_letters(&ids).unwrap();
                        store.remove_letters(&ids).unwrap();
                    }
                    2 => {
                        let ids: Vec<_> = model.kept.drain(..).map(|kept| kept.0).collect();
                        store.remove_letters(&ids).unwrap();
                    }
                    _ => {}
                }
                prop_assert_eq!(found(&store), model.kept.iter().map(|kept| kept.0).collect::<Vec<_>>());
                let expected =
                    DeadLetterCounts { count: model.count(), bytes: model.bytes(), dropped: model.dropped };
                prop_assert_eq!(store.tally(), expected);
            }
            store.forget_dropped().unwrap();
            prop_assert_eq!(store.tally().dropped, 0);
        }
    }

    #[test]
    fn whole_portions_go_and_what_is_kept_are_the_last_letters() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Store::open(folder.path()).unwrap();
        let bounds = DeadLetterLimits { max_count: 5000, max_bytes: thalweg_config::ByteSize::mib(64) };
        let mut last = 0;
        for round in 0..40_u64 {
            let letters: Vec<_> = (0..300 + 10 * round).map(|_| letter(b"text")).collect();
            store.add_letters(&letters, &bounds).unwrap();
            last += letters.len() as u64;
            if round % 7 == 0 {
                drop(store);
                store = Store::open(folder.path()).unwrap();
            }
            let kept = found(&store);
            assert!(kept.len() <= 5000 && kept.len() as u64 >= last.min(3000), "{}", kept.len());
            assert_eq!(kept, (last - kept.len() as u64 + 1..=last).collect::<Vec<_>>());
            assert_eq!(store.tally().dropped, last - kept.len() as u64);
            assert_eq!(
                store.letter(last).unwrap().map(|letter| letter.payload_bytes()),
                Some(b"text".to_vec())
            );
        }
        // Letters that are removed from several portions at once are removed from each.
        let kept = found(&store);
        let (odd, even): (Vec<_>, Vec<_>) = kept.into_iter().partition(|id| id % 2 == 1);
        store.remove_letters(&odd).unwrap();
        assert_eq!(found(&store), even);
        store.remove_letters(&even).unwrap();
        assert_eq!((found(&store), store.last_letter()), (vec![], None));
    }
}
