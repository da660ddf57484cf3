//! All the files of a sink, by name.
//!
//! A batch is written whole or not at all. Where files are not compressed, what a batch adds to each is noted,
//! and taken back by cutting the files to their former lengths if one of them fails. Where they are, the batch
//! goes into the encoders, in memory, which cannot fail half way; what then cannot be written to a file waits,
//! and the next call fails before it takes anything.
//!
//! For the same reason a piece that is full is not finished in the middle of a batch: it is put by (`ended`),
//! and finished when the batch is done. If that fails, the batch was written all the same, so it is the next
//! call that tries again and reports it.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use arrow_array::{Array, BinaryViewArray};
use hashbrown::HashMap;
use serde::{Deserialize, Serialize};
use thalweg_engine::{Error, Written};
use xxhash_rust::xxh3::xxh3_64;

use super::compress::Compression;
use super::names;
use super::piece::{self, Beginning, Manner, Piece};
use super::{Fsync, OnExists};
use crate::shared::delimited::Delimited;
use crate::shared::io::io_error;

/// How many files that a run did not touch are still told to the next one. A run that continues one of the others,
/// and breaks off before its state is saved, leaves in it what is then sent again.
const MOST_KNOWN: usize = 256;

/// What the options come to.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) manner: Manner,
    pub(super) on_exists: OnExists,
    pub(super) fsync: Fsync,
    pub(super) rotates: bool,
    pub(super) size: Option<u64>,
    pub(super) every: Option<Duration>,
    pub(super) keep: Option<usize>,
    pub(super) most_open: usize,
    pub(super) idle: Option<Duration>,
}

impl Settings {
    /// What becomes of a batch.
    pub(super) fn written(&self) -> Written {
        match (self.manner.compression, self.fsync) {
            (Compression::None, Fsync::Never | Fsync::Finish) => Written::Safe,
            _ => Written::Pending,
        }
    }
}

/// A file as a later run must know it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Saved {
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    number: Option<u32>,
    length: u64,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    finished: bool,
}

/// The file or the pieces of one name.
struct Stream {
    name: String,
    current: Option<Piece>,
    /// Full pieces that are not finished yet, in order.
    ended: Vec<Piece>,
    /// The number of the next piece.
    next: Option<u32>,
    /// The numbers of finished pieces, if any are to be pruned.
    pieces: Vec<u32>,
    /// The numbers of the last run's pieces, which this run replaces.
    stale: Vec<u32>,
    /// How the next piece begins.
    beginning: Beginning,
    finished: bool,
}

/// What is needed to take back what a batch wrote to a stream.
struct Undo {
    slot: usize,
    ended: usize,
    length: u64,
    next: Option<u32>,
}

pub(super) struct Files {
    settings: Settings,
    delimited: Delimited,
    streams: Vec<Option<Stream>>,
    by_name: HashMap<Box<[u8]>, usize>,
    free: Vec<usize>,
    /// Streams whose file is open, the least recently used first.
    open: Vec<usize>,
    /// What a former run finished at its end, and might be continued.
    known: HashMap<String, Saved>,
    /// Names that this run finished before its end, hashed: they are continued, whatever `on_exists` says.
    done: HashSet<u64>,
    undo: Vec<Undo>,
    /// Whether something was put by for the next call.
    unsettled: bool,
    next_look: Option<Instant>,
    /// Whether what is not in the saved state will be sent again.
    resumed: bool,
    /// Where there is more to do for safety than to write: what was safe at the last flush.
    safe: Option<Vec<Saved>>,
}

impl Files {
    pub(super) fn new(settings: Settings) -> Self {
        let delimiter = String::from_utf8_lossy(&settings.manner.delimiter).into_owned();
        Self {
            delimited: Delimited::new(&delimiter),
            settings,
            streams: Vec::new(),
            by_name: HashMap::new(),
            free: Vec::new(),
            open: Vec::new(),
            known: HashMap::new(),
            done: HashSet::new(),
            undo: Vec::new(),
            unsettled: false,
            next_look: None,
            resumed: false,
            safe: None,
        }
    }

    /// Goes back to where a former run said that it was.
    pub(super) fn resume(&mut self, saved: Vec<Saved>) -> Result<(), Error> {
        self.resumed = true;
        for entry in saved {
            if entry.finished {
                piece::restore(&entry.name, entry.number, entry.length)
                    .map_err(|error| begin_error(&names::numbered(&entry.name, entry.number), &error))?;
                self.known.insert(entry.name.clone(), entry);
                continue;
            }
            let slot = match self.by_name.get(entry.name.as_bytes()) {
                Some(&slot) => slot,
                None => self.insert(Stream {
                    name: entry.name.clone(),
                    current: None,
                    ended: Vec::new(),
                    next: None,
                    pieces: Vec::new(),
                    stale: Vec::new(),
                    beginning: Beginning::New,
                    finished: false,
                }),
            };
            let mut stream = self.lift(slot)?;
            let result = self.resume_stream(&mut stream, &entry);
            self.streams[slot] = Some(stream);
            result?;
            if self.streams[slot].as_ref().is_some_and(|stream| stream.current.is_some()) {
                self.admit(slot);
            }
        }
        Ok(())
    }

    fn resume_stream(&self, stream: &mut Stream, entry: &Saved) -> Result<(), Error> {
        // Of several pieces of a name the last one saved is the current one.
        if let Some(mut piece) = stream.current.take() {
            piece.suspend();
            stream.ended.push(piece);
        }
        stream.next = entry.number;
        stream.beginning = Beginning::Continue { length: entry.length, finished: false };
        if self.settings.rotates {
            // The pieces from this one on are written again.
            let from = entry.number.unwrap_or(0);
            stream.pieces = existing(&stream.name, false)?;
            stream.pieces.retain(|&number| number < from);
            stream.stale = existing(&stream.name, true)?;
            stream.stale.retain(|&number| number >= from);
        }
        // The piece after a finished one was only announced.
        if entry.length > 0 || !self.settings.rotates {
            self.begin_piece(stream)?;
        }
        Ok(())
    }

    /// The files that are not finished, for a later run.
    pub(super) fn saved(&self) -> Cow<'_, [Saved]> {
        match &self.safe {
            Some(safe) => safe.into(),
            None => self.now().into(),
        }
    }

    /// Notes that all is safe, where that has to be noted.
    pub(super) fn note_safe(&mut self) {
        if self.settings.written() == Written::Pending {
            self.safe = Some(self.now());
        }
    }

    fn now(&self) -> Vec<Saved> {
        let mut saved: Vec<Saved> = self.known.values().cloned().collect();
        for stream in self.streams.iter().flatten() {
            let pieces = stream.ended.iter().chain(&stream.current).filter(|piece| !piece.is_special());
            saved.extend(pieces.map(|piece| Saved {
                name: stream.name.clone(),
                number: piece.number,
                length: piece.length(),
                finished: stream.finished,
            }));
            if self.settings.rotates
                && stream.current.is_none()
                && let Some(next) = stream.next
            {
                saved.push(Saved {
                    name: stream.name.clone(),
                    number: Some(next),
                    length: 0,
                    finished: false,
                });
            }
        }
        saved
    }

    /// The stream of a name, which is open then. The name is safe.
    pub(super) fn stream(&mut self, name: &str) -> Result<usize, (io::ErrorKind, Error)> {
        let existing = self.by_name.get(name.as_bytes()).copied();
        let slot = match existing {
            Some(slot) => slot,
            None => {
                let stream = self.new_stream(name).map_err(|error| (io::ErrorKind::Other, error))?;
                self.insert(stream)
            }
        };
        if self.streams[slot].as_ref().is_some_and(|stream| stream.current.is_none()) {
            let mut stream = self.lift(slot).map_err(|error| (io::ErrorKind::Other, error))?;
            let begun = self.begin_piece_raw(&mut stream);
            let path = names::numbered(name, stream.next);
            self.streams[slot] = Some(stream);
            if let Err(error) = begun {
                if existing.is_none() {
                    self.forget(slot);
                }
                return Err((error.kind(), begin_error(&path, &error)));
            }
            self.known.remove(name);
        }
        self.admit(slot);
        Ok(slot)
    }

    fn new_stream(&self, name: &str) -> Result<Stream, Error> {
        let mut stream = Stream {
            name: name.to_owned(),
            current: None,
            ended: Vec::new(),
            next: None,
            pieces: Vec::new(),
            stale: Vec::new(),
            beginning: Beginning::New,
            finished: false,
        };
        if let Some(saved) = self.known.get(name) {
            stream.next = saved.number;
            stream.beginning = Beginning::Continue { length: saved.length, finished: true };
            return Ok(stream);
        }
        let on_exists = if self.done.contains(&xxh3_64(name.as_bytes())) {
            OnExists::Append
        } else {
            self.settings.on_exists
        };
        let append = Beginning::Append { resent: self.resumed };
        // A device or a pipe is there to be written to.
        let exists = || std::fs::metadata(name).is_ok_and(|found| found.is_file());
        if self.settings.rotates {
            let numbers = existing(name, false)?;
            let last = numbers.last().copied().unwrap_or(0);
            stream.next = Some(1);
            match on_exists {
                OnExists::Auto | OnExists::Replace => stream.stale = existing(name, true)?,
                OnExists::Fail if last > 0 => return Err(exists_error(&names::numbered(name, Some(last)))),
                OnExists::Fail => {}
                OnExists::Append | OnExists::Number => {
                    stream.next = Some(last + 1);
                    stream.pieces = numbers;
                    if on_exists == OnExists::Append {
                        stream.beginning = append;
                    }
                }
            }
        } else {
            match on_exists {
                OnExists::Fail if exists() => return Err(exists_error(Path::new(name))),
                OnExists::Number if exists() => {
                    stream.next = Some(existing(name, false)?.last().copied().unwrap_or(0) + 1);
                }
                OnExists::Append => stream.beginning = append,
                _ => {}
            }
        }
        Ok(stream)
    }

    fn insert(&mut self, stream: Stream) -> usize {
        let name = stream.name.as_bytes().into();
        let slot = self.free.pop().unwrap_or_else(|| {
            self.streams.push(None);
            self.streams.len() - 1
        });
        self.streams[slot] = Some(stream);
        self.by_name.insert(name, slot);
        slot
    }

    fn forget(&mut self, slot: usize) {
        if let Some(stream) = self.streams[slot].take() {
            self.by_name.remove(stream.name.as_bytes());
            self.free.push(slot);
        }
        self.open.retain(|&open| open != slot);
    }

    /// Takes a stream out, so that it and the rest can be changed; it must be put back.
    fn lift(&mut self, slot: usize) -> Result<Stream, Error> {
        let stream = self.streams.get_mut(slot).and_then(Option::take);
        stream.ok_or_else(|| Error::permanent("a file of the sink `file` is not where it was put"))
    }

    fn begin_piece_raw(&self, stream: &mut Stream) -> io::Result<()> {
        let piece = Piece::begin(&stream.name, stream.next, stream.beginning, &self.settings.manner)?;
        stream.current = Some(piece);
        stream.beginning = Beginning::New;
        if self.settings.rotates {
            stream.next = stream.next.map(|number| number + 1);
        }
        Ok(())
    }

    fn begin_piece(&self, stream: &mut Stream) -> Result<(), Error> {
        let path = names::numbered(&stream.name, stream.next);
        self.begin_piece_raw(stream).map_err(|error| begin_error(&path, &error))
    }

    /// Notes that a stream's file is used; if too many are open, the one not used for longest is closed.
    fn admit(&mut self, slot: usize) {
        if self.open.last() == Some(&slot) {
            return;
        }
        self.open.retain(|&open| open != slot);
        self.open.push(slot);
        if self.open.len() <= self.settings.most_open {
            return;
        }
        let oldest = self.open.remove(0);
        let fsync = self.settings.fsync;
        if let Some(piece) = self.streams[oldest].as_mut().and_then(|stream| stream.current.as_mut()) {
            // What cannot be written now is kept, and reported when it is needed.
            let result = if piece.owes() { piece.flush() } else { Ok(()) };
            let result = result.and_then(|()| if fsync == Fsync::Flush { piece.sync() } else { Ok(()) });
            self.unsettled |= result.is_err();
            piece.suspend();
        }
    }

    /// Writes the rows of a batch that belong to a stream, given as ranges (start, length).
    pub(super) fn write(
        &mut self,
        slot: usize,
        payload: &BinaryViewArray,
        ranges: &[(u32, u32)],
        header: &dyn Fn() -> Option<Vec<u8>>,
    ) -> Result<(), Error> {
        self.admit(slot);
        let mut stream = self.lift(slot)?;
        if let Some(piece) = &stream.current {
            let length = piece.length();
            let next = stream.next;
            self.undo.push(Undo { slot, ended: stream.ended.len(), length, next });
        }
        let result = self.write_stream(&mut stream, payload, ranges, header);
        self.streams[slot] = Some(stream);
        result
    }

    fn write_stream(
        &mut self,
        stream: &mut Stream,
        payload: &BinaryViewArray,
        ranges: &[(u32, u32)],
        header: &dyn Fn() -> Option<Vec<u8>>,
    ) -> Result<(), Error> {
        self.write_header(stream, header)?;
        for &(start, length) in ranges {
            let (start, length) = (start as usize, length as usize);
            let mut rows = payload.slice(start, length);
            // What a compressed file will have is not known before, so its size is looked at after the batch.
            while let (Some(size), Compression::None) = (self.settings.size, self.settings.manner.compression)
            {
                let Some(piece) = &mut stream.current else { break };
                let taken = piece.length() + self.delimited.waiting() as u64;
                let mut fitting = self.delimited.fitting(&rows, size.saturating_sub(taken));
                if fitting == rows.len() {
                    break;
                }
                if fitting == 0 && !piece.has_rows {
                    fitting = 1;
                }
                piece.has_rows |= fitting > 0;
                let result = piece.writer(&self.settings.manner).and_then(|mut writer| {
                    self.delimited.write(&rows.slice(0, fitting), &mut writer)?;
                    self.delimited.flush(&mut writer)
                });
                result.map_err(|error| write_error(piece.now(), &error))?;
                rows = rows.slice(fitting, rows.len() - fitting);
                if rows.is_empty() {
                    break;
                }
                self.end_piece(stream);
                self.begin_piece(stream)?;
                self.write_header(stream, header)?;
            }
            let Some(piece) = &mut stream.current else { continue };
            piece.has_rows |= !rows.is_empty();
            let written = piece
                .writer(&self.settings.manner)
                .and_then(|mut writer| self.delimited.write(&rows, &mut writer));
            written.map_err(|error| write_error(piece.now(), &error))?;
        }
        let Some(piece) = &mut stream.current else { return Ok(()) };
        let flushed =
            piece.writer(&self.settings.manner).and_then(|mut writer| self.delimited.flush(&mut writer));
        flushed.map_err(|error| write_error(piece.now(), &error))
    }

    fn write_header(
        &mut self,
        stream: &mut Stream,
        header: &dyn Fn() -> Option<Vec<u8>>,
    ) -> Result<(), Error> {
        let Some(piece) = stream.current.as_mut().filter(|piece| piece.is_empty()) else { return Ok(()) };
        let Some(header) = header() else { return Ok(()) };
        let written = piece
            .writer(&self.settings.manner)
            .and_then(|mut writer| self.delimited.message(&header, &mut writer));
        written.map_err(|error| write_error(piece.now(), &error))
    }

    /// Puts the piece by, to be finished after the batch.
    fn end_piece(&mut self, stream: &mut Stream) {
        if let Some(mut piece) = stream.current.take() {
            piece.suspend();
            stream.ended.push(piece);
            self.unsettled = true;
        }
    }

    /// The batch is written: what was noted to take it back is not needed any more.
    pub(super) fn commit(&mut self) {
        for undo in std::mem::take(&mut self.undo) {
            let Ok(mut stream) = self.lift(undo.slot) else { continue };
            let pieces = stream.ended.iter_mut().skip(undo.ended).chain(&mut stream.current);
            for piece in pieces {
                if piece.drain().is_err() {
                    self.unsettled = true;
                }
            }
            if let (Some(size), Some(piece)) = (self.settings.size, &stream.current)
                && piece.length() >= size
            {
                self.end_piece(&mut stream);
            }
            self.streams[undo.slot] = Some(stream);
        }
        // An error here is not one of this batch: the next call meets it again, and reports it.
        let _ = self.settle();
    }

    /// Takes back what the batch wrote.
    pub(super) fn roll_back(&mut self) -> Result<(), Error> {
        let mut result = Ok(());
        let undo = std::mem::take(&mut self.undo);
        if self.settings.manner.compression != Compression::None {
            // Encoders fail only for want of memory, which ends the run: a later one cuts the file.
            return Ok(());
        }
        for undo in undo.into_iter().rev() {
            let mut stream = self.lift(undo.slot)?;
            let mut pieces = stream.ended.split_off(undo.ended.min(stream.ended.len()));
            pieces.extend(stream.current.take());
            let mut pieces = pieces.into_iter();
            stream.current = pieces.next();
            stream.next = undo.next;
            if let Some(piece) = &mut stream.current
                && let Err(error) = piece.truncate(undo.length)
            {
                result = Err(io_error("take back an unfinished write to", piece.now(), &error));
            }
            for piece in pieces {
                // It is overwritten when its turn comes.
                let _ = piece.discard();
            }
            self.streams[undo.slot] = Some(stream);
        }
        result
    }

    /// Does what was put by: writes what could not be written, and finishes pieces that have ended.
    pub(super) fn settle(&mut self) -> Result<(), Error> {
        self.look_at_clock(Instant::now());
        if !self.unsettled {
            return Ok(());
        }
        let mut folders = BTreeSet::new();
        for slot in 0..self.streams.len() {
            let Some(mut stream) = self.streams[slot].take() else { continue };
            let result = self.settle_stream(&mut stream, &mut folders);
            self.streams[slot] = Some(stream);
            result?;
        }
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
    pub(super) fn beat(&self) -> Option<Duration> {
        let span = self.settings.every.into_iter().chain(self.settings.idle).min()?;
        Some((span / 4).clamp(Duration::from_millis(10), Duration::from_secs(1)))
    }

    /// Brings everything that was written into safety.
    pub(super) fn flush(&mut self) -> Result<(), Error> {
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
    pub(super) fn finish(&mut self) -> Result<(), Error> {
        self.settle()?;
        let mut folders = BTreeSet::new();
        for slot in 0..self.streams.len() {
            let Some(mut stream) = self.streams[slot].take() else { continue };
            let result = self.finish_stream(&mut stream, &mut folders);
            self.streams[slot] = Some(stream);
            result?;
        }
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

/// The numbers of the pieces of a name that exist: see [`names::numbers`].
fn existing(name: &str, and_unfinished: bool) -> Result<Vec<u32>, Error> {
    names::numbers(name, and_unfinished)
        .map_err(|error| io_error("list the pieces of", Path::new(name), &error))
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

fn exists_error(path: &Path) -> Error {
    Error::permanent(format!(
        "`{}` exists. Remove it, or set `on_exists` to `replace`, `append` or `number`.",
        path.display()
    ))
}

fn begin_error(path: &Path, error: &io::Error) -> Error {
    if error.kind() == io::ErrorKind::IsADirectory {
        return Error::permanent(format!(
            "`{}` is a folder. Give `path` the name of a file, for example `{}`.",
            path.display(),
            path.join("out.jsonl").display()
        ));
    }
    // What the system says of a folder that cannot be made since there is a file of its name.
    if error.kind() == io::ErrorKind::AlreadyExists {
        return io_error("open", path, &io::ErrorKind::NotADirectory.into());
    }
    io_error("open", path, error)
}

/// Where there is no room for more the run stops: what would come is safer at its source than in memory.
fn write_error(path: &Path, error: &io::Error) -> Error {
    let reason = match error.kind() {
        io::ErrorKind::StorageFull => "no space is left on its disk",
        io::ErrorKind::QuotaExceeded => "the quota of disk space is used up",
        io::ErrorKind::FileTooLarge => "it would become larger than the system allows (see `ulimit -f`)",
        _ => return io_error("write to", path, error),
    };
    Error::permanent(format!(
        "cannot write to `{}`: {reason}. What was written before is kept. Make room and start again; with \
         `--state` the run then goes on from there.",
        path.display()
    ))
}
