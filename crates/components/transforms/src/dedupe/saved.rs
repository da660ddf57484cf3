//! Keys that survive a restart: notes in the journal, of which a checkpoint says how many are valid.
//!
//! The keys that came since the last checkpoint are noted just before the next one, and the checkpoint itself
//! contains only the number of the next key. Notes of later keys are of messages that are read again, so a
//! restart deletes them. To put all keys into each checkpoint was rejected: it would write the whole window
//! twice a second.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use thalweg_engine::{Error, Journal};

use super::seen::Seen;

/// The maximum number of keys in a note.
const NOTE: usize = 1 << 16;
/// Notes are read and deleted by the leading digits of their numbers, so that not all are in memory at once.
const PAGE: u64 = 100_000;

/// The part of the state that is in the checkpoint.
#[derive(Serialize, Deserialize)]
struct Checkpoint {
    /// The fields of the key.
    keys: Vec<String>,
    /// The lowest number that is remembered, and the number of the next key.
    least: u64,
    next: u64,
}

/// Some keys with consecutive numbers.
#[derive(Deserialize)]
struct Note {
    /// When it was written, in milliseconds since 1970.
    time: u64,
    /// Their bytes, in base64.
    keys: String,
}

/// Keeps keys in the journal.
pub(super) struct Saved {
    journal: Option<Journal>,
    fields: Vec<String>,
    /// The keys that are not noted yet.
    unnoted: Vec<u128>,
    /// The lowest number of which there may be a note. None before anything was read or deleted.
    oldest: Option<u64>,
    has_changed: bool,
}

impl Saved {
    /// Keeps keys of these fields, if there is a journal.
    pub(super) fn new(journal: Option<Journal>, fields: Vec<String>) -> Self {
        Self { journal, fields, unnoted: Vec::new(), oldest: None, has_changed: false }
    }

    /// Adds a new key.
    pub(super) fn add(&mut self, key: u128) {
        if self.journal.is_some() {
            self.unnoted.push(key);
            self.has_changed = true;
        }
    }

    /// Notes the new keys if they are many.
    pub(super) fn note_if_many(&mut self, seen: &Seen, now: Duration) -> Result<(), Error> {
        if self.unnoted.len() < NOTE { Ok(()) } else { self.note(seen, now) }
    }

    /// Notes the new keys, and deletes the notes of forgotten ones.
    fn note(&mut self, seen: &Seen, now: Duration) -> Result<(), Error> {
        let Some(journal) = &self.journal else { return Ok(()) };
        if self.oldest.is_none() {
            // Of a run that was killed before its first checkpoint.
            journal.forget("")?;
        }
        let mut first = seen.next() - self.unnoted.len() as u64;
        let oldest = *self.oldest.get_or_insert(first);
        for keys in self.unnoted.chunks(NOTE) {
            let bytes: Vec<u8> = keys.iter().flat_map(|key| key.to_le_bytes()).collect();
            let time = now.as_millis() as u64;
            let note = json!({"time": time, "keys": STANDARD.encode(bytes)});
            journal.note(&name(first), &note)?;
            first += keys.len() as u64;
        }
        self.unnoted.clear();
        // The note before a page may reach into it.
        let end = (seen.least() / PAGE).saturating_sub(1);
        for page in oldest / PAGE..end {
            journal.forget(&prefix(page))?;
        }
        self.oldest = Some(oldest.max(end * PAGE));
        Ok(())
    }

    /// Returns the state of the checkpoint, if there are new keys.
    pub(super) fn state(&mut self, seen: &Seen, now: Duration) -> Result<Option<Value>, Error> {
        if !self.has_changed {
            return Ok(None);
        }
        self.note(seen, now)?;
        self.has_changed = false;
        let checkpoint = Checkpoint { keys: self.fields.clone(), least: seen.least(), next: seen.next() };
        Ok(serde_json::to_value(checkpoint).ok())
    }

    /// Remembers the keys of a checkpoint, and deletes later notes.
    pub(super) fn restore(&mut self, saved: Value, seen: &mut Seen) -> Result<(), Error> {
        let saved: Checkpoint = serde_json::from_value(saved).map_err(crate::unusable_state)?;
        let Some(journal) = self.journal.clone().filter(|_| saved.keys == self.fields) else { return Ok(()) };
        let start = (saved.least / PAGE).saturating_sub(1);
        self.oldest = Some(start * PAGE);
        seen.begin_at(saved.least);
        for page in start..=saved.next / PAGE {
            for (name, note) in journal.entries(&prefix(page))? {
                match name.parse() {
                    Ok(first) if first < saved.next => read(first, note, seen)?,
                    _ => journal.forget(&name)?,
                }
            }
        }
        if seen.next() != saved.next {
            // A note is missing, so the numbers of those before it are wrong.
            seen.begin_at(saved.next);
        }
        // Notes of later pages, all of which are of messages that are read again.
        let mut page = saved.next / PAGE + 1;
        while !journal.entries(&prefix(page))?.is_empty() {
            journal.forget(&prefix(page))?;
            page += 1;
        }
        Ok(())
    }
}

/// Remembers the keys of a note that are not remembered yet.
fn read(first: u64, note: Value, seen: &mut Seen) -> Result<(), Error> {
    let note: Note = serde_json::from_value(note).map_err(crate::unusable_state)?;
    let bytes = STANDARD.decode(&note.keys).map_err(crate::unusable_state)?;
    let (keys, _) = bytes.as_chunks();
    for (key, number) in keys.iter().zip(first..) {
        if number >= seen.next() {
            let time = Duration::from_millis(note.time);
            seen.push(u128::from_le_bytes(*key), time).map_err(super::unusable_file)?;
        }
    }
    Ok(())
}

/// The name of the note whose first key has this number. Names are in the order of numbers.
fn name(first: u64) -> String {
    format!("{first:020}")
}

/// The start of the names of all notes that begin in a page.
fn prefix(page: u64) -> String {
    format!("{page:015}")
}
