//! The names of sequences: see [`Meta::sequence`].
//!
//! A file begins a sequence when it is first read, and another one when it is rewritten. A sink may know the
//! messages that it has stored by sequence and position. So a later run must find the name again as long as
//! the content is the same, and another one after that. Checkpoints have the name, beside fingerprints of the
//! content, but the first one comes after messages of the sequence were sent.
//!
//! With such a sink in the graph, names are random. Before the first message of a sequence is sent, the name
//! is on the disk, in the journal of the source, with fingerprints of what the file had then. Many files are
//! noted in one write. A note is deleted when a checkpoint has its sequence.
//!
//! Without such a sink, a name is derived from the file, and nothing is noted. A file that is rewritten in
//! its place between a kill and the first checkpoint then has the name of the old one. Notes of earlier runs
//! are deleted: a note counts as later than a checkpoint of another sequence, and the checkpoints of this run
//! come after it.
//!
//! Two alternatives were rejected. *A checkpoint at the beginning of a file* waits for all that is in flight.
//! *A name derived from the content*: a young file has few bytes, and a later run would find more.
//!
//! [`Meta::sequence`]: thalweg_record::Meta::sequence

use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use thalweg_engine::{Error, Journal, SourceOutput};
use xxhash_rust::xxh3::xxh3_64;

use super::saved::{FINGERPRINT_BYTES, Fingerprint, Saved};
use super::tail::Tail;

/// The beginning of the names of the entries in the journal. The partition follows.
const ENTRY: &str = "sequence/";

/// The content that a sequence was begun for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Begun {
    /// The position at which it begins.
    pub(super) start: Saved,
    /// When the file was created: see [`born`].
    born: u64,
    /// The size of the file in bytes when this was noted.
    size: u64,
    /// The hash of the last bytes of that size, in hexadecimal.
    end: String,
    /// The number of bytes that it covers.
    end_bytes: usize,
}

impl Begun {
    /// Returns what a sequence that begins at `start` is begun for.
    pub(super) fn new(start: Saved, file: &File, metadata: &Metadata) -> io::Result<Self> {
        let size = metadata.len();
        let end = Fingerprint::before(file, size, FINGERPRINT_BYTES)?;
        Ok(Self { start, born: born(metadata), size, end: end.text(), end_bytes: end.bytes })
    }

    /// True if a file still has that content, and perhaps more.
    fn fits(&self, file: &File, metadata: &Metadata) -> io::Result<bool> {
        let first = Fingerprint::saved(&self.start.fingerprint, self.start.fingerprint_bytes);
        let end = Fingerprint::saved(&self.end, self.end_bytes);
        let (Some(first), Some(end)) = (first, end) else { return Ok(false) };
        let may_fit = self.born == born(metadata) && metadata.len() >= self.size;
        Ok(may_fit && first.fits(file)? && end.is_before(file, self.size)?)
    }
}

/// The last sequence of a file, as far as it is known.
pub(super) enum Last<'s> {
    /// Nothing, beside the checkpoints.
    Unknown,
    /// The file has the content that it was begun for.
    Same(&'s Begun),
    /// The file was rewritten since, or is another one.
    Other,
}

/// Deletes what earlier runs noted.
///
/// # Errors
/// If the journal cannot be written.
pub(super) fn forget_all(journal: &Journal) -> Result<(), Error> {
    journal.forget(ENTRY)
}

/// The sequences that no checkpoint has.
pub(super) struct Sequences {
    journal: Journal,
    /// By partition.
    begun: HashMap<Arc<str>, Begun>,
    /// The changes that are not in the journal yet.
    changes: Vec<(String, Option<Value>)>,
    /// True if one of them is a new sequence.
    is_due: bool,
}

impl Sequences {
    /// Reads what earlier runs noted.
    ///
    /// # Errors
    /// If the journal cannot be read.
    pub(super) fn load(journal: &Journal, out: &SourceOutput) -> Result<Self, Error> {
        let (mut begun, mut changes) = (HashMap::new(), Vec::new());
        for entry in journal.each(ENTRY) {
            let (name, value) = entry?;
            match (name.strip_prefix(ENTRY), serde_json::from_value(value)) {
                (Some(partition), Ok(found)) => drop(begun.insert(Arc::from(partition), found)),
                // Of another version.
                _ => changes.push((name, None)),
            }
        }
        let mut loaded = Self { journal: journal.clone(), begun, changes, is_due: false };
        loaded.forget_committed(out);
        Ok(loaded)
    }

    /// Returns what is known of the last sequence of a file. `saved` is the checkpoint of its partition.
    pub(super) fn last(
        &self,
        tail: &Tail,
        file: &File,
        metadata: &Metadata,
        saved: Option<&Saved>,
    ) -> io::Result<Last<'_>> {
        let is_unknown = |begun: &&Begun| saved.is_none_or(|saved| saved.sequence != begun.start.sequence);
        if let Some(begun) = self.begun.get(&tail.partition).filter(is_unknown) {
            return Ok(if begun.fits(file, metadata)? { Last::Same(begun) } else { Last::Other });
        }
        // Device numbers may change when the machine restarts.
        let inode = format!(":{:x}", metadata.ino());
        for (_, begun) in self.begun.iter().filter(|(partition, _)| partition.ends_with(&inode)) {
            if is_unknown(&begun) && begun.start.path == *tail.shown && begun.fits(file, metadata)? {
                return Ok(Last::Same(begun));
            }
        }
        Ok(Last::Unknown)
    }

    /// Notes what the sequence of a file was begun for. It must be [written](Self::write) before a message of
    /// it is sent.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub(super) fn note(&mut self, tail: &mut Tail, out: &SourceOutput) -> io::Result<()> {
        let is_committed =
            Saved::committed(out, &tail.partition).is_some_and(|saved| saved.sequence == *tail.sequence);
        if is_committed {
            tail.noted = Some(FINGERPRINT_BYTES);
            return Ok(());
        }
        let mut begun = tail.begun()?;
        // Noted again, because the file has grown: it is still read from where the sequence begins. If the
        // number of its device has changed, the first note is of another partition.
        let is_same = |known: &&Begun| known.start.sequence == begun.start.sequence;
        let own = self.begun.get(&tail.partition).filter(is_same);
        let known = own.or_else(|| tail.noted.and_then(|_| self.begun.values().find(is_same)));
        if let Some(start) = known.map(|known| known.start.clone()) {
            let Saved { fingerprint, fingerprint_bytes, .. } = begun.start;
            begun.start = Saved { fingerprint, fingerprint_bytes, ..start };
            self.forget_if(|partition, known| {
                partition != &*tail.partition && known.start.sequence == begun.start.sequence
            });
        }
        let value = serde_json::to_value(&begun)?;
        tail.noted = Some(begun.start.fingerprint_bytes);
        self.changes.push((format!("{ENTRY}{}", tail.partition), Some(value)));
        self.begun.insert(tail.partition.clone(), begun);
        self.is_due = true;
        Ok(())
    }

    /// True if something was noted that is not written.
    pub(super) fn is_due(&self) -> bool {
        self.is_due
    }

    /// Writes what was noted, and deletes what a checkpoint has.
    ///
    /// # Errors
    /// If the journal cannot be written.
    pub(super) fn write(&mut self, out: &SourceOutput) -> Result<(), Error> {
        self.forget_committed(out);
        if !self.changes.is_empty() {
            self.journal.note_durably(&self.changes)?;
        }
        self.changes.clear();
        self.is_due = false;
        Ok(())
    }

    fn forget_committed(&mut self, out: &SourceOutput) {
        self.forget_if(|partition, begun| {
            let saved = Saved::committed(out, partition);
            saved.is_some_and(|saved| saved.sequence == begun.start.sequence)
        });
    }

    /// Forgets the sequences of files that are gone: those with a partition and a path for which `is_gone` is
    /// true.
    pub(super) fn forget_gone(&mut self, is_gone: impl Fn(&str, &str) -> bool) {
        self.forget_if(|partition, begun| is_gone(partition, &begun.start.path));
    }

    fn forget_if(&mut self, is_over: impl Fn(&str, &Begun) -> bool) {
        let Self { begun, changes, .. } = self;
        begun.retain(|partition, begun| {
            let is_over = is_over(partition, begun);
            if is_over {
                changes.push((format!("{ENTRY}{partition}"), None));
            }
            !is_over
        });
    }
}

/// Returns when a file was created, in nanoseconds since 1970, as far as its file system knows. Inodes are
/// reused, so another file may have the same one.
fn born(metadata: &Metadata) -> u64 {
    let born = metadata.created().ok().and_then(|born| born.duration_since(UNIX_EPOCH).ok());
    u64::try_from(born.unwrap_or_default().as_nanos()).unwrap_or_default()
}

/// Returns the name of a new sequence of a file behind the sequence `before`, derived from them.
pub(super) fn derived(metadata: &Metadata, before: &str) -> Arc<str> {
    // Not from the device, whose number may change when the machine restarts.
    let of = format!("{:x} {} {before}", metadata.ino(), born(metadata));
    format!("{:016x}", xxh3_64(of.as_bytes())).into()
}

/// Returns a name that no other sequence has.
pub(super) fn random() -> Arc<str> {
    format!("{:016x}{:016x}", fastrand::u64(..), fastrand::u64(..)).into()
}
