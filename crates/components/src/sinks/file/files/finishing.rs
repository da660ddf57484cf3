//! Giving files their names: when they are full, when their time is up, and at the end of the run.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use thalweg_engine::Error;
use xxhash_rust::xxh3::xxh3_64;

use super::super::names;
use super::super::piece::Piece;
use super::writing::write_error;
use super::{Files, Fsync, MOST_KNOWN, Stream};
use crate::shared::io::io_error;

impl Files {
    /// Does what was put by: writes what could not be written, and finishes pieces that have ended.
    pub(in crate::sinks::file) fn settle(&mut self) -> Result<(), Error> {
        self.look_at_clock(Instant::now());
        if !self.unsettled {
            return Ok(());
        }
        let mut folders = BTreeSet::new();
        self.each(|files, stream| files.settle_stream(stream, &mut folders))?;
        self.sync_folders(folders)?;
        self.unsettled = false;
        Ok(())
    }

    fn settle_stream(&self, stream: &mut Stream, folders: &mut BTreeSet<PathBuf>) -> Result<(), Error> {
        while let Some(piece) = stream.ended.first_mut() {
            self.finish_piece(piece, folders)?;
            let piece = stream.ended.remove(0);
            if let (Some(number), Some(keep)) = (piece.number, self.settings.keep) {
                stream.pieces.push(number);
                let surplus = stream.pieces.len().saturating_sub(keep);
                for number in stream.pieces.drain(..surplus) {
                    remove(&names::numbered(&stream.name, Some(number)));
                }
            }
            if let Some(number) = piece.number {
                stream.stale.retain(|&stale| stale != number);
            }
        }
        match &mut stream.current {
            Some(piece) => piece.drain().map_err(|error| write_error(piece.now(), &error)),
            None => Ok(()),
        }
    }

    fn finish_piece(&self, piece: &mut Piece, folders: &mut BTreeSet<PathBuf>) -> Result<(), Error> {
        // A compressed file without a member is not one: `gunzip` refuses it. So an empty one gets an empty member.
        let member = if piece.is_empty() { piece.writer(&self.settings.manner).map(drop) } else { Ok(()) };
        member.and_then(|()| piece.flush()).map_err(|error| write_error(piece.now(), &error))?;
        if self.settings.fsync != Fsync::Never {
            piece.sync().map_err(|error| io_error("bring to disk", piece.now(), &error))?;
            folders.insert(names::folder(piece.path()).to_owned());
        }
        piece.finish().map_err(|error| io_error("give its name to", piece.now(), &error))
    }

    fn sync_folders(&self, folders: BTreeSet<PathBuf>) -> Result<(), Error> {
        for folder in folders {
            // Some file systems cannot sync a folder, and do not need to.
            if let Ok(file) = std::fs::File::open(&folder)
                && let Err(error) = file.sync_all()
                && !matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported)
            {
                return Err(io_error("bring to disk", &folder, &error));
            }
        }
        Ok(())
    }

    /// Ends pieces whose time is up and names that got nothing for long. Errors are left for later.
    fn look_at_clock(&mut self, now: Instant) {
        let Some(span) = self.settings.every.into_iter().chain(self.settings.idle).min() else { return };
        if self.next_look.is_some_and(|next| now < next) {
            return;
        }
        self.next_look = Some(now + (span / 8).clamp(Duration::from_millis(5), Duration::from_secs(1)));
        let due = |since: Instant, span: Option<Duration>| {
            span.is_some_and(|span| now.saturating_duration_since(since) >= span)
        };
        for slot in 0..self.streams.len() {
            let Some(mut stream) = self.streams[slot].take() else { continue };
            let piece = stream.current.as_ref().filter(|piece| !piece.is_special());
            let old = piece.is_some_and(|piece| !piece.is_empty() && due(piece.begun, self.settings.every));
            if piece.is_some_and(|piece| due(piece.written, self.settings.idle)) {
                let mut folders = BTreeSet::new();
                let finished = self.finish_stream(&mut stream, &mut folders);
                if finished.and_then(|()| self.sync_folders(folders)).is_ok() {
                    // It is forgotten, so that names do not pile up, but for the fact that it is of this run.
                    self.done.insert(xxh3_64(stream.name.as_bytes()));
                    self.streams[slot] = Some(stream);
                    self.forget(slot);
                    continue;
                }
                self.unsettled = true;
            } else if old {
                self.end_piece(&mut stream);
            }
            self.streams[slot] = Some(stream);
        }
    }

    /// Whether something is due at some time even if nothing is written.
    pub(in crate::sinks::file) fn beat(&self) -> Option<Duration> {
        let span = self.settings.every.into_iter().chain(self.settings.idle).min()?;
        Some((span / 4).clamp(Duration::from_millis(10), Duration::from_secs(1)))
    }

    /// Brings everything that was written into safety.
    pub(in crate::sinks::file) fn flush(&mut self) -> Result<(), Error> {
        self.settle()?;
        let fsync = self.settings.fsync == Fsync::Flush;
        for piece in self.streams.iter_mut().flatten().filter_map(|stream| stream.current.as_mut()) {
            if piece.owes() {
                piece.flush().map_err(|error| write_error(piece.now(), &error))?;
            }
            if fsync {
                piece.sync().map_err(|error| io_error("bring to disk", piece.now(), &error))?;
            }
        }
        self.note_safe();
        Ok(())
    }

    /// Finishes all files. It can be called again, after an error or for nothing.
    pub(in crate::sinks::file) fn finish(&mut self) -> Result<(), Error> {
        self.settle()?;
        let mut folders = BTreeSet::new();
        self.each(|files, stream| files.finish_stream(stream, &mut folders))?;
        self.sync_folders(folders)?;
        self.open.clear();
        if self.known.len() > MOST_KNOWN {
            self.known.clear();
        }
        self.note_safe();
        Ok(())
    }

    fn finish_stream(&self, stream: &mut Stream, folders: &mut BTreeSet<PathBuf>) -> Result<(), Error> {
        if stream.finished {
            return Ok(());
        }
        let rotates = self.settings.rotates;
        match &stream.current {
            // Nothing came after the last full piece.
            Some(piece) if rotates && piece.is_empty() && piece.number != Some(1) => {
                stream.next = piece.number;
                if let Some(piece) = stream.current.take() {
                    let path = piece.now().to_owned();
                    piece.discard().map_err(|error| io_error("remove", &path, &error))?;
                }
            }
            Some(_) if rotates => {
                stream.ended.extend(stream.current.take());
                self.settle_stream(stream, folders)?;
            }
            _ => {
                if let Some(piece) = &mut stream.current {
                    self.finish_piece(piece, folders)?;
                }
            }
        }
        for number in stream.stale.drain(..) {
            let path = names::numbered(&stream.name, Some(number));
            [names::part(&path), names::continued(&path), path].iter().for_each(|path| remove(path));
        }
        stream.finished = true;
        Ok(())
    }
}

/// Removes a piece that is not to be kept. That it is gone already is as good.
fn remove(path: &Path) {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!("`{}` could not be removed: {error}.", path.display());
        }
        _ => {}
    }
}
