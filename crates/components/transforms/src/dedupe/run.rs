//! Sorted keys in a temporary file.
//!
//! A run is written once and then only read. In memory are a filter, which says of most keys that they are
//! not in the run, and the first key of each block. A lookup that passes the filter reads one block.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use thalweg_engine::Temporaries;
use thalweg_record::Temporary;

/// A key, and the number of new keys before it.
pub(super) type Entry = (u128, u64);

const ENTRY: usize = 24;
/// The entries of a block: as many as fit into 4 KiB.
const BLOCK: usize = 170;
const BUFFER: usize = 64 << 10;

/// Sorted keys in a temporary file.
pub(super) struct Run {
    file: File,
    path: Arc<Temporary>,
    /// The number of keys.
    pub(super) keys: usize,
    /// How many generations of smaller runs it was merged from.
    pub(super) level: u32,
    /// The highest number of its keys.
    pub(super) last: u64,
    /// The first key of each block.
    fences: Vec<u128>,
    filter: Filter,
}

impl Run {
    /// Writes entries in ascending order of their keys. There are at most `most`.
    pub(super) fn write(
        temporary: &Temporaries,
        level: u32,
        most: usize,
        entries: impl Iterator<Item = io::Result<Entry>>,
    ) -> io::Result<Self> {
        let (file, path) = temporary.create(".keys")?;
        let mut run =
            Self { file, path, keys: 0, level, last: 0, fences: Vec::new(), filter: Filter::new(most) };
        let mut writer = BufWriter::with_capacity(BUFFER, &run.file);
        for entry in entries {
            let (key, number) = entry?;
            if run.keys.is_multiple_of(BLOCK) {
                run.fences.push(key);
            }
            run.filter.add(key);
            run.keys += 1;
            run.last = run.last.max(number);
            writer.write_all(&key.to_le_bytes())?;
            writer.write_all(&number.to_le_bytes())?;
        }
        writer.flush()?;
        drop(writer);
        run.fences.shrink_to_fit();
        Ok(run)
    }

    /// Returns the number of a key, if the run has it.
    pub(super) fn get(&self, key: u128) -> io::Result<Option<u64>> {
        if !self.filter.may_have(key) {
            return Ok(None);
        }
        let Some(block) = self.fences.partition_point(|&first| first <= key).checked_sub(1) else {
            return Ok(None);
        };
        let mut bytes = [0; BLOCK * ENTRY];
        let entries = BLOCK.min(self.keys - block * BLOCK);
        let bytes = bytes.get_mut(..entries * ENTRY).unwrap_or_default();
        self.file.read_exact_at(bytes, (block * BLOCK * ENTRY) as u64)?;
        let (entries, _) = bytes.as_chunks::<ENTRY>();
        let found = entries.binary_search_by_key(&key, |bytes| entry(bytes).0);
        Ok(found.ok().and_then(|at| entries.get(at)).map(|bytes| entry(bytes).1))
    }

    /// Returns all entries, in ascending order of their keys.
    pub(super) fn entries(&self) -> io::Result<impl Iterator<Item = io::Result<Entry>>> {
        let mut reader = BufReader::with_capacity(BUFFER, File::open(self.path.path())?);
        let mut bytes = [0; ENTRY];
        Ok((0..self.keys).map(move |_| reader.read_exact(&mut bytes).map(|()| entry(&bytes))))
    }

    /// Merges runs. Of equal keys the one with the highest number is kept, and only numbers from `least`.
    pub(super) fn merge(temporary: &Temporaries, runs: &[Run], least: u64) -> io::Result<Self> {
        let most = runs.iter().map(|run| run.keys).sum();
        let level = runs.iter().map(|run| run.level).max().unwrap_or(0) + 1;
        let readers = runs.iter().map(Run::entries).collect::<io::Result<Vec<_>>>()?;
        Self::write(temporary, level, most, Merge::new(readers, least)?)
    }

    /// Returns the bytes that it takes in memory.
    pub(super) fn bytes(&self) -> usize {
        self.fences.capacity() * size_of::<u128>() + self.filter.0.len() * size_of::<[u64; 8]>()
    }
}

fn entry(bytes: &[u8; ENTRY]) -> Entry {
    let key = bytes.first_chunk().map_or(0, |key| u128::from_le_bytes(*key));
    (key, bytes.last_chunk().map_or(0, |number| u64::from_le_bytes(*number)))
}

/// The merged entries of several runs.
struct Merge<R> {
    /// The next entry of each run, and those after it.
    runs: Vec<(Entry, R)>,
    least: u64,
}

impl<R: Iterator<Item = io::Result<Entry>>> Merge<R> {
    fn new(readers: Vec<R>, least: u64) -> io::Result<Self> {
        let mut runs = Vec::new();
        for mut reader in readers {
            if let Some(first) = reader.next() {
                runs.push((first?, reader));
            }
        }
        Ok(Self { runs, least })
    }

    /// Returns the entry with the lowest key, and among equal keys any.
    fn lowest(&mut self) -> io::Result<Option<Entry>> {
        let lowest = self.runs.iter().enumerate().min_by_key(|(_, (entry, _))| entry.0);
        let Some(at) = lowest.map(|(at, _)| at) else { return Ok(None) };
        let Some((head, reader)) = self.runs.get_mut(at) else { return Ok(None) };
        let found = *head;
        match reader.next() {
            Some(next) => *head = next?,
            None => drop(self.runs.swap_remove(at)),
        }
        Ok(Some(found))
    }

    fn kept(&mut self) -> io::Result<Option<Entry>> {
        while let Some((key, mut number)) = self.lowest()? {
            while self.runs.iter().any(|(next, _)| next.0 == key) {
                number = number.max(self.lowest()?.map_or(0, |(_, other)| other));
            }
            if number >= self.least {
                return Ok(Some((key, number)));
            }
        }
        Ok(None)
    }
}

impl<R: Iterator<Item = io::Result<Entry>>> Iterator for Merge<R> {
    type Item = io::Result<Entry>;

    fn next(&mut self) -> Option<Self::Item> {
        self.kept().transpose()
    }
}

/// A Bloom filter of eight bits for each key. The five bits of a key are in one cache line. It says of about
/// one in thirty of other keys that they may be there.
struct Filter(Vec<[u64; 8]>);

impl Filter {
    fn new(keys: usize) -> Self {
        Self(vec![[0; 8]; keys.div_ceil(64).max(1)])
    }

    /// Returns the block of a key, and the word and bit of each of its bits.
    fn places(&self, key: u128) -> (usize, impl Iterator<Item = (usize, u64)> + use<>) {
        let block = (u128::from(key as u64) * self.0.len() as u128) >> 64;
        let high = (key >> 64) as u64;
        let places = (0..5).map(move |n| ((high >> (n * 9 + 6) & 7) as usize, 1 << (high >> (n * 9) & 63)));
        (block as usize, places)
    }

    fn add(&mut self, key: u128) {
        let (block, places) = self.places(key);
        let Some(words) = self.0.get_mut(block) else { return };
        places.for_each(|(word, bit)| words[word] |= bit);
    }

    fn may_have(&self, key: u128) -> bool {
        let (block, mut places) = self.places(key);
        self.0.get(block).is_none_or(|words| places.all(|(word, bit)| words[word] & bit != 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hash(n: u64) -> u128 {
        xxh(n) << 64 | xxh(n + 1_000_000_007)
    }

    fn xxh(n: u64) -> u128 {
        u128::from(n.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31).wrapping_mul(0xd6e8_feb8_6659_fd93))
    }

    fn written(temporary: &Temporaries, mut entries: Vec<Entry>) -> Run {
        entries.sort_unstable();
        Run::write(temporary, 0, entries.len(), entries.into_iter().map(Ok)).unwrap()
    }

    #[test]
    fn the_filter_excludes_most_keys() {
        let mut filter = Filter::new(10_000);
        (0..10_000).for_each(|n| filter.add(hash(n)));
        assert!((0..10_000).all(|n| filter.may_have(hash(n))));
        let wrong = (10_000..110_000).filter(|&n| filter.may_have(hash(n))).count();
        assert!(wrong < 6_000, "{wrong}");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

        #[test]
        fn runs_are_like_maps_and_merge_like_them(
            parts in prop::collection::vec(prop::collection::btree_set(0..2000_u64, 0..700), 1..5),
            least in 0..4000_u64,
        ) {
            let temporary = Temporaries::new(None);
            let mut model = std::collections::BTreeMap::new();
            let mut runs = Vec::new();
            let mut number = 0;
            for part in parts {
                let entries: Vec<Entry> = part.iter().map(|&n| { number += 1; (hash(n), number) }).collect();
                let run = written(&temporary, entries.clone());
                for n in 0..2000 {
                    let expected = entries.iter().find(|(key, _)| *key == hash(n)).map(|(_, number)| *number);
                    prop_assert_eq!(run.get(hash(n)).unwrap(), expected);
                }
                model.extend(entries);
                runs.push(run);
            }
            model.retain(|_, number| *number >= least);
            let merged = Run::merge(&temporary, &runs, least).unwrap();
            let found: Vec<Entry> = merged.entries().unwrap().map(Result::unwrap).collect();
            prop_assert_eq!(found, model.iter().map(|(key, number)| (*key, *number)).collect::<Vec<_>>());
            prop_assert_eq!((merged.keys, merged.level), (model.len(), 1));
        }
    }
}
