//! Notes of the pieces that were begun.
//!
//! A run that resumes removes the pieces that were begun after the checkpoint, if the sources send their
//! messages again. Their names do not tell which these are: with `numbers: if_taken` they have no order, and
//! a number that increases from piece to piece may also be one of another program. Each piece is therefore
//! noted in the journal before its file exists. Notes are numbered, and the saved state has the number of
//! notes at the checkpoint. (Rejected: the times of the files, which a copy of the folder changes.)
//!
//! The notes are removed when a run resumes. A piece that is still unfinished and not covered is noted again,
//! before its file is created again.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thalweg_engine::Error;

use super::super::names;
use super::super::pack;
use super::super::piece::Piece;
use super::finishing::remove;
use super::resuming::Saved;
use super::{Compression, Files};

/// The beginning of the keys of these notes. No key of a file's state begins so, as it begins with a name.
const PREFIX: &str = "\0begun/";
/// The key of the highest number that notes have had. It stays when they are removed: a number that comes
/// twice would belong to pieces before and after the same checkpoint.
const LAST: &str = "\0last";

/// A piece that was begun.
#[derive(Debug, Serialize, Deserialize)]
struct Note {
    order: u64,
    piece: PathBuf,
    /// How it is compressed when it is finished.
    pack: Compression,
}

impl Files {
    /// Notes that a piece is begun.
    pub(super) fn note_begun(&self, path: &Path) -> io::Result<()> {
        let Some(journal) = &self.settings.journal else { return Ok(()) };
        let order = self.noted.get() + 1;
        let note = Note { order, piece: path.to_owned(), pack: self.settings.pieces.style.pack };
        journal
            .note(&key(path), &serde_json::to_value(note).unwrap_or_default())
            .map_err(|error| io::Error::other(error.full()))?;
        self.noted.set(order);
        Ok(())
    }

    /// Removes the file of a piece without messages, and its note: another program may take its name.
    pub(super) fn discard(&self, piece: Piece) -> io::Result<()> {
        let path = piece.path().to_owned();
        piece.discard()?;
        let Some(journal) = self.settings.journal.as_ref().filter(|_| self.settings.rotates) else {
            return Ok(());
        };
        journal.forget(&key(&path)).map_err(|error| io::Error::other(error.full()))
    }

    /// Removes the pieces that were begun after the saved state, if their messages are sent again. Those that
    /// the state has stay: they are cut.
    pub(super) fn settle_noted(&mut self, saved: &[Saved]) -> Result<(), Error> {
        let Some(journal) = self.settings.journal.clone() else { return Ok(()) };
        let known = saved.iter().map(|entry| entry.noted).max().unwrap_or(0);
        let entries = journal.entries(PREFIX)?.into_iter();
        let notes: Vec<Note> = entries.filter_map(|(_, value)| serde_json::from_value(value).ok()).collect();
        let last = journal.entries(LAST)?.into_iter().next().and_then(|(_, last)| last.as_u64()).unwrap_or(0);
        self.noted.set(notes.iter().map(|note| note.order).max().unwrap_or(0).max(known).max(last));
        if self.settings.resends {
            let kept: HashSet<PathBuf> =
                saved.iter().filter(|entry| entry.has_file()).map(Saved::path).collect();
            let later = notes.iter().filter(|note| note.order > known && !kept.contains(&note.piece));
            later.for_each(Note::remove);
        }
        // A run that is killed before this repeats the removal, which finds nothing.
        if notes.is_empty() {
            return Ok(());
        }
        journal.note(LAST, &self.noted.get().into())?;
        journal.forget(PREFIX)
    }
}

/// The key of the note of a piece. No key begins with another.
fn key(path: &Path) -> String {
    format!("{PREFIX}{}\0", path.display())
}

impl Note {
    /// Removes the piece under each name that it may have.
    fn remove(&self) {
        for path in [Compression::None, self.pack].map(|how| pack::packed(&self.piece, how)) {
            [names::part(&path), names::continued(&path), path].iter().for_each(|path| remove(path));
        }
    }
}
