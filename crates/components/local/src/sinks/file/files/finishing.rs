//! Gives files their final names: when they are full, when a time limit has passed, and at the end of the
//! run.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use chrono::{Days, Local, NaiveDateTime, NaiveTime};
use thalweg_engine::Error;
use xxhash_rust::xxh3::xxh3_64;

use super::super::names::{self, Found};
use super::super::pack::{self, Packing};
use super::super::piece::Piece;
use super::writing::{check_present, removed_error, write_error};
use super::{Compression, Files, Fsync, Keep, MOST_KNOWN, Stream};
use thalweg_stream::io_error::io_error;

impl Files {
    /// Does the postponed work: writes pending data, and finishes pieces that have ended.
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
        let mut has_finished = false;
        while !stream.ended.is_empty() {
            let mut piece = stream.ended.remove(0);
            if let Err(error) = self.finish_piece(stream, &mut piece, folders) {
                stream.ended.insert(0, piece);
                return Err(error);
            }
            let path = self.path(&stream.name, piece.number, piece.stamp.as_deref());
            let how = self.settings.pieces.style.pack;
            let packed = pack::packed(&path, how);
            let replaces = stream.stale.iter().any(|stale| stale.path == packed);
            stream.stale.retain(|stale| stale.path != path && stale.path != packed);
            if how != Compression::None && !piece.is_special() {
                stream.pack(piece.path().to_owned(), replaces, &self.settings);
            }
            has_finished = true;
        }
        if has_finished && self.settings.rotates && self.settings.keep != Keep::default() {
            self.prune(stream)?;
        }
        match &mut stream.current {
            Some(piece) => piece.drain().map_err(|error| write_error(piece.now(), &error)),
            None => Ok(()),
        }
    }

    /// Removes the oldest pieces that exceed the limits.
    fn prune(&self, stream: &Stream) -> Result<(), Error> {
        let keep = self.settings.keep;
        let mut found = self.existing(&stream.name, false)?;
        found
            .retain(|found| !stream.has(found, &self.settings.pieces.style) && !stream.stale.contains(found));
        let known = |found: &Found| {
            let metadata = std::fs::metadata(&found.path).ok();
            let age = metadata.as_ref().and_then(|metadata| metadata.modified().ok()?.elapsed().ok());
            (metadata.map_or(0, |metadata| metadata.len()), age.unwrap_or_default())
        };
        // A piece that is being compressed may exist twice for a moment.
        let mut pieces: Vec<(&[Found], u64, Duration)> = Vec::new();
        for piece in found.chunk_by(Found::is_same) {
            let (bytes, ages): (Vec<u64>, Vec<Duration>) = piece.iter().map(known).unzip();
            pieces.push((piece, bytes.iter().sum(), ages.into_iter().max().unwrap_or_default()));
        }
        let mut bytes: u64 = pieces.iter().map(|piece| piece.1).sum();
        let mut count = pieces.len();
        for (piece, length, age) in pieces {
            let is_too_many = keep.count.is_some_and(|keep| count > keep)
                || keep.bytes.is_some_and(|keep| bytes > keep)
                || keep.time.is_some_and(|keep| age > keep);
            if !is_too_many {
                break;
            }
            piece.iter().for_each(|found| remove(&found.path));
            count -= 1;
            bytes -= length;
        }
        Ok(())
    }

    fn finish_piece(
        &self,
        stream: &Stream,
        piece: &mut Piece,
        folders: &mut BTreeSet<PathBuf>,
    ) -> Result<(), Error> {
        // A compressed file without a member is invalid: `gunzip` rejects it. So an empty file gets an empty
        // member.
        let member = if piece.is_empty() { piece.writer(&self.settings.pieces).map(drop) } else { Ok(()) };
        member.and_then(|()| piece.flush()).map_err(|error| write_error(piece.now(), &error))?;
        if self.settings.fsync != Fsync::Never {
            piece.sync().map_err(|error| io_error("sync to disk", piece.now(), &error))?;
            folders.insert(names::folder(piece.path()).to_owned());
        }
        check_present(piece)?;
        let unfinished = piece.now().to_owned();
        self.place_piece(stream, piece).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => removed_error(piece.now()),
            _ => io_error("rename", piece.now(), &error),
        })?;
        match &self.settings.link {
            Some(link) => link
                .follow(&stream.name, &unfinished, piece.now())
                .map_err(|error| io_error("link to", piece.now(), &error)),
            None => Ok(()),
        }
    }

    /// Gives a piece its final name, or another one if that is taken.
    fn place_piece(&self, stream: &Stream, piece: &mut Piece) -> io::Result<()> {
        let mut taken = Vec::new();
        loop {
            match piece.finish() {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    taken.push(piece.path().to_owned());
                    self.rename_piece(stream, piece)?;
                }
                finished => return finished.and_then(|()| self.forget_taken(&taken)),
            }
        }
    }

    /// Ends pieces and finishes names whose time limit has passed. Errors are reported by a later call.
    fn look_at_clock(&mut self, now: Instant) {
        let Some(span) = self.shortest_span() else { return };
        if self.next_look.is_some_and(|next| now < next) {
            return;
        }
        self.next_look = Some(now + (span / 8).clamp(Duration::from_millis(5), Duration::from_secs(1)));
        let due = |since: Instant, span: Option<Duration>| {
            span.is_some_and(|span| now.saturating_duration_since(since) >= span)
        };
        let wall = self.settings.at.map(|at| (at, Local::now().naive_local()));
        let turned = |begun| wall.is_some_and(|(at, now)| has_passed(at, begun, now));
        for slot in 0..self.streams.len() {
            let Some(mut stream) = self.streams[slot].take() else { continue };
            let piece = stream.current.as_ref().filter(|piece| !piece.is_special());
            let old = piece.is_some_and(|piece| {
                !piece.is_empty() && (due(piece.begun, self.settings.every) || turned(piece.begun_at))
            });
            if piece.is_some_and(|piece| due(piece.written, self.settings.idle)) {
                let mut folders = BTreeSet::new();
                let finished = self.finish_stream(&mut stream, &mut folders);
                if finished.and_then(|()| self.sync_folders(folders)).is_ok() {
                    // The stream is dropped to save memory. Only a hash remains, to show that the file is
                    // from this run.
                    self.done.insert(xxh3_64(stream.name.as_bytes()));
                    self.note_finished(&stream);
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

    /// Returns the shortest time limit that is set.
    fn shortest_span(&self) -> Option<Duration> {
        let at = self.settings.at.map(|_| Duration::from_secs(8));
        self.settings.every.into_iter().chain(self.settings.idle).chain(at).min()
    }

    /// Returns the interval at which `settle` must be called even if nothing is written, or `None` if no time
    /// limit is set.
    pub(in crate::sinks::file) fn beat(&self) -> Option<Duration> {
        let span = self.shortest_span()?;
        Some((span / 4).clamp(Duration::from_millis(10), Duration::from_secs(1)))
    }

    /// Makes everything that was written durable.
    pub(in crate::sinks::file) fn flush(&mut self) -> Result<(), Error> {
        self.settle()?;
        let fsync = self.settings.fsync == Fsync::Flush;
        for piece in self.streams.iter_mut().flatten().filter_map(|stream| stream.current.as_mut()) {
            if piece.owes() {
                piece.flush().map_err(|error| write_error(piece.now(), &error))?;
                check_present(piece)?;
            }
            if fsync {
                piece.sync().map_err(|error| io_error("sync to disk", piece.now(), &error))?;
            }
        }
        self.note_safe();
        Ok(())
    }

    /// Ends the current files. With `rotate`, the next message starts a new piece. Without it, the file is
    /// finished, and the next message continues the file that then has this name, or creates a new one if the
    /// file was moved away.
    pub(in crate::sinks::file) fn reopen(&mut self) -> Result<(), Error> {
        self.flush()?;
        for slot in 0..self.streams.len() {
            let Some(mut stream) = self.streams[slot].take() else { continue };
            let reopens =
                stream.current.as_ref().is_some_and(|piece| !piece.is_empty() && !piece.is_special());
            let mut finished = Ok(());
            if reopens && self.settings.rotates {
                self.end_piece(&mut stream);
            } else if reopens {
                let mut folders = BTreeSet::new();
                finished = self.finish_stream(&mut stream, &mut folders);
                finished = finished.and_then(|()| self.sync_folders(folders));
            }
            let is_done = reopens && !self.settings.rotates && finished.is_ok();
            if is_done {
                self.done.insert(xxh3_64(stream.name.as_bytes()));
                self.note_finished(&stream);
            }
            self.streams[slot] = Some(stream);
            finished?;
            if is_done {
                self.forget(slot);
            }
        }
        self.settle()
    }

    /// Finishes all files. It may be called again, for example after an error.
    pub(in crate::sinks::file) fn finish(&mut self) -> Result<(), Error> {
        self.settle()?;
        self.sync_in_bulk()?;
        // Files that were closed are opened again to sync them, which needs what the open ones hold.
        while self.close_oldest() {}
        let mut folders = BTreeSet::new();
        self.each(|files, stream| files.finish_stream(stream, &mut folders))?;
        self.sync_folders(folders)?;
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
        let (rotates, style) = (self.settings.rotates, &self.settings.pieces.style);
        match &stream.current {
            // No message came after the last full piece.
            Some(piece) if rotates && piece.is_empty() && piece.number != Some(style.first()) => {
                stream.next = piece.number;
                if let Some(piece) = stream.current.take() {
                    let path = piece.now().to_owned();
                    self.discard(piece).map_err(|error| io_error("remove", &path, &error))?;
                }
                self.lead_to_last(stream)?;
            }
            Some(_) if rotates => {
                stream.ended.extend(stream.current.take());
                self.settle_stream(stream, folders)?;
            }
            _ => {
                if let Some(mut piece) = stream.current.take() {
                    let finished = self.finish_piece(stream, &mut piece, folders);
                    stream.current = Some(piece);
                    finished?;
                }
            }
        }
        for stale in stream.stale.drain(..) {
            stale.unfinished().iter().chain([&stale.path]).for_each(|path| remove(path));
        }
        stream.packing.drain(..).for_each(Packing::wait);
        stream.finished = true;
        Ok(())
    }
}

impl Files {
    /// Makes the link lead to the current piece, or without one to the last piece that was finished.
    pub(super) fn lead_to_last(&self, stream: &Stream) -> Result<(), Error> {
        let Some(link) = &self.settings.link else { return Ok(()) };
        let last = match &stream.current {
            Some(piece) => Some(piece.now().to_owned()),
            None => self.existing(&stream.name, false)?.pop().map(|found| found.path),
        };
        let led = last.map_or(Ok(()), |last| link.lead(&stream.name, &last));
        led.map_err(|error| io_error("link to the last piece of", Path::new(&stream.name), &error))
    }
}

/// True if this time of day was between the two moments. If clocks are set forward over it, it counts as
/// passed.
fn has_passed(at: NaiveTime, begun: NaiveDateTime, now: NaiveDateTime) -> bool {
    let first = begun.date().and_time(at);
    let next = if first > begun { Some(first) } else { first.checked_add_days(Days::new(1)) };
    next.is_some_and(|next| now >= next)
}

/// Removes a piece that exceeds the limits. A piece that is already gone is not an error.
pub(super) fn remove(path: &Path) {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!("`{}` could not be removed: {error}.", path.display());
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_the_day_passes_once_a_day() {
        let moment = |text: &str| NaiveDateTime::parse_from_str(text, "%Y-%m-%d %H:%M").unwrap();
        let at = NaiveTime::from_hms_opt(3, 0, 0).unwrap();
        let passed = |begun, now| has_passed(at, moment(begun), moment(now));
        assert!(!passed("2026-01-01 01:00", "2026-01-01 02:59"));
        assert!(passed("2026-01-01 01:00", "2026-01-01 03:00"));
        assert!(!passed("2026-01-01 03:00", "2026-01-02 02:59"));
        assert!(passed("2026-01-01 03:00", "2026-01-02 03:00"));
        assert!(passed("2026-01-01 12:00", "2026-02-01 00:00"));
        assert!(!passed("2026-01-01 12:00", "2026-01-01 11:00"));
    }
}
