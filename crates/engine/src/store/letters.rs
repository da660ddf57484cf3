//! The dead letters of a store, and the limits of their number and size.
//!
//! The letters are stored in *portions*, each a keyspace of its own, in the order of their numbers. If there
//! are too many, the oldest portion is dropped as a whole, with its files. Removing the oldest letters one by
//! one was tried. An LSM tree keeps removed entries until it has merged all levels above them. With letters
//! arriving as fast as others were dropped, the tree took twice its limit on disk, and hundreds of megabytes
//! of memory.
//!
//! See docs/decisions/022-dead-letters-lie-in-portions.md.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use fjall::{Database, Keyspace, OwnedWriteBatch, PersistMode};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::faults::Faults;
use super::inventory::Inventory;
use super::unflushed::Unflushed;
use super::{DeadLetter, DeadLetterId, options};
use crate::{DeadLetterLimits, Error, WhenFull};

/// The name of the first portion, and the prefix of the names of the others.
const NAME: &str = "dead_letters";
/// The key of the saved counts.
const KEY: &str = "dead_letters";
/// A portion has 1/16 of the limits, but at least these.
const PARTS: u64 = 16;
const LEAST_BYTES: u64 = 256 << 10;
const LEAST_COUNT: u64 = 1024;

/// The result of adding letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Added {
    /// They are kept.
    Kept {
        /// The number of letters that were dropped because the limits were exceeded, the oldest first.
        dropped: u64,
    },
    /// None is kept: they would exceed the limits, and none is to be dropped.
    Full,
}

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
    unflushed: Unflushed,
    faults: Faults,
    inventory: Arc<Inventory>,
}

#[derive(Clone)]
struct Known {
    dropped: u64,
    /// The number of the next letter. Numbers are never reused.
    next: DeadLetterId,
    portions: Vec<Portion>,
    /// For each source, the last letter since the store was opened.
    last: BTreeMap<String, DeadLetterId>,
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
        to_text(&Saved { dropped: self.dropped, next: self.next, portions })
    }

    /// Removes and returns the empty portions.
    fn part_with_empty(&mut self) -> Vec<Portion> {
        let (empty, full) =
            std::mem::take(&mut self.portions).into_iter().partition(|portion| portion.tally.count == 0);
        self.portions = full;
        empty
    }
}

/// New letters, as they are stored.
struct Coming {
    texts: VecDeque<(DeadLetterId, String)>,
    bytes: u64,
    /// The number of those that are not stored.
    dropped: u64,
    /// The last one of each source.
    last: BTreeMap<String, DeadLetterId>,
}

impl Coming {
    /// Numbers the letters, beginning with `first`.
    fn new<'l>(
        letters: impl IntoIterator<Item = &'l DeadLetter>,
        first: DeadLetterId,
    ) -> Result<Self, Error> {
        let (mut texts, mut last) = (VecDeque::new(), BTreeMap::new());
        for (id, letter) in (first..).zip(letters) {
            texts.push_back((id, to_text(letter)?));
            match last.get_mut(&letter.source) {
                Some(last) => *last = id,
                None => drop(last.insert(letter.source.clone(), id)),
            }
        }
        let bytes = texts.iter().map(|(_, text)| size_of_letter(text.len())).sum();
        Ok(Self { texts, bytes, dropped: 0, last })
    }

    /// True if they fit beside letters of this number and size.
    fn fits(&self, count: u64, bytes: u64, limits: &DeadLetterLimits) -> bool {
        count + self.texts.len() as u64 <= limits.max_count && bytes + self.bytes <= limits.max_bytes.bytes()
    }

    fn fits_beside(&self, known: &Known, limits: &DeadLetterLimits) -> bool {
        self.fits(known.count(), known.bytes(), limits)
    }

    /// Drops letters that exceed the limits by themselves: they must not drive out all the others. If the
    /// rest still exceeds them, keeps only the last ones, and returns true.
    fn drop_what_exceeds(&mut self, limits: &DeadLetterLimits) -> bool {
        let count = self.texts.len();
        let fits =
            |text: &str| limits.max_count > 0 && size_of_letter(text.len()) <= limits.max_bytes.bytes();
        self.texts.retain(|(_, text)| fits(text));
        self.bytes = self.texts.iter().map(|(_, text)| size_of_letter(text.len())).sum();
        let left = self.texts.len();
        while !self.fits(0, 0, limits)
            && let Some((_, text)) = self.texts.pop_front()
        {
            self.bytes -= size_of_letter(text.len());
        }
        self.dropped = (count - self.texts.len()) as u64;
        self.texts.len() < left
    }
}

fn to_text(value: &impl Serialize) -> Result<String, Error> {
    serde_json::to_string(value)
        .map_err(|error| Error::permanent("a dead letter cannot be written").caused_by(error))
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
    pub(super) fn open(
        database: &Database,
        tallies: Keyspace,
        faults: Faults,
        inventory: Arc<Inventory>,
    ) -> Result<Self, Error> {
        let keyspace =
            |first| database.keyspace(&name_of(first), options).map_err(|error| faults.reading(error));
        let known = match tallies.get(KEY).map_err(|error| faults.reading(error))? {
            Some(text) => {
                let saved: Saved = serde_json::from_slice(&text).map_err(|error| faults.parsing(error))?;
                let portions = saved.portions.into_iter();
                let portions = portions.map(|tally| Ok(Portion { tally, keyspace: keyspace(tally.first)? }));
                let portions = portions.collect::<Result<_, Error>>()?;
                Known { dropped: saved.dropped, next: saved.next, portions, last: BTreeMap::new() }
            }
            None => Known { dropped: 0, next: 1, portions: Vec::new(), last: BTreeMap::new() },
        };
        // A portion that was being deleted or created when the process was killed.
        let mut stray = Vec::new();
        for name in database.list_keyspace_names() {
            let is_one = name.strip_prefix(NAME).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
            if is_one && !known.portions.iter().any(|portion| name_of(portion.tally.first) == *name) {
                stray.push(database.keyspace(&name, options).map_err(|error| faults.reading(error))?);
            }
        }
        let known = Mutex::new(known);
        let unflushed = Unflushed::default();
        let letters = Self { database: database.clone(), tallies, known, unflushed, faults, inventory };
        letters.delete(stray)?;
        Ok(letters)
    }

    pub(super) fn tally(&self) -> DeadLetterCounts {
        let known = self.known.lock();
        DeadLetterCounts { count: known.count(), bytes: known.bytes(), dropped: known.dropped }
    }

    pub(super) fn forget_dropped(&self) -> Result<(), Error> {
        let mut known = self.known.lock();
        let new = Known { dropped: 0, ..known.clone() };
        let mut batch = self.database.batch().durability(Some(PersistMode::SyncData));
        batch.insert(&self.tallies, KEY, new.text()?);
        self.commit(batch)?;
        *known = new;
        Ok(())
    }

    /// Returns the highest number that a letter may have, or None if there are none.
    pub(super) fn last(&self) -> Option<DeadLetterId> {
        let known = self.known.lock();
        (known.count() > 0).then(|| known.next - 1)
    }

    /// As [`last`](Self::last), of the letters of a source since the store was opened.
    pub(super) fn last_of(&self, source: &str) -> Option<DeadLetterId> {
        let known = self.known.lock();
        known.last.get(source).copied().filter(|_| known.count() > 0)
    }

    pub(super) fn after(
        &self,
        id: DeadLetterId,
    ) -> impl Iterator<Item = Result<(DeadLetterId, DeadLetter), Error>> + use<> {
        let keyspaces: Vec<Keyspace> =
            self.known.lock().portions.iter().map(|portion| portion.keyspace.clone()).collect();
        let from = id.saturating_add(1).to_be_bytes();
        let faults = self.faults.clone();
        keyspaces.into_iter().flat_map(move |keyspace| keyspace.range(from..)).map(move |entry| {
            let (key, value) = entry.into_inner().map_err(|error| faults.reading(error))?;
            let letter = serde_json::from_slice(&value).map_err(|error| faults.parsing(error))?;
            Ok((letter_id(&key), letter))
        })
    }

    pub(super) fn add<'l>(
        &self,
        letters: impl IntoIterator<Item = &'l DeadLetter>,
        limits: &DeadLetterLimits,
    ) -> Result<Added, Error> {
        let mut known = self.known.lock();
        let mut new = known.clone();
        let mut coming = Coming::new(letters, new.next)?;
        if limits.when_full != WhenFull::Drop && !coming.fits_beside(&new, limits) {
            return Ok(Added::Full);
        }
        new.next += coming.texts.len() as u64;
        new.last.append(&mut coming.last);
        let mut batch = self.database.batch().durability(Some(PersistMode::SyncData));
        let too_many = coming.drop_what_exceeds(limits);
        let mut gone = self.make_room(&mut new, &coming, too_many, limits, &mut batch)?;
        let dropped = coming.dropped + known.count() - new.count();
        let (entries, bytes) = (coming.texts.len(), coming.bytes);
        self.insert(&mut new, coming, limits, &mut batch)?;
        new.dropped += dropped;
        gone.extend(new.part_with_empty());
        batch.insert(&self.tallies, KEY, new.text()?);
        self.commit(batch)?;
        *known = new;
        self.delete(gone.into_iter().map(|portion| portion.keyspace).collect())?;
        if let Some(portion) = known.portions.last() {
            let flushed = self.unflushed.add(&portion.keyspace, entries, bytes);
            flushed.map_err(|error| self.faults.writing(error))?;
        }
        Ok(Added::Kept { dropped })
    }

    /// Removes the oldest letters until the new ones fit. Returns the portions that are removed as a whole;
    /// the removal of others is added to `batch`.
    fn make_room(
        &self,
        new: &mut Known,
        coming: &Coming,
        too_many: bool,
        limits: &DeadLetterLimits,
        batch: &mut OwnedWriteBatch,
    ) -> Result<Vec<Portion>, Error> {
        let mut gone = Vec::new();
        if too_many {
            gone.append(&mut new.portions);
            return Ok(gone);
        }
        while !coming.fits_beside(new, limits) && new.portions.len() > 1 {
            gone.push(new.portions.remove(0));
        }
        if coming.fits_beside(new, limits) {
            return Ok(gone);
        }
        // The rest is less than a portion.
        let Some(oldest) = new.portions.first_mut() else { return Ok(gone) };
        let tally = &mut oldest.tally;
        for entry in oldest.keyspace.iter() {
            if coming.fits(tally.count, tally.bytes, limits) {
                break;
            }
            let (key, value) = entry.into_inner().map_err(|error| self.faults.reading(error))?;
            tally.count = tally.count.saturating_sub(1);
            tally.bytes = tally.bytes.saturating_sub(size_of_letter(value.len()));
            batch.remove(&oldest.keyspace, key);
        }
        Ok(gone)
    }

    /// Adds letters to the last portion, or to a new one if that is full.
    fn insert(
        &self,
        new: &mut Known,
        coming: Coming,
        limits: &DeadLetterLimits,
        batch: &mut OwnedWriteBatch,
    ) -> Result<(), Error> {
        let Some((first, _)) = coming.texts.front() else { return Ok(()) };
        let share = |limit: u64, least: u64| (limit / PARTS).max(least);
        let most_bytes = share(limits.max_bytes.bytes(), LEAST_BYTES);
        let most = share(limits.max_count, LEAST_COUNT);
        let is_full = |portion: &Portion| portion.tally.count >= most || portion.tally.bytes >= most_bytes;
        if new.portions.last().is_none_or(is_full) {
            if let Some(full) = new.portions.last() {
                // A full portion gets no more letters. Its memtable is flushed so that the journal need not
                // keep the letters.
                full.keyspace.rotate_memtable().map_err(|error| self.faults.writing(error))?;
            }
            let keyspace = self.database.keyspace(&name_of(*first), options);
            let keyspace = keyspace.map_err(|error| self.faults.writing(error))?;
            self.inventory.add_keyspace(keyspace.path()).map_err(|error| self.faults.recording(&error))?;
            new.portions
                .push(Portion { tally: PortionTally { first: *first, count: 0, bytes: 0 }, keyspace });
        }
        if let Some(portion) = new.portions.last_mut() {
            portion.tally.count += coming.texts.len() as u64;
            portion.tally.bytes += coming.bytes;
            for (id, text) in coming.texts {
                batch.insert(&portion.keyspace, id.to_be_bytes(), text);
            }
        }
        Ok(())
    }

    /// Removes letters, and returns how many of them there were.
    pub(super) fn remove(&self, ids: &[DeadLetterId]) -> Result<u64, Error> {
        let mut known = self.known.lock();
        let mut new = known.clone();
        let mut batch = self.database.batch().durability(Some(PersistMode::SyncData));
        // A number that is there twice is counted once.
        for id in &ids.iter().copied().collect::<BTreeSet<_>>() {
            let at = new.portions.partition_point(|portion| portion.tally.first <= *id);
            let Some(portion) = at.checked_sub(1).and_then(|at| new.portions.get_mut(at)) else { continue };
            let key = id.to_be_bytes();
            // A letter that was dropped meanwhile is not counted again.
            let Some(size) = portion.keyspace.size_of(key).map_err(|error| self.faults.reading(error))?
            else {
                continue;
            };
            portion.tally.count = portion.tally.count.saturating_sub(1);
            portion.tally.bytes = portion.tally.bytes.saturating_sub(size_of_letter(size as usize));
            batch.remove(&portion.keyspace, key);
        }
        let removed = known.count() - new.count();
        let gone = new.part_with_empty();
        batch.insert(&self.tallies, KEY, new.text()?);
        self.commit(batch)?;
        *known = new;
        self.delete(gone.into_iter().map(|portion| portion.keyspace).collect())?;
        Ok(removed)
    }

    fn commit(&self, batch: OwnedWriteBatch) -> Result<(), Error> {
        self.inventory.synced(|| batch.commit()).map_err(|error| self.faults.writing(error))
    }

    fn delete(&self, keyspaces: Vec<Keyspace>) -> Result<(), Error> {
        keyspaces.into_iter().try_for_each(|keyspace| {
            self.inventory.forget_keyspace(keyspace.path()).map_err(|error| self.faults.recording(&error))?;
            self.database.delete_keyspace(keyspace).map_err(|error| self.faults.writing(error))
        })
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
            let bounds = DeadLetterLimits { max_count, max_bytes: max_bytes.into(), when_full: WhenFull::Drop };
            let mut model = Model::default();
            for (count, length, then) in steps {
                let letters: Vec<_> = (0..count).map(|n| letter(&vec![b'x'; length * n])).collect();
                let before = model.dropped;
                model.add(&letters, &bounds);
                let dropped = model.dropped - before;
                prop_assert_eq!(store.add_letters(&letters, &bounds).unwrap(), Added::Kept { dropped });
                match then {
                    0 => {
                        drop(store);
                        store = Store::open(folder.path()).unwrap();
                    }
                    1 => {
                        let at = model.kept.len() / 2;
                        let ids: Vec<_> = model.kept.remove(at).map(|kept| kept.0).into_iter().collect();
                        // Letters that are already removed are not counted twice.
                        let twice = [&ids[..], &ids[..]].concat();
                        prop_assert_eq!(store.remove_letters(&twice).unwrap(), ids.len() as u64);
                        prop_assert_eq!(store.remove_letters(&ids).unwrap(), 0);
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
    fn letters_that_do_not_fit_are_refused_as_a_whole_unless_the_oldest_are_to_be_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let letters = |count| vec![letter(b"text"); count];
        for when_full in [WhenFull::Wait, WhenFull::Error] {
            let limits = DeadLetterLimits { max_count: 5, when_full, ..DeadLetterLimits::default() };
            store.add_letters(&letters(3), &limits).unwrap();
            assert_eq!(store.add_letters(&letters(3), &limits).unwrap(), Added::Full);
            assert_eq!(store.add_letters(&letters(2), &limits).unwrap(), Added::Kept { dropped: 0 });
            assert_eq!(store.add_letters(&letters(1), &limits).unwrap(), Added::Full);
            assert_eq!((found(&store).len(), store.tally().dropped), (5, 0));
            store.remove_letters(&found(&store)).unwrap();
        }
        let small = DeadLetterLimits { max_bytes: 10.into(), ..DeadLetterLimits::default() };
        assert_eq!(store.add_letters(&letters(1), &small).unwrap(), Added::Full);
    }

    #[test]
    fn whole_portions_go_and_what_is_kept_are_the_last_letters() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Store::open(folder.path()).unwrap();
        let bounds = DeadLetterLimits {
            max_count: 5000,
            max_bytes: thalweg_config::ByteSize::mib(64),
            when_full: WhenFull::Drop,
        };
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
    #[test]
    fn the_last_letter_of_each_source_is_known() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let of = |source: &str| DeadLetter { source: source.into(), ..letter(b"text") };
        let add = |sources: &[&str]| {
            let letters: Vec<_> = sources.iter().map(|&source| of(source)).collect();
            store.add_letters(&letters, &DeadLetterLimits::default()).unwrap();
        };
        let last = || ["a", "b", "c"].map(|source| store.last_letter_of(source));
        add(&["a", "b", "a"]);
        assert_eq!(last(), [Some(3), Some(2), None]);
        add(&["b"]);
        assert_eq!(last(), [Some(3), Some(4), None]);
        store.remove_letters(&found(&store)).unwrap();
        assert_eq!(last(), [None; 3]);
    }
}
