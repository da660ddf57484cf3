//! All the files of a sink, by name.
//!
//! A batch is written completely or not at all. Without compression, the length of each file before the batch
//! is noted. If a write fails, all files are cut to these lengths. With compression, the batch goes into the
//! encoders, in memory, which cannot fail half way. Compressed data that cannot be written to a file is kept,
//! and the next call fails before it accepts a batch.
//!
//! For the same reason a full piece is not finished in the middle of a batch. It moves to `ended`, and is
//! finished after the batch. If that fails, the batch was written nevertheless; the next call retries and
//! reports the error.

mod begun;
mod finishing;
mod former;
mod limits;
mod locating;
mod naming;
mod recent;
mod resuming;
mod syncing;
mod writing;

use std::cell::Cell;
use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::NaiveTime;
use hashbrown::HashMap;
use thalweg_engine::{Error, Journal, WriteOutcome};
use xxhash_rust::xxh3::xxh3_64;

use super::link::Link;
use super::names::{Found, Numbers};
use super::opening::Beginning;
use super::pack::Packing;
use super::piece::{Piece, PieceOptions};
use super::{Existing, Fsync};
pub(super) use begun::Register;
pub(super) use limits::most_open;
use locating::Notes;
use naming::Stamps;
use recent::Recent;
pub(super) use resuming::Saved;
use thalweg_codec::compress::Compression;
use thalweg_codec::delimited::Delimited;
use thalweg_stream::io_error::io_error;

/// The maximum number of untouched finished files that the saved state carries over to the next run. Beyond
/// it, all of them are dropped from the state. If a run continues such a dropped file and is interrupted
/// before it saves its state, its additions stay in the file and are sent again. Files that this run finished
/// are dropped beyond it when a checkpoint covers them.
const MOST_KNOWN: usize = 256;

/// The options in the form that the sink uses.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) pieces: PieceOptions,
    pub(super) existing: Existing,
    pub(super) fsync: Fsync,
    pub(super) rotates: bool,
    pub(super) link: Option<Link>,
    pub(super) size: Option<u64>,
    pub(super) every: Option<Duration>,
    /// The local time of day at which a piece ends.
    pub(super) at: Option<NaiveTime>,
    pub(super) keep: Keep,
    pub(super) most_open: usize,
    pub(super) idle: Option<Duration>,
    /// True if the sources send again all messages that no checkpoint covers.
    pub(super) resends: bool,
    /// Names the files that were begun after the saved state, if checkpoints are kept.
    pub(super) journal: Option<Journal>,
}

/// The limits for finished pieces.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Keep {
    /// The maximum number of pieces.
    pub(super) count: Option<usize>,
    /// The maximum size of all pieces together, in bytes.
    pub(super) bytes: Option<u64>,
    /// The maximum age.
    pub(super) time: Option<Duration>,
}

impl Settings {
    /// The write outcome of a batch.
    pub(super) fn written(&self) -> WriteOutcome {
        match (self.pieces.compression, self.fsync) {
            (Compression::None, Fsync::Never | Fsync::Finish) => WriteOutcome::Durable,
            _ => WriteOutcome::Buffered,
        }
    }
}

/// The file or the pieces of one name.
struct Stream {
    name: String,
    current: Option<Piece>,
    /// Full pieces that are not finished yet, in order.
    ended: Vec<Piece>,
    /// The number of the next piece, or the lowest number that it may have. With `numbers: if_taken` it is
    /// decided when the piece is named.
    next: Option<u32>,
    /// The time stamp of the next piece, if it has been named.
    stamp: Option<String>,
    /// True if the next piece has been named.
    is_named: bool,
    /// The time stamps of existing pieces. `None` until they are listed.
    stamps: Option<Stamps>,
    /// The pieces of the previous run, which this run replaces.
    stale: Vec<Found>,
    /// Threads that compress finished pieces.
    packing: Vec<Packing>,
    /// How the next piece begins.
    beginning: Beginning,
    finished: bool,
    /// True if the saved state or the journal has it, so that a later run knows what to cut.
    is_noted: bool,
}

impl Stream {
    /// Creates a stream without any files.
    fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            current: None,
            ended: Vec::new(),
            next: None,
            stamp: None,
            is_named: false,
            stamps: None,
            stale: Vec::new(),
            packing: Vec::new(),
            beginning: Beginning::New { replaces: true },
            finished: false,
            is_noted: false,
        }
    }
}

/// The state of a stream before a batch, to undo the batch.
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
    /// The names of files that got a number because their own name was taken, with `existing: rename`.
    numbered: HashSet<PathBuf>,
    /// Streams whose file is open, the least recently used first.
    open: Vec<usize>,
    /// Files that an earlier run finished at its end, and that may be continued.
    known: HashMap<String, Saved>,
    /// The numbers of the first pieces of a name that were begun in another form.
    begun_after: HashMap<String, u32>,
    /// The notes of pieces that this run found, until it has resumed.
    begun: Arc<Notes>,
    /// The number of notes in the journal, in this run and those that it continues.
    noted: Cell<u64>,
    /// The files that this run finished last before its end. The saved state has them until it is sure that a
    /// checkpoint covers them.
    recent: Recent,
    /// Hashes of the names that this run finished before its end. Such files are continued, whatever
    /// `existing` says.
    done: HashSet<u64>,
    undo: Vec<Undo>,
    /// True if work was postponed to the next call.
    unsettled: bool,
    next_look: Option<Instant>,
    /// The state at the last flush, which is the durable one. Set only if durability takes more than a write.
    safe: Option<Vec<Saved>>,
}

impl Files {
    pub(super) fn new(settings: Settings) -> Self {
        let delimiter = String::from_utf8_lossy(&settings.pieces.delimiter).into_owned();
        Self {
            delimited: Delimited::new(&delimiter),
            settings,
            streams: Vec::new(),
            by_name: HashMap::new(),
            free: Vec::new(),
            numbered: HashSet::new(),
            open: Vec::new(),
            known: HashMap::new(),
            begun_after: HashMap::new(),
            begun: Arc::default(),
            noted: Cell::new(0),
            recent: Recent::default(),
            done: HashSet::new(),
            undo: Vec::new(),
            unsettled: false,
            next_look: None,
            safe: None,
        }
    }

    /// Returns the stream of a name and opens its file. The caller has checked the name.
    pub(super) fn stream(&mut self, name: &str) -> Result<usize, (io::ErrorKind, Error)> {
        let existing = self.by_name.get(name.as_bytes()).copied();
        let slot = match existing {
            Some(slot) => slot,
            None => {
                let stream = self.new_stream(name).map_err(|error| (io::ErrorKind::Other, error))?;
                self.unsettled |= !stream.ended.is_empty();
                if stream.current.is_some() {
                    self.known.remove(name);
                }
                self.insert(stream)
            }
        };
        if self.streams[slot].as_ref().is_some_and(|stream| stream.current.is_none()) {
            let mut stream = self.lift(slot).map_err(|error| (io::ErrorKind::Other, error))?;
            let begun = self.with_descriptors(|files| files.begin_next(&mut stream));
            let number = stream.current.as_ref().map_or(stream.next, |piece| piece.number);
            let path = self.path(name, number, stream.stamp.as_deref());
            self.streams[slot] = Some(stream);
            if let Err(error) = begun {
                if existing.is_none() {
                    self.forget(slot);
                }
                return Err((error.kind(), begin_error(&path, &error)));
            }
            if let (false, Some(_)) = (self.settings.rotates, number) {
                self.numbered.insert(path);
            }
            self.known.remove(name);
            self.recent.remove(name);
        }
        self.admit(slot);
        Ok(slot)
    }

    fn new_stream(&self, name: &str) -> Result<Stream, Error> {
        let mut stream = Stream::new(name);
        if let Some(saved) = self.known.get(name) {
            if !self.settings.rotates {
                self.check_form(saved)?;
            }
            stream.next = saved.number;
            if !self.settings.rotates {
                stream.beginning = Beginning::Append;
                return Ok(stream);
            }
            if saved.number.is_none() {
                // The finished file stays as it is.
                let number = self.free_number(name);
                stream.next = Some(number.map_err(|error| begin_error(Path::new(name), &error))?);
            }
            // A run that was killed since then may have begun pieces, whose names this state does not give.
            let from = stream.next.unwrap_or(0);
            self.adopt_unfinished(&mut stream, from)?;
            return Ok(stream);
        }
        let existing = if self.done.contains(&xxh3_64(name.as_bytes())) {
            Existing::Append
        } else {
            self.settings.existing
        };
        match self.settings.rotates {
            true => self.plan_pieces(name, &mut stream, existing)?,
            false => self.plan_file(name, &mut stream, existing)?,
        }
        Ok(stream)
    }

    /// Decides how the pieces of a new stream begin.
    fn plan_pieces(&self, name: &str, stream: &mut Stream, existing: Existing) -> Result<(), Error> {
        let found = self.existing(name, false)?;
        let next = match self.settings.pieces.style.numbers {
            Numbers::Always => found.last().map_or(1, |found| found.number.saturating_add(1)),
            Numbers::IfTaken => 0,
        };
        stream.next = Some(self.settings.pieces.style.first());
        match (existing, found.last()) {
            (Existing::Auto | Existing::Replace, _) => stream.stale = self.existing(name, true)?,
            (Existing::Error, Some(last)) => return Err(exists_error(&last.path)),
            (Existing::Error, None) => {}
            (Existing::Append | Existing::Rename, _) => {
                stream.next = Some(next);
                if existing == Existing::Append {
                    self.adopt_unfinished(stream, next)?;
                }
                self.pack_again(stream)?;
            }
        }
        Ok(())
    }

    /// Decides how the single file of a new stream begins.
    fn plan_file(&self, name: &str, stream: &mut Stream, existing: Existing) -> Result<(), Error> {
        // A device or a pipe that exists is there to be written to.
        let exists = || std::fs::metadata(name).is_ok_and(|found| found.is_file());
        match existing {
            Existing::Error if exists() => return Err(exists_error(Path::new(name))),
            Existing::Rename if exists() || self.numbered.contains(Path::new(name)) => {
                let last = self.existing(name, false)?.last().map_or(0, |last| last.number);
                let number = self.free(stream, last.saturating_add(1), None);
                stream.next = Some(number.map_err(|error| begin_error(Path::new(name), &error))?);
                stream.beginning = Beginning::New { replaces: false };
            }
            Existing::Append => stream.beginning = Beginning::Append,
            _ => {}
        }
        Ok(())
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

    /// Applies a function to each stream, until the first error.
    fn each(&mut self, mut work: impl FnMut(&Self, &mut Stream) -> Result<(), Error>) -> Result<(), Error> {
        for slot in 0..self.streams.len() {
            let Some(mut stream) = self.streams[slot].take() else { continue };
            let result = work(self, &mut stream);
            self.streams[slot] = Some(stream);
            result?;
        }
        Ok(())
    }

    /// Takes a stream out of the table, so that it and the rest can be changed. The caller must put it back.
    fn lift(&mut self, slot: usize) -> Result<Stream, Error> {
        let stream = self.streams.get_mut(slot).and_then(Option::take);
        stream.ok_or_else(|| Error::permanent("a file of the sink `file` is missing from its table"))
    }

    fn begin_piece(&self, stream: &mut Stream) -> Result<(), Error> {
        self.begin_next(stream).map_err(|error| {
            begin_error(&self.path(&stream.name, stream.next, stream.stamp.as_deref()), &error)
        })
    }

    /// Returns the existing pieces of a name: see [`names::Style::pieces`].
    fn existing(&self, name: &str, and_unfinished: bool) -> Result<Vec<Found>, Error> {
        let pieces = &self.settings.pieces;
        let pieces = pieces.style.pieces(name, pieces.names.as_ref(), and_unfinished);
        pieces.map_err(|error| io_error("list the pieces of", Path::new(name), &error))
    }

    fn path(&self, name: &str, number: Option<u32>, stamp: Option<&str>) -> PathBuf {
        self.settings.pieces.style.path(name, number, stamp)
    }
}

fn exists_error(path: &Path) -> Error {
    Error::permanent(format!(
        "`{}` exists. Remove it, or set `existing` to `replace`, `append` or `rename`.",
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
    // The system's error for a folder that cannot be created because a file has its name.
    if error.kind() == io::ErrorKind::AlreadyExists {
        return io_error("open", path, &io::ErrorKind::NotADirectory.into());
    }
    match error.kind() {
        // A torn file of an earlier run is put in order before it is written to.
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => writing::write_error(path, error),
        _ => io_error("open", path, error),
    }
}
