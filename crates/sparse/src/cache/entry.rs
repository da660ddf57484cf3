use super::Cache;
use super::disk::{EntryPaths, is_same, punch};
use super::journal::{self, Header, NOTE, Note};
use crate::Span;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant, SystemTime};
use thalweg_runtime::private::private_file;
use thalweg_store::Fingerprint;

/// The maximum length of a piece in bytes. No piece crosses a multiple of it.
const PIECE: u64 = 64 << 10;
/// The minimum time between two updates of the time of last use.
const TOUCH: Duration = Duration::from_secs(1);

/// The cached part of one file, to read and to extend.
///
/// An error in here is never an error for the reader of the file: bytes that are not cached are fetched.
#[derive(Debug)]
pub struct CachedFile {
    cache: Cache,
    places: EntryPaths,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    name: String,
    /// Calls for another generation of the file find nothing and store nothing.
    generation: u64,
    fingerprint: Fingerprint,
    /// The open files, as long as they are the ones at `places`.
    open: Option<Open>,
    /// Why caching has stopped, if it has.
    cache_error: Option<String>,
    touched: Option<Instant>,
    /// Incremented with each use of a piece.
    tick: u64,
}

#[derive(Debug)]
struct Open {
    ranges: File,
    data: File,
    number: u64,
    /// The offset up to which the journal was read.
    read_to: u64,
    pieces: BTreeMap<u64, Piece>,
}

#[derive(Debug, Clone, Copy)]
struct Piece {
    note: Note,
    /// The tick of its last use by this process, and its index in the journal.
    used: (u64, usize),
}

impl Open {
    fn add(&mut self, notes: &[Note]) {
        for note in notes {
            let used = (0, self.pieces.len());
            self.pieces.insert(note.position, Piece { note: *note, used });
        }
    }

    /// Returns the pieces that overlap `span`.
    fn overlapping(&self, span: Span) -> Vec<Note> {
        let before = self.pieces.range(..span.position).next_back();
        let within = self.pieces.range(span.position..span.end());
        let notes = before.into_iter().chain(within).map(|(_, piece)| piece.note);
        notes.filter(|note| note.position + u64::from(note.length) > span.position).collect()
    }

    /// Returns the parts of `span` that are not held. No part crosses a multiple of [`PIECE`].
    fn missing(&self, span: Span) -> Vec<Span> {
        let mut missing = Vec::new();
        let mut from = span.position;
        let held = self
            .overlapping(span)
            .into_iter()
            .map(|note| (note.position, note.position + u64::from(note.length)));
        for (start, end) in held.chain([(span.end(), span.end())]) {
            while from < start {
                let end = start.min((from / PIECE + 1) * PIECE);
                missing.push(Span::between(from, end));
                from = end;
            }
            from = from.max(end);
        }
        missing
    }
}

impl CachedFile {
    pub(super) fn open(cache: Cache, places: EntryPaths, name: &str, fingerprint: &Fingerprint) -> Self {
        let state = State {
            name: name.to_owned(),
            generation: 0,
            fingerprint: fingerprint.clone(),
            open: None,
            cache_error: None,
            touched: None,
            tick: 0,
        };
        let file = Self { cache, places, state: Mutex::new(state) };
        file.guarded(|state| file.begin(state));
        file
    }

    /// Returns why caching has stopped, if it has.
    pub fn cache_error(&self) -> Option<String> {
        self.state.lock().cache_error.clone()
    }

    /// Switches to another state of the origin, from `generation` of the file on. The bytes of the former
    /// state are discarded.
    pub fn renew(&self, fingerprint: &Fingerprint, generation: u64) {
        {
            let mut state = self.state.lock();
            if generation <= state.generation {
                return;
            }
            state.generation = generation;
            state.fingerprint = fingerprint.clone();
            state.open = None;
        }
        self.guarded(|state| self.begin(state));
    }

    /// Passes all held pieces of `spans` to `take`. Pieces may extend beyond the spans. The first generation
    /// of a file is 0.
    pub fn read(&self, spans: &[Span], generation: u64, mut take: impl FnMut(u64, &[u8])) {
        self.guarded(|state| {
            if state.generation != generation || !self.refresh(state)? {
                return Ok(());
            }
            let State { open: Some(open), tick, .. } = &mut *state else { return Ok(()) };
            let mut bytes = Vec::new();
            let mut hits = false;
            for span in spans {
                for note in open.overlapping(*span) {
                    bytes.resize(note.length as usize, 0);
                    // Noted bytes that are missing or do not match their checksum count as not cached.
                    if open.data.read_exact_at(&mut bytes, note.position).is_ok() && note.matches(&bytes) {
                        take(note.position, &bytes);
                        *tick += 1;
                        hits = true;
                        if let Some(piece) = open.pieces.get_mut(&note.position) {
                            piece.used.0 = *tick;
                        }
                    } else {
                        open.pieces.remove(&note.position);
                    }
                }
            }
            if hits && state.touched.is_none_or(|touched| touched.elapsed() > TOUCH) {
                state.touched = Some(Instant::now());
                File::options().write(true).open(&self.places.lock)?.set_modified(SystemTime::now())?;
            }
            Ok(())
        });
    }

    /// Stores the parts of `span` that are not held. `fill` provides the bytes from a position on, or returns
    /// false if it has none.
    pub fn write(&self, span: Span, generation: u64, mut fill: impl FnMut(u64, &mut [u8]) -> bool) {
        self.guarded(|state| {
            if state.generation != generation {
                return Ok(());
            }
            let lock = self.places.lock()?;
            if !self.refresh(state)? && !self.make(state)? {
                return Ok(());
            }
            let Some(open) = &state.open else { return Ok(()) };
            let missing = open.missing(span);
            let bytes: u64 = missing.iter().map(|part| part.length + NOTE as u64).sum();
            if missing.is_empty() || !self.make_room(state, bytes)? {
                return Ok(());
            }
            let Some(open) = &mut state.open else { return Ok(()) };
            let (mut notes, mut records, mut piece) = (Vec::new(), Vec::new(), Vec::new());
            for part in missing {
                piece.resize(part.length as usize, 0);
                if !fill(part.position, &mut piece) {
                    break;
                }
                open.data.write_all_at(&piece, part.position)?;
                let note = Note::of(part.position, &piece);
                records.extend(note.encode(open.number));
                notes.push(note);
            }
            // A killed process may have left half a note: cut it off before appending.
            if open.ranges.metadata()?.len() > open.read_to {
                open.ranges.set_len(open.read_to)?;
            }
            open.ranges.write_all_at(&records, open.read_to)?;
            open.read_to += records.len() as u64;
            open.add(&notes);
            lock.set_modified(SystemTime::now())
        });
    }

    /// Runs `work`. If it fails, the caching of this file ends.
    fn guarded(&self, work: impl FnOnce(&mut State) -> io::Result<()>) {
        let mut state = self.state.lock();
        if state.cache_error.is_none()
            && let Err(error) = work(&mut state)
        {
            state.cache_error = Some(format!("the cache `{}` fails: {error}", self.cache.path().display()));
            state.open = None;
        }
    }

    /// Opens the existing entry if it is of our state of the origin, and replaces it otherwise.
    fn begin(&self, state: &mut State) -> io::Result<()> {
        let lock = self.places.lock()?;
        self.reopen(state)?;
        if state.open.is_none() {
            self.places.clear()?;
            self.make(state)?;
        }
        lock.set_modified(SystemTime::now())
    }

    /// Creates an empty entry where there is none. Returns true if the entry is ours now. Requires the lock.
    fn make(&self, state: &mut State) -> io::Result<bool> {
        if self.places.ranges.exists() {
            // Another process has found the origin in another state, or the existing file is not a journal.
            state.cache_error = Some("another process has found the origin in another state".to_owned());
            return Ok(false);
        }
        self.places.clear()?;
        private_file().write(true).create_new(true).open(&self.places.data)?;
        journal::replace(&self.places, &Header::new(&state.name, &state.fingerprint), std::iter::empty())?;
        self.reopen(state)?;
        Ok(state.open.is_some())
    }

    /// Reads the notes that other processes have added. Returns false if there is no entry of our state of
    /// the origin.
    fn refresh(&self, state: &mut State) -> io::Result<bool> {
        let Some(open) = state.open.as_mut().filter(|open| is_same(&open.ranges, &self.places.ranges)) else {
            self.reopen(state)?;
            return Ok(state.open.is_some());
        };
        let (notes, end) = journal::notes(&open.ranges, open.number, open.read_to)?;
        open.add(&notes);
        open.read_to = end;
        Ok(true)
    }

    fn reopen(&self, state: &mut State) -> io::Result<()> {
        let before = state.open.take();
        let open = |path| match File::options().read(true).write(true).open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            other => other.map(Some),
        };
        // In this order, because the creator of an entry writes the journal last.
        let Some(ranges) = open(&self.places.ranges)? else { return Ok(()) };
        let Some(header) = Header::read(&ranges)? else { return Ok(()) };
        let Some(data) = open(&self.places.data)? else { return Ok(()) };
        if !proves(&header.fingerprint, &state.fingerprint) {
            return Ok(());
        }
        let (notes, read_to) = journal::notes(&ranges, header.number, header.bytes)?;
        let mut open = Open { ranges, data, number: header.number, read_to, pieces: BTreeMap::new() };
        open.add(&notes);
        for (position, piece) in before.map(|before| before.pieces).unwrap_or_default() {
            if let Some(known) = open.pieces.get_mut(&position) {
                known.used.0 = piece.used.0;
            }
        }
        state.open = Some(open);
        Ok(())
    }

    /// Evicts until `bytes` more bytes fit. Returns false if that is impossible. Requires the lock.
    fn make_room(&self, state: &mut State, bytes: u64) -> io::Result<bool> {
        let Some(limit) = self.cache.0.limit else { return Ok(true) };
        let excess = self.cache.make_room(&self.places, bytes, limit)?;
        if excess == 0 {
            return Ok(true);
        }
        let Some(open) = &mut state.open else { return Ok(false) };
        let mut order: Vec<Piece> = open.pieces.values().copied().collect();
        order.sort_unstable_by_key(|piece| piece.used);
        let mut gone = 0;
        for piece in order {
            if gone >= excess {
                break;
            }
            gone += u64::from(piece.note.length) + NOTE as u64;
            open.pieces.remove(&piece.note.position);
        }
        let kept: Vec<Note> = open.pieces.values().map(|piece| piece.note).collect();
        journal::replace(&self.places, &Header::new(&state.name, &state.fingerprint), kept.iter().copied())?;
        // First the journal drops the pieces, then their bytes are punched out. Everything between the kept
        // pieces goes, noted or not.
        let mut from = 0;
        let mut punched = true;
        let end = (open.data.metadata()?.len(), 0);
        for (start, length) in kept.iter().map(|note| (note.position, note.length)).chain([end]) {
            punched &= punch(&open.data, from, start.saturating_sub(from));
            from = start + u64::from(length);
        }
        if !punched {
            // This disk does not support holes: the whole entry is cleared.
            self.places.clear()?;
            state.open = None;
            self.make(state)?;
        }
        self.cache.0.room.lock().forget();
        self.reopen(state)?;
        Ok(state.open.is_some() && self.cache.make_room(&self.places, bytes, limit)? == 0)
    }
}

/// True if `now` is certainly the same state: the tag or the time must match, and it is not enough that
/// nothing contradicts.
fn proves(kept: &Fingerprint, now: &Fingerprint) -> bool {
    let same_tag = kept.etag.is_some() && kept.etag == now.etag;
    let same_time = kept.modified.is_some() && kept.modified == now.modified;
    kept.agrees(now) && (same_tag || same_time)
}
