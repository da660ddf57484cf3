//! The deduplication tokens of inserts.
//!
//! A token follows from the origins and the texts of the rows of an insert. Different inserts can have the
//! same: `split` makes several messages with one position, which may be equal, and `limit` divides batches.
//! The server would drop the second of them. Each row therefore has a number too. It shows whether an insert
//! is sent again, or is another with the same rows, which gets a token of its own.
//!
//! The number is no part of the token: a later run that reads the same rows has other numbers.

use std::collections::{HashMap, VecDeque};

use parking_lot::Mutex;
use sha1::{Digest, Sha1};

use crate::requests::Parts;

/// The bytes before each row: the hash of its source, its place there, and its number.
const HEAD: usize = 24;

/// The bytes of them that are a part of the token.
const ORIGIN: usize = 16;

/// The number of inserts that are known. Servers know fewer.
const MOST: usize = 20_000;

/// Appends the bytes before a row.
pub(super) fn push_head(source: [u8; 8], place: u64, number: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(&source);
    out.extend_from_slice(&place.to_le_bytes());
    out.extend_from_slice(&number.to_le_bytes());
}

/// Returns the row without the bytes before it.
pub(super) fn row(part: &[u8]) -> &[u8] {
    part.get(HEAD..).unwrap_or_default()
}

/// Returns the number of a row.
fn number(part: &[u8]) -> u64 {
    part.get(ORIGIN..HEAD).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes)
}

/// The tokens of the inserts of a sink.
#[derive(Debug, Default)]
pub(crate) struct Tokens(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    inserts: HashMap<[u8; 20], Equal>,
    /// The hashes of the known inserts, the oldest first.
    order: VecDeque<[u8; 20]>,
}

/// Inserts with equal rows.
#[derive(Debug, Default)]
struct Equal {
    /// How many of them are not known any more.
    forgotten: u64,
    /// The numbers of the first rows of the others.
    numbers: VecDeque<u64>,
}

impl Tokens {
    /// Returns the token of an insert.
    pub(super) fn of(&self, parts: &Parts) -> String {
        let mut hash = Sha1::new();
        for part in parts.iter() {
            hash.update(part.get(..ORIGIN).unwrap_or_default());
            hash.update(row(part));
        }
        let first = parts.iter().next().map_or(0, number);
        let earlier = self.0.lock().earlier(hash.clone().finalize().into(), first);
        if earlier > 0 {
            hash.update(earlier.to_le_bytes());
        }
        hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl Known {
    /// Returns how many other inserts with equal rows were sent before.
    fn earlier(&mut self, hash: [u8; 20], number: u64) -> u64 {
        let equal = self.inserts.entry(hash).or_default();
        if let Some(at) = equal.numbers.iter().position(|known| *known == number) {
            return equal.forgotten + at as u64;
        }
        let earlier = equal.forgotten + equal.numbers.len() as u64;
        equal.numbers.push_back(number);
        self.order.push_back(hash);
        self.forget();
        earlier
    }

    /// Forgets the oldest insert, if they are too many.
    fn forget(&mut self) {
        if self.order.len() <= MOST {
            return;
        }
        let Some(oldest) = self.order.pop_front() else { return };
        if let Some(equal) = self.inserts.get_mut(&oldest) {
            equal.numbers.pop_front();
            equal.forgotten += 1;
            if equal.numbers.is_empty() {
                self.inserts.remove(&oldest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(rows: &[(u64, u64)]) -> Parts {
        let mut parts = Parts::default();
        for (place, number) in rows {
            let mut part = Vec::new();
            push_head([1; 8], *place, *number, &mut part);
            part.extend_from_slice(b"{}\n");
            parts.push(&part);
        }
        parts
    }

    #[test]
    fn equal_inserts_have_different_tokens_and_an_insert_keeps_its_own() {
        let tokens = Tokens::default();
        let inserts = [parts(&[(5, 0), (5, 1)]), parts(&[(5, 2), (5, 3)]), parts(&[(5, 4), (6, 5)])];
        let first: Vec<String> = inserts.iter().map(|insert| tokens.of(insert)).collect();
        assert!(first[0] != first[1] && first[1] != first[2] && first[0] != first[2], "{first:?}");
        let again: Vec<String> = inserts.iter().map(|insert| tokens.of(insert)).collect();
        assert_eq!(again, first);
    }

    #[test]
    fn a_later_run_gives_the_same_tokens_to_the_same_rows() {
        let run = |number: u64| {
            let tokens = Tokens::default();
            [0, 1].map(|insert| tokens.of(&parts(&[(5, number + insert)])))
        };
        assert_eq!(run(10), run(9000));
    }

    #[test]
    fn the_known_inserts_have_a_limit() {
        let mut known = Known::default();
        for number in 0..=MOST as u64 {
            assert_eq!(known.earlier([0; 20], number), number);
        }
        assert_eq!((known.order.len(), known.inserts[&[0; 20]].forgotten), (MOST, 1));
        assert_eq!(known.earlier([0; 20], 1), 1);
        assert_eq!(known.earlier([1; 20], 0), 0);
    }
}
