//! Resumes where an earlier run ended.
//!
//! Three places say what an earlier run wrote. The saved state has the durable length of each file, at the
//! moment of the last checkpoint. The journal has the files to which the run began to write after that
//! moment, with the length that they had before. The folder has the files themselves: those that neither
//! names belong to other programs or runs.
//!
//! If the sources send again what no checkpoint covers, all files are cut to the lengths of the first two,
//! under whatever name a killed run left them, and later pieces are removed. If they do not, all whole
//! messages stay, and pieces that were not finished are finished or continued.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hashbrown::HashMap;
use serde::{Deserialize, Serialize};
use thalweg_engine::{Error, Journal, WriteOutcome};

use super::super::ending::has_ending;
use super::super::identity::Identity;
use super::super::names::{self, Found, Numbers, Style};
use super::super::opening::{self, Beginning, Beyond};
use super::super::pack::{Packable, Packing};
use super::super::piece::Piece;
use super::finishing::remove;
use super::former::{Form, is_default};
use super::locating::Notes;
use super::{Compression, Files, MOST_KNOWN, Settings, Stream, begin_error};

/// The state of a file, saved for a later run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::sinks::file) struct Saved {
    pub(super) name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) number: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) stamp: Option<String>,
    pub(super) length: u64,
    /// The inode of the file. The pieces in the states of earlier versions have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    inode: Option<u64>,
    /// The time of its creation: see [`Identity`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    created: Option<u64>,
    /// The checksum of its bytes up to its length: see [`ending`](super::super::ending).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ending: Option<u64>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    finished: bool,
    /// True for a piece, and false for the number of the next one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_begun: bool,
    /// The number of notes up to this moment: see [`super::begun`].
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) noted: u64,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) form: Form,
}

impl Saved {
    /// The final name of the file.
    pub(super) fn path(&self) -> PathBuf {
        self.form.style.path(&self.name, self.number, self.stamp.as_deref())
    }

    /// The file. `None` if it is not known, or there is none yet.
    pub(super) fn identity(&self) -> Option<Identity> {
        Some(Identity { inode: self.inode?, created: self.created })
    }

    /// True if the file of this name has the content of the saved one.
    pub(super) fn is_copied_to(&self, path: &Path) -> bool {
        has_ending(path, self.length, self.ending)
    }

    /// False if it only reserves the number after a finished piece.
    pub(super) fn has_file(&self) -> bool {
        self.is_begun || !self.form.rotates
    }

    /// True if it is the state of another name.
    pub(super) fn is_not_of(&self, name: &str) -> bool {
        self.name != name
    }

    /// True if a run began to continue this finished file, as its journal says.
    fn is_continued_by(&self, note: &Saved) -> bool {
        self.finished && note.noted > self.noted
    }
}

/// The key of a name in the journal. A name has no NUL, so no key begins with another.
fn key(name: &str) -> String {
    format!("{name}\0")
}

/// Returns the files that the last run began to write to, by name.
fn begun(journal: Option<&Journal>) -> Result<HashMap<String, Saved>, Error> {
    let Some(journal) = journal else { return Ok(HashMap::new()) };
    let entries = journal.entries("")?.into_iter();
    let notes = entries.filter_map(|(_, value)| serde_json::from_value::<Saved>(value).ok());
    Ok(notes.map(|note| (note.name.clone(), note)).collect())
}

impl Files {
    /// Restores the state that an earlier run left.
    pub(in crate::sinks::file) fn resume(&mut self, saved: Vec<Saved>) -> Result<(), Error> {
        self.begun = Arc::new(Notes::new(self.settle_noted(&saved)?));
        let mut begun = begun(self.settings.journal.as_ref())?;
        let last = begun.values().map(|note| note.noted).max().unwrap_or(0);
        self.noted.set(self.noted.get().max(last));
        let (mut entries, mut superseded) = (Vec::new(), Vec::new());
        for entry in saved {
            match begun.get_mut(&entry.name) {
                Some(note) if note.form != entry.form && !note.is_same_file(&entry) => {}
                Some(note) if note.form != entry.form || entry.is_continued_by(note) => {
                    // The first note of the file may be older than the state.
                    if entry.inode.is_some() && note.identity() == entry.identity() {
                        (note.length, note.ending) = (entry.length, entry.ending);
                    }
                    continue;
                }
                Some(_) => superseded.extend(begun.remove(&entry.name).map(|note| note.name)),
                None => {}
            }
            entries.push(entry);
        }
        let form = self.settings.form();
        let numbers = begun.values().filter(|note| note.form.style.numbers == Numbers::Always);
        let numbers = numbers.filter_map(|note| Some((note.name.clone(), note.number?))).collect();
        entries.extend(begun.into_values());
        let (entries, former) = entries.into_iter().partition(|entry| entry.form == form);
        self.complete_former(former, &numbers)?;
        self.resume_entries(entries)?;
        self.begun = Arc::default();
        superseded.iter().try_for_each(|name| self.forget_note(name))
    }

    /// Restores files that were written with the options of this run.
    pub(super) fn resume_entries(&mut self, entries: Vec<Saved>) -> Result<(), Error> {
        let mut resumed = Vec::new();
        for entry in entries {
            if entry.finished {
                self.keep_finished(entry)?;
            } else {
                resumed.extend(self.resume_entry(&entry)?);
            }
        }
        resumed.sort_unstable();
        for pieces in resumed.chunk_by(|one, other| one.0 == other.0) {
            if let Some(&(slot, from)) = pieces.first() {
                self.settle_later_pieces(slot, from)?;
            }
        }
        Ok(())
    }

    fn keep_finished(&mut self, entry: Saved) -> Result<(), Error> {
        let path = self.path(&entry.name, entry.number, entry.stamp.as_deref());
        let (beyond, pieces) = (self.beyond(), &self.settings.pieces);
        opening::restore(path.clone(), entry.length, beyond, pieces)
            .map_err(|error| begin_error(&path, &error))?;
        self.known.insert(entry.name.clone(), entry);
        Ok(())
    }

    /// Returns how bytes that no checkpoint covers are treated.
    fn beyond(&self) -> Beyond {
        if self.settings.resends { Beyond::Cut } else { Beyond::Whole }
    }

    /// Continues a file. Returns its slot and number, if it has numbered pieces.
    fn resume_entry(&mut self, entry: &Saved) -> Result<Option<(usize, u32)>, Error> {
        // Its file has been completed, if it was of another form.
        self.known.remove(&entry.name);
        let slot = match self.by_name.get(entry.name.as_bytes()) {
            Some(&slot) => slot,
            None => self.insert(Stream::new(&entry.name)),
        };
        let mut stream = self.lift(slot)?;
        let result = self.resume_stream(&mut stream, entry);
        self.streams[slot] = Some(stream);
        result?;
        if self.streams[slot].as_ref().is_some_and(|stream| stream.current.is_some()) {
            self.admit(slot);
        }
        let stream = self.streams[slot].as_ref();
        let current = stream.and_then(|stream| stream.current.as_ref());
        let number = current.map_or(entry.number, |piece| piece.number);
        Ok(number.filter(|_| self.settings.rotates).map(|number| (slot, number)))
    }

    fn resume_stream(&mut self, stream: &mut Stream, entry: &Saved) -> Result<(), Error> {
        // Of several pieces of a name, the last one saved is the current one.
        stream.set_aside();
        stream.forget_name();
        stream.next = entry.number;
        stream.is_noted = true;
        if !self.settings.rotates {
            return self.continue_piece(stream, entry, entry.inode);
        }
        if !entry.has_file() {
            return Ok(());
        }
        let Some(found) = self.locate(entry) else {
            if entry.length > 0 {
                opening::warn_missing(&entry.path());
            }
            return Ok(());
        };
        let found = self.unpack(stream, found, entry).map_err(|error| begin_error(&entry.path(), &error))?;
        self.continue_piece(stream, &found, None)
    }

    fn continue_piece(&self, stream: &mut Stream, entry: &Saved, inode: Option<u64>) -> Result<(), Error> {
        stream.next = entry.number;
        stream.stamp.clone_from(&entry.stamp);
        stream.is_named = true;
        stream.beginning =
            Beginning::Continue { length: entry.length, beyond: self.beyond(), inode, ending: entry.ending };
        self.begin_piece(stream)
    }

    /// Handles the pieces that the earlier run made after the saved state, from a number on.
    fn settle_later_pieces(&mut self, slot: usize, from: u32) -> Result<(), Error> {
        let mut stream = self.lift(slot)?;
        let result = match (self.settings.resends, self.settings.pieces.style.numbers) {
            (true, Numbers::Always) if self.settings.journal.is_none() => self.remove_later(&stream, from),
            // Removed already: they were noted.
            (true, _) => Ok(()),
            (false, _) => self.adopt_unfinished(&mut stream, from),
        };
        let result = result.and_then(|()| self.pack_again(&mut stream));
        self.unsettled |= !stream.ended.is_empty();
        self.streams[slot] = Some(stream);
        result
    }

    /// Returns the pieces of a name from a number on, also unfinished ones. Those of another form are not
    /// among them. Without numbers that increase, all pieces are returned.
    fn later(&self, name: &str, from: u32) -> Result<Vec<Found>, Error> {
        let end = self.begun_after.get(name);
        let mut found = self.existing(name, true)?;
        if self.settings.pieces.style.numbers == Numbers::Always {
            found.retain(|found| found.number >= from && end.is_none_or(|end| found.number < *end));
        }
        Ok(found)
    }

    /// Compresses again the pieces of whose compressed form a killed run wrote only a part.
    pub(super) fn pack_again(&self, stream: &mut Stream) -> Result<(), Error> {
        let how = self.settings.pieces.style.pack;
        if how == Compression::None {
            return Ok(());
        }
        for found in self.existing(&stream.name, true)? {
            let piece = self.path(&stream.name, Some(found.number), found.stamp.as_deref());
            let part = names::part(&found.path);
            if found.path == piece || !part.exists() {
                continue;
            }
            if piece.exists() {
                stream.pack(piece, false, &self.settings);
            } else {
                remove(&part);
            }
        }
        Ok(())
    }

    /// Removes the pieces whose messages are sent again.
    fn remove_later(&self, stream: &Stream, from: u32) -> Result<(), Error> {
        let pieces = stream.ended.iter().chain(&stream.current);
        let kept: Vec<_> =
            pieces.map(|piece| self.path(&stream.name, piece.number, piece.stamp.as_deref())).collect();
        for found in self.later(&stream.name, from)? {
            if !kept.contains(&found.path) {
                found.unfinished().iter().chain([&found.path]).for_each(|path| remove(path));
            }
        }
        Ok(())
    }

    /// Continues the pieces from a number on that an interrupted run left unfinished, with their whole
    /// messages: the last of all becomes the current one, the others are finished.
    pub(super) fn adopt_unfinished(&self, stream: &mut Stream, from: u32) -> Result<(), Error> {
        let style = &self.settings.pieces.style;
        let mut next = stream.next;
        let found = self.later(&stream.name, from)?;
        for found in &found {
            next = next.max(Some(found.number.saturating_add(1)));
            let unfinished = found.unfinished();
            let is_packed = found.path != self.path(&stream.name, Some(found.number), found.stamp.as_deref());
            if !is_packed && !stream.has(found, style) && unfinished.iter().any(|path| path.exists()) {
                stream.set_aside();
                stream.next = Some(found.number);
                stream.stamp.clone_from(&found.stamp);
                stream.is_named = true;
                stream.beginning = Beginning::Append;
                self.begin_piece(stream)?;
            }
        }
        let is_last = match style.numbers {
            Numbers::Always => {
                next == stream.current.as_ref().and_then(|piece| Some(piece.number?.saturating_add(1)))
            }
            Numbers::IfTaken => found.last().is_none_or(|last| stream.is_current(last, style)),
        };
        // Nothing would cut off additions to such a piece after a kill: the next note of the name is about
        // another piece.
        let is_cut = self.settings.resends && self.settings.journal.is_some();
        if !is_last || is_cut {
            stream.set_aside();
        }
        if style.numbers == Numbers::Always {
            stream.next = next;
        }
        Ok(())
    }

    /// Notes in the journal that messages are written to a stream that the saved state does not have yet. A
    /// file that was finished and is continued keeps the length of its first note: no checkpoint may have
    /// been taken since.
    pub(super) fn note(&self, stream: &mut Stream) -> Result<(), Error> {
        let Some(piece) = stream.current.as_ref().filter(|piece| !stream.is_noted && !piece.is_special())
        else {
            return Ok(());
        };
        if let Some(journal) = &self.settings.journal {
            self.noted.set(self.noted.get() + 1);
            let mut note = self.saved_piece(&stream.name, piece, false);
            let former = journal.entries(&key(&stream.name))?.pop();
            let former = former.and_then(|(_, value)| serde_json::from_value::<Saved>(value).ok());
            let is_shorter =
                |former: &Saved| former.identity() == note.identity() && former.length < note.length;
            if let Some(former) = former.filter(is_shorter) {
                (note.length, note.ending) = (former.length, former.ending);
            }
            journal.note(&key(&stream.name), &serde_json::to_value(note).unwrap_or_default())?;
        }
        stream.is_noted = true;
        Ok(())
    }

    fn forget_note(&self, name: &str) -> Result<(), Error> {
        self.settings.journal.as_ref().map_or(Ok(()), |journal| journal.forget(&key(name)))
    }

    /// Keeps a file, that this run finished before its end, in the saved state for a while. Without it, a
    /// killed run that continued the file would leave its additions beside those that are sent again.
    pub(super) fn note_finished(&mut self, stream: &Stream) {
        let entries: Vec<Saved> = self.saved_stream(stream).collect();
        let has_checkpoints = self.settings.journal.is_some();
        self.recent.extend(entries, has_checkpoints);
        self.drop_covered();
    }

    /// Drops files that a checkpoint covers, beyond those that are kept.
    fn drop_covered(&mut self) {
        while let Some(entry) = self.recent.pop_covered(MOST_KNOWN) {
            if let Err(error) = self.forget_note(&entry.name) {
                // The note only matters to a run that resumes, and the store's next save meets the same
                // error.
                tracing::debug!("the journal still has `{}`: {}", entry.name, error.full());
            }
        }
    }

    /// Returns the state of the files, for a later run.
    pub(in crate::sinks::file) fn saved(&mut self) -> Cow<'_, [Saved]> {
        self.recent.note_state(self.safe.is_some());
        match &self.safe {
            Some(safe) => safe.into(),
            None => self.now().into(),
        }
    }

    /// Returns the number of finished files that the last [state](Self::saved) has and no checkpoint covers,
    /// if they are more than are kept.
    pub(in crate::sinks::file) fn uncovered(&self) -> usize {
        self.recent.uncovered(MOST_KNOWN)
    }

    /// Records that a checkpoint covers the first of these files.
    pub(in crate::sinks::file) fn cover(&mut self, count: usize) {
        self.recent.cover(count);
        self.drop_covered();
    }

    /// Records that everything written so far is durable, if a write alone does not ensure that.
    pub(in crate::sinks::file) fn note_safe(&mut self) {
        if self.settings.written() == WriteOutcome::Buffered {
            self.safe = Some(self.now());
            self.recent.note_safe();
        }
    }

    pub(super) fn now(&self) -> Vec<Saved> {
        let mut saved: Vec<Saved> = self.known.values().chain(self.recent.iter()).cloned().collect();
        saved.extend(self.streams.iter().flatten().flat_map(|stream| self.saved_stream(stream)));
        saved
    }

    fn saved_stream<'a>(&'a self, stream: &'a Stream) -> impl Iterator<Item = Saved> + 'a {
        let pieces = stream.ended.iter().chain(&stream.current).filter(|piece| !piece.is_special());
        let pieces = pieces.map(|piece| self.saved_piece(&stream.name, piece, stream.finished));
        let next = stream.next.filter(|_| self.settings.rotates && stream.current.is_none());
        pieces.chain(next.map(|next| Saved {
            name: stream.name.clone(),
            number: Some(next),
            stamp: None,
            length: 0,
            inode: None,
            created: None,
            ending: None,
            finished: stream.finished,
            is_begun: false,
            noted: self.noted.get(),
            form: self.settings.form(),
        }))
    }

    fn saved_piece(&self, name: &str, piece: &Piece, finished: bool) -> Saved {
        let identity = piece.identity();
        Saved {
            name: name.to_owned(),
            number: piece.number,
            stamp: piece.stamp.clone(),
            length: piece.length(),
            inode: identity.map(|identity| identity.inode),
            created: identity.and_then(|identity| identity.created),
            // Only a state that is kept is read by a later run.
            ending: self.settings.journal.as_ref().and_then(|_| piece.ending()),
            finished,
            is_begun: true,
            noted: self.noted.get(),
            form: self.settings.form(),
        }
    }
}

impl Stream {
    /// Compresses a finished piece, in a thread of its own.
    pub(super) fn pack(&mut self, path: PathBuf, replaces: bool, settings: &Settings) {
        self.packing.retain(|packing| !packing.is_finished());
        let link = settings.link.clone().map(|link| (link, self.name.clone()));
        let how = settings.pieces.style.pack;
        let register = settings.register();
        self.packing.push(Packing::begin(Packable { path, how, link, replaces, register }));
    }

    /// True if the piece is written to, or is to be finished.
    pub(super) fn has(&self, found: &Found, style: &Style) -> bool {
        self.ended.iter().chain(&self.current).any(|piece| found.is_of(piece, style))
    }

    /// True if the piece is the current one.
    fn is_current(&self, found: &Found, style: &Style) -> bool {
        self.current.iter().any(|piece| found.is_of(piece, style))
    }

    /// Moves the current piece to those that are to be finished.
    pub(super) fn set_aside(&mut self) {
        if let Some(mut piece) = self.current.take() {
            piece.suspend();
            self.ended.push(piece);
        }
    }
}
