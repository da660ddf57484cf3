//! Chooses the names of pieces.
//!
//! A piece never gets the name of a file that exists, except of one that this run is to replace: not of a
//! piece of this run, nor of a former one, nor of another program. Existence decides, not the reading of
//! names. A name is checked when the piece is named. The unfinished file is then created only if it does not
//! exist, and renamed only if its final name is still free. Otherwise the piece gets another number.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use hashbrown::HashMap;

use super::super::identity::Identity;
use super::super::names::{self, Found, Numbers};
use super::super::opening::Beginning;
use super::super::pack;
use super::super::piece::Piece;
use super::{Files, Stream};

/// The maximum number of names that are tried for a piece.
const MOST_TRIED: usize = 1 << 20;

/// The number of time stamps that are known beside those that were listed.
const MOST_STAMPS: usize = 1024;

/// The time stamps of the pieces of a name. The folder is listed once, and again after many new stamps: a
/// list for each new piece would take a time that grows with their number.
pub(super) struct Stamps {
    /// The number after those of the pieces with each time stamp, listed or begun.
    after: HashMap<String, u32>,
    /// The number of stamps after which they are listed again, without those that are gone.
    most: usize,
}

impl Files {
    /// Begins the next piece. A retry uses the same name.
    pub(super) fn begin_next(&self, stream: &mut Stream) -> io::Result<()> {
        loop {
            self.name_piece(stream)?;
            let path = self.path(&stream.name, stream.next, stream.stamp.as_deref());
            match self.begin_named(stream) {
                // Another program has created the file since it was named.
                Err(error)
                    if error.kind() == io::ErrorKind::AlreadyExists
                        && stream.beginning == Beginning::Free
                        && !self.is_free(stream, &path) =>
                {
                    self.forget_taken(&[path])?;
                    stream.is_named = false;
                }
                begun => return begun,
            }
        }
    }

    /// Decides the name of the next piece, unless it has one.
    fn name_piece(&self, stream: &mut Stream) -> io::Result<()> {
        if stream.is_named || !self.settings.rotates {
            return Ok(());
        }
        let style = &self.settings.pieces.style;
        let stamp = style.stamp();
        let from = match (style.numbers, stream.next) {
            (Numbers::Always, Some(next)) => next,
            (Numbers::Always, None) => self.free_number(&stream.name)?,
            (Numbers::IfTaken, _) => self.lowest(stream, stamp.as_deref())?,
        };
        let number = self.free(stream, from, stamp.as_deref())?;
        if let Some(stamps) = &mut stream.stamps {
            stamps.after.insert(stamp.clone().unwrap_or_default(), number.saturating_add(1));
        }
        let path = self.path(&stream.name, Some(number), stamp.as_deref());
        let replaces = stream.replaces(&path, self);
        let replaced = self.forms_of(&path).into_iter().filter(|_| replaces);
        self.note_begun(&path, replaced.filter_map(|path| Identity::at(&path)).collect())?;
        stream.beginning = if replaces { Beginning::New { replaces } } else { Beginning::Free };
        stream.next = Some(number);
        stream.stamp = stamp;
        stream.is_named = true;
        Ok(())
    }

    /// Begins a piece that has a name.
    pub(super) fn begin_named(&self, stream: &mut Stream) -> io::Result<()> {
        let pieces = &self.settings.pieces;
        let piece = Piece::begin(&stream.name, stream.next, stream.stamp.clone(), stream.beginning, pieces)?;
        if let Err(error) = self.note_file(&piece).and_then(|()| self.lead_to(&stream.name, &piece)) {
            // A retry creates it again.
            if stream.beginning == Beginning::Free {
                piece.discard()?;
            }
            return Err(error);
        }
        stream.current = Some(piece);
        stream.forget_name();
        if self.settings.rotates {
            stream.next = Some(match (pieces.style.numbers, stream.next) {
                (Numbers::IfTaken, _) => 0,
                (Numbers::Always, Some(number)) => number.saturating_add(1),
                (Numbers::Always, None) => self.free_number(&stream.name)?,
            });
        }
        Ok(())
    }

    /// Makes the link of a name lead to a piece.
    fn lead_to(&self, name: &str, piece: &Piece) -> io::Result<()> {
        match &self.settings.link {
            Some(link) if !piece.is_special() => link.lead(name, piece.now()),
            _ => Ok(()),
        }
    }

    /// Returns the number after those of all pieces: for a file that had no number before the sink had
    /// `rotate`.
    pub(super) fn free_number(&self, name: &str) -> io::Result<u32> {
        let pieces = &self.settings.pieces;
        let found = pieces.style.pieces(name, pieces.names.as_ref(), true)?;
        Ok(found.last().map_or(1, |found| found.number.saturating_add(1)))
    }

    /// Returns the number after those of the pieces with this time stamp that stay, or 0.
    fn lowest(&self, stream: &mut Stream, stamp: Option<&str>) -> io::Result<u32> {
        if stream.stamps.as_ref().is_none_or(|stamps| stamps.after.len() > stamps.most) {
            stream.stamps = Some(self.list_stamps(stream)?);
        }
        let after = stream.stamps.as_ref().and_then(|stamps| stamps.after.get(stamp.unwrap_or_default()));
        Ok(after.copied().unwrap_or(0))
    }

    fn list_stamps(&self, stream: &Stream) -> io::Result<Stamps> {
        let pieces = &self.settings.pieces;
        let found = pieces.style.pieces(&stream.name, pieces.names.as_ref(), true)?;
        let mut after: HashMap<String, u32> = HashMap::new();
        for piece in found.into_iter().filter(|found| !stream.stale.contains(found)) {
            let next = after.entry(piece.stamp.unwrap_or_default()).or_default();
            *next = (*next).max(piece.number.saturating_add(1));
        }
        let most = 2 * after.len() + MOST_STAMPS;
        Ok(Stamps { after, most })
    }

    /// Returns the lowest number from `from` on that gives a free name. The highest possible number is not
    /// used, because it has no successor.
    pub(super) fn free(&self, stream: &Stream, from: u32, stamp: Option<&str>) -> io::Result<u32> {
        let is_free = |number: &u32| self.is_free(stream, &self.path(&stream.name, Some(*number), stamp));
        (from..u32::MAX).take(MOST_TRIED).find(is_free).ok_or_else(|| {
            let path = self.path(&stream.name, Some(from), stamp);
            let text = format!(
                "no number is left for another piece: the names from `{}` on are taken, or could be those of other \
                 pieces. Rename the file with the highest number, or choose another `timestamp` or `separator`",
                path.display()
            );
            io::Error::new(io::ErrorKind::InvalidFilename, text)
        })
    }

    /// True if a new piece can have this name.
    fn is_free(&self, stream: &Stream, path: &Path) -> bool {
        let pieces = &self.settings.pieces;
        let is_own = stream.ended.iter().chain(&stream.current).any(|piece| piece.path() == path);
        if is_own || pieces.style.label(&stream.name, pieces.names.as_ref(), path).is_none() {
            return false;
        }
        if !self.settings.rotates {
            let is_name = path.to_str().is_some_and(|path| self.by_name.contains_key(path.as_bytes()));
            return !is_name && !self.numbered.contains(path) && !exists(path);
        }
        let is_taken =
            |path: &PathBuf| exists(path) || exists(&names::part(path)) || exists(&names::continued(path));
        stream.replaces(path, self) || !self.forms_of(path).iter().any(is_taken)
    }

    /// Returns the names that a piece has when it is finished, and when it is compressed.
    fn forms_of(&self, path: &Path) -> [PathBuf; 2] {
        [path.to_owned(), pack::packed(path, self.settings.pieces.style.pack)]
    }

    /// Gives a piece another name, because another program has taken its name.
    pub(super) fn rename_piece(&self, stream: &Stream, piece: &mut Piece) -> io::Result<()> {
        let from = piece.number.map_or(1, |number| number.saturating_add(1));
        let number = self.free(stream, from, piece.stamp.as_deref())?;
        let path = self.path(&stream.name, Some(number), piece.stamp.as_deref());
        // Before the rename: a run that is killed after it finds the piece by the note.
        if let Some(register) = self.settings.register() {
            register.follow(piece.path(), &path)?;
        }
        piece.renumber(number, path);
        Ok(())
    }
}

impl Stream {
    /// True if the pieces of the last run that this run replaces have this name.
    fn replaces(&self, path: &Path, files: &Files) -> bool {
        let forms = files.forms_of(path);
        self.stale.iter().any(|stale: &Found| forms.contains(&stale.path))
    }

    /// Leaves it open again what the next piece is called.
    pub(super) fn forget_name(&mut self) {
        self.stamp = None;
        self.is_named = false;
        self.beginning = Beginning::New { replaces: true };
    }
}

fn exists(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}
