//! The last value of each key, for transforms that compare a message with an earlier one.
//!
//! Keys are hashes of 128 bits. If there are too many, the key whose value was set the longest ago is
//! forgotten.
//!
//! A checkpoint that is taken while nothing moves has the values. They are entries of the journal, in the
//! order in which they were set: each checkpoint adds those that were set since the last one, and writes all
//! again once most entries are out of date. The state itself says which entries are valid. A state that was
//! saved while messages move would be right for no position: a message that comes again might be taken for
//! one that has passed, and be lost. So such a state has no values, and the next run begins without any.

use std::collections::VecDeque;

use hashbrown::HashMap;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thalweg_codec::keys::Secret;
use thalweg_engine::{Context, Error, Journal};

use crate::kept::Kept;

/// The number of values in an entry of the journal.
const ENTRY: usize = 1024;
/// The memory of a key beside its value, in bytes, with its places in the map and in the order.
const KEY: usize = 150;
/// The part of the budget for all values: one in this many bytes.
const PART: usize = 8;
/// The beginning of the names of entries.
const PREFIX: &str = "values/";

fn name(entry: u64) -> String {
    format!("{PREFIX}{entry:020}")
}

/// A value that is kept.
pub(crate) trait Kind: Serialize + DeserializeOwned {
    /// Its bytes on the heap.
    fn heap(&self) -> usize;
}

/// A value, and the number of values that were set before.
struct Last<V> {
    value: V,
    number: u64,
}

/// The last value of each key.
pub(crate) struct LastValues<V> {
    values: HashMap<u128, Last<V>>,
    /// The keys in the order in which their values were set, each with the number of the value. Some were set
    /// again since.
    order: VecDeque<(u128, u64)>,
    next: u64,
    max_keys: usize,
    /// That of the hashes.
    secret: Secret,
    /// The bytes of values on the heap.
    heap: usize,
    memory: Kept,
    notes: Option<Notes>,
    /// True if messages have come since the last call of [`pre_commit`](Self::pre_commit).
    has_moved: bool,
    /// True if an earlier run left values that this one does not know.
    is_stale: bool,
}

/// The state for a later run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Saved {
    /// The options that determine what the values are.
    options: String,
    /// That of the hashes, if there are values.
    secret: Option<Secret>,
    /// The first of the entries, and the one after the last.
    first: u64,
    next: u64,
}

/// The values in the journal.
struct Notes {
    journal: Journal,
    /// The entries that the journal has.
    now: Saved,
    /// The number of values in these entries, and of the first value that they do not have.
    count: usize,
    end: u64,
    /// The entries that only the checkpoint before needs.
    old: Vec<u64>,
    told: Option<Saved>,
    /// True once entries that belong to no checkpoint are deleted.
    is_clean: bool,
}

impl<V: Kind> LastValues<V> {
    /// Keeps the values of at most `max_keys` keys, and of fewer with little memory. A value has `bytes` on
    /// the heap. `options` describes what they are of, and `secret` is that of the hashes without a state.
    pub(crate) fn new(
        context: &Context,
        secret: Secret,
        options: String,
        max_keys: usize,
        bytes: usize,
    ) -> Self {
        let most = context.memory.budget().limit() / PART / (KEY + bytes);
        let journal = context.journal.clone().filter(|_| context.resumes && context.rereads);
        let notes = journal.map(|journal| Notes {
            journal,
            now: Saved { options, secret: Some(secret), first: 0, next: 0 },
            count: 0,
            end: 0,
            old: Vec::new(),
            told: None,
            is_clean: false,
        });
        Self {
            values: HashMap::new(),
            order: VecDeque::new(),
            next: 0,
            max_keys: max_keys.min(most).max(1),
            secret,
            heap: 0,
            memory: Kept::new(&context.memory),
            notes,
            has_moved: false,
            is_stale: false,
        }
    }

    /// Returns the secret of the hashes.
    pub(crate) fn secret(&self) -> Secret {
        self.secret
    }

    /// Messages come.
    pub(crate) fn begin(&mut self) {
        self.has_moved = true;
    }

    /// Counts the memory of the values on the budget.
    pub(crate) fn count(&mut self) {
        let place = size_of::<u128>() + size_of::<Last<V>>() + 1;
        let order = self.order.capacity() * size_of::<(u128, u64)>();
        self.memory.set(self.values.capacity() * place + order + self.heap);
    }

    /// Returns the last value of a key.
    pub(crate) fn get(&self, key: u128) -> Option<&V> {
        self.values.get(&key).map(|last| &last.value)
    }

    /// Sets the value of a key.
    pub(crate) fn set(&mut self, key: u128, value: V) {
        self.heap += value.heap();
        let last = Last { value, number: self.next };
        if let Some(former) = self.values.insert(key, last) {
            self.heap -= former.value.heap();
        }
        self.order.push_back((key, self.next));
        self.next += 1;
        while self.values.len() > self.max_keys
            && let Some((oldest, number)) = self.order.pop_front()
        {
            if self.is_last(oldest, number)
                && let Some(forgotten) = self.values.remove(&oldest)
            {
                self.heap -= forgotten.value.heap();
            }
        }
        if self.order.len() > 2 * self.values.len() + ENTRY {
            let values = &self.values;
            self.order.retain(|(key, number)| values.get(key).is_some_and(|last| last.number == *number));
        }
    }

    fn is_last(&self, key: u128, number: u64) -> bool {
        self.values.get(&key).is_some_and(|last| last.number == number)
    }

    /// Puts the values into the journal.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn pre_commit(&mut self) -> Result<(), Error> {
        self.has_moved = false;
        let Some(mut notes) = self.notes.take() else { return Ok(()) };
        let noted = self.note(&mut notes);
        self.notes = Some(notes);
        noted
    }

    fn note(&self, notes: &mut Notes) -> Result<(), Error> {
        if !std::mem::replace(&mut notes.is_clean, true) {
            // Of a run that was killed before its first checkpoint.
            notes.journal.forget(PREFIX)?;
        }
        for entry in notes.old.drain(..) {
            notes.journal.forget(&name(entry))?;
        }
        let added = self.order.len() - self.order.partition_point(|(_, number)| *number < notes.end);
        if notes.count + added > 2 * self.values.len() + ENTRY {
            // Most of them are out of date.
            notes.old.extend(notes.now.first..notes.now.next);
            notes.now.first = notes.now.next;
            (notes.count, notes.end) = (0, 0);
        }
        let start = self.order.partition_point(|(_, number)| *number < notes.end);
        let new: Vec<u128> = self
            .order
            .range(start..)
            .filter(|(key, number)| self.is_last(*key, *number))
            .map(|(key, _)| *key)
            .collect();
        for keys in new.chunks(ENTRY) {
            let entry =
                keys.iter().filter_map(|key| Some(((key >> 64) as u64, *key as u64, self.get(*key)?)));
            let entry = serde_json::to_value(entry.collect::<Vec<_>>());
            let entry = entry.map_err(|error| {
                Error::permanent(format!("the last values cannot be written to the state: {error}"))
            })?;
            notes.journal.note(&name(notes.now.next), &entry)?;
            notes.now.next += 1;
        }
        notes.count += new.len();
        notes.end = self.next;
        Ok(())
    }

    /// Returns the state, if it has changed since the last call.
    pub(crate) fn state(&mut self) -> Option<Value> {
        let Some(notes) = &mut self.notes else {
            // Values that this run does not know would be wrong for the next one.
            let is_stale = std::mem::take(&mut self.is_stale);
            return is_stale.then(|| serde_json::to_value(Saved::default()).ok()).flatten();
        };
        let saved = if self.has_moved { Saved::default() } else { notes.now.clone() };
        if notes.told.as_ref() == Some(&saved) {
            return None;
        }
        let value = serde_json::to_value(&saved).ok();
        notes.told = Some(saved);
        value
    }

    /// Reads the values of a state. Those of other options are forgotten.
    ///
    /// # Errors
    /// If the state cannot be read.
    pub(crate) fn restore(&mut self, saved: Value) -> Result<(), Error> {
        let saved: Saved = serde_json::from_value(saved).map_err(crate::unusable_state)?;
        if saved.first > saved.next || saved.next > u64::MAX / 2 {
            return Err(crate::unusable_state("the numbers of its values are wrong"));
        }
        let Some(mut notes) = self.notes.take() else {
            self.is_stale = saved.first < saved.next;
            return Ok(());
        };
        let restored = match saved.options == notes.now.options {
            true => self.read(&mut notes, saved),
            false => Ok(()),
        };
        self.notes = Some(notes);
        self.count();
        restored
    }

    fn read(&mut self, notes: &mut Notes, saved: Saved) -> Result<(), Error> {
        let Some(secret) = saved.secret else { return Ok(()) };
        let names = notes.journal.names(PREFIX)?;
        let is_needed = |found: &String| {
            let number = found.strip_prefix(PREFIX).and_then(|number| number.parse::<u64>().ok());
            number.is_some_and(|number| (saved.first..saved.next).contains(&number))
        };
        let (needed, others): (Vec<String>, Vec<String>) = names.into_iter().partition(is_needed);
        if needed.len() as u64 != saved.next - saved.first {
            // A run with other options was killed before its first checkpoint. Without values, nothing is
            // lost.
            return Ok(());
        }
        for entry in needed {
            let Some((_, values)) = notes.journal.entries(&entry)?.into_iter().next() else { continue };
            let values: Vec<(u64, u64, V)> = serde_json::from_value(values).map_err(crate::unusable_state)?;
            notes.count += values.len();
            for (upper, lower, value) in values {
                self.set((u128::from(upper) << 64) | u128::from(lower), value);
            }
        }
        others.iter().try_for_each(|other| notes.journal.forget(other))?;
        self.secret = secret;
        notes.is_clean = true;
        notes.end = self.next;
        notes.told = Some(saved.clone());
        notes.now = saved;
        Ok(())
    }
}
