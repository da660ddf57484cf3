//! Finds the row of a key.
//!
//! A hash finds the place of a key, and then the keys themselves are compared: a message gets no row of
//! another key whose hash is the same. Hashes have a secret, so that no one can write a table whose keys all
//! have one hash, and which takes quadratic time. Where a field is compared with networks or ranges, each key
//! of the other fields has spans of its own.

use std::hash::{BuildHasher, Hash, Hasher, RandomState};

use arrow_array::{Array, BinaryViewArray};
use hashbrown::HashTable;
use schemars::JsonSchema;
use serde::Deserialize;

use super::spans::{Span, Spans};

/// How rows with the same key are treated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Duplicates {
    /// The table cannot be used. This is the default.
    #[default]
    Error,
    /// The first row is found.
    First,
    /// The last row is found.
    Last,
}

/// Two rows that have the same key.
#[derive(Debug)]
pub(super) struct Twice {
    pub(super) first: u32,
    pub(super) second: u32,
}

/// The rows of a table by their keys.
pub(super) struct Index {
    /// The columns that are compared.
    keys: Vec<BinaryViewArray>,
    secret: RandomState,
    entries: HashTable<Entry>,
    /// The spans of each key. None if no field is compared with networks or ranges.
    spans: Option<Vec<Spans>>,
}

/// A key.
#[derive(Debug, Clone, Copy)]
struct Entry {
    /// A row that has the key.
    row: u32,
    /// The number of its spans.
    spans: u32,
}

impl Index {
    /// Creates the index of rows with these keys. Rows in which a key is NULL are never found.
    ///
    /// # Errors
    /// If two rows have the same key, and duplicates are an error.
    pub(super) fn of_rows(
        keys: Vec<BinaryViewArray>,
        rows: usize,
        duplicates: Duplicates,
    ) -> Result<Self, Twice> {
        let secret = RandomState::new();
        let mut entries = HashTable::with_capacity(rows);
        for row in 0..rows {
            let Some(hash) = hash(&secret, &keys, row) else { continue };
            let row = row as u32;
            let is_same = |entry: &Entry| is_equal(&keys, entry.row as usize, &keys, row as usize);
            match (entries.find_mut(hash, is_same), duplicates) {
                (None, _) => {
                    _ = entries
                        .insert_unique(hash, Entry { row, spans: 0 }, |entry| rehash(&secret, &keys, *entry))
                }
                (Some(entry), Duplicates::Error) => return Err(Twice { first: entry.row, second: row }),
                (Some(_), Duplicates::First) => {}
                (Some(entry), Duplicates::Last) => entry.row = row,
            }
        }
        Ok(Self { keys, secret, entries, spans: None })
    }

    /// Creates the index of rows with these keys and spans.
    ///
    /// # Errors
    /// As for [`of_rows`](Self::of_rows).
    pub(super) fn of_spans(
        keys: Vec<BinaryViewArray>,
        spans: &[Span],
        duplicates: Duplicates,
    ) -> Result<Self, Twice> {
        let secret = RandomState::new();
        let mut entries: HashTable<Entry> = HashTable::new();
        let mut groups: Vec<Vec<Span>> = Vec::new();
        for span in spans {
            let row = span.row as usize;
            let Some(hash) = hash(&secret, &keys, row) else { continue };
            let is_same = |entry: &Entry| is_equal(&keys, entry.row as usize, &keys, row);
            let number = match entries.find(hash, is_same) {
                Some(entry) => entry.spans,
                None => {
                    let entry = Entry { row: span.row, spans: groups.len() as u32 };
                    entries.insert_unique(hash, entry, |entry| rehash(&secret, &keys, *entry));
                    groups.push(Vec::new());
                    entry.spans
                }
            };
            groups.get_mut(number as usize).into_iter().for_each(|group| group.push(*span));
        }
        let spans = groups.into_iter().map(|group| Spans::of(&group, duplicates));
        Ok(Self { keys, secret, entries, spans: Some(spans.collect::<Result<_, _>>()?) })
    }

    /// Returns the row of a message, out of its keys and its point, if points are compared.
    #[inline]
    pub(super) fn find(&self, keys: &[BinaryViewArray], message: usize, point: Option<u128>) -> Option<u32> {
        let hash = hash(&self.secret, keys, message)?;
        let is_same = |entry: &Entry| is_equal(&self.keys, entry.row as usize, keys, message);
        let entry = self.entries.find(hash, is_same)?;
        match &self.spans {
            None => Some(entry.row),
            Some(spans) => spans.get(entry.spans as usize)?.find(point?),
        }
    }

    /// The least bytes that an index takes while it is made, for each row, beside those of the keys.
    pub(super) fn least_bytes(has_spans: bool) -> usize {
        if has_spans { size_of::<Span>() } else { size_of::<Entry>() }
    }

    /// The bytes in memory, beside those of the keys.
    pub(super) fn bytes(&self) -> usize {
        let spans = self.spans.iter().flatten().map(|spans| size_of::<Spans>() + spans.bytes());
        self.entries.capacity() * (size_of::<Entry>() + 2) + spans.sum::<usize>()
    }
}

/// Returns the hash of the keys in a row. None if one is NULL.
#[inline]
fn hash(secret: &RandomState, keys: &[BinaryViewArray], row: usize) -> Option<u64> {
    let mut hasher = secret.build_hasher();
    for key in keys {
        if key.is_null(row) {
            return None;
        }
        key.value(row).hash(&mut hasher);
    }
    Some(hasher.finish())
}

/// Returns the hash of a key that has one.
fn rehash(secret: &RandomState, keys: &[BinaryViewArray], entry: Entry) -> u64 {
    hash(secret, keys, entry.row as usize).unwrap_or_default()
}

/// True if two rows have equal keys. None of them is NULL.
#[inline]
fn is_equal(ones: &[BinaryViewArray], one: usize, others: &[BinaryViewArray], other: usize) -> bool {
    ones.iter().zip(others).all(|(ones, others)| ones.value(one) == others.value(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(columns: &[&[Option<&str>]]) -> Vec<BinaryViewArray> {
        columns.iter().map(|column| column.iter().map(|value| value.map(str::as_bytes)).collect()).collect()
    }

    #[test]
    fn all_columns_of_a_key_are_compared_and_null_is_equal_to_nothing() {
        let table =
            keys(&[&[Some("a"), Some("a"), None, Some("b")], &[Some("x"), Some("y"), Some("x"), Some("x")]]);
        let index = Index::of_rows(table, 4, Duplicates::Error).unwrap();
        let messages =
            keys(&[&[Some("a"), None, Some("b"), Some("y")], &[Some("y"), Some("x"), Some("x"), Some("a")]]);
        let found: Vec<_> = (0..4).map(|row| index.find(&messages, row, None)).collect();
        assert_eq!(found, [Some(1), None, Some(3), None]);
    }

    #[test]
    fn a_key_that_is_there_twice_is_an_error_or_has_one_of_its_rows() {
        let table = || keys(&[&[Some("a"), Some("b"), Some("a")]]);
        let Twice { first, second } = Index::of_rows(table(), 3, Duplicates::Error).err().unwrap();
        assert_eq!((first, second), (0, 2));
        for (duplicates, row) in [(Duplicates::First, 0), (Duplicates::Last, 2)] {
            let index = Index::of_rows(table(), 3, duplicates).unwrap();
            assert_eq!(index.find(&table(), 0, None), Some(row));
        }
    }

    #[test]
    fn each_key_has_spans_of_its_own() {
        let table = keys(&[&[Some("a"), Some("b"), None]]);
        let spans = [(0, 10, 0), (5, 20, 1), (0, 99, 2)];
        let spans = spans.map(|(first, last, row)| Span { first, last, rank: 0, row });
        let index = Index::of_spans(table, &spans, Duplicates::Error).unwrap();
        let messages = keys(&[&[Some("a"), Some("b"), Some("c"), None]]);
        let found = |message, point| index.find(&messages, message, point);
        assert_eq!(found(0, Some(5)), Some(0));
        assert_eq!(found(1, Some(5)), Some(1));
        assert_eq!(
            (found(0, Some(11)), found(0, None), found(2, Some(5)), found(3, Some(5))),
            (None, None, None, None)
        );
        // Without other keys, all rows are of one.
        let index = Index::of_spans(Vec::new(), &spans[..1], Duplicates::Error).unwrap();
        assert_eq!((index.find(&[], 7, Some(3)), index.find(&[], 7, Some(30))), (Some(0), None));
    }
}
