//! Finds the files of the pieces that the saved state has.
//!
//! Another program may create a file with the name of a piece while the piece is being written. The piece
//! then gets another number, which the state may not have yet, and the file with the old name is not to be
//! touched. So a file is taken for a piece of the state only if it is one of the files that were noted for
//! the piece, under one of the names that were noted for it.

use std::cmp::Reverse;
use std::fs;
use std::io;
use std::iter;
use std::path::{Path, PathBuf};

use hashbrown::HashMap;

use super::super::identity::Identity;
use super::super::names;
use super::super::pack;
use super::begun::Note;
use super::resuming::Saved;
use super::{Compression, Files, Stream};

/// The notes that a run finds when it resumes, by their files.
#[derive(Debug, Default)]
pub(super) struct Notes(HashMap<Identity, Vec<Note>>);

impl Notes {
    pub(super) fn new(mut notes: Vec<Note>) -> Self {
        // A later piece may have got the inode of one that was removed, where files have no time of creation.
        notes.sort_by_key(|note| Reverse(note.order));
        let mut by_file: HashMap<Identity, Vec<Note>> = HashMap::new();
        for note in notes {
            for file in note.files() {
                by_file.entry(*file).or_default().push(note.clone());
            }
        }
        Self(by_file)
    }

    /// Returns the notes of the piece of an entry, without those that were made after the entry: they are of
    /// later pieces.
    fn of(&self, entry: &Saved) -> impl Iterator<Item = &Note> {
        let (notes, noted) = (entry.identity().and_then(|file| self.0.get(&file)), entry.noted);
        notes.into_iter().flatten().filter(move |note| note.order <= noted)
    }
}

impl Files {
    /// Returns the entry of a piece with the name that the piece has now. `None` if its file is missing.
    pub(super) fn locate(&self, entry: &Saved) -> Option<Saved> {
        let path = entry.path();
        let pack = self.settings.pieces.style.pack;
        let has_file = |piece: &Path| forms(piece, pack).iter().any(|form| self.is_file_of(form, entry));
        let noted = self.begun.of(entry).map(|note| note.piece.as_path());
        let found = iter::once(path.as_path()).chain(noted).find(|piece| has_file(piece));
        // A copy of the folder has other files, but the name of an unfinished one is not that of a file of
        // another program.
        let is_unfinished = || [names::part(&path), names::continued(&path)].iter().any(|path| path.exists());
        let is_copy = || entry.is_copied_to(&path);
        let piece = found.or_else(|| (is_unfinished() || is_copy()).then_some(path.as_path()))?;
        if piece == path.as_path() {
            return Some(entry.clone());
        }
        let (style, names) = (&self.settings.pieces.style, self.settings.pieces.names.as_ref());
        let (number, stamp) = style.label(&entry.name, names, piece)?;
        let mut found = entry.clone();
        (found.number, found.stamp) = (Some(number), stamp);
        Some(found)
    }

    /// Decompresses a piece that is to be continued, if it was compressed. It gets another number if another
    /// program has taken the name of the decompressed piece.
    pub(super) fn unpack(&self, stream: &Stream, mut found: Saved, entry: &Saved) -> io::Result<Saved> {
        let how = self.settings.pieces.style.pack;
        let path = found.path();
        let packed = pack::packed(&path, how);
        if how == Compression::None || !self.is_file_of(&packed, entry) {
            return Ok(found);
        }
        if forms(&path, Compression::None).iter().any(|plain| self.is_file_of(plain, entry)) {
            // The process was killed before it had removed one of the two.
            return fs::remove_file(&packed).map(|()| found);
        }
        let register = self.settings.register();
        if Identity::at(&path).is_some() {
            let from = found.number.map_or(1, |number| number.saturating_add(1));
            found.number = Some(self.free(stream, from, found.stamp.as_deref())?);
            register.iter().try_for_each(|register| register.follow(&path, &found.path()))?;
        }
        let plain = found.path();
        pack::unpack(&packed, &plain, how, |file| match &register {
            Some(register) => register.add(&plain, Identity::of(&file.metadata()?)),
            None => Ok(()),
        })?;
        Ok(found)
    }

    /// True if a file is of the piece of an entry. Its name decides if nothing was noted.
    pub(super) fn is_file_of(&self, path: &Path, entry: &Saved) -> bool {
        let Some(found) = Identity::at(path) else { return false };
        let is_noted = || self.begun.of(entry).any(|note| note.files().contains(&found));
        self.settings.journal.is_none() || entry.identity().is_none_or(|file| file == found) || is_noted()
    }
}

/// Returns the names that the file of a piece may have: while it is written, when it is finished, and when it
/// is compressed.
pub(super) fn forms(piece: &Path, pack: Compression) -> Vec<PathBuf> {
    let mut forms = Vec::new();
    for path in [piece.to_owned(), pack::packed(piece, pack)] {
        forms.extend([names::continued(&path), names::part(&path)]);
        forms.push(path);
    }
    forms
}
