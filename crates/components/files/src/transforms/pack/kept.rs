//! The unfinished file in a checkpoint.
//!
//! A batch may be divided between two files. While the second one is not finished, no position covers the
//! batch, and a run after a kill would read all of it again: the messages in the first file would be there
//! twice. So a checkpoint has the unfinished file, and covers all messages so far. Its bytes are in the state
//! directory, to which each checkpoint adds the new ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use thalweg_engine::{Error, Journal};
use thalweg_record::Ack;

use super::{Begun, Compression, unwritable};
use crate::kept_bytes::{KeptBytes, forget};

/// The state for a later run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Saved {
    /// The number of the next file.
    pub(super) next: u64,
    /// The part of it that the state directory has.
    pub(super) file: Option<Kept>,
}

/// The part of an unfinished file that the state directory has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Kept {
    /// When it was begun, in microseconds since 1970.
    at_us: i64,
    /// The bytes before compression, and the number of messages.
    pub(super) bytes: u64,
    pub(super) count: u64,
    /// The bytes after compression.
    stored: KeptBytes,
    /// How they are compressed.
    pub(super) compression: Compression,
}

impl Kept {
    /// When the file was begun.
    pub(super) fn begun(&self) -> DateTime<Utc> {
        DateTime::from_timestamp_micros(self.at_us).unwrap_or_default()
    }
}

/// The unfinished files in the state directory.
pub(super) struct KeptFiles {
    journal: Journal,
    /// The files that were finished since the last checkpoint, and those before it.
    finished: Vec<u64>,
    old: Vec<u64>,
    sent: Arc<Sent>,
}

/// The finished files that the state directory has. No position shows whether they arrive: the messages that
/// a checkpoint has are settled.
#[derive(Default)]
struct Sent {
    /// The number of files that are on their way.
    delivering: AtomicUsize,
    /// True if one has failed.
    has_failed: AtomicBool,
}

/// An error of the file or of the state directory.
struct Failed(Error);

impl From<std::io::Error> for Failed {
    fn from(error: std::io::Error) -> Self {
        Self(unwritable(error))
    }
}

impl KeptFiles {
    pub(super) fn new(journal: Journal) -> Self {
        Self { journal, finished: Vec::new(), old: Vec::new(), sent: Arc::default() }
    }

    /// Adds the bytes of a file that the state directory does not have.
    pub(super) fn keep(&self, file: &mut Begun, compression: Compression) -> Result<(), Error> {
        let stored = file.kept.map(|kept| kept.stored).unwrap_or_default();
        let name = name(file.number);
        let mut adding = stored.adding(&self.journal, &name);
        let add = |bytes: &[u8]| adding.add(bytes).map_err(Failed);
        file.content.read_after(stored.size(), add).map_err(|Failed(error)| error)?;
        let stored = adding.finish()?;
        let (bytes, count) = (file.bytes, file.count);
        file.kept = Some(Kept { at_us: file.at.timestamp_micros(), bytes, count, stored, compression });
        Ok(())
    }

    /// Passes the bytes of a file to `take`.
    pub(super) fn read(
        &self,
        number: u64,
        kept: Kept,
        take: impl FnMut(Vec<u8>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        kept.stored.read(&self.journal, &name(number), take)
    }

    /// A file that the state directory has is finished. Returns an ack that shows whether it arrives.
    pub(super) fn finished(&mut self, number: u64, component: &Arc<str>) -> Ack {
        self.finished.push(number);
        let sent = self.sent.clone();
        sent.delivering.fetch_add(1, SeqCst);
        Ack::new(component.clone(), move |settlement| {
            // First, so that no checkpoint comes between.
            sent.has_failed.fetch_or(!settlement.outcome.is_safe(), SeqCst);
            sent.delivering.fetch_sub(1, SeqCst);
        })
    }

    /// True if a finished file has failed: only the last saved checkpoint has its messages.
    pub(super) fn has_failed(&self) -> bool {
        self.sent.has_failed.load(SeqCst)
    }

    /// True if files were finished that the last checkpoint has as unfinished.
    pub(super) fn has_news(&self) -> bool {
        !self.finished.is_empty()
    }

    /// True if a finished file is on its way.
    pub(super) fn is_delivering(&self) -> bool {
        self.sent.delivering.load(SeqCst) > 0
    }

    /// Forgets the files that no checkpoint needs: the last one was taken after they were finished.
    pub(super) fn forget_old(&mut self) -> Result<(), Error> {
        for number in self.old.drain(..) {
            forget(&self.journal, &name(number))?;
        }
        self.old.append(&mut self.finished);
        Ok(())
    }

    /// Forgets all files but that of a checkpoint from which a run resumes: the run before was killed.
    pub(super) fn forget_others(&self, kept: Option<u64>) -> Result<(), Error> {
        let kept = kept.map(name);
        self.journal.forget_outputs_except(kept.as_deref())?;
        for entry in self.journal.names(&files())? {
            if !kept.as_deref().is_some_and(|kept| entry.starts_with(kept)) {
                self.journal.forget(&entry)?;
            }
        }
        Ok(())
    }
}

/// The beginning of the names of all files.
fn files() -> String {
    format!("{}file/", Journal::UNFINISHED)
}

/// The name of a file, with which the names of its entries begin.
fn name(number: u64) -> String {
    format!("{}{number}/", files())
}
