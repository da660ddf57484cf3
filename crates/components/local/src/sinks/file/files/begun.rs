//! Notes of the pieces that were begun.
//!
//! A run that resumes removes the pieces that were begun after the checkpoint, if the sources send their
//! messages again. Their names do not tell which these are: with `numbers: if_taken` they have no order, and
//! a number that increases from piece to piece may also be one of another program. Each piece is therefore
//! noted in the journal before its file exists. Notes are numbered, and the saved state has the number of
//! notes at the checkpoint. (Rejected: the times of the files, which a copy of the folder changes.)
//!
//! Another program may take a name that was noted. A note therefore has the files of the piece as well: that
//! which is written, and those that it becomes when it is compressed and decompressed. Only one of them is
//! removed or continued. A note goes with its piece to another name: see [`super::locating`].
//!
//! The notes of other pieces than those of the saved state are removed when a run resumes.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thalweg_engine::{Error, Journal};

use super::super::identity::Identity;
use super::super::piece::Piece;
use super::finishing::remove;
use super::locating::forms;
use super::resuming::Saved;
use super::{Compression, Files, Settings};

/// The beginning of the keys of these notes. No key of a file's state begins so, as it begins with a name.
const PREFIX: &str = "\0begun/";
/// The key of the highest number that notes have had. It stays when they are removed: a number that comes
/// twice would belong to pieces before and after the same checkpoint.
const LAST: &str = "\0last";

/// A piece that was begun.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Note {
    /// Zero for a piece of an earlier run, which is never removed.
    pub(super) order: u64,
    pub(super) piece: PathBuf,
    /// How it is compressed when it is finished.
    pack: Compression,
    /// Its files. Empty until the first exists, and `None` in the note of an earlier version.
    files: Option<Vec<Identity>>,
}

/// The notes of the pieces of a sink. Threads that compress pieces have copies.
#[derive(Debug, Clone)]
pub(in crate::sinks::file) struct Register {
    journal: Journal,
    pack: Compression,
}

impl Settings {
    /// Returns the notes of pieces, if there are pieces and checkpoints are kept.
    pub(super) fn register(&self) -> Option<Register> {
        let journal = self.journal.clone().filter(|_| self.rotates)?;
        Some(Register { journal, pack: self.pieces.style.pack })
    }
}

impl Register {
    /// Notes a file of a piece.
    pub(in crate::sinks::file) fn add(&self, piece: &Path, file: Identity) -> io::Result<()> {
        let mut note = self.find(piece)?.unwrap_or_else(|| self.new_note(0, piece));
        let files = note.files.get_or_insert_with(Vec::new);
        if files.contains(&file) {
            return Ok(());
        }
        files.push(file);
        self.write(&note)
    }

    /// Notes that a piece gets another name.
    pub(super) fn follow(&self, from: &Path, to: &Path) -> io::Result<()> {
        let note = self.find(from)?.unwrap_or_else(|| self.new_note(0, from));
        self.write(&Note { piece: to.to_owned(), ..note })
    }

    /// Removes the note of a name that no file of the sink has.
    pub(super) fn forget(&self, piece: &Path) -> io::Result<()> {
        self.journal.forget(&key(piece)).map_err(|error| io::Error::other(error.full()))
    }

    fn new_note(&self, order: u64, piece: &Path) -> Note {
        Note { order, piece: piece.to_owned(), pack: self.pack, files: Some(Vec::new()) }
    }

    fn find(&self, piece: &Path) -> io::Result<Option<Note>> {
        let found = self.journal.entries(&key(piece)).map_err(|error| io::Error::other(error.full()))?;
        Ok(found.into_iter().find_map(|(_, value)| serde_json::from_value(value).ok()))
    }

    fn write(&self, note: &Note) -> io::Result<()> {
        let value = serde_json::to_value(note).unwrap_or_default();
        self.journal.note(&key(&note.piece), &value).map_err(|error| io::Error::other(error.full()))
    }
}

impl Files {
    /// Notes that a piece is begun. It replaces the files `replaced`.
    pub(super) fn note_begun(&self, path: &Path, replaced: Vec<Identity>) -> io::Result<()> {
        let Some(register) = self.settings.register() else { return Ok(()) };
        let order = self.noted.get() + 1;
        register.write(&Note { files: Some(replaced), ..register.new_note(order, path) })?;
        self.noted.set(order);
        Ok(())
    }

    /// Notes the file of a piece that was begun or is continued.
    pub(super) fn note_file(&self, piece: &Piece) -> io::Result<()> {
        match (self.settings.register(), piece.identity()) {
            (Some(register), Some(file)) => register.add(piece.path(), file),
            _ => Ok(()),
        }
    }

    /// Removes the notes of names that other programs have taken.
    pub(super) fn forget_taken(&self, taken: &[PathBuf]) -> io::Result<()> {
        let Some(register) = self.settings.register() else { return Ok(()) };
        taken.iter().try_for_each(|path| register.forget(path))
    }

    /// Removes the file of a piece without messages, and its note: another program may take its name.
    pub(super) fn discard(&self, piece: Piece) -> io::Result<()> {
        let path = piece.path().to_owned();
        piece.discard()?;
        self.forget_taken(&[path])
    }

    /// Removes the pieces that were begun after the saved state, if their messages are sent again. Those that
    /// the state has stay: they are cut. Returns the notes without those of other pieces that were begun
    /// before: a service has one for each piece since its start.
    pub(super) fn settle_noted(&mut self, saved: &[Saved]) -> Result<Vec<Note>, Error> {
        let Some(journal) = self.settings.journal.clone() else { return Ok(Vec::new()) };
        let known = saved.iter().map(|entry| entry.noted).max().unwrap_or(0);
        let kept = Kept::new(saved, known);
        let last = journal.entries(LAST)?.into_iter().next().and_then(|(_, last)| last.as_u64()).unwrap_or(0);
        let (mut last, mut has_others, mut notes) = (last.max(known), false, Vec::new());
        for note in each_note(&journal) {
            let note = note?;
            let is_kept = kept.has(&note);
            last = last.max(note.order);
            has_others |= !is_kept;
            if is_kept || note.order == 0 || note.order > known {
                notes.push(note);
            }
        }
        self.noted.set(last);
        if self.settings.resends {
            let later: Vec<&Note> =
                notes.iter().filter(|note| note.order > known && !kept.has(note)).collect();
            self.refuse_copies(saved, &later)?;
            later.into_iter().for_each(Note::remove);
        }
        // A run that is killed before this repeats the removal, which finds nothing.
        if has_others {
            journal.note(LAST, &last.into())?;
            for note in each_note(&journal) {
                let note = note?;
                if !kept.has(&note) {
                    journal.forget(&key(&note.piece))?;
                }
            }
        }
        Ok(notes)
    }

    /// Refuses to write beside copies of pieces that were begun after the saved state. Their messages are
    /// sent again, and nothing tells such a copy from a file of another program, so it is not removed.
    fn refuse_copies(&self, saved: &[Saved], later: &[&Note]) -> Result<(), Error> {
        let has_other = |note: &&&Note| {
            let forms = forms(&note.piece, note.pack);
            !note.files().is_empty()
                && forms.iter().any(|path| path.exists())
                && !forms.iter().any(|path| note.is_own(path))
        };
        let Some(note) = later.iter().find(has_other) else { return Ok(()) };
        if !saved.iter().any(|entry| self.is_copied(entry)) {
            return Ok(());
        }
        Err(Error::permanent(format!(
            "`{}` has the name of a file that the former run began after its last checkpoint, and the files beside it \
             are copies. Its messages are written again: if it is a copy too, remove it, otherwise move it away. Then \
             start the run again",
            note.piece.display()
        )))
    }

    /// True if the file of an entry is a copy of the one that the former run wrote.
    fn is_copied(&self, entry: &Saved) -> bool {
        let forms = forms(&entry.path(), self.settings.pieces.style.pack);
        entry.identity().is_some()
            && !forms.iter().any(|path| self.is_file_of(path, entry))
            && forms.iter().any(|path| entry.is_copied_to(path))
    }
}

/// Returns the notes in a journal, one by one.
fn each_note(journal: &Journal) -> impl Iterator<Item = Result<Note, Error>> + use<> {
    journal.each(PREFIX).filter_map(|entry| match entry {
        Ok((_, value)) => serde_json::from_value(value).ok().map(Ok),
        Err(error) => Some(Err(error)),
    })
}

/// The files that the saved state has.
struct Kept {
    paths: HashSet<PathBuf>,
    files: HashSet<Identity>,
    /// The highest number of their notes.
    known: u64,
}

impl Kept {
    fn new(saved: &[Saved], known: u64) -> Self {
        let saved = || saved.iter().filter(|entry| entry.has_file());
        let files = saved().filter_map(Saved::identity).collect();
        Self { paths: saved().map(Saved::path).collect(), files, known }
    }

    /// True if it is the note of one of the files. A later note may be of a file that got the inode of one
    /// that was removed.
    fn has(&self, note: &Note) -> bool {
        match &note.files {
            Some(files) => note.order <= self.known && files.iter().any(|file| self.files.contains(file)),
            None => self.paths.contains(&note.piece),
        }
    }
}

/// The key of the note of a piece. No key begins with another.
fn key(path: &Path) -> String {
    format!("{PREFIX}{}\0", path.display())
}

impl Note {
    pub(super) fn files(&self) -> &[Identity] {
        self.files.as_deref().unwrap_or_default()
    }

    /// Removes the piece under each name that it may have. A file of another program stays.
    fn remove(&self) {
        forms(&self.piece, self.pack).iter().filter(|path| self.is_own(path)).for_each(|path| remove(path));
    }

    /// True if a file is of this piece. One that was created just before the kill, and is not noted, is
    /// empty.
    fn is_own(&self, path: &Path) -> bool {
        match self.files.as_deref() {
            None => true,
            Some([]) => fs::symlink_metadata(path).is_ok_and(|found| found.is_file() && found.len() == 0),
            Some(files) => Identity::at(path).is_some_and(|found| files.contains(&found)),
        }
    }
}
