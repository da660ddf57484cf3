//! A table of names in bounded memory: the first ones in memory, more of them in a temporary file.
//!
//! The file is divided into [`SHARDS`], each a table with open addressing that grows by itself. So a growing
//! table holds up the writers of files for milliseconds only. The shards begin far apart; the file is sparse.
//! The keys are hashes already, and no two of them may be alike.
//!
//! Rejected: the embedded store. Runs without a state have none, and a name that is given back would leave a
//! tombstone for each file.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use thalweg_engine::Temporaries;
use thalweg_record::Temporary;

/// The number of names in memory, which take about 2 MiB.
const IN_MEMORY: usize = 1 << 15;
/// The number of shards: a power of two.
const SHARDS: u64 = 1 << 10;
/// The distance between the beginnings of two shards in the file, in bytes.
const SHARD_BYTES: u64 = 1 << 32;
/// The number of slots of a new shard.
const FIRST_SLOTS: u64 = 128;
/// The number of slots that are read at once.
const AT_ONCE: u64 = 16;
/// The size of a slot in bytes: four numbers.
const SLOT: usize = 32;

/// The file that a name was given to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Given {
    /// The hash of the place that the file came from.
    pub(super) place: Option<u64>,
    /// The hash of its identifier. All outputs of one file have the same.
    pub(super) file: u64,
}

/// The table.
#[derive(Debug, Default)]
pub(super) struct Table {
    memory: HashMap<u64, Given>,
    /// Where the file is made. Without it, all names stay in memory.
    temporary: Option<Temporaries>,
    disk: Option<Disk>,
}

#[derive(Debug)]
struct Disk {
    file: File,
    shards: Vec<Shard>,
    _held: Arc<Temporary>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Shard {
    slots: u64,
    /// The slots that are not empty, removed names included.
    used: u64,
}

/// The content of a slot: an empty one has only zeros, and a removed one the key and a mark.
type Slot = [u64; 4];

const HAS_FILE: u64 = 1;
const HAS_PLACE: u64 = 2;
const REMOVED: u64 = 4;

impl Table {
    /// Names where the file is made. Only the first call counts.
    pub(super) fn spill_to(&mut self, temporary: &Temporaries) {
        self.temporary.get_or_insert_with(|| temporary.clone());
    }

    /// Returns the file that has the name with this hash.
    ///
    /// # Errors
    /// Those of the temporary file.
    pub(super) fn get(&self, key: u64) -> io::Result<Option<Given>> {
        if let Some(given) = self.memory.get(&key) {
            return Ok(Some(*given));
        }
        self.disk.as_ref().map_or(Ok(None), |disk| Ok(disk.find(key)?.and_then(|(_, slot)| given(slot))))
    }

    /// Gives a name to a file. Returns the one that had it.
    ///
    /// # Errors
    /// Those of the temporary file.
    pub(super) fn insert(&mut self, key: u64, file: Given) -> io::Result<Option<Given>> {
        if let Some(known) = self.memory.get_mut(&key) {
            return Ok(Some(std::mem::replace(known, file)));
        }
        let is_full = self.memory.len() >= IN_MEMORY;
        match (&mut self.disk, &self.temporary) {
            (None, None) => {}
            (None, Some(_)) if !is_full => {}
            (disk, temporary) => {
                if disk.is_none()
                    && let Some(temporary) = temporary
                {
                    *disk = Some(Disk::new(temporary)?);
                }
                if let Some(disk) = disk {
                    return disk.insert(key, file);
                }
            }
        }
        Ok(self.memory.insert(key, file))
    }

    /// Takes a name back.
    ///
    /// # Errors
    /// Those of the temporary file.
    pub(super) fn remove(&mut self, key: u64) -> io::Result<()> {
        if self.memory.remove(&key).is_none()
            && let Some(disk) = &self.disk
            && let Some((at, _)) = disk.find(key)?
        {
            disk.write(at, [key, 0, 0, REMOVED])?;
        }
        Ok(())
    }
}

fn given([_, place, file, marks]: Slot) -> Option<Given> {
    let place = (marks & HAS_PLACE > 0).then_some(place);
    (marks & HAS_FILE > 0).then_some(Given { place, file })
}

fn slot_of(key: u64, given: Given) -> Slot {
    let mark = if given.place.is_some() { HAS_FILE | HAS_PLACE } else { HAS_FILE };
    [key, given.place.unwrap_or_default(), given.file, mark]
}

/// Returns the slot in which a key belongs, of this number of slots in its shard.
fn home(key: u64, slots: u64) -> u64 {
    (key / SHARDS) & (slots - 1)
}

fn shard_of(key: u64) -> usize {
    // The remainder is below the number of shards.
    usize::try_from(key % SHARDS).unwrap_or_default()
}

impl Disk {
    fn new(temporary: &Temporaries) -> io::Result<Self> {
        let (file, held) = temporary.create(".names")?;
        let shards = vec![Shard { slots: FIRST_SLOTS, used: 0 }; usize::try_from(SHARDS).unwrap_or_default()];
        Ok(Self { file, shards, _held: held })
    }

    fn shard(&self, key: u64) -> Shard {
        self.shards.get(shard_of(key)).copied().unwrap_or_default()
    }

    /// Returns the slot of a key and its content, if the key is there. It may be removed.
    fn find(&self, key: u64) -> io::Result<Option<(u64, Slot)>> {
        let (at, slot) = self.place_of(key)?;
        Ok((slot[3] != 0).then_some((at, slot)))
    }

    /// Returns the position of the slot of a key, or of the empty one where it belongs, with its content.
    fn place_of(&self, key: u64) -> io::Result<(u64, Slot)> {
        let slots = self.shard(key).slots;
        let mut at = home(key, slots);
        loop {
            let count = AT_ONCE.min(slots - at);
            let mut bytes = [0; SLOT * AT_ONCE as usize];
            let bytes =
                bytes.get_mut(..SLOT * usize::try_from(count).unwrap_or_default()).unwrap_or_default();
            read(&self.file, bytes, base(key) + at * SLOT as u64)?;
            for (number, slot) in (0..).zip(slots_in(bytes)) {
                if slot[3] == 0 || slot[0] == key {
                    return Ok((base(key) + (at + number) * SLOT as u64, slot));
                }
            }
            at = (at + count) % slots;
        }
    }

    fn insert(&mut self, key: u64, file: Given) -> io::Result<Option<Given>> {
        let (at, known) = self.place_of(key)?;
        self.write(at, slot_of(key, file))?;
        if known[3] == 0
            && let Some(shard) = self.shards.get_mut(shard_of(key))
        {
            shard.used += 1;
            if shard.used * 2 > shard.slots {
                self.grow(key)?;
            }
        }
        Ok(given(known))
    }

    /// Doubles the shard of a key, without the removed names.
    fn grow(&mut self, key: u64) -> io::Result<()> {
        let Shard { slots, .. } = self.shard(key);
        let mut bytes = vec![0; SLOT * usize::try_from(slots).unwrap_or(usize::MAX)];
        read(&self.file, &mut bytes, base(key))?;
        let slots = slots * 2;
        let mut table = vec![Slot::default(); usize::try_from(slots).unwrap_or(usize::MAX)];
        let mut used = 0;
        for slot in slots_in(&bytes).filter(|slot| given(*slot).is_some()) {
            let mut at = home(slot[0], slots);
            while let Some(taken) = table.get_mut(usize::try_from(at).unwrap_or(usize::MAX)) {
                if taken[3] == 0 {
                    *taken = slot;
                    used += 1;
                    break;
                }
                at = (at + 1) % slots;
            }
        }
        let bytes: Vec<u8> = table.iter().flatten().flat_map(|number| number.to_le_bytes()).collect();
        self.file.write_all_at(&bytes, base(key))?;
        if let Some(shard) = self.shards.get_mut(shard_of(key)) {
            *shard = Shard { slots, used };
        }
        Ok(())
    }

    fn write(&self, at: u64, slot: Slot) -> io::Result<()> {
        let mut bytes = [0; SLOT];
        for (into, number) in bytes.chunks_exact_mut(8).zip(slot) {
            into.copy_from_slice(&number.to_le_bytes());
        }
        self.file.write_all_at(&bytes, at)
    }
}

/// The position of the first slot of the shard of a key.
fn base(key: u64) -> u64 {
    (key % SHARDS) * SHARD_BYTES
}

/// Reads bytes at a position. Behind the end of the file there are zeros.
fn read(file: &File, into: &mut [u8], position: u64) -> io::Result<()> {
    let mut filled = 0;
    while let Some(free) = into.get_mut(filled..).filter(|free| !free.is_empty()) {
        match file.read_at(free, position + filled as u64) {
            Ok(0) => {
                free.fill(0);
                return Ok(());
            }
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn slots_in(bytes: &[u8]) -> impl Iterator<Item = Slot> {
    let number = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
    bytes.chunks_exact(SLOT).map(move |slot| {
        let mut numbers = Slot::default();
        numbers.iter_mut().zip(slot.chunks_exact(8)).for_each(|(into, bytes)| *into = number(bytes));
        numbers
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn temporary(folder: &tempfile::TempDir) -> Temporaries {
        Temporaries::new(Some(folder.path()))
    }

    /// Spreads numbers as a hash does. One shard gets many of them.
    fn key(number: u64) -> u64 {
        let key = number.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        if number.is_multiple_of(3) { key - key % SHARDS } else { key }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn the_file_is_a_map(steps in prop::collection::vec((0..600_u64, 0..8_u8, any::<Option<u64>>()), 0..3000)) {
            let folder = tempfile::tempdir().unwrap();
            let mut disk = Disk::new(&temporary(&folder)).unwrap();
            let mut table = Table::default();
            let mut model = HashMap::new();
            for (number, what, place) in steps {
                let (key, file) = (key(number), Given { place, file: number });
                match what {
                    0 => {
                        if let Some((at, _)) = disk.find(key).unwrap() {
                            disk.write(at, [key, 0, 0, REMOVED]).unwrap();
                        }
                        table.remove(key).unwrap();
                        model.remove(&key);
                    }
                    1..4 => {
                        let found = disk.find(key).unwrap().and_then(|(_, slot)| given(slot));
                        prop_assert_eq!(found, model.get(&key).copied());
                        prop_assert_eq!(table.get(key).unwrap(), found);
                    }
                    _ => {
                        let known = model.insert(key, file);
                        prop_assert_eq!(disk.insert(key, file).unwrap(), known);
                        prop_assert_eq!(table.insert(key, file).unwrap(), known);
                    }
                }
            }
        }
    }

    #[test]
    fn names_beyond_those_in_memory_are_found_in_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let mut table = Table::default();
        table.spill_to(&temporary(&folder));
        let count = 4 * IN_MEMORY as u64;
        let file = |number| Given { place: Some(number / 2), file: number };
        for number in 0..count {
            assert_eq!(table.insert(key(number), file(number)).unwrap(), None);
        }
        assert_eq!(table.memory.len(), IN_MEMORY);
        for number in (0..count).step_by(5) {
            table.remove(key(number)).unwrap();
        }
        for number in 0..count {
            let expected = (!number.is_multiple_of(5)).then(|| file(number));
            assert_eq!(table.get(key(number)).unwrap(), expected, "{number}");
        }
    }
}
