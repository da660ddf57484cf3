//! Keys that survive a restart: notes in the journal, of which a checkpoint says how many are valid.
//!
//! The keys that came since the last checkpoint are noted just before the next one, and the checkpoint itself
//! contains only a number: keys before it are remembered. It is that of the first key whose message is not
//! settled. Such a message comes again after a kill, and would be lost if its key was remembered. A restart
//! deletes the notes of later keys. To put all keys into each checkpoint was rejected: it would write the
//! whole window twice a second.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use thalweg_codec::keys::Secret;
use thalweg_engine::{Error, Journal};
use thalweg_record::{Ack, Batch, Settlement};

use super::seen::Seen;

/// The size of a key in bytes.
const KEY: usize = size_of::<u128>();
/// The maximum number of keys in a note.
const NOTE: usize = 1 << 16;
/// Notes are read and deleted by the leading digits of their numbers, so that not all are in memory at once.
const PAGE: u64 = 100_000;

/// The part of the state that is in the checkpoint.
#[derive(Serialize, Deserialize)]
struct Checkpoint {
    /// The fields of the key.
    keys: Vec<String>,
    /// That of their hashes.
    secret: Secret,
    /// The lowest number that is remembered, and the number after the highest.
    least: u64,
    next: u64,
}

/// A batch of new messages that is not known to be settled.
struct Watched {
    /// The number of its first key.
    first: u64,
    /// One of the constants below.
    fate: Arc<AtomicU8>,
}

/// The messages are on their way.
const OPEN: u8 = 0;
/// Every message is settled: none comes again.
const SAFE: u8 = 1;
/// Some messages failed. They come again, or take another route, in this run or a later one.
const FAILED: u8 = 2;

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
    secret: Secret,
    /// The name of the transform.
    place: Arc<str>,
    /// The keys that are not noted yet.
    unnoted: Vec<u128>,
    /// The batches that are not settled, or came after one that is not.
    watched: VecDeque<Watched>,
    /// The number of the first key of a batch that failed. Keys from there on are not remembered before
    /// nothing moves any more.
    failed_at: Option<u64>,
    /// The lowest number of which there may be a note. None before anything was read or deleted.
    oldest: Option<u64>,
    /// The numbers of the last checkpoint: the least and the next.
    last: (u64, u64),
    /// The least number of the checkpoint before it, which is the saved one until the last one is saved.
    needed: u64,
}

impl Saved {
    /// Keeps keys of these fields, if there is a journal. `secret` is that of their hashes without a state.
    pub(super) fn new(journal: Option<Journal>, fields: Vec<String>, secret: Secret, place: &str) -> Self {
        Self {
            journal,
            fields,
            secret,
            place: place.into(),
            unnoted: Vec::new(),
            watched: VecDeque::new(),
            failed_at: None,
            oldest: None,
            last: (0, 0),
            needed: 0,
        }
    }

    /// The secret of the hashes.
    pub(super) fn secret(&self) -> Secret {
        self.secret
    }

    /// Adds a new key.
    pub(super) fn add(&mut self, key: u128) {
        if self.journal.is_some() {
            self.unnoted.push(key);
        }
    }

    /// Learns what becomes of new messages, of which the first key has this number.
    pub(super) fn watch(&mut self, batch: &mut Batch, first: u64) {
        self.drop_settled();
        if self.journal.is_none() || self.failed_at.is_some() {
            return;
        }
        let fate = Arc::new(AtomicU8::new(OPEN));
        let told = fate.clone();
        let answer = move |settlement: Settlement| {
            told.store(if settlement.outcome.is_safe() { SAFE } else { FAILED }, Ordering::Release);
        };
        // Where all origins have a failover, a sink fails a batch instead of retrying: so must it be with
        // this one.
        let ack = match batch.ack().has_failover() {
            true => Ack::with_failover(self.place.clone(), answer),
            false => Ack::new(self.place.clone(), answer),
        };
        batch.ack_mut().merge(ack);
        self.watched.push_back(Watched { first, fate });
    }

    /// Forgets the batches before the first one that is not settled.
    fn drop_settled(&mut self) {
        while let Some(first) = self.watched.front() {
            match first.fate.load(Ordering::Acquire) {
                OPEN => return,
                SAFE => drop(self.watched.pop_front()),
                _ => {
                    self.failed_at = Some(first.first);
                    self.watched.clear();
                }
            }
        }
    }

    /// Nothing moves. A batch that failed in one sink of a failover is in another one now: without a
    /// failover, the run would have ended.
    pub(super) fn forget_failures(&mut self) {
        self.drop_settled();
        self.failed_at = None;
    }

    /// The numbers that a checkpoint has: of the lowest key that is remembered, and after the highest.
    fn covered(&mut self, seen: &Seen) -> (u64, u64) {
        self.drop_settled();
        let next = self.failed_at.or(self.watched.front().map(|first| first.first));
        let next = next.unwrap_or(seen.next());
        (seen.least().min(next), next)
    }

    /// Notes the new keys if they are many.
    pub(super) fn note_if_many(&mut self, seen: &Seen, now: Duration) -> Result<(), Error> {
        if self.unnoted.len() < NOTE { Ok(()) } else { self.note(seen, now) }
    }

    /// Notes the new keys, and deletes notes that no checkpoint needs.
    fn note(&mut self, seen: &Seen, now: Duration) -> Result<(), Error> {
        let Some(journal) = &self.journal else { return Ok(()) };
        if self.oldest.is_none() {
            // Of a run that was killed before its first checkpoint.
            journal.forget("")?;
        }
        let mut first = seen.next() - self.unnoted.len() as u64;
        let oldest = *self.oldest.get_or_insert(first);
        for keys in self.unnoted.chunks(NOTE) {
            let bytes: Vec<[u8; KEY]> = keys.iter().map(|key| key.to_le_bytes()).collect();
            journal.note(&name(first), &written(now.as_millis() as u64, &bytes))?;
            first += keys.len() as u64;
        }
        self.unnoted.clear();
        // The note before a page may reach into it.
        let end = (self.needed / PAGE).saturating_sub(1);
        for page in oldest / PAGE..end {
            journal.forget(&prefix(page))?;
        }
        self.oldest = Some(oldest.max(end * PAGE));
        Ok(())
    }

    /// Returns the state of the checkpoint, if it is another than the last one.
    pub(super) fn state(&mut self, seen: &Seen, now: Duration) -> Result<Option<Value>, Error> {
        let covered = self.covered(seen);
        if self.journal.is_none() || covered == self.last {
            return Ok(None);
        }
        self.needed = self.last.0;
        self.last = covered;
        self.note(seen, now)?;
        let (least, next) = covered;
        let (keys, secret) = (self.fields.clone(), self.secret);
        Ok(serde_json::to_value(Checkpoint { keys, secret, least, next }).ok())
    }

    /// Remembers the keys of a checkpoint, and deletes later notes.
    pub(super) fn restore(&mut self, saved: Value, seen: &mut Seen) -> Result<(), Error> {
        let saved: Checkpoint = serde_json::from_value(saved).map_err(crate::unusable_state)?;
        let Some(journal) = self.journal.clone().filter(|_| saved.keys == self.fields) else { return Ok(()) };
        if saved.least > saved.next || saved.next > u64::MAX / 2 {
            return Err(crate::unusable_state("the numbers of its keys are wrong"));
        }
        self.secret = saved.secret;
        let start = (saved.least / PAGE).saturating_sub(1) * PAGE;
        self.oldest = Some(start);
        self.last = (saved.least, saved.next);
        self.needed = saved.least;
        seen.begin_at(saved.least);
        for name in journal.names("")? {
            match name.parse() {
                Ok(first) if first < start => {}
                Ok(first) if first < saved.next => {
                    for (name, note) in journal.entries(&name)? {
                        if let Some(rest) = read(first..saved.next, note, seen)? {
                            journal.note(&name, &rest)?;
                        }
                    }
                }
                // Of messages that are read again.
                _ => journal.forget(&name)?,
            }
        }
        if seen.next() != saved.next {
            // A note is missing, so the numbers of those before it are wrong.
            seen.begin_at(saved.next);
        }
        Ok(())
    }
}

/// Remembers the keys of a note that have these numbers and are not remembered yet. Returns what is to be
/// left of the note, if it has keys of later numbers.
fn read(numbers: Range<u64>, note: Value, seen: &mut Seen) -> Result<Option<Value>, Error> {
    let note: Note = serde_json::from_value(note).map_err(crate::unusable_state)?;
    let bytes = STANDARD.decode(&note.keys).map_err(crate::unusable_state)?;
    let (keys, _) = bytes.as_chunks::<KEY>();
    for (key, number) in keys.iter().zip(numbers.clone()) {
        if number >= seen.next() {
            let time = Duration::from_millis(note.time);
            seen.push(u128::from_le_bytes(*key), time).map_err(super::unusable_file)?;
        }
    }
    let left = usize::try_from(numbers.end - numbers.start).unwrap_or(usize::MAX);
    Ok(keys.get(..left).filter(|left| left.len() < keys.len()).map(|left| written(note.time, left)))
}

/// Returns a note of keys.
fn written(time: u64, keys: &[[u8; KEY]]) -> Value {
    json!({"time": time, "keys": STANDARD.encode(keys.as_flattened())})
}

/// The name of the note whose first key has this number. Names are in the order of numbers.
fn name(first: u64) -> String {
    format!("{first:020}")
}

/// The start of the names of all notes that begin in a page.
fn prefix(page: u64) -> String {
    format!("{page:015}")
}
