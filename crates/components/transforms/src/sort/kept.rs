//! The messages that came so far, in the state directory.
//!
//! They are appended to a file of the state directory as they come, one copied batch after the other, each
//! with a checksum, and a checkpoint says how many bytes are its own. A later run reads them and sorts them
//! again. (Rejected: the sorted files themselves as the state. The messages in memory would have to be
//! written with each checkpoint, and files that are merged would have to stay until the next one.)
//!
//! The file stays until the output is delivered and a checkpoint says so.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use thalweg_codec::keys::hash_bytes;
use thalweg_engine::{Error, Journal, OutputFile};
use thalweg_record::{Ack, Outcome};

use crate::entries::Fate;

/// The state for a later run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Saved {
    /// The bytes of the file, and their checksum.
    length: u64,
    hash: u64,
}

impl Saved {
    /// Adds a batch with this head and this number of bytes.
    fn add(&mut self, head: &[u8; HEAD], bytes: usize) {
        let mut both = [0; size_of::<u64>() + HEAD];
        both[..8].copy_from_slice(&self.hash.to_le_bytes());
        both[8..].copy_from_slice(head);
        self.hash = hash_bytes(&both);
        self.length += (HEAD + bytes) as u64;
    }
}

/// The size of the head of each batch: its length, its checksum, and the checksum of both.
const HEAD: usize = 3 * size_of::<u64>();

/// Returns the head of a batch with this length and checksum.
fn head(length: u64, hash: u64) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    head[..8].copy_from_slice(&length.to_le_bytes());
    head[8..16].copy_from_slice(&hash.to_le_bytes());
    let own = hash_bytes(&head[..16]);
    head[16..].copy_from_slice(&own.to_le_bytes());
    head
}

/// The name of the file, and of the entry that belongs to it.
fn name() -> String {
    format!("{}input", Journal::UNFINISHED)
}

/// Refuses a state with messages that this run cannot continue.
pub(super) fn unneeded(saved: Value) -> Result<(), Error> {
    let saved: Saved = serde_json::from_value(saved).map_err(crate::unusable_state)?;
    match saved.length {
        0 => Ok(()),
        _ => Err(Error::permanent(
            "an earlier run left messages that are not sent yet, but a source of this configuration cannot read its \
             messages again. Set the sources back until their input ends, or use another state folder",
        )),
    }
}

/// Keeps messages in the state directory.
pub(super) struct KeptInput {
    journal: Journal,
    /// The name of the transform.
    place: Arc<str>,
    file: Option<OutputFile>,
    /// The content of the file.
    so_far: Saved,
    /// The state at the last call of [`keep`](Self::keep).
    last: Saved,
    /// The state that was returned last.
    told: Option<Saved>,
    /// True if the entry is there.
    is_noted: bool,
    /// Whether the output is delivered, once it has left.
    fate: Option<Fate>,
    /// True if no checkpoint needs the file, if there is one.
    is_unneeded: bool,
}

impl KeptInput {
    pub(super) fn new(journal: Journal, place: &str) -> Self {
        Self {
            journal,
            place: place.into(),
            file: None,
            so_far: Saved::default(),
            last: Saved::default(),
            told: None,
            is_noted: false,
            fate: None,
            // There may be one of a run that was killed before its first checkpoint.
            is_unneeded: true,
        }
    }

    /// Adds a copied batch.
    ///
    /// # Errors
    /// If the state directory cannot be written.
    pub(super) fn add(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(self.journal.open_output(&name(), self.so_far.length)?),
        };
        let head = head(bytes.len() as u64, hash_bytes(bytes));
        file.append(&head)?;
        file.append(bytes)?;
        self.so_far.add(&head, bytes.len());
        Ok(())
    }

    /// The output leaves, with this ack.
    pub(super) fn leaves(&mut self, ack: &mut Ack) {
        self.fate = Some(Fate::of(ack, &self.place));
    }

    fn is_safe(&self) -> bool {
        self.fate.as_ref().is_some_and(Fate::is_safe)
    }

    /// True if output has failed whose messages a checkpoint has.
    pub(super) fn has_failed(&self) -> bool {
        self.fate.as_ref().is_some_and(Fate::has_failed)
    }

    /// True while output is on its way.
    pub(super) fn is_delivering(&self) -> bool {
        self.fate.as_ref().is_some_and(Fate::is_open)
    }

    /// True if output has left whose messages the last checkpoint has.
    pub(super) fn has_news(&self) -> bool {
        self.fate.is_some()
    }

    /// Puts the messages so far on the disk, and settles their acks.
    ///
    /// # Errors
    /// If the state directory cannot be written.
    pub(super) fn keep(&mut self, ack: Ack) -> Result<(), Error> {
        if self.is_unneeded && self.so_far.length == 0 {
            self.forget()?;
        }
        if self.is_safe() {
            self.fate = None;
            self.file = None;
            self.so_far = Saved::default();
            // The next call comes when a checkpoint without the messages is saved.
            self.is_unneeded = true;
        } else if self.so_far.length > 0 {
            if let Some(file) = &self.file {
                file.sync()?;
            }
            if !self.is_noted {
                self.journal.note(&name(), &Value::Bool(true))?;
                self.is_noted = true;
            }
        }
        self.last = self.so_far;
        ack.settle(Outcome::Delivered);
        Ok(())
    }

    /// Removes the file.
    fn forget(&mut self) -> Result<(), Error> {
        self.journal.forget(&name())?;
        self.journal.forget_outputs_except([])?;
        (self.is_unneeded, self.is_noted) = (false, false);
        Ok(())
    }

    /// Returns the state, if it has changed since the last call.
    pub(super) fn state(&mut self) -> Option<Value> {
        let saved = if self.is_safe() { Saved::default() } else { self.last };
        let changed = self.told.replace(saved) != Some(saved);
        changed.then(|| serde_json::to_value(saved).ok()).flatten()
    }

    /// Passes the batches of a state to `take`.
    ///
    /// # Errors
    /// If the state directory does not have them, and the errors of `take`.
    pub(super) fn restore(
        &mut self,
        saved: Value,
        mut take: impl FnMut(Vec<u8>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let saved: Saved = serde_json::from_value(saved).map_err(crate::unusable_state)?;
        if saved.length == 0 {
            return self.forget();
        }
        let (mut found, mut rest) = (Saved::default(), Vec::<u8>::new());
        self.journal.read_output(&name(), saved.length, |bytes| {
            rest.extend(bytes);
            let mut at = 0;
            loop {
                match first(rest.get(at..).unwrap_or_default()) {
                    First::Whole(head, batch) => {
                        found.add(head, batch.len());
                        at += HEAD + batch.len();
                        take(batch.to_vec())?;
                    }
                    First::Part => break,
                    First::Changed => return Err(self.journal.changed_output(&name())),
                }
            }
            rest.drain(..at);
            Ok(())
        })?;
        if found != saved {
            return Err(self.journal.changed_output(&name()));
        }
        (self.so_far, self.last, self.told) = (saved, saved, Some(saved));
        (self.is_noted, self.is_unneeded) = (true, false);
        Ok(())
    }
}

/// The batch at the beginning of some bytes.
enum First<'a> {
    Whole(&'a [u8; HEAD], &'a [u8]),
    /// The rest of it follows.
    Part,
    /// It is damaged. A wrong length would collect the whole file in memory.
    Changed,
}

fn first(bytes: &[u8]) -> First<'_> {
    let Some((found, rest)) = bytes.split_first_chunk::<HEAD>() else { return First::Part };
    let number = |at: usize| found.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
    let (length, hash) = (number(0).unwrap_or_default(), number(8).unwrap_or_default());
    if *found != head(length, hash) {
        return First::Changed;
    }
    match usize::try_from(length).ok().and_then(|length| rest.get(..length)) {
        None => First::Part,
        Some(batch) if hash_bytes(batch) == hash => First::Whole(found, batch),
        Some(_) => First::Changed,
    }
}
