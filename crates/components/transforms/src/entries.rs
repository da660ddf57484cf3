//! Entries of the journal with what a transform has open.
//!
//! An entry is never changed: what has changed is written to a new one, and the old one is deleted once no
//! checkpoint needs it. So a kill between the entries and the checkpoint leaves the former checkpoint whole.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use serde::de::DeserializeOwned;
use serde_json::Value;
use thalweg_engine::{Error, Journal};
use thalweg_record::{Ack, Settlement};

/// The entries of a transform.
pub(crate) struct Entries {
    journal: Journal,
    next: u64,
    /// The entries that are out of date since the last checkpoint, and those that were before it.
    finished: BTreeSet<u64>,
    old: Vec<u64>,
    /// True once entries that belong to no checkpoint are deleted.
    is_clean: bool,
}

/// The beginning of the names of entries.
fn prefix() -> String {
    format!("{}groups/", Journal::UNFINISHED)
}

fn name(entry: u64) -> String {
    format!("{}{entry:020}", prefix())
}

impl Entries {
    pub(crate) fn new(journal: Journal) -> Self {
        Self { journal, next: 0, finished: BTreeSet::new(), old: Vec::new(), is_clean: false }
    }

    /// The number of the next entry.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Entries are out of date.
    pub(crate) fn replaced(&mut self, entries: impl IntoIterator<Item = u64>) {
        self.finished.extend(entries);
    }

    /// Deletes the entries that were out of date at the last checkpoint, unless it needs them all the same.
    pub(crate) fn forget_old(&mut self, is_needed: impl Fn(u64) -> bool) -> Result<(), Error> {
        if !std::mem::replace(&mut self.is_clean, true) {
            // Of a run that was killed before its first checkpoint.
            self.journal.forget(&prefix())?;
        }
        for entry in std::mem::take(&mut self.old) {
            match is_needed(entry) {
                true => self.old.push(entry),
                false => self.journal.forget(&name(entry))?,
            }
        }
        Ok(())
    }

    /// Writes an entry. Returns its number.
    pub(crate) fn write(&mut self, groups: &Value) -> Result<u64, Error> {
        self.journal.note(&name(self.next), groups)?;
        self.next += 1;
        Ok(self.next - 1)
    }

    /// All entries of a checkpoint are written: the next one deletes those that are out of date now.
    pub(crate) fn are_complete(&mut self) {
        self.old.extend(std::mem::take(&mut self.finished));
    }

    /// Reads an entry.
    pub(crate) fn read<T: DeserializeOwned>(&self, entry: u64) -> Result<T, Error> {
        let found = self.journal.entries(&name(entry))?;
        let Some((_, groups)) = found.into_iter().next() else {
            return Err(crate::unusable_state(format!("the groups of entry {entry} are missing")));
        };
        serde_json::from_value(groups).map_err(crate::unusable_state)
    }

    /// Continues after a state that has these entries, and deletes all others.
    pub(crate) fn resume(&mut self, next: u64, needed: impl Iterator<Item = u64>) -> Result<(), Error> {
        let needed: HashSet<String> = needed.map(name).collect();
        for unneeded in self.journal.names(&prefix())?.into_iter().filter(|name| !needed.contains(name)) {
            self.journal.forget(&unneeded)?;
        }
        self.is_clean = true;
        self.next = next;
        Ok(())
    }
}

/// Whether results are delivered whose messages the last checkpoint has.
#[derive(Debug)]
pub(crate) struct Fate(Arc<AtomicU8>);

/// The results are on their way.
const OPEN: u8 = 0;
/// They are delivered.
const SAFE: u8 = 1;
/// They are not, and no checkpoint may forget their messages.
const FAILED: u8 = 2;

impl Fate {
    /// Follows the results that have this ack. `place` is the name of the transform.
    pub(crate) fn of(ack: &mut Ack, place: &Arc<str>) -> Self {
        let fate = Self(Arc::new(AtomicU8::new(OPEN)));
        let told = fate.0.clone();
        ack.merge(Ack::new(place.clone(), move |settlement: Settlement| {
            told.store(if settlement.outcome.is_safe() { SAFE } else { FAILED }, Ordering::Release);
        }));
        fate
    }

    pub(crate) fn is_safe(&self) -> bool {
        self.0.load(Ordering::Acquire) == SAFE
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.0.load(Ordering::Acquire) == FAILED
    }

    pub(crate) fn is_open(&self) -> bool {
        self.0.load(Ordering::Acquire) == OPEN
    }
}
